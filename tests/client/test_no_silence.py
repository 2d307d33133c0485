"""Nothing is lost and nothing waits in silence: dropped clients warn, outages are logged when they begin and end."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import warnings
from typing import Any

import pytest
from odradek import Admin, Consumer, DeliveryTimeout, Producer, TopicPartition, UnsupportedFeature
from odradek.core.outages import OutageLine, Outages
from odradek.shared.errors import HINTS
from odradek.sync import Producer as SyncProducer
from odradek_proto.errors import ErrorCode

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)


# --- clients that are dropped --------------------------------------------------------------------------------------


def test_a_dropped_producer_tells_how_many_records_it_holds(peers: Any) -> None:
    """As a ResourceWarning, and to the loop's exception handler, which logs where nobody has looked for warnings."""
    peers.topic("orders")

    async def story() -> list[warnings.WarningMessage]:
        sender = peers.client(Producer)
        await sender.start()
        for number in range(50):
            await sender.enqueue("orders", str(number))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del sender
        return caught

    caught = peers.loop.run(story())
    said = "unclosed Producer 'odradek': 50 records that were taken are not acknowledged yet"
    assert [str(warning.message).startswith(said) for warning in caught] == [True]
    assert caught[0].category is ResourceWarning
    assert [context["message"].startswith(said) for context in peers.loop.unhandled] == [True]


def test_a_close_that_is_cancelled_tells_how_many_records_it_gives_up(peers: Any) -> None:
    """The cancellation goes on, and nobody would hear of them by it."""
    peers.topic("orders")

    async def story() -> None:
        sender = peers.client(Producer)
        await sender.start()
        peers.brokers[1].holding = True
        for number in range(50):
            await sender.enqueue("orders", str(number))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await sender.close()

    peers.loop.run(story())
    [context] = peers.loop.unhandled
    assert context["message"].startswith("close() of Producer 'odradek' was cancelled: 50 records were not delivered")


@pytest.mark.parametrize("kind", [Producer, SyncProducer])
def test_a_client_whose_settings_are_refused_says_nothing_else(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of it is collected in silence."""
    ignored: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    with pytest.raises(UnsupportedFeature, match="transactional_id"):
        kind("127.0.0.1:1", transactional_id="x")
    gc.collect(1)  # it is young
    assert ignored == []


@pytest.mark.parametrize("kind", [Producer, Consumer, Admin])
def test_a_dropped_client_that_loses_nothing_is_a_resource_warning_alone(peers: Any, kind: Any) -> None:
    """As an unclosed file is; one that was closed, or never started, is none."""
    peers.topic("orders")

    async def story() -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            client = peers.client(kind)
            del client
            client = peers.client(kind)
            async with client:
                pass
            del client
            assert caught == []
            client = peers.client(kind)
            await client.start()
            if kind is Producer:
                await client.send("orders", "a")
            del client
        return [str(warning.message) for warning in caught]

    assert peers.run(story()) == [f"unclosed {kind.__name__} 'odradek'"]


# --- outages -------------------------------------------------------------------------------------------------------


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "odradek"]


async def test_an_outage_is_logged_when_it_begins_and_when_it_ends(
    peers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """47 seconds without a broker: two lines of the producer and two of the consumer, with partition and cause."""
    caplog.set_level(logging.INFO, "odradek")
    peers.topic("orders")
    async with peers.client(Producer) as sender, peers.client(Consumer, "orders") as reader:
        await sender.send("orders", "before")
        await reader.poll(1)
        for broker in peers.brokers.values():
            broker.kill()
        delivery = await sender.enqueue("orders", "meanwhile")
        await peers.clock.sleep(47_000)
        assert [level for level, _ in lines(caplog)] == ["WARNING", "WARNING"]
        for broker in peers.brokers.values():
            broker.start()
        await delivery
        await peers.until(lambda: len(lines(caplog)) == 4)
        await sender.send("orders", "after")
        await peers.clock.sleep(5_000)
    told = lines(caplog)
    assert [level for level, _ in told] == ["WARNING", "WARNING", "INFO", "INFO"]
    for nothing, (_, begun), (_, ended) in zip(
        ("acknowledged", "read"), sorted(told[:2]), sorted(told[2:]), strict=True
    ):
        assert begun.startswith(f"orders-0: nothing is {nothing} for ")
        assert "broker 1" in begun
        assert ended.startswith("orders-0: goes on after 4")


async def test_a_consumer_that_is_closed_says_and_asks_nothing_more(
    peers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Its partition was refused shortly before, and was to be asked for again after a pause."""
    peers.topic("orders")
    broker = peers.brokers[1]
    broker.errors += [(ZERO, ErrorCode.KAFKA_STORAGE_ERROR)] * 1_000
    async with peers.client(Consumer, "orders", auto_offset_reset="earliest") as reader:
        assert await reader.poll(5) == []
        left = len(broker.errors)
        assert left < 999
        await peers.until(lambda: len(broker.errors) < left)  # and the next pause began
    caplog.clear()
    await peers.clock.sleep(60_000)
    assert len(broker.errors) == left - 1
    assert lines(caplog) == []


async def test_a_failover_is_no_outage(peers: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Who leads next is known within a second: nothing is logged."""
    caplog.set_level(logging.INFO, "odradek")
    [log] = peers.topic("orders")
    async with peers.client(Producer) as sender, peers.client(Consumer, "orders") as reader:
        await sender.send("orders", "before")
        await reader.poll(1)
        peers.brokers[1].kill()
        delivery = await sender.enqueue("orders", "meanwhile")
        await peers.clock.sleep(900)
        log.lead(2)
        await delivery
        await reader.poll(5)
        await peers.clock.sleep(5_000)
    assert lines(caplog) == []


async def test_records_that_were_given_up_do_not_end_an_outage(peers: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It ends when something is acknowledged again."""
    caplog.set_level(logging.INFO, "odradek")
    [log] = peers.topic("orders")
    async with peers.client(Producer, delivery_timeout_ms=5_000) as sender:
        await sender.send("orders", "before")
        log.lead(-1)
        with pytest.raises(DeliveryTimeout):
            await sender.send("orders", "lost")
        await peers.clock.sleep(20_000)
        assert [level for level, _ in lines(caplog)] == ["WARNING"]
        log.lead(2)
        await sender.send("orders", "after")
        await peers.clock.sleep(1_000)
        assert [level for level, _ in lines(caplog)] == ["WARNING", "INFO"]


async def test_a_frozen_broker_is_named(peers: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It breaks nothing and refuses nothing: what is known is that it does not answer."""
    caplog.set_level(logging.INFO, "odradek")
    peers.topic("orders")
    async with peers.client(Producer) as sender:
        await sender.send("orders", "before")
        peers.brokers[1].holding = True
        delivery = await sender.enqueue("orders", "held")
        await peers.clock.sleep(10_000)
        peers.brokers[1].holding = False
        peers.brokers[1].release()
        await delivery
        await peers.clock.sleep(1_000)
    assert lines(caplog)[0][1].endswith("s: broker 1 has not answered: it is silent, or waits for in-sync replicas")
    assert len(lines(caplog)) == 2


def look(outages: Outages, held_up: dict[TopicPartition, str], *times_ms: int) -> list[OutageLine]:
    return [line for now_ms in times_ms for line in outages.look(held_up, now_ms)]


def test_an_outage_that_lasts_is_logged_ever_more_rarely() -> None:
    """After two seconds, a minute, two minutes, four; an hour at most."""
    outages = Outages("nothing is read")
    begun = look(outages, {ZERO: "why"}, *range(0, 500_000, 1_000))
    assert [line.text for line in begun] == [
        f"orders-0: nothing is read for {seconds}.0 s: why" for seconds in (2, 62, 182, 422)
    ]
    assert look(outages, {}, 500_000) == [OutageLine("orders-0: goes on after 500.0 s; it was: why", ended=True)]
    assert not outages


def test_partitions_with_one_cause_share_a_line() -> None:
    """Five are named, of the others only the number; another cause is another line."""
    many = {TopicPartition("t", number): "no leader" for number in range(7)}
    begun = look(Outages("nothing is read"), {**many, ZERO: ErrorCode.KAFKA_STORAGE_ERROR.name}, 0, 2_000)
    assert [line.text for line in begun] == [
        "t-0, t-1, t-2, t-3, t-4 and 2 partitions more: nothing is read for 2.0 s: no leader",
        "orders-0: nothing is read for 2.0 s: KAFKA_STORAGE_ERROR",
    ]


def test_a_cause_that_names_its_partition_is_shared_all_the_same() -> None:
    """Errors of brokers say where they are from; a line for each of 900 partitions would say nothing more."""
    outages = Outages("nothing is read")
    each = {TopicPartition("t", number): f"t-{number} at offset {number}: STORAGE_ERROR: why" for number in range(3)}
    each |= {ZERO: "orders-0: STORAGE_ERROR: why"}
    begun, ended = look(outages, each, 0, 2_000), look(outages, {}, 3_000)
    assert [line.text for line in (*begun, *ended)] == [
        "t-0, t-1, t-2, orders-0: nothing is read for 2.0 s: STORAGE_ERROR: why",
        "t-0, t-1, t-2, orders-0: goes on after 3.0 s; it was: STORAGE_ERROR: why",
    ]


def test_what_passes_soon_is_not_logged() -> None:
    """Neither its beginning nor its end; and each time is a beginning of its own."""
    outages = Outages("nothing is read")
    assert look(outages, {ZERO: "why"}, 0, 1_999) == []
    assert look(outages, {ONE: "why"}, 2_000) == []
    assert look(outages, {}, 2_500) == []


async def test_a_group_whose_topic_does_not_exist_tells_the_log(peers: Any, caplog: pytest.LogCaptureFixture) -> None:
    """As Java's consumer it goes on, since the topic may be made later; the log names it, and says when it is there."""
    caplog.set_level(logging.INFO, "odradek")

    def lines() -> list[tuple[int, str]]:
        return [(r.levelno, r.getMessage()) for r in caplog.records if r.getMessage().startswith("ordres: ")]

    peers.topic("orders")
    async with peers.client(Consumer, "orders", "ordres", group_id="g") as reader:
        assert await reader.poll(10.0) == []
        [(level, text)] = lines()
        assert level == logging.WARNING
        assert text.startswith("ordres: nothing is read for 2.")
        assert text.endswith("there is no topic 'ordres' (" + HINTS[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] + ")")
        assert await reader.poll(80.0) == []
        assert len(lines()) == 2  # a minute later
        peers.topic("ordres")
        await reader.poll(5.0)
        [(level, text)] = lines()[2:]
        assert level == logging.INFO
        assert text.startswith("ordres: goes on after ")


@pytest.mark.parametrize("change", ["unsubscribe", "subscribe", "pause"])
async def test_what_is_no_longer_asked_for_does_not_go_on(
    peers: Any, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    """Neither a topic that does not exist, nor a partition that nobody leads."""
    caplog.set_level(logging.INFO, "odradek")
    [log] = peers.topic("orders")
    topics, group = (["orders"], {}) if change == "pause" else (["ordres"], {"group_id": "g"})
    log.lead(-1)
    async with peers.client(Consumer, *topics, **group) as reader:
        assert await reader.poll(10.0) == []
        assert len([text for _, text in lines(caplog) if "nothing is read" in text]) == 1
        if change == "unsubscribe":
            reader.unsubscribe()
        elif change == "subscribe":
            log.lead(2)
            reader.subscribe(["orders"])
        else:
            reader.pause(ZERO)
        await peers.clock.sleep(10_000)
        assert [text for _, text in lines(caplog) if "goes on" in text] == []
