"""The codecs of Produce and Fetch, which are written by hand, against kio at every version."""

from __future__ import annotations

import datetime
import itertools
import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError
from odradek_broker.kafka.messages import fetch_codec, produce_codec
from odradek_broker.kafka.messages.endpoints import NodeEndpoint, Topic
from odradek_broker.kafka.messages.primitives import MALFORMED, MessageReader
from odradek_proto.transport.ports import Buffer

from tests.kafka import oracle

PRODUCE, FETCH = 0, 1
PRODUCE_VERSIONS, FETCH_VERSIONS = range(3, 14), range(4, 19)
ROUNDS = 20
EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)


class Pairs:
    """The two fields of a structure, one after the other; -1 in both says that there is none."""

    def __init__(self, rng: random.Random, some: tuple[int, int]) -> None:
        self._rng, self._choice, self._left = rng, ((-1, -1), some), list[int]()

    def pop(self) -> int:
        self._left = self._left or [*self._rng.choice(self._choice)]
        return self._left.pop(0)


def makers(rng: random.Random) -> dict[str, Callable[[], Any] | None]:
    """Values of fields of Produce and Fetch, by their names in kio."""

    def span(of: int) -> datetime.timedelta:
        return datetime.timedelta(milliseconds=rng.randrange(of))

    def offset() -> int:
        return rng.randrange(-1, 1 << 62)

    def epoch() -> int:
        return rng.randrange(-1, 9)

    def count() -> int:
        return rng.randrange(1 << 31)

    def topic() -> str:
        return "t" * rng.choice((1, 9, 200))

    def records() -> bytes | None:
        return rng.choice((None, b"", rng.randbytes(90), rng.randbytes(70_000)))

    def moment() -> datetime.datetime | None:
        return rng.choice((None, EPOCH + span(1 << 42)))

    leaders = Pairs(rng, (3, 7))
    ends = Pairs(rng, (3, 40))
    return {
        "name": topic, "topic": topic, "topic_id": lambda: uuid.UUID(int=rng.getrandbits(128)),
        "transactional_id": lambda: rng.choice((None, "tx")), "acks": lambda: rng.choice((-1, 0, 1)),
        "timeout": lambda: span(1 << 30), "index": count, "records": records,
        "error_code": lambda: KioError(rng.randrange(100)), "error_message": lambda: rng.choice((None, "", "why")),
        "base_offset": offset, "log_start_offset": offset, "log_append_time": moment, "batch_index": count,
        "batch_index_error_message": lambda: "no key",
        "leader_id": lambda: leaders.pop(), "leader_epoch": lambda: leaders.pop(), "throttle_time": lambda: span(1),
        "node_id": lambda: rng.randrange(9), "host": lambda: "host", "port": lambda: rng.randrange(1 << 16),
        "rack": lambda: rng.choice((None, "r1")),
        "replica_id": lambda: rng.choice((-1, 2)), "replica_epoch": lambda: 4, "cluster_id": lambda: None,
        "max_wait": lambda: span(9_000), "min_bytes": lambda: rng.randrange(9), "max_bytes": count,
        "isolation_level": lambda: rng.randrange(2), "session_id": count, "session_epoch": epoch,
        "partition": count, "current_leader_epoch": epoch, "fetch_offset": offset, "last_fetched_epoch": epoch,
        "partition_max_bytes": count, "replica_directory_id": lambda: rng.choice((None, uuid.UUID(int=7))),
        "rack_id": lambda: "r", "partition_index": count, "high_watermark": offset, "last_stable_offset": offset,
        "preferred_read_replica": lambda: -1, "epoch": lambda: ends.pop(), "end_offset": lambda: ends.pop(),
    }  # fmt: skip


def messages(key: int, what: str, version: int, **others: Callable[[], Any] | None) -> Iterator[Any]:
    """Random ones, as kio has them."""
    rng = random.Random(version)
    for _ in range(ROUNDS):
        yield oracle.instance(oracle.schema(key, what, version), makers(rng) | others, count=lambda: rng.randrange(3))


def milliseconds(span: datetime.timedelta) -> int:
    return round(span.total_seconds() * 1000)


def named(ours: Any, theirs: Any) -> bool:
    """Whether a topic is the one that kio has, by its name or its id."""
    name = getattr(theirs, "name", getattr(theirs, "topic", None))
    return bool((ours.name or uuid.UUID(bytes=ours.topic_id)) == (theirs.topic_id if name is None else name))


def cut_short(read: Callable[[MessageReader, int], object], body: memoryview, version: int) -> None:
    """Whatever byte is the last one."""
    rng = random.Random(len(body))
    for end in {rng.randrange(len(body)) for _ in range(10)}:
        with pytest.raises(MALFORMED):
            read(MessageReader(body[:end]), version)


def leader_of(partition: Any) -> tuple[int, int]:
    """What is said where the version has no place for it must not be written."""
    found = getattr(partition, "current_leader", None)
    return (3, 7) if found is None else (found.leader_id, found.leader_epoch)


def nodes_of(message: Any) -> list[NodeEndpoint]:
    found = getattr(message, "node_endpoints", None)
    if found is None:
        return [NodeEndpoint(1, "host", 1, None)]
    return [NodeEndpoint(each.node_id, each.host, each.port, each.rack) for each in found]


def name_and_id(topic: Any) -> tuple[str, bytes]:
    name = getattr(topic, "name", getattr(topic, "topic", "t"))
    return name, getattr(topic, "topic_id", uuid.UUID(int=9)).bytes


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_requests_are_read_as_kio_writes_them(version: int) -> None:
    """Every field, and records that are views of the frame, not copies."""
    for message in messages(PRODUCE, "request", version):
        body = memoryview(oracle.write(PRODUCE, "request", version, message))
        assert (version >= produce_codec.FLEXIBLE_FROM) == oracle.is_flexible(PRODUCE, version)  # and its header (K-10)
        reader = MessageReader(body)
        found = produce_codec.read_request(reader, version)
        assert reader.position == len(body)
        assert (found.transactional_id, found.acks) == (message.transactional_id, message.acks)
        assert found.timeout_ms == milliseconds(message.timeout)
        for ours, theirs in zip(found.topics, message.topic_data, strict=True):
            assert named(ours, theirs)
            assert [(each.index, each.records) for each in ours.partitions] == [
                (each.index, each.records) for each in theirs.partition_data
            ]
            assert all(each.records is None or each.records.obj is body.obj for each in ours.partitions)
        cut_short(produce_codec.read_request, body, version)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_answers_are_what_kio_writes(version: int) -> None:
    """Hints at the leader included (KIP-951)."""
    for message in messages(PRODUCE, "response", version):
        topics = [
            Topic(
                *name_and_id(topic),
                [
                    produce_codec.ProducePartitionAnswer(
                        each.index,
                        each.error_code.value,
                        each.base_offset,
                        getattr(each, "log_start_offset", 5),
                        -1 if each.log_append_time is None else milliseconds(each.log_append_time - EPOCH),
                        getattr(each, "error_message", "why"),
                        *leader_of(each),
                        [each.batch_index for each in getattr(each, "record_errors", ())],
                        "no key",
                    )
                    for each in topic.partition_responses
                ],
            )
            for topic in message.responses
        ]
        ours = b"".join(produce_codec.write_answer(version, topics, nodes_of(message)).buffers())
        assert ours == oracle.write(PRODUCE, "response", version, message)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_requests_are_read_as_kio_writes_them(version: int) -> None:
    """The tags of followers included: nobody else sends them."""
    for message in messages(FETCH, "request", version):
        body = memoryview(oracle.write(FETCH, "request", version, message))
        assert (version >= fetch_codec.FLEXIBLE_FROM) == oracle.is_flexible(FETCH, version)
        reader = MessageReader(body)
        found = fetch_codec.read_request(reader, version)
        assert reader.position == len(body)
        state = getattr(message, "replica_state", message)
        assert (found.replica_id, found.max_wait_ms) == (state.replica_id, milliseconds(message.max_wait))
        for name in ("min_bytes", "max_bytes", "isolation_level", "session_id", "session_epoch"):
            assert getattr(found, name) == getattr(message, name, getattr(found, name)), name
        for ours, theirs in zip(found.topics, message.topics, strict=True):
            assert named(ours, theirs)
            for mine, other in zip(ours.partitions, theirs.partitions, strict=True):
                assert (mine.index, mine.max_bytes) == (other.partition, other.partition_max_bytes)
                for name in ("current_leader_epoch", "fetch_offset", "last_fetched_epoch", "log_start_offset"):
                    assert getattr(mine, name) == getattr(other, name, -1), name
        forgotten = getattr(message, "forgotten_topics_data", ())
        assert [[*each.partitions] for each in found.forgotten] == [[*each.partitions] for each in forgotten]
        cut_short(fetch_codec.read_request, body, version)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_answers_are_what_kio_writes(version: int) -> None:
    """Divergence and leader included, and large records are the buffers that were given."""
    none_aborted = None if version < fetch_codec.FLEXIBLE_FROM else ()
    sizes = itertools.cycle((0, 6, 70_000))
    for message in messages(
        FETCH,
        "response",
        version,
        aborted_transactions=lambda: none_aborted,
        records=lambda: bytes(next(sizes)),
        snapshot_id=None,
    ):
        topics = [
            Topic(
                *name_and_id(topic),
                [
                    fetch_codec.FetchPartitionAnswer(
                        each.partition_index,
                        each.error_code.value,
                        each.high_watermark,
                        each.last_stable_offset,
                        getattr(each, "log_start_offset", 5),
                        pieces(each.records or b""),
                        diverging_of(each),
                        *leader_of(each),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in message.responses
        ]
        error, session = (message.error_code.value, message.session_id) if version > 6 else (70, 5)
        buffers = fetch_codec.write_answer(
            version, topics, nodes_of(message), error=error, session_id=session
        ).buffers()
        assert b"".join(buffers) == oracle.write(FETCH, "response", version, message)
        for topic in topics:
            for each in topic.partitions:
                assert all(any(kept is given for kept in buffers) for given in each.records if len(given) > 65_536)


def pieces(records: bytes) -> list[Buffer]:
    """As a log gives them: batch by batch, some in memory and some in files."""
    return [] if not records else [records] if len(records) > 65_536 else [records[:40], memoryview(records)[40:]]


def diverging_of(partition: Any) -> tuple[int, int] | None:
    found = getattr(partition, "diverging_epoch", None)
    return (3, 40) if found is None else (found.epoch, found.end_offset) if found.epoch >= 0 else None
