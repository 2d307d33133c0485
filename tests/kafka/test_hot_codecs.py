"""The codecs of Produce and Fetch, which are written by hand, against kio at every version."""

from __future__ import annotations

import dataclasses
import datetime
import random
import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError
from kio.static.primitive import Records
from odradek_broker.kafka.messages import fetch_codec, produce_codec
from odradek_broker.kafka.messages.endpoints import NodeEndpoint
from odradek_broker.kafka.messages.primitives import MALFORMED, Reader
from odradek_proto.transport.ports import Buffer

from tests.kafka import oracle

PRODUCE, FETCH = 0, 1
PRODUCE_VERSIONS, FETCH_VERSIONS = range(3, 14), range(4, 19)
ROUNDS = 20


def make(cls: Any, **values: Any) -> Any:
    """An instance of kio's class with those of the values that this version has."""
    names = {field.name for field in dataclasses.fields(cls)}
    return cls(**{name: value for name, value in values.items() if name in names})


def time_of(ms: int) -> datetime.datetime | None:
    return None if ms < 0 else datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(milliseconds=ms)


def name_of(rng: random.Random) -> str:
    return "t" * rng.choice((1, 9, 200))


def records_of(rng: random.Random) -> bytes | None:
    return rng.choice((None, b"", rng.randbytes(90), rng.randbytes(70_000)))


# --- Produce ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_requests_are_read_as_kio_writes_them(version: int) -> None:
    """Every field, and records that are views of the frame, not copies."""
    rng = random.Random(version)
    cls = oracle.schema(PRODUCE, "request", version)
    topic_cls = oracle.inside(cls, "topic_data")
    for _ in range(ROUNDS):
        topics = [
            make(
                topic_cls,
                name=name_of(rng),
                topic_id=uuid.UUID(int=rng.getrandbits(128)),
                partition_data=tuple(
                    make(
                        oracle.inside(topic_cls, "partition_data"),
                        index=rng.randrange(1 << 31),
                        records=records_of(rng),
                    )
                    for _ in range(rng.randrange(3))
                ),
            )
            for _ in range(rng.randrange(4))
        ]
        message = make(
            cls,
            transactional_id=rng.choice((None, "tx")),
            acks=rng.choice((-1, 0, 1)),
            timeout=datetime.timedelta(milliseconds=rng.randrange(1 << 30)),
            topic_data=tuple(topics),
        )
        body = memoryview(oracle.write(PRODUCE, "request", version, message))
        reader = Reader(body)
        found = produce_codec.read_request(reader, version)
        assert reader.position == len(body)
        assert (found.transactional_id, found.acks) == (message.transactional_id, message.acks)
        assert datetime.timedelta(milliseconds=found.timeout_ms) == message.timeout
        assert len(found.topics) == len(topics)
        for ours, theirs in zip(found.topics, topics, strict=True):
            assert (ours.name or uuid.UUID(bytes=ours.topic_id)) == getattr(
                theirs, "name", getattr(theirs, "topic_id", 0)
            )
            assert [each.index for each in ours.partitions] == [each.index for each in theirs.partition_data]
            assert [each.records for each in ours.partitions] == [each.records for each in theirs.partition_data]
            assert all(each.records is None or each.records.obj is body.obj for each in ours.partitions)
        for end in {rng.randrange(len(body)) for _ in range(10)}:
            with pytest.raises(MALFORMED):
                produce_codec.read_request(Reader(body[:end]), version)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_answers_are_what_kio_writes(version: int) -> None:
    """Hints at the leader included (KIP-951)."""
    rng = random.Random(version)
    cls = oracle.schema(PRODUCE, "response", version)
    topic_cls = oracle.inside(cls, "responses")
    partition_cls = oracle.inside(topic_cls, "partition_responses")
    for _ in range(ROUNDS):
        nodes = some_nodes(rng)
        topics = [
            produce_codec.TopicAnswer(
                name_of(rng),
                rng.randbytes(16),
                [
                    produce_codec.PartitionAnswer(
                        rng.randrange(1 << 31),
                        rng.randrange(100),
                        rng.randrange(-1, 1 << 62),
                        rng.randrange(-1, 1 << 62),
                        rng.choice((-1, rng.randrange(1 << 42))),
                        rng.choice((None, "", "why")),
                        *rng.choice(((-1, -1), (3, 7))),
                    )
                    for _ in range(rng.randrange(3))
                ],
            )
            for _ in range(rng.randrange(3))
        ]
        theirs = make(
            cls,
            responses=tuple(
                make(
                    topic_cls,
                    name=topic.name,
                    topic_id=uuid.UUID(bytes=topic.topic_id),
                    partition_responses=tuple(
                        make(
                            partition_cls,
                            index=each.index,
                            error_code=KioError(each.error),
                            base_offset=each.base_offset,
                            log_append_time=time_of(each.log_append_time_ms),
                            log_start_offset=each.log_start_offset,
                            record_errors=(),
                            error_message=each.message,
                            **leader(partition_cls, each.leader_id, each.leader_epoch),
                        )
                        for each in topic.partitions
                    ),
                )
                for topic in topics
            ),
            throttle_time=datetime.timedelta(0),
            **their_nodes(cls, nodes),
        )
        ours = b"".join(produce_codec.write_answer(version, topics, nodes).buffers())
        assert ours == oracle.write(PRODUCE, "response", version, theirs)


def some_nodes(rng: random.Random) -> list[NodeEndpoint]:
    return [NodeEndpoint(rng.randrange(9), "host", rng.randrange(1 << 16), rng.choice((None, "r1"))) for _ in range(2)]


def leader(partition_cls: Any, leader_id: int, epoch: int) -> dict[str, Any]:
    cls = oracle.inside(partition_cls, "current_leader")
    return {} if cls is None else {"current_leader": cls(leader_id=leader_id, leader_epoch=epoch)}


def their_nodes(cls: Any, nodes: list[NodeEndpoint]) -> dict[str, Any]:
    node_cls = oracle.inside(cls, "node_endpoints")
    if node_cls is None:
        return {}
    return {
        "node_endpoints": tuple(
            node_cls(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack) for node in nodes
        )
    }


def some_records(rng: random.Random) -> list[Buffer]:
    several: list[list[Buffer]] = [[], [b"abc", memoryview(b"def")], [rng.randbytes(70_000)]]
    return rng.choice(several)


# --- Fetch -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_requests_are_read_as_kio_writes_them(version: int) -> None:
    """The tags of followers included: nobody else sends them."""
    rng = random.Random(version)
    cls = oracle.schema(FETCH, "request", version)
    topic_cls, forgotten_cls = oracle.inside(cls, "topics"), oracle.inside(cls, "forgotten_topics_data")
    partition_cls, state_cls = oracle.inside(topic_cls, "partitions"), oracle.inside(cls, "replica_state")
    for _ in range(ROUNDS):
        topics = [
            make(
                topic_cls,
                topic=name_of(rng),
                topic_id=uuid.UUID(int=rng.getrandbits(128)),
                partitions=tuple(
                    make(
                        partition_cls,
                        partition=rng.randrange(1 << 31),
                        current_leader_epoch=rng.randrange(-1, 9),
                        fetch_offset=rng.randrange(1 << 62),
                        last_fetched_epoch=rng.randrange(-1, 9),
                        log_start_offset=rng.randrange(-1, 9),
                        partition_max_bytes=rng.randrange(1 << 31),
                        replica_directory_id=rng.choice((None, uuid.UUID(int=7))),
                        high_watermark=rng.choice((2**63 - 1, 5)),
                    )
                    for _ in range(rng.randrange(3))
                ),
            )
            for _ in range(rng.randrange(3))
        ]
        replica_id = rng.choice((-1, 2))
        message = make(
            cls,
            replica_id=replica_id,
            cluster_id=rng.choice((None, "c")),
            **({} if state_cls is None else {"replica_state": state_cls(replica_id=replica_id, replica_epoch=4)}),
            max_wait=datetime.timedelta(milliseconds=rng.randrange(9_000)),
            min_bytes=rng.randrange(9),
            max_bytes=rng.randrange(1 << 31),
            isolation_level=rng.randrange(2),
            session_id=rng.randrange(1 << 31),
            session_epoch=rng.randrange(-1, 9),
            topics=tuple(topics),
            forgotten_topics_data=()
            if forgotten_cls is None
            else (make(forgotten_cls, topic="gone", topic_id=uuid.UUID(int=9), partitions=(1, 2)),),
            rack_id="r",
        )
        body = memoryview(oracle.write(FETCH, "request", version, message))
        reader = Reader(body)
        found = fetch_codec.read_request(reader, version)
        assert reader.position == len(body)
        assert found.replica_id == replica_id
        assert datetime.timedelta(milliseconds=found.max_wait_ms) == message.max_wait
        for name in ("min_bytes", "max_bytes", "isolation_level", "session_id", "session_epoch"):
            assert getattr(found, name) == getattr(message, name, getattr(found, name)), name
        for ours, theirs in zip(found.topics, topics, strict=True):
            assert (ours.name or uuid.UUID(bytes=ours.topic_id)) == getattr(
                theirs, "topic", getattr(theirs, "topic_id", 0)
            )
            for mine, other in zip(ours.partitions, theirs.partitions, strict=True):
                assert (mine.index, mine.max_bytes) == (other.partition, other.partition_max_bytes)
                for name in ("current_leader_epoch", "fetch_offset", "last_fetched_epoch", "log_start_offset"):
                    assert getattr(mine, name) == getattr(other, name, -1), name
        assert [list(each.partitions) for each in found.forgotten] == ([] if forgotten_cls is None else [[1, 2]])
        for end in {rng.randrange(len(body)) for _ in range(10)}:
            with pytest.raises(MALFORMED):
                fetch_codec.read_request(Reader(body[:end]), version)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_answers_are_what_kio_writes(version: int) -> None:
    """Divergence and leader included, and large records are the buffers that were given."""
    rng = random.Random(version)
    cls = oracle.schema(FETCH, "response", version)
    topic_cls = oracle.inside(cls, "responses")
    partition_cls = oracle.inside(topic_cls, "partitions")
    end_cls = oracle.inside(partition_cls, "diverging_epoch")
    for _ in range(ROUNDS):
        nodes = some_nodes(rng)
        topics = [
            fetch_codec.TopicAnswer(
                name_of(rng),
                rng.randbytes(16),
                [
                    fetch_codec.PartitionAnswer(
                        rng.randrange(1 << 31),
                        rng.randrange(100),
                        rng.randrange(-1, 1 << 62),
                        rng.randrange(-1, 1 << 62),
                        rng.randrange(-1, 1 << 62),
                        some_records(rng),
                        rng.choice((None, (3, 40))),
                        *rng.choice(((-1, -1), (3, 7))),
                    )
                    for _ in range(rng.randrange(3))
                ],
            )
            for _ in range(rng.randrange(3))
        ]
        error, session_id = rng.choice(((0, 0), (70, 5)))
        theirs = make(
            cls,
            throttle_time=datetime.timedelta(0),
            error_code=KioError(error),
            session_id=session_id,
            responses=tuple(
                make(
                    topic_cls,
                    topic=topic.name,
                    topic_id=uuid.UUID(bytes=topic.topic_id),
                    partitions=tuple(
                        make(
                            partition_cls,
                            partition_index=each.index,
                            error_code=KioError(each.error),
                            high_watermark=each.high_watermark,
                            last_stable_offset=each.last_stable_offset,
                            log_start_offset=each.log_start_offset,
                            aborted_transactions=None if version < fetch_codec.FLEXIBLE_FROM else (),
                            preferred_read_replica=-1,
                            records=Records(b"".join(each.records)),
                            **(
                                {}
                                if end_cls is None or not each.diverging
                                else {"diverging_epoch": end_cls(epoch=each.diverging[0], end_offset=each.diverging[1])}
                            ),
                            **leader(partition_cls, each.leader_id, each.leader_epoch),
                        )
                        for each in topic.partitions
                    ),
                )
                for topic in topics
            ),
            **their_nodes(cls, nodes),
        )
        buffers = fetch_codec.write_answer(version, topics, nodes, error=error, session_id=session_id).buffers()
        assert b"".join(buffers) == oracle.write(FETCH, "response", version, theirs)
        for topic in topics:
            for each in topic.partitions:
                assert all(any(kept is given for kept in buffers) for given in each.records if len(given) > 65_536)


@pytest.mark.parametrize(("key", "codec"), [(PRODUCE, produce_codec), (FETCH, fetch_codec)])
def test_the_flexible_versions_are_kios(key: int, codec: Any) -> None:
    """Which header a request has hangs on it (K-10)."""
    for version in PRODUCE_VERSIONS if key == PRODUCE else FETCH_VERSIONS:
        assert (version >= codec.FLEXIBLE_FROM) == oracle.is_flexible(key, version), version
