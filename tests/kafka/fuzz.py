"""Requests of every API at every version, whole and mutated, by seed: what a broker is asked that means it no good.

    python -m tests.kafka.fuzz [--minutes 60] [--seed 1]

goes on with new seeds until the time is over, against one broker in this process. Exit code 3 when something was found.
"""

from __future__ import annotations

import argparse
import datetime
import json
import logging
import random
import resource
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kio.serial.errors import SerialError
from odradek_broker.kafka.messages.codec import Field, definition, writer_of
from odradek_broker.kafka.messages.primitives import MessageWriter
from odradek_broker.kafka.messages.schemas import DEFINITIONS
from odradek_broker.testing import Cluster
from odradek_proto.records import encode_batch

from tests.kafka import oracle
from tests.kafka.raw import API_VERSIONS, FETCH, PRODUCE, SILENCE_S, Raw, framed, header

CAPTURED = [
    bytes.fromhex(frame["frame"])
    for line in (Path(__file__).parent.parent / "golden/kafka-wire/frames.jsonl").read_text().splitlines()
    if (frame := json.loads(line))["what"] == "request"
]
VERSIONS = {key: definition(key).versions for key in DEFINITIONS}
JOIN_GROUP, SYNC_GROUP, CREATE_TOPICS = 11, 14, 19
PRODUCE_VERSIONS, FETCH_VERSIONS = range(3, 14), range(4, 19)
SETTINGS = {"auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": "0"}
TOPIC = "orders"
WORDS = (TOPIC, TOPIC, "g", "g", "", "consumer", "range", "retention.ms", "1", "no such", "a b", "n" * 300, "ü€")
NUMBERS = (-2, -1, 0, 0, 0, 1, 1, 2, 3, 8, 100)
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
BATCH = encode_batch([(0, b"key", b"value", ())])
LENGTHS = (b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\x0f\xff\xff")
GROWTH_KIB = 96 * 1024  # of this process, in which the broker runs, for each seed
GAVE_UP = (
    "ExecuteBatchError"  # gRPC's own words when a broker gave a forwarded request one millisecond, as it was asked
)
LAST = 0x1A57  # the correlation id of the sound request
WAITING = (FETCH, JOIN_GROUP, SYNC_GROUP)
PATIENCE_S = 0.5
LEAST_ANSWERED = 0.2  # of all requests: else it is the reading alone that is looked at
MOST_LINES = 2_000  # of log, for each seed; a request that is refused may be worth one
ENDS_WITHOUT_ANSWER = {(17, 0), (PRODUCE, 0), (PRODUCE, 1), (PRODUCE, 2)}  # SaslHandshake without frames, old formats


class Finding(Exception):
    """What the broker should not do."""


# --- Requests --------------------------------------------------------------------------------------------------------


def whole(rng: random.Random) -> Iterator[bytes]:
    """One request of each API and version, with values that a client might mean."""
    for key, versions in VERSIONS.items():
        for version in range(versions.first, versions.last + 1):
            fields, writer = definition(key).messages["request"], MessageWriter()
            message = oracle.structure(fields, version, rng, _primitive, _count)
            writer_of(key, "request", version)(writer, message)
            yield _headed(key, version, bytes(writer.out), flexible=version >= definition(key).flexible_from)
    for key, versions_of_key in ((PRODUCE, PRODUCE_VERSIONS), (FETCH, FETCH_VERSIONS)):
        for version in versions_of_key:
            message = _of_kio(oracle.schema(key, "request", version), rng)
            body = oracle.write(key, "request", version, message)
            yield _headed(key, version, body, flexible=oracle.is_flexible(key, version))


def topic_made() -> bytes:
    """The CreateTopics that makes what most requests are about."""
    wanted = {"name": TOPIC, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
    writer, version = MessageWriter(), VERSIONS[CREATE_TOPICS].last
    writer_of(CREATE_TOPICS, "request", version)(writer, {"topics": [wanted], "timeout_ms": 10_000})
    return _headed(CREATE_TOPICS, version, bytes(writer.out), flexible=True)


def _headed(key: int, version: int, body: bytes, *, flexible: bool) -> bytes:
    return header(key, version, 7, flexible=flexible) + body


def _count(rng: random.Random, _field: Field) -> int:
    return rng.choice((0, 1, 1, 3))


def _primitive(rng: random.Random, _field: Field, kind: str) -> Any:
    match kind:
        case "string":
            return rng.choice(WORDS)
        case "bytes":
            return rng.choice((b"", b"\0\0", rng.randbytes(40)))
        case "bool":
            return rng.random() < 0.5
        case "uuid":
            return rng.choice((bytes(16), rng.randbytes(16)))
        case "float64":
            return rng.choice((0.0, -1.0, float("nan"), 1e300))
        case _:
            edge = 1 << BITS.get(kind, 16) - 1
            number = rng.choice((*NUMBERS, edge - 1, -edge))
            return number if kind in BITS else number & 0xFFFF


def _of_kio(cls: Any, rng: random.Random) -> Any:
    """An instance of one of kio's classes of Produce and Fetch; what is not said here has its default, or a number."""
    known = {
        "name": lambda: TOPIC,
        "topic": lambda: TOPIC,
        "topic_id": lambda: uuid.UUID(int=rng.getrandbits(128)),
        "records": lambda: rng.choice((BATCH, BATCH, b"", BATCH * 2, rng.randbytes(70))),
        "acks": lambda: rng.choice((-1, 1, 1, 5)),
        "timeout": lambda: datetime.timedelta(milliseconds=rng.randrange(1_000)),
        "max_wait": lambda: datetime.timedelta(milliseconds=1),
        "partitions": lambda: (0,),
        "session_id": lambda: rng.choice((0, 0, 1)),
        "session_epoch": lambda: rng.choice((-1, -1, 0, 1)),
        "replica_state": None,
    }
    return oracle.instance(cls, known, lambda: rng.choice((0, 1, 1, 2)), lambda: rng.choice((0, 0, 1, 1_000_000)))


def mutated(frame: bytes, rng: random.Random) -> bytes:
    """The API and its version stay, so that the body is looked at."""
    head, body = frame[:8], bytearray(frame[8:])
    for _ in range(rng.choice((1, 1, 1, 4))):
        place = rng.randrange(len(body) + 1)
        match rng.randrange(8):
            case 0:
                body[place : place + rng.randrange(9)] = b""
            case 1:
                body[place:place] = rng.randbytes(rng.randrange(9))
            case 2:
                body[place : place + 4] = rng.choice(LENGTHS)
            case 3:
                del body[place:]
            case _ if body:
                body[place % len(body)] ^= 1 << rng.randrange(8)
    return head + bytes(body)


# --- The broker ------------------------------------------------------------------------------------------------------


class Lines(logging.Handler):
    """What a log says meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1
        if record.levelno >= logging.ERROR and GAVE_UP not in record.getMessage():
            self.errors.append(self.format(record))


def converse(address: str, frame: bytes) -> bool:
    """Send one frame and a sound one behind it, and wait for the answers to both, or for the end: False.

    Whoever waits for other members of a group, or for records, is left alone. Raises TimeoutError of any other.
    """
    with Raw(address, PATIENCE_S if int.from_bytes(frame[:2]) in WAITING else SILENCE_S) as raw:
        raw.send(framed(frame) + framed(header(API_VERSIONS, 0, LAST)))
        try:
            while (answer := raw.receive()) is not None:
                if int.from_bytes(answer[:4]) == LAST:
                    return True
        except TimeoutError:
            if int.from_bytes(frame[:2]) not in WAITING:
                raise
    return False


def ask_whole(address: str, frame: bytes) -> None:
    """A request that is sound has an answer, which kio reads. Raises `Finding`."""
    key, version = int.from_bytes(frame[:2]), int.from_bytes(frame[2:4])
    with Raw(address) as raw:
        answer = raw.ask(frame)
    if answer is None:
        if (key, version) not in ENDS_WITHOUT_ANSWER:
            raise Finding(f"no answer to a sound request: {frame.hex()}")
        return
    try:
        oracle.read(key, "response", version, answer[oracle.header_size(key, "response", version, answer) :])
    except (SerialError, AssertionError, ValueError) as error:
        raise Finding(f"{frame.hex()} is answered with what Kafka's clients cannot read: {error!r}") from error


def run_seed(cluster: Cluster, seed: int, rounds: int) -> None:
    """Every API and version, and every captured frame, mutated so many times. Raises `Finding`."""
    rng, address = random.Random(seed), cluster.kafka_bootstrap
    lines, answered = Lines(), list[bool]()
    logging.getLogger().addHandler(lines)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        for frame in (topic_made(), *whole(rng)):
            ask_whole(address, frame)
        for _ in range(rounds):
            ask_whole(address, topic_made())  # a request may have been to delete it
            for frame in [*whole(rng), *CAPTURED]:
                changed = mutated(frame, rng)
                answered.append(converse(address, changed))
                if lines.errors:
                    raise Finding(f"{changed.hex()}: {lines.errors[0]}")
    finally:
        logging.getLogger().removeHandler(lines)
    if (grown := resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) > GROWTH_KIB:
        raise Finding(f"seed {seed}: memory rose by {grown} KiB")
    if lines.count > MOST_LINES:
        raise Finding(f"seed {seed}: {lines.count} lines of log")
    if sum(answered) < LEAST_ANSWERED * len(answered):
        raise Finding(f"seed {seed}: {sum(answered)} of {len(answered)} requests were answered")
    with Raw(address) as raw:
        if cluster.running != [1] or raw.ask(header(API_VERSIONS, 0, 1)) is None:
            raise Finding(f"seed {seed}: the broker serves no more")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kafka.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    given = parser.parse_args()
    end, seed, found = time.monotonic() + given.minutes * 60, given.seed, 0
    with Cluster(brokers=1, settings=SETTINGS) as cluster:
        while time.monotonic() < end:
            try:
                run_seed(cluster, seed, 3)
            except (Finding, TimeoutError) as error:
                found += 1
                print(f"seed {seed}: {error!r}", file=sys.stderr)
            seed += 1
    print(f"frames of Kafka's protocol: seeds {given.seed} to {seed - 1}, {found} with findings", file=sys.stderr)
    return 3 if found else 0


if __name__ == "__main__":
    sys.exit(main())
