"""The producer against a peer cluster in virtual time: acknowledgements, failover, backpressure, leaving."""

from __future__ import annotations

import asyncio
import types
from typing import Any, cast

import pytest
from odradek import (
    BootstrapError,
    BrokerError,
    BufferFull,
    ClientClosed,
    DeliveryTimeout,
    OdradekError,
    Producer,
    RecordTooLarge,
    RequestTimeout,
    SerializationError,
    UnknownTopic,
)
from odradek_proto.compression import Codec
from odradek_proto.errors import ErrorCode


async def test_send_returns_where_the_record_is(peers: Any, log: Any) -> None:
    """Topic, partition, offset and timestamp, once the leader has it."""
    async with peers.client(Producer) as sender:
        first = await sender.send("orders", "a", key=b"k", headers={"h": b"1"}, timestamp=7)
        second = await sender.send("orders", b"b")
        assert (first.topic, first.partition, first.offset, first.timestamp) == ("orders", 0, 0, 7)
        assert second.offset == 1
    assert log.values() == [b"a", b"b"]


async def test_what_is_enqueued_travels_together(peers: Any, log: Any) -> None:
    """A thousand records are a few batches, in order, on one stream."""
    async with peers.client(Producer) as sender:
        deliveries = await sender.enqueue_many("orders", [f"{number:04}" for number in range(5_000)])
        offsets = [(await delivery).offset for delivery in deliveries]
        assert offsets == list(range(5_000))
    assert log.values() == [b"%04d" % number for number in range(5_000)]
    assert len(log.batches) < 10


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_batches_are_compressed(peers: Any, log: Any, codec: Any) -> None:
    """With each of Kafka's codecs."""
    async with peers.client(Producer, compression_type=codec) as sender:
        await asyncio.gather(*[sender.send("orders", b"x" * 100) for _ in range(20)])
    assert {header.codec for header, _ in log.batches} == {Codec[codec.upper()]}
    assert log.values() == [b"x" * 100] * 20


async def test_a_killed_leader_costs_little_more_than_its_election(peers: Any, log: Any) -> None:
    """The sends wait, go to the new leader, and arrive once and in order."""
    async with peers.client(Producer) as sender:
        await sender.send("orders", "0")
        peers.brokers[1].kill()
        began = peers.clock.now_ms()
        sends = [asyncio.ensure_future(sender.send("orders", str(number))) for number in range(1, 100)]
        await peers.clock.sleep(400)
        log.lead(2)
        await asyncio.gather(*sends)
        assert 400 <= peers.clock.now_ms() - began < 400 * 1.5
    assert log.values() == [str(number).encode() for number in range(100)]


async def test_lost_answers_do_not_duplicate(peers: Any, log: Any) -> None:
    """The stream breaks with five batches written and unanswered; the retries are recognised (CL-07)."""
    broker = peers.brokers[1]
    async with peers.client(Producer, batch_size=100) as sender:
        await sender.send("orders", "first")
        broker.holding = True
        deliveries = await sender.enqueue_many("orders", [f"{number:050}" for number in range(8)])
        await peers.until(lambda: len(broker.held) == 5)
        broker.drop_streams()
        broker.release()
        assert [(await delivery).offset for delivery in deliveries] == list(range(1, 9))
    assert len(log.values()) == 9
    assert len(broker.batches_in) == 9 + 5


async def test_a_frozen_leader_is_left_when_another_leads(peers: Any, log: Any) -> None:
    """A broker that answers nothing and closes nothing holds records up only until metadata shows the new leader."""
    async with peers.client(Producer) as sender:
        await sender.send("orders", "a")
        peers.brokers[1].node.pause()
        began = peers.clock.now_ms()
        send = asyncio.ensure_future(sender.send("orders", "b"))
        await peers.clock.sleep(3_000)
        log.lead(2)
        assert (await send).offset == 1
        assert 3_000 <= peers.clock.now_ms() - began < 4_500


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.CORRUPT_MESSAGE]
)
async def test_retriable_answers_are_retried(peers: Any, log: Any, code: ErrorCode) -> None:
    """The application notices nothing but the time."""
    peers.brokers[1].errors.extend([(log.name, code)] * 3)
    async with peers.client(Producer) as sender:
        assert (await sender.send("orders", "a")).offset == 0
    assert log.values() == [b"a"]


async def test_an_answer_that_cannot_be_retried_is_raised(peers: Any, log: Any) -> None:
    """As the class of its code, and only for its own batch."""
    peers.brokers[1].errors.append((log.name, ErrorCode.MESSAGE_TOO_LARGE))
    async with peers.client(Producer) as sender:
        with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE") as caught:
            await sender.send("orders", "a")
        assert (caught.value.retriable, caught.value.fatal) == (False, False)
        assert "max.message.bytes" in caught.value.hint
        await sender.send("orders", "b")
    assert log.values() == [b"b"]


async def test_delivery_timeout_says_what_went_wrong_last(peers: Any, log: Any) -> None:
    """And that the record may be written."""
    peers.brokers[1].errors.extend([(log.name, ErrorCode.REQUEST_TIMED_OUT)] * 1_000)
    async with peers.client(Producer, delivery_timeout_ms=2_000) as sender:
        began = peers.clock.now_ms()
        with pytest.raises(DeliveryTimeout, match="REQUEST_TIMED_OUT") as caught:
            await sender.send("orders", "a")
        assert caught.value.maybe_written
        assert 2_000 <= peers.clock.now_ms() - began < 2_100


def test_leaving_raises_what_nobody_awaited(peers: Any) -> None:
    """A failure is told exactly once: to who awaits it, or at the end."""
    one, two = peers.topic("orders", partitions=2)
    peers.brokers[1].errors.append((one.name, ErrorCode.INVALID_RECORD))
    peers.brokers[2].errors.append((two.name, ErrorCode.INVALID_RECORD))

    async def story() -> None:
        async with peers.client(Producer) as sender:
            await sender.enqueue("orders", "forgotten", partition=0)
            awaited = await sender.enqueue("orders", "awaited", partition=1)
            with pytest.raises(BrokerError):
                await awaited

    with pytest.raises(ExceptionGroup, match="1 record was not delivered") as caught:
        peers.run(story())
    [error] = caught.value.exceptions
    assert isinstance(error, BrokerError)
    assert error.__notes__ == ["orders-0: 1 record that nobody awaited"]


def test_what_a_callback_raises_goes_to_the_exception_handler(peers: Any) -> None:
    """The record, the other callbacks and the producer have nothing to do with it."""
    partition = peers.topic("orders", partitions=1)[0].name.partition
    told: list[object] = []

    def fail(delivery: object) -> None:
        raise ValueError("of the callback")

    async def story() -> None:
        async with peers.client(Producer) as sender:
            one = await sender.enqueue("orders", "a", partition=partition)
            one.add_done_callback(fail)
            one.add_done_callback(told.append)
            await sender.flush()
            assert (await one).offset == 0
            one.add_done_callback(fail)
            two = await sender.enqueue("orders", "b", partition=partition)
            assert (await two).offset == 1
        assert told == [one]

    peers.loop.run(story())
    assert [str(context["exception"]) for context in peers.loop.unhandled] == ["of the callback"] * 2


async def test_a_callback_hears_of_its_record(peers: Any) -> None:
    """Soon after the acknowledgement or the failure, also when that was long ago; and it counts as having been told."""
    one, two = peers.topic("orders", partitions=2)
    peers.brokers[2].errors.append((two.name, ErrorCode.INVALID_RECORD))
    told: list[object] = []
    async with peers.client(Producer) as sender:
        fine = await sender.enqueue("orders", "a", partition=one.name.partition)
        fine.add_done_callback(lambda delivery: told.append(delivery.result().offset))
        refused = await sender.enqueue("orders", "b", partition=two.name.partition)
        refused.add_done_callback(lambda delivery: told.append(isinstance(delivery.exception(), BrokerError)))
        assert not told
        await sender.flush()
        await asyncio.sleep(0)
        assert sorted(map(str, told)) == ["0", "True"]
        fine.add_done_callback(told.append)
        assert fine not in told
        await asyncio.sleep(0)
        assert told[-1] is fine


async def test_leaving_flushes(peers: Any, log: Any) -> None:
    """Records that linger are sent before the producer ends."""
    async with peers.client(Producer, linger_ms=60_000) as sender:
        await sender.enqueue_many("orders", ["a", "b"])
    assert log.values() == [b"a", b"b"]


async def test_closing_does_not_wait_for_ever(peers: Any) -> None:
    """After the timeout of `close` what is left is reported as not acknowledged."""
    peers.topic("orders")
    sender = peers.client(Producer)
    await sender.start()
    peers.brokers[1].holding = True
    await sender.enqueue("orders", "a")
    with pytest.raises(ExceptionGroup) as caught:
        await sender.close(timeout=1)
    assert isinstance(caught.value.exceptions[0], ClientClosed)
    with pytest.raises(ClientClosed):
        await sender.send("orders", "b")


async def test_flush_waits_for_what_was_taken_before(peers: Any, log: Any) -> None:
    """And gives up after its timeout, without losing anything."""
    broker = peers.brokers[1]
    async with peers.client(Producer, linger_ms=60_000) as sender:
        broker.holding = True
        await sender.enqueue("orders", "a")
        with pytest.raises(RequestTimeout):
            await sender.flush(timeout=0.5)
        broker.release()
        await sender.flush()
        assert log.values() == [b"a"]


async def test_a_full_buffer_slows_the_application_down(peers: Any, log: Any) -> None:
    """enqueue waits for room, in turn, and raises BufferFull after max.block.ms."""
    broker = peers.brokers[1]
    async with peers.client(Producer, buffer_memory=1_000, batch_size=200, max_block_ms=1_000) as sender:
        await sender.send("orders", "first")
        broker.holding = True
        await sender.enqueue_many("orders", ["x" * 90] * 10)
        with pytest.raises(BufferFull, match="1000 of 1000 bytes"):
            await sender.enqueue("orders", "x" * 90)
        waiting = [asyncio.ensure_future(sender.enqueue("orders", f"{number}" * 90)) for number in range(3)]
        await peers.clock.sleep(100)
        assert not any(task.done() for task in waiting)
        broker.release()
        await asyncio.gather(*waiting)
    assert [(value or b"")[:1] for value in log.values()][-3:] == [b"0", b"1", b"2"]


async def test_records_that_can_never_be_sent_are_refused(peers: Any) -> None:
    """Too large, not bytes, to a topic or a partition that is not there."""
    peers.topic("orders", partitions=2)
    async with peers.client(Producer, max_request_size=1_000) as sender:
        refused: list[tuple[type[OdradekError], Any, dict[str, Any]]] = [
            (RecordTooLarge, "x" * 1_000, {}),
            (SerializationError, 7, {}),
            (UnknownTopic, "x", {"partition": 2}),
        ]
        for kind, value, more in refused:
            with pytest.raises(kind):
                await sender.send("orders", value, **more)
        with pytest.raises(UnknownTopic, match="no topic 'nowhere'"):
            await sender.send("nowhere", "x")


async def test_serializers_make_bytes(peers: Any, log: Any) -> None:
    """Of keys and values; what they raise names the value."""
    sender: Producer[int, float] = peers.client(
        Producer, key_serializer=lambda key: b"%d" % key, value_serializer=lambda value: str(1 / value).encode()
    )
    async with sender:
        await sender.send("orders", 4.0, key=3)
        with pytest.raises(SerializationError, match="ZeroDivisionError"):
            await sender.send("orders", 0.0)
    assert log.values() == [b"0.25"]


async def test_nobody_there_lists_each_address(peers: Any) -> None:
    """With its own cause, and what to look at."""
    sender = Producer("elsewhere:1,nowhere:2", clock=peers.clock, network=peers.network)
    with pytest.raises(
        BootstrapError, match="elsewhere:1: connection refused; nowhere:2: connection refused"
    ) as caught:
        await sender.start()
    assert "odradek cluster up" in caught.value.hint


async def test_a_cancelled_send_harms_nobody(peers: Any, log: Any) -> None:
    """The record may still be written; the others in its batch get their answers."""
    broker = peers.brokers[1]
    async with peers.client(Producer) as sender:
        await sender.send("orders", "first")
        broker.holding = True
        one, two = (asyncio.ensure_future(sender.send("orders", value)) for value in "ab")
        await peers.until(lambda: broker.held)
        one.cancel()
        broker.release()
        assert (await two).offset == 2
        assert one.cancelled()
    assert log.values() == [b"first", b"a", b"b"]


@pytest.mark.parametrize("seed", range(5))
def test_leaders_that_come_and_go_lose_and_duplicate_nothing(peers_of_seed: Any, seed: int) -> None:
    """Kills, moves and broken streams while several partitions are written: every record once and in order."""
    peers = peers_of_seed(seed)
    logs = peers.topic("orders", partitions=4)
    rng = peers.loop.fork_rng("faults")

    async def faults() -> None:
        for _ in range(25):
            await peers.clock.sleep(rng.randrange(1, 60))
            broker = peers.brokers[rng.choice([1, 2, 3])]
            if rng.random() < 0.5:
                broker.drop_streams()
                continue
            broker.kill()
            for log in logs:
                if log.leader == broker.broker_id:
                    log.lead(broker.broker_id % 3 + 1)
            await peers.clock.sleep(rng.randrange(1, 30))
            broker.start()

    async def write(sender: Producer, partition: int) -> None:
        for number in range(300):
            await sender.enqueue("orders", str(number), partition=partition)
            if number % 7 == 0:
                await peers.clock.sleep(rng.randrange(1, 10))

    async def story() -> None:
        async with peers.client(Producer, batch_size=100) as sender:
            await asyncio.gather(faults(), *[write(sender, partition) for partition in range(4)])

    peers.run(story())
    assert [log.values() for log in logs] == [[str(number).encode() for number in range(300)]] * 4


@pytest.mark.parametrize("is_over", [False, True])
async def test_a_producer_whose_tasks_were_cancelled_sends_what_it_took_when_it_is_closed(
    peers: Any, log: Any, is_over: bool
) -> None:
    """As `asyncio.run` cancels all tasks of its loop, while a worker of the application leaves its `async with`."""
    before = asyncio.all_tasks()
    async with peers.client(Producer) as sender:
        await sender.send("orders", "first")
        peers.brokers[1].holding = True
        await sender.enqueue("orders", "on the wire")
        await peers.until(lambda: peers.brokers[1].held)
        await sender.enqueue("orders", "waiting")
        for task in asyncio.all_tasks() - before:
            if "/client/odradek/" in cast("types.CoroutineType[Any, Any, Any]", task.get_coro()).cr_code.co_filename:
                task.cancel()
        peers.brokers[1].holding = False
        if is_over:
            await peers.clock.sleep(1)
        began_ms = peers.clock.now_ms()
    assert log.values() == [b"first", b"on the wire", b"waiting"]
    assert peers.clock.now_ms() - began_ms < 1_000
