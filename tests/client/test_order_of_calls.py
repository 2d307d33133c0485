"""The records of a partition are in its log in the order of the calls of `send` and `enqueue`.

Several tasks share a producer. What a record waits for before it is in a batch, metadata or room, must not decide its
place.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from odradek import BufferFull, ClientClosed, Producer, UnknownTopic

from tests.client.test_patience import slow


class Calls:
    """Tasks that send numbered records to `orders`; a number is given when `send` or `enqueue` is called."""

    def __init__(self, peers: Any, **settings: Any) -> None:
        self.producer: Producer = peers.client(Producer, **settings)
        self.tasks: list[asyncio.Future[Any]] = []
        self.numbers = 0

    async def send(self, size: int = 0) -> None:
        self.numbers += 1
        await self.producer.send("orders", b"%04d" % self.numbers + b"." * size)

    async def enqueue(self) -> None:
        self.numbers += 1
        await (await self.producer.enqueue("orders", b"%04d" % self.numbers))

    def begin(self, size: int = 0) -> None:
        self.tasks.append(asyncio.ensure_future(self.send(size)))

    async def end(self) -> None:
        await asyncio.gather(*self.tasks)

    def in_order(self) -> list[bytes]:
        return [b"%04d" % number for number in range(1, self.numbers + 1)]


def values(log: Any) -> list[bytes]:
    return [value[:4] for value in log.values()]


@pytest.mark.parametrize("one_way_ms", [1, 20, 70])
async def test_calls_before_during_and_after_the_first_metadata(peers: Any, log: Any, one_way_ms: int) -> None:
    """A call that finds a refresh under way does not wait for the next one, with those after it passing by."""
    slow(peers, one_way_ms)
    calls = Calls(peers)
    async with calls.producer:
        for moment in range(300):
            calls.begin()
            if moment % 3 == 0:
                calls.tasks.append(asyncio.ensure_future(calls.enqueue()))
            await peers.clock.sleep(1)
        await calls.end()
    assert values(log) == calls.in_order()


async def test_calls_for_a_topic_that_is_made_late(peers: Any) -> None:
    """Refreshes that show no such topic come and go meanwhile."""
    calls = Calls(peers)
    async with calls.producer:
        for moment in range(900):
            if moment == 400:
                peers.topic("orders")
            calls.begin()
            await peers.clock.sleep(1)
        await calls.end()
    [log] = peers.logs.values()
    assert values(log) == calls.in_order()


@pytest.mark.parametrize("waits", [1, 5])
async def test_a_call_that_finds_the_topic_known_waits_behind_those_that_did_not(
    peers: Any, log: Any, waits: int
) -> None:
    """It is made in the turn of the loop in which the others have not gone on yet."""
    calls = Calls(peers)

    async def late() -> None:
        await calls.producer.partitions_for("orders")
        assert calls.numbers == waits
        await calls.send()

    async with calls.producer:
        first = asyncio.ensure_future(late())
        for _ in range(waits):
            calls.begin()
        await asyncio.gather(first, *calls.tasks)
    assert values(log) == calls.in_order()


async def test_who_leaves_the_row_holds_nobody_up(peers: Any) -> None:
    """A call that is cancelled, and one whose time is over, before the topic is made; those behind them go on."""
    calls = Calls(peers, unknown_topic_timeout_ms=2_000)
    async with calls.producer:
        calls.begin()
        await peers.clock.sleep(1_500)
        for _ in range(3):
            calls.begin()
            await peers.clock.sleep(1)
        refused, cancelled, *others = calls.tasks
        cancelled.cancel()
        await peers.until(refused.done)
        assert isinstance(refused.exception(), UnknownTopic)
        [log] = peers.topic("orders")
        calls.begin()
        await asyncio.gather(*others, calls.tasks[-1])
    assert values(log) == [b"0003", b"0004", b"0005"]


async def test_nothing_is_taken_once_the_producer_is_being_closed(peers: Any) -> None:
    """Not by the call that waited for metadata, nor by one after it that finds the topic known."""
    peers.topic("bills")
    calls = Calls(peers)
    await calls.producer.start()
    await calls.producer.send("bills", b"first")
    peers.brokers[1].holding = True
    last = asyncio.ensure_future(calls.producer.send("bills", b"last"))
    calls.begin()
    await peers.until(lambda: peers.brokers[1].held)
    closing = asyncio.ensure_future(calls.producer.close())
    [log] = peers.topic("orders")
    await peers.until(calls.tasks[0].done)
    calls.begin()
    peers.brokers[1].release()
    await asyncio.gather(closing, last)
    outcomes = await asyncio.gather(*calls.tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ClientClosed, ClientClosed]
    assert not log.values()


async def test_calls_that_wait_for_room(peers: Any, log: Any) -> None:
    """Small records that would fit wait behind a large one, also once its time is over."""
    broker = peers.brokers[1]
    calls = Calls(peers, buffer_memory=1_000, batch_size=200, max_block_ms=1_000)
    async with calls.producer:
        calls.begin()
        await calls.end()
        broker.holding = True
        for size in (400, 400, 600):
            calls.begin(size)
            await peers.clock.sleep(1)
        await peers.clock.sleep(500)
        for _ in range(5):
            calls.begin()
            await peers.clock.sleep(1)
        too_large = calls.tasks.pop(3)
        await peers.until(too_large.done)
        assert isinstance(too_large.exception(), BufferFull)
        broker.release()
        await calls.end()
    expected = calls.in_order()
    expected.remove(b"0004")
    assert values(log) == expected


async def test_whoever_waits_as_the_producer_gives_up_hears_of_it_at_once(peers: Any) -> None:
    """For room in the buffer or for a topic, each call in the row; nothing is taken, and no task goes on."""
    [log] = peers.topic("bills")
    sender = peers.client(Producer, buffer_memory=1_000, batch_size=200)
    await sender.start()
    await sender.send("bills", b"first")
    peers.brokers[1].holding = True
    await sender.enqueue_many("bills", [b"x" * 90] * 10)
    waiting = [asyncio.ensure_future(sender.enqueue("bills", b"y" * 90)) for _ in range(3)]
    waiting += [asyncio.ensure_future(sender.enqueue("orders", b"z")) for _ in range(3)]
    await peers.clock.sleep(100)
    begun_ms = peers.clock.now_ms()
    with pytest.raises(ExceptionGroup):
        await sender.close(timeout=0.5)
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ClientClosed] * 6
    assert peers.clock.now_ms() - begun_ms == 500
    assert b"y" * 90 not in values(log)
