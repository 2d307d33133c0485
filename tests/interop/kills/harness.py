"""The kill harness with clients of Kafka in a group: kill -9 of the group's coordinator, again and again.

    python -m tests.interop.kills.harness [--client confluent|java] [--protocol classic|consumer] [--rounds 50]

A writer with acks=all and two members of a group run as processes of their own, on three brokers with
min.insync.replicas=2. One round: the cluster is whole, the broker that coordinates the group gets kill -9 (it leads
partitions of the topic, too), and then every partition must have acknowledged a record after the kill, and the group
have committed it. The broker starts again. At the end everything is read back: an acknowledged record stands at
its offset, the two members have read every offset, and no commit is beyond what was read. A run that fails keeps the
brokers' directories and what the clients said, and prints where.

Two figures of a round: the longest silence of a partition (between two acknowledgements that came one after the
other), and when the group was stable again: from the kill to the moment at which all partitions had such a commit.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from odradek_broker.local.cluster import LocalCluster
from odradek_chaos.harness.cluster_health import wait_until_converged
from odradek_chaos.worlds.processes import ProcessesWorld

from tests.interop.kafka.java import PROGRAMS, classpath_of, java_command, tool

TOPIC, GROUP, PARTITIONS, MEMBERS = "orders", "readers", 6, 2
RATE = 600  # records a second
SETTINGS = {"min.insync.replicas": "2"}
PATIENCE_S = 180.0
POLL_S = 0.01
CLOSED = "Cannot perform operation after producer has been closed"  # Kafka's program hands over records until it ends
READ_AT_ONCE = 10_000  # records, or what comes in a second
PAUSE_S = 1.0  # a kill comes at a random moment of it


@dataclass
class Ledger:
    """What the clients said, and when it was heard (seconds of the monotonic clock)."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    acknowledged: dict[tuple[int, int], str] = field(default_factory=dict)  # partition, offset: value
    ends: dict[int, int] = field(default_factory=dict)  # of each partition: after its newest acknowledged record
    last_ack_s: dict[int, float] = field(default_factory=dict)
    silence_s: dict[int, float] = field(default_factory=dict)  # the longest since `forget_silence`
    committed: dict[int, int] = field(default_factory=dict)
    read: dict[int, set[int]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def hear(self, line: str) -> None:
        try:
            told = json.loads(line)
        except ValueError:
            return  # a line of a client's log
        with self.lock:
            getattr(self, f"_on_{told.get('name')}", lambda _: None)(told)

    def _on_producer_send_success(self, told: dict[str, Any]) -> None:
        now, partition, offset = time.monotonic(), told["partition"], told["offset"]
        self.acknowledged[partition, offset] = told["value"]
        silence = now - self.last_ack_s.get(partition, now)
        self.silence_s[partition] = max(self.silence_s.get(partition, 0.0), silence)
        self.last_ack_s[partition] = now
        self.ends[partition] = max(self.ends.get(partition, 0), offset + 1)

    def _on_producer_send_error(self, told: dict[str, Any]) -> None:
        if told.get("message") != CLOSED:
            self.failures.append(f"record {told.get('value')}: {told.get('message')}")

    def _on_records_consumed(self, told: dict[str, Any]) -> None:
        for each in told["partitions"]:
            offsets = range(each["minOffset"], each["maxOffset"] + 1)
            if each["count"] != len(offsets):
                self.failures.append(f"a gap among {each}")
            self.read.setdefault(each["partition"], set()).update(offsets)

    def _on_offsets_committed(self, told: dict[str, Any]) -> None:
        for each in told["offsets"] if told["success"] else ():
            partition, offset = each["partition"], each["offset"]
            if offset > 0 and offset - 1 not in self.read.get(partition, ()):
                self.failures.append(f"{partition}: {offset} was committed and {offset - 1} never read")
            self.committed[partition] = offset

    def forget_silence(self) -> None:
        with self.lock:
            self.silence_s.clear()


@dataclass(frozen=True)
class Round:
    killed: int
    silence_ms: int
    stable_ms: int


class Client:
    """A process that tells the ledger what it does; it ends with its standard input, or by SIGTERM."""

    def __init__(self, command: Sequence[str], ledger: Ledger, log: Path) -> None:
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._thread = threading.Thread(target=self._listen, args=(ledger,), daemon=True)
        self._thread.start()

    def _listen(self, ledger: Ledger) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            ledger.hear(line)

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """Ask it to end; returns when it has, and when all that it said was heard."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if "java" in str(self._process.args[0]):  # type: ignore[index]  # which does not look at its input
            self._process.terminate()
        self._process.wait(PATIENCE_S)
        self._thread.join(PATIENCE_S)


class Harness:
    """Runs rounds on a cluster of its own below `directory`; says what happens through `say`."""

    def __init__(self, directory: Path, client: str, protocol: str, seed: int, say: Callable[[str], None]) -> None:
        self._cluster = LocalCluster.create(directory / "cluster", brokers=3, settings=SETTINGS)
        self._world = ProcessesWorld(self._cluster)
        self._directory, self._client, self._protocol = directory, client, protocol
        self._rng = random.Random(seed)
        self._say = say
        self.ledger = Ledger()
        self._clients: list[Client] = []

    def run(self, rounds: int) -> list[Round]:
        """Raises `AssertionError` when a promise was broken, or something did not recover in time."""
        self._cluster.start_all()
        try:
            self._whole()
            self._create_topic()
            commands = [self._writer(), *(self._member() for _ in range(MEMBERS))]
            self._clients = [Client(each, self.ledger, self._directory / "clients.log") for each in commands]
            self._wait(lambda: len(self.ledger.committed) == PARTITIONS, "commits on all partitions")
            done = [self._round(number) for number in range(1, rounds + 1)]
            self._whole()
            self._clients.pop(0).end()
            ends = dict(self.ledger.ends)
            self._wait(lambda: self._has_committed(ends), "the group to have read everything")
            for each in self._clients:
                each.end()
            self._check()
            return done
        finally:
            for each in self._clients:
                if each.runs:
                    each.end()
            self._cluster.kill_all()

    def _writer(self) -> list[str]:
        bootstrap = self._cluster.kafka_bootstrap
        if self._client == "confluent":
            return [sys.executable, "-m", "tests.interop.kills.worker", "produce", bootstrap, TOPIC, str(RATE)]
        settings = self._directory / "producer.properties"
        settings.write_text("enable.idempotence=true\nretries=2147483647\n")  # its own number is 0
        arguments = ["--bootstrap-server", bootstrap, "--topic", TOPIC, "--throughput", str(RATE)]
        arguments += ["--repeating-keys", str(RATE)]  # without keys it fills one partition after the other
        return self._java("VerifiableProducer", *arguments, "--producer.config", str(settings))

    def _member(self) -> list[str]:
        bootstrap = self._cluster.kafka_bootstrap
        if self._client == "confluent":
            worker = ["-m", "tests.interop.kills.worker", "consume", bootstrap, TOPIC, GROUP, self._protocol]
            return [sys.executable, *worker]
        arguments = ["--bootstrap-server", bootstrap, "--topic", TOPIC, "--group-id", GROUP]
        return self._java("VerifiableConsumer", *arguments, "--group-protocol", self._protocol)

    def _java(self, program: str, *arguments: str) -> list[str]:
        return java_command(classpath_of(PROGRAMS), tool(program), arguments, log_level="error")

    def _create_topic(self) -> None:
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # not said to be exported

        admin = AdminClient({"bootstrap.servers": self._cluster.kafka_bootstrap})
        for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)]).values():
            future.result(PATIENCE_S)
        self._whole()

    def _whole(self) -> None:
        asyncio.run(wait_until_converged(self._world, timeout_s=PATIENCE_S))

    def _coordinator(self) -> int:
        """The broker that coordinates the group, which has all its members."""
        admin: Any = AdminClient({"bootstrap.servers": self._cluster.kafka_bootstrap, "log_level": 0})
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            (future,) = admin.describe_consumer_groups([GROUP], request_timeout=10).values()
            with contextlib.suppress(KafkaException):  # whoever coordinates it has no time, or has just begun to
                found = future.result(PATIENCE_S)
                if len(found.members) == MEMBERS and found.state.name == "STABLE":
                    return int(found.coordinator.id)
        raise AssertionError(f"the group has not got {MEMBERS} members")

    def _round(self, number: int) -> Round:
        self._whole()
        killed = self._coordinator()
        threading.Event().wait(self._rng.uniform(0, PAUSE_S))
        self._wait(lambda: len(self.ledger.ends) == PARTITIONS, "a first acknowledgement of every partition")
        self.ledger.forget_silence()
        self._cluster.kill(killed)
        began = time.monotonic()
        before = dict(self.ledger.ends)
        wanted = {each: end + 1 for each, end in before.items()}
        self._wait(lambda: self._has_committed(wanted), "commits of records that were acknowledged after the kill")
        stable_s = time.monotonic() - began
        self._wait(
            lambda: len(self.ledger.silence_s) == PARTITIONS, "the acknowledgements of those, which are told late"
        )
        with self.ledger.lock:
            silence_s = max(self.ledger.silence_s.values())
        self._cluster.start(killed)
        done = Round(killed, round(silence_s * 1000), round(stable_s * 1000))
        self._say(f"round {number:3}: killed {killed}, silence {done.silence_ms} ms, stable {done.stable_ms} ms")
        return done

    def _has_committed(self, wanted: dict[int, int]) -> bool:
        return all(self.ledger.committed.get(each, 0) >= end for each, end in wanted.items())

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, f"waited {PATIENCE_S:g} s for {what}: {self.ledger.failures[-3:]}"
            assert all(each.runs for each in self._clients), f"a client has ended: {self._directory / 'clients.log'}"
            threading.Event().wait(POLL_S)

    def _check(self) -> None:
        """Hold a full read against what was acknowledged, read and committed."""
        found: dict[tuple[int, int], str] = {}
        settings = {
            "bootstrap.servers": self._cluster.kafka_bootstrap,
            "group.id": "auditor",
            "enable.auto.commit": False,
        }
        consumer = Consumer(settings)
        partitions = [TopicPartition(TOPIC, each, OFFSET_BEGINNING) for each in range(PARTITIONS)]
        ends = {each: consumer.get_watermark_offsets(TopicPartition(TOPIC, each), timeout=PATIENCE_S)[1]
                for each in range(PARTITIONS)}  # fmt: skip
        consumer.assign(partitions)
        patience = time.monotonic() + PATIENCE_S
        while len(found) < sum(ends.values()):
            assert time.monotonic() < patience, f"{len(found)} of {sum(ends.values())} records could be read"
            for each in consumer.consume(READ_AT_ONCE, 1.0):
                assert each.error() is None, each.error()
                found[each.partition() or 0, each.offset() or 0] = (each.value() or b"").decode()
        consumer.close()
        lost = {place: value for place, value in self.ledger.acknowledged.items() if found.get(place) != value}
        skipped = [
            (each, offset)
            for each, end in ends.items()
            for offset in range(end)
            if offset not in self.ledger.read[each]
        ]
        assert not lost, f"{len(lost)} acknowledged records are gone: {sorted(lost.items())[:5]}"
        assert not skipped, f"{len(skipped)} offsets were never read by the group: {skipped[:5]}"
        assert len(set(found.values())) == len(found), "records stand there twice"
        assert not self.ledger.failures, self.ledger.failures[:5]


def report(client: str, rounds: Sequence[Round], ledger: Ledger) -> str:
    silences, stables = ([getattr(each, name) for each in rounds] for name in ("silence_ms", "stable_ms"))
    return (
        f"{client}: {len(rounds)} rounds, {len(ledger.acknowledged)} records acknowledged, none lost, none skipped; "
        f"longest silence of a partition: median {statistics.median(silences):.0f} ms, worst {max(silences)} ms; "
        f"group stable again: median {statistics.median(stables):.0f} ms, worst {max(stables)} ms "
        f"(load {os.getloadavg()[1]:.0f})"
    )


@contextlib.contextmanager
def directory_kept_on_failure() -> Iterator[Path]:
    """A temporary directory that stays where its block fails: the brokers' logs and data are the evidence."""
    directory = Path(tempfile.mkdtemp(prefix="odradek-kills-"))
    try:
        yield directory
    except BaseException:
        print(f"kept: {directory}", flush=True)
        raise
    shutil.rmtree(directory)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--client", choices=("confluent", "java"), default="confluent")
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="classic")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with directory_kept_on_failure() as directory:
        harness = Harness(directory, chosen.client, chosen.protocol, chosen.seed, lambda text: print(text, flush=True))
        done = harness.run(chosen.rounds)
    print(report(f"{chosen.client}, {chosen.protocol}", done, harness.ledger))
