"""kcat, as Debian has it (librdkafka 2.0): all that it can ask a cluster, and what it is told.

An error is what librdkafka calls it, which has one sentence for each of Kafka's codes.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import partial
from typing import Any

from tests.interop.kafka.java import NoKafka
from tests.interop.scenarios.telling import (
    CODECS,
    COMPACTED,
    FOUR,
    FUTURE_MS,
    ONE,
    PARTITIONS,
    PATIENCE_S,
    RECORDS,
    SMALL,
    STRICT,
    Refused,
    Telling,
)

ERROR = re.compile(r"\b(?:Broker|Local): [^:()\n]*[^:()\n. ]")
AT_ONCE = ("-X", "retries=0", "-X", "topic.metadata.propagation.max.ms=1000")  # a refusal is told, not waited out
TO_THE_END = ("-o", "beginning", "-e", "-q")


class Kcat:
    """One run; `prefix` begins the names of all topics and groups."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        if shutil.which("kcat") is None:
            raise NoKafka("kcat is not installed")
        self._bootstrap = bootstrap
        self._prefix = prefix
        self.telling = Telling(lambda error: error.word if isinstance(error, Refused) else type(error).__name__)

    def topic(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def ask(self, *arguments: str, lines: Sequence[str] = ()) -> str:
        """What it printed. Raises `Refused` with what it was refused with."""
        done = subprocess.run(
            ["kcat", "-b", self._bootstrap, *arguments],
            input="".join(f"{line}\n" for line in lines),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        if done.returncode:
            refusals = ERROR.findall(done.stderr)
            raise Refused(refusals[0] if refusals else f"exit code {done.returncode}")
        return done.stdout

    def produce(self, topic: str, *arguments: str, lines: Sequence[str] = ("a", "b", "c")) -> str:
        return self.ask("-P", "-t", self.topic(topic), *AT_ONCE, *arguments, lines=lines)

    def read(self, topic: str, *arguments: str) -> list[str]:
        return self.ask("-C", "-t", self.topic(topic), *arguments).splitlines()

    def metadata(self, topic: str) -> Any:
        """Numbers of brokers and of each partition's replicas, and a topic's error."""
        told = json.loads(self.ask("-L", "-J", "-t", self.topic(topic)))
        (found,) = told["topics"]
        partitions = [[len(each["replicas"]), len(each["isrs"]), each["leader"] > 0] for each in found["partitions"]]
        return [len(told["brokers"]), partitions, found.get("error", "")]

    def offset_at(self, timestamp_ms: int) -> str:
        return self.ask("-Q", "-t", f"{self.topic(ONE)}:0:{timestamp_ms}").split()[-1]

    def group(self, name: str, *arguments: str) -> list[str]:
        """All of a topic by a group of one member, which leaves at the end."""
        earliest = ("-X", "auto.offset.reset=earliest", "-e", "-q")
        return sorted(self.ask(*earliest, *arguments, "-G", f"{self._prefix}-{name}", self.topic(FOUR)).splitlines())

    def whole(self) -> None:
        tell = self.telling.of
        tell("metadata", lambda: self.metadata(FOUR))
        tell("metadata of a topic that is not there", lambda: self.metadata("absent"))
        for acks in ("0", "1", "all"):
            tell(f"produce with acks={acks}", partial(self.produce, ONE, "-X", f"acks={acks}"))
        tell("produce with idempotence", lambda: self.produce(ONE, "-X", "enable.idempotence=true", "-X", "retries=5"))
        for codec in CODECS:
            tell(f"produce with {codec}", partial(self.produce, ONE, "-z", codec))
        tell("read from the beginning", lambda: self.read(ONE, *TO_THE_END))
        tell("read the last two", lambda: self.read(ONE, "-o", "-2", "-e", "-q"))
        tell("read from an offset that is not there", lambda: self.read(ONE, "-o", "999", "-e", "-q", *error_reset()))
        with_header = ("-K", ":", "-H", "name=value")
        tell("produce with keys and headers", lambda: self.produce(FOUR, *with_header, lines=("k:v", "k:w")))
        shown = "%k %s %h"
        tell("keys and headers", lambda: sorted(self.read(FOUR, *TO_THE_END, "-f", f"{shown}\n")))
        tell("produce a tombstone", lambda: self.produce(COMPACTED, "-K", ":", "-Z", lines=("k:",)))
        tell("produce without a key to a compacted topic", lambda: self.produce(COMPACTED))
        tell("produce what is too large", lambda: self.produce(SMALL, lines=("x" * 3_000,)))
        tell("produce to a topic that is not there", lambda: self.produce("absent"))
        tell("produce to a partition that is not there", lambda: self.produce(ONE, "-p", "7"))
        tell("the offset at a time", lambda: self.offset_at(1))
        tell("the offset at a time to come", lambda: self.offset_at(FUTURE_MS))
        lines = [str(number) for number in range(RECORDS)]
        for partition in range(PARTITIONS):
            tell(f"produce to partition {partition}", partial(self.produce, FOUR, "-p", str(partition), lines=lines))
        tell("read by a group", lambda: len(self.group("readers")))
        tell("read by a group again", lambda: self.group("readers"))
        tell("read by a static member", lambda: len(self.group("static", "-X", "group.instance.id=one")))
        tell("read by a cooperative group", lambda: len(self.group("sticky", *cooperative())))

    def below_min_isr(self) -> None:
        tell = self.telling.of
        for acks in ("1", "all"):
            tell(f"below the minimum, produce with acks={acks}", partial(self.produce, STRICT, "-X", f"acks={acks}"))
        tell("below the minimum, metadata", lambda: self.metadata(STRICT))
        tell("below the minimum, read", lambda: self.read(STRICT, *TO_THE_END))


def error_reset() -> tuple[str, ...]:
    return "-X", "auto.offset.reset=error"


def cooperative() -> tuple[str, ...]:
    return "-X", "partition.assignment.strategy=cooperative-sticky"


def run(bootstrap: str, prefix: str, phase: str) -> dict[str, Any]:
    client = Kcat(bootstrap, prefix)
    (client.below_min_isr if phase == "below" else client.whole)()
    return client.telling.results
