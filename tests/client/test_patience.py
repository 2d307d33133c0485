"""Where everything is slow, attempts become longer instead of more: nobody begins anew for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from odradek import BootstrapError, BufferFull, Consumer, Producer, UnknownTopic
from odradek.cluster.cluster import ClusterClient
from odradek_chaos.worlds.simulated.net.links import uniform
from odradek_proto.records import encode_batch

MANY = 50


def slow(peers: Any, one_way_ms: int) -> None:
    """Every message to and from brokers takes so long, as on a machine where all of them wait for a processor."""
    for number in (1, 2, 3):
        for source, target in (("client", f"node{number}"), (f"node{number}", "client")):
            peers.fabric.link(source, target).delay = uniform(one_way_ms, one_way_ms * 1.2)


@pytest.mark.slow
@pytest.mark.parametrize("one_way_ms", [10, 1_500, 4_000])
async def test_many_consumers_get_their_first_records_from_slow_brokers(peers: Any, log: Any, one_way_ms: int) -> None:
    """An opening that takes longer than the first one may is given more time with each attempt."""
    log.append(encode_batch([(1_000, None, b"v", ())]))
    clients = [
        peers.client(Consumer, "orders", auto_offset_reset="earliest", bootstrap_timeout_ms=60_000) for _ in range(MANY)
    ]
    await asyncio.gather(*[client.start() for client in clients])
    slow(peers, one_way_ms)
    first = await asyncio.gather(*[client.poll(120) for client in clients])
    assert [[record.value for record in records] for records in first] == [[b"v"]] * MANY
    await asyncio.gather(*[client.close() for client in clients])


async def test_a_producer_reaches_a_broker_that_is_slow_to_answer(peers: Any, log: Any) -> None:
    """From its first question to the acknowledgement, every round takes three seconds."""
    slow(peers, 1_500)
    async with peers.client(Producer, bootstrap_timeout_ms=60_000, unknown_topic_timeout_ms=60_000) as sender:
        await sender.send("orders", "a")
    assert log.values() == [b"a"]


async def test_a_call_of_a_producer_blocks_no_longer_than_max_block_ms(peers: Any) -> None:
    """Not for a topic that silent brokers do not describe, and not for the buffer when it has waited for a topic."""
    peers.topic("orders")
    async with peers.client(Producer, max_block_ms=3_000, buffer_memory=1_000, batch_size=200) as sender:
        await sender.send("orders", "first")
        for broker in peers.brokers.values():
            broker.node.pause()
        begun_ms = peers.clock.now_ms()
        with pytest.raises(BootstrapError, match="no answer"):
            await sender.send("elsewhere", "x")
        assert peers.clock.now_ms() - begun_ms == 3_000
        await sender.enqueue_many("orders", ["x" * 90] * 10)
        asked = asyncio.ensure_future(sender.enqueue("elsewhere", "x" * 90))
        begun_ms = peers.clock.now_ms()
        await peers.clock.sleep(2_000)
        peers.topic("elsewhere")
        peers.brokers[2].node.resume()  # which leads none of them
        with pytest.raises(BufferFull):
            await asked
        assert peers.clock.now_ms() - begun_ms == 3_000
        for broker in peers.brokers.values():
            broker.node.resume()


async def test_refreshes_come_at_growing_intervals_while_somebody_waits_for_one(peers: Any) -> None:
    """For a topic that there is not: up to retry.backoff.max.ms, and small again only after a quiet time."""
    cluster = ClusterClient(Producer(peers.bootstrap)._base_config, peers.clock, peers.network)
    await cluster.start()
    counts = []
    for timeout_ms in (10_000, 60_000, 10_000):
        before = sum(broker.calls.count("Metadata") for broker in peers.brokers.values())
        waiting = [cluster.partitions_of("nowhere", timeout_ms) for _ in range(2)]
        assert all(isinstance(each, UnknownTopic) for each in await asyncio.gather(*waiting, return_exceptions=True))
        counts.append(sum(broker.calls.count("Metadata") for broker in peers.brokers.values()) - before)
        await peers.clock.sleep(5_000)
    await cluster.close()
    assert abs(counts[0] - counts[2]) <= 4, counts
    assert counts[1] - counts[0] <= 50 / 0.8, counts


@pytest.mark.parametrize("seed", range(1, 5))
def test_a_reader_gets_on_soon_after_an_opening_was_lost_with_a_machine(peers_of_seed: Any, seed: int) -> None:
    """However often it was refused before: nothing comes any more of what the machine was asked without power."""
    peers = peers_of_seed(seed)
    [log] = peers.topic("orders")
    log.append(encode_batch([(1_000, None, b"before", ())]))

    async def story() -> None:
        async with peers.client(Consumer, "orders", auto_offset_reset="earliest") as reader:
            assert [record.value for record in await reader.poll(1)] == [b"before"]
            peers.brokers[1].kill()
            assert await reader.poll(20) == []
            peers.fabric.machine_off("node1")
            assert await reader.poll(2) == []
            peers.fabric.machine_on("node1")
            peers.brokers[1].start()
            log.append(encode_batch([(1_000, None, b"after", ())]))
            assert [record.value for record in await reader.poll(13)] == [b"after"]

    peers.run(story())
