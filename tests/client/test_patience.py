"""Where everything is slow, attempts become longer instead of more: nobody begins anew for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from odradek import Consumer, Producer
from odradek_chaos.worlds.simulated.net.links import uniform
from odradek_proto.records import encode_batch

MANY = 50


def slow(peers: Any, one_way_ms: int) -> None:
    """Every message to and from brokers takes so long, as on a machine where all of them wait for a processor."""
    for number in (1, 2, 3):
        for source, target in (("client", f"node{number}"), (f"node{number}", "client")):
            peers.fabric.link(source, target).delay = uniform(one_way_ms, one_way_ms * 1.2)


@pytest.mark.parametrize("one_way_ms", [10, 1_500, 4_000])
def test_many_consumers_get_their_first_records_from_slow_brokers(peers: Any, one_way_ms: int) -> None:
    """An opening that takes longer than the first one may is given more time with each attempt."""
    [log] = peers.topic("orders")
    log.append(encode_batch([(1_000, None, b"v", ())]))

    async def story() -> None:
        clients = [
            Consumer(peers.bootstrap, "orders", auto_offset_reset="earliest", bootstrap_timeout_ms=60_000,
                     clock=peers.clock, network=peers.network)
            for _ in range(MANY)
        ]  # fmt: skip
        await asyncio.gather(*[client.start() for client in clients])
        slow(peers, one_way_ms)
        first = await asyncio.gather(*[client.poll(120) for client in clients])
        assert [[record.value for record in records] for records in first] == [[b"v"]] * MANY
        await asyncio.gather(*[client.close() for client in clients])

    peers.run(story())


def test_a_producer_reaches_a_broker_that_is_slow_to_answer(peers: Any) -> None:
    """From its first question to the acknowledgement, every round takes three seconds."""
    [log] = peers.topic("orders")
    slow(peers, 1_500)

    async def story() -> None:
        sender = Producer(
            peers.bootstrap, bootstrap_timeout_ms=60_000, unknown_topic_timeout_ms=60_000,
            clock=peers.clock, network=peers.network,
        )  # fmt: skip
        async with sender:
            await sender.send("orders", "a")

    peers.run(story())
    assert log.values() == [b"a"]
