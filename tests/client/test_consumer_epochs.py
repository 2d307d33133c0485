"""What a consumer asks about leader epochs, and what it makes of refusals (R-111, R-266, R-267)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from odradek import Consumer
from odradek_proto.errors import ErrorCode
from odradek_proto.transport.ports import CallContext, Handlers
from odradek_proto.v1 import broker_pb2 as pb

from tests.client.test_consumer import fill, values

Answer = Callable[[bytes, CallContext], Awaitable[bytes]]
BROKER = "/odradek.v1.Broker/"


def overhear(broker: Any, method: str, heard: Callable[[bytes], None]) -> None:
    """Tell of each request of this kind before the broker answers it. Before anything runs."""
    answer: Answer = getattr(broker, method)

    async def listen(request: bytes, context: CallContext) -> bytes:
        heard(request)
        return await answer(request, context)

    known = {} if broker.more_handlers is None else broker.more_handlers.unary
    broker.more_handlers = Handlers({**known, BROKER + method: listen}, {})


def test_questions_about_offsets_name_the_leader_epoch(peers: Any, log: Any) -> None:
    """R-111: so a leader that was replaced and does not know it answers none of them."""
    fill(log, "a")
    listed: list[int] = []
    ended: list[tuple[int, int]] = []

    def on_list(request: bytes) -> None:
        listed.extend(each.current_leader_epoch for each in pb.ListOffsetsRequest.FromString(request).partitions)

    def on_end(request: bytes) -> None:
        asked = pb.OffsetsForLeaderEpochRequest.FromString(request).partitions
        ended.extend((each.current_leader_epoch, each.leader_epoch) for each in asked)

    overhear(peers.brokers[1], "ListOffsets", on_list)
    overhear(peers.brokers[2], "OffsetsForLeaderEpoch", on_end)

    async def story() -> None:
        async with peers.client(Consumer, "orders", auto_offset_reset="earliest") as reader:
            assert values(await reader.poll(5.0)) == ["a"]
            log.lead(2)
            fill(log, "b")
            peers.brokers[1].drop_streams()
            assert values(await reader.poll(5.0)) == ["b"]

    peers.run(story())
    assert listed == [0]
    assert ended == [(1, 0)]


async def test_read_committed_is_said_where_offsets_are_asked_for(peers: Any) -> None:
    """R-265: the end of what may be read is another one then."""
    peers.topic("orders")
    said: list[bool] = []
    overhear(
        peers.brokers[1],
        "ListOffsets",
        lambda request: said.append(pb.ListOffsetsRequest.FromString(request).read_committed),
    )
    for level in ("read_committed", "read_uncommitted"):
        async with peers.client(Consumer, "orders", isolation_level=level) as reader:
            await reader.poll(0.5)
    assert said == [True, False]


async def test_a_leader_that_is_replaced_before_it_is_asked_is_looked_for(peers: Any, log: Any) -> None:
    """R-267: its refusal means new metadata, also for a question about offsets."""
    fill(log, "a")
    overhear(peers.brokers[1], "ListOffsets", lambda _: log.lead(2))
    async with peers.client(Consumer, "orders", auto_offset_reset="earliest") as reader:
        assert values(await reader.poll(5.0)) == ["a"]


@pytest.mark.parametrize(
    ("code", "refreshes"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, True),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.OFFSET_NOT_AVAILABLE, True),
        (ErrorCode.KAFKA_STORAGE_ERROR, True),
        (ErrorCode.CORRUPT_MESSAGE, True),  # another replica leads as soon as the leader has found the damage
        (ErrorCode.UNKNOWN_LEADER_EPOCH, False),
    ],
)
async def test_which_refusals_ask_for_new_metadata(peers: Any, log: Any, code: ErrorCode, refreshes: bool) -> None:
    """R-267: who does not know the epoch yet knows less than we do; it is only asked again. All of them pass, and the
    application notices nothing."""
    fill(log, "a")

    def asked() -> int:
        return sum(broker.calls.count("Metadata") for broker in peers.brokers.values())

    async with peers.client(Consumer, "orders", auto_offset_reset="earliest") as reader:
        assert values(await reader.poll(5.0)) == ["a"]
        before = asked()
        peers.brokers[1].errors.extend([(log.name, code)] * 3)
        fill(log, "b")
        assert values(await reader.poll(5.0)) == ["b"]
        assert (asked() > before) is refreshes
