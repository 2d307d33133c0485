"""A consumer whose partition nobody leads, or whose leader refuses: the others are read, and it says who is stuck."""

from __future__ import annotations

from typing import Any

import pytest
from odradek import BrokerUnreachable, Consumer, TopicPartition, UnknownTopic
from odradek.broker_errors import KafkaStorageError, LeaderNotAvailable, TopicAuthorizationFailed
from odradek.shared.results import OffsetAndTimestamp
from odradek_proto.errors import ErrorCode
from odradek_proto.records import encode_batch
from odradek_proto.transport.ports import CallContext, Handlers
from odradek_proto.v1 import broker_pb2 as pb

ONE, TWO, THREE = (TopicPartition("orders", number) for number in range(3))


def filled(peers: Any) -> list[Any]:
    """A topic of three partitions, each with a leader of its own and one record."""
    logs: list[Any] = peers.topic("orders", partitions=3)
    for log in logs:
        log.append(encode_batch([(1_000, b"k", b"v", ())]))
    return logs


def consumer(peers: Any, *topics: str) -> Consumer:
    return peers.client(Consumer, *topics, auto_offset_reset="earliest")  # type: ignore[no-any-return]


async def test_offsets_are_told_of_every_partition_that_can_be_asked(peers: Any) -> None:
    """An answer for each, at once: the offset, or why it is not known now."""
    logs = filled(peers)
    logs[1].lead(-1)
    peers.brokers[3].kill()
    async with consumer(peers) as reader:
        assert await reader.partitions_for("orders") == [0, 1, 2]
        began_ms = peers.clock.now_ms()
        found = await reader.offsets_or_errors(dict.fromkeys([ONE, TWO, THREE], -1))
        assert peers.clock.now_ms() - began_ms < 5_000
        assert isinstance(first := found[ONE], OffsetAndTimestamp)
        assert first.offset == 1
        assert isinstance(found[TWO], LeaderNotAvailable)
        assert isinstance(found[THREE], BrokerUnreachable)
        assert str(found[THREE]).startswith("broker 3: ")


async def test_a_partition_without_a_leader_holds_up_no_other(peers: Any) -> None:
    """The others are read; it is named as long as nobody leads it."""
    logs = filled(peers)
    logs[1].lead(-1)
    async with consumer(peers, "orders") as reader:
        assert reader.held_up_by == {}
        seen = [record for _ in range(10) for record in await reader.poll(0.5)]
        assert sorted(record.partition for record in seen) == [0, 2]
        assert {name: type(error) for name, error in reader.held_up_by.items()} == {TWO: LeaderNotAvailable}
        logs[1].lead(2)
        assert [record.partition for record in await reader.poll(60.0)] == [1]
        assert reader.held_up_by == {}


async def test_a_leader_that_refuses_is_told_with_its_error(peers: Any) -> None:
    """Until it answers: one that has nothing to say to a fetch holds up nobody."""
    filled(peers)
    async with consumer(peers, "orders") as reader:
        while await reader.poll(5.0):
            pass
        assert reader.held_up_by == {}
        peers.brokers[1].errors += [(ONE, ErrorCode.KAFKA_STORAGE_ERROR)] * 20
        reader.seek(ONE, 0)
        await peers.until(lambda: len(peers.brokers[1].errors) < 15)
        assert isinstance(reader.held_up_by[ONE], KafkaStorageError)
        assert "KAFKA_STORAGE_ERROR" in str(reader.held_up_by[ONE])
        assert "stop that broker" in reader.held_up_by[ONE].hint
        reader.seek(ONE, 1)
        await peers.until(lambda: not peers.brokers[1].errors)
        await peers.until(lambda: not reader.held_up_by)


async def test_a_leader_that_cannot_be_reached_is_named(peers: Any) -> None:
    """Its metadata still say that it leads."""
    filled(peers)
    async with consumer(peers, "orders") as reader:
        while await reader.poll(5.0):
            pass
        peers.brokers[3].kill()
        await peers.until(lambda: THREE in reader.held_up_by)
        assert reader.held_up_by[THREE].message.startswith("broker 3: ")
        peers.brokers[3].start()
        await peers.until(lambda: not reader.held_up_by)


async def test_a_partition_that_the_topic_does_not_have_is_named(peers: Any) -> None:
    """In the producer's words: it may be added later, so it is no error of `poll`; a question about it is one."""
    filled(peers)
    absent = TopicPartition("orders", 77)
    async with consumer(peers) as reader:
        reader.assign([ONE, absent, TopicPartition("nope", 0)])
        assert [record.partition for record in await reader.poll(5.0)] == [0]
        await peers.until(lambda: len(reader.held_up_by) == 2)
        assert str(reader.held_up_by[absent]) == "topic 'orders' has no partition 77 (it has 3, counted from 0)"
        assert str(reader.held_up_by[TopicPartition("nope", 0)]).startswith("there is no topic 'nope' (`odradek topic")
        with pytest.raises(UnknownTopic, match="has no partition 77"):
            await reader.end_offsets([absent])
        with pytest.raises(UnknownTopic, match="has no partition 77"):
            await reader.watermarks(absent)
        filled_later = peers.topic("nope")
        filled_later[0].append(encode_batch([(1_000, b"k", b"v", ())]))
        assert [record.topic for record in await reader.poll(60.0)] == ["nope"]


async def test_a_topic_that_is_refused_parks_no_other(peers: Any) -> None:
    """Both have no leader when their positions are to be validated; each is told with its own reason."""
    names = [TopicPartition("denied", 0), TopicPartition("leaderless", 0)]
    logs = [log for name in names for log in peers.topic(name.topic)]
    refused: list[str] = []

    for broker in peers.brokers.values():

        async def answer(request: bytes, context: CallContext, broker: Any = broker) -> bytes:
            answer = pb.MetadataResponse.FromString(await broker.Metadata(request, context))
            for topic in answer.topics:
                if topic.topic in refused:
                    topic.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return answer.SerializeToString()

        broker.more_handlers = Handlers({"/odradek.v1.Broker/Metadata": answer}, {})
    for log in logs:
        log.append(encode_batch([(1_000, b"k", b"v", ())]))
    async with consumer(peers, *(name.topic for name in names)) as reader:
        assert len([record for _ in range(2) for record in await reader.poll(1.0)]) == 2
        for log in logs:
            log.lead(-1)
        await peers.until(lambda: {*reader.held_up_by} == {*names})
        refused.append("denied")
        await peers.until(lambda: isinstance(reader.held_up_by[names[0]], TopicAuthorizationFailed))
        engine: Any = reader._engine
        await engine._keeper._validate({state.name: state for state in engine.states()})  # else jitter parts them
        assert isinstance(reader.held_up_by[names[1]], LeaderNotAvailable)
        logs[1].append(encode_batch([(1_000, b"k", b"v", ())]))
        logs[1].lead(2)
        reader.assign(names[1:])
        assert [record.topic for record in await reader.poll(60.0)] == ["leaderless"]
