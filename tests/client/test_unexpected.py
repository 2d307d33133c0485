"""What nobody should give to a client, and what should not happen inside it: it is said, and nothing hangs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest
from odradek import ClientFailed, ConfigError, Consumer, Producer, SerializationError, TopicPartition
from odradek_proto.compression import Codec
from odradek_proto.records import encode_batch

LATEST_TIMESTAMP = (1 << 63) - 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"timestamp": 1_700_000_000_000.5},
        {"timestamp": "7"},
        {"timestamp": -2},
        {"timestamp": LATEST_TIMESTAMP + 1},
        {"headers": {"h\ud800": b"1"}},
        {"headers": {"h": "\ud800"}},
        {"key": "\ud800"},
    ],
    ids=repr,
)
async def test_a_record_that_has_no_bytes_is_refused_at_the_door(peers: Any, log: Any, wrong: Any) -> None:
    """Before it is in a batch, with a topic that is known as with one that is not; the next record goes."""
    async with asyncio.timeout(5), peers.client(Producer) as sender:
        for _ in range(2):
            with pytest.raises(SerializationError):
                await sender.send("orders", "bad", **wrong)
            await sender.send("orders", "good")
    assert log.values() == [b"good", b"good"]


async def test_a_record_of_a_batch_that_cannot_be_encoded_fails_alone(peers: Any, log: Any) -> None:
    """Each timestamp is in range, but the distance between two of one batch is not; who comes later is not harmed."""
    async with asyncio.timeout(5), peers.client(Producer, linger_ms=5) as sender:
        first = await sender.enqueue("orders", "a", timestamp=-1)
        second = await sender.enqueue("orders", "b", timestamp=LATEST_TIMESTAMP)
        for delivery in (first, second):
            with pytest.raises(SerializationError, match="orders-0"):
                await delivery
        await sender.send("orders", "good")
    assert log.values() == [b"good"]


@pytest.mark.parametrize(("codec", "library"), [("lz4", "lz4.frame"), ("snappy", "cramjam"), ("zstd", "zstandard")])
def test_a_codec_that_is_not_installed_is_a_wrong_setting(
    monkeypatch: pytest.MonkeyPatch, codec: Any, library: str
) -> None:
    """It is said when the producer is made, with what to install."""
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigError, match=r"pip install 'odradek\[compression\]'"):
        Producer("localhost:1", compression_type=codec)


async def test_records_of_a_codec_that_is_not_installed_are_named(
    peers: Any, log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what to install, by an error of the client's; those before them come first, and seek gets past them."""
    for codec in (Codec.NONE, Codec.LZ4, Codec.NONE):
        log.append(encode_batch([(1_000, None, codec.name.encode(), ())], codec=codec))
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    async with peers.client(Consumer, "orders", auto_offset_reset="earliest") as reader:
        assert [record.value for record in await reader.poll(1.0)] == [b"NONE"]
        with pytest.raises(SerializationError, match=r"orders-0 from offset 1: lz4 needs lz4 \(pip install 'odradek"):
            await reader.poll(1.0)
        reader.seek(TopicPartition("orders", 0), 2)
        assert [record.value for record in await reader.poll(1.0)] == [b"NONE"]


class Surprise(Exception):
    """What nobody is prepared for."""


def surprise(*arguments: object, **more: object) -> Any:
    raise Surprise


def broken_at_the_drain(sender: Any) -> None:
    sender._engine.sender.drain = surprise


def broken_at_the_answer(sender: Any) -> None:
    sender._engine.sender._on_success = surprise  # the batch is then neither on the wire nor waiting


def broken_at_metadata(sender: Any) -> None:
    sender._cluster.listeners.append(surprise)
    sender._cluster.request_refresh("a test")


def broken_at_the_timer(sender: Any) -> None:
    sender._engine.sender.on_time = surprise


@pytest.mark.parametrize("breaks", [broken_at_the_drain, broken_at_the_answer, broken_at_metadata, broken_at_the_timer])
async def test_a_producer_that_fails_inside_tells_all_who_wait(peers: Any, breaks: Callable[[Any], None]) -> None:
    """Those who wait learn it at once, those who come later too, and closing does not hang."""
    peers.topic("orders", partitions=2)
    async with asyncio.timeout(5):
        sender = peers.client(Producer, linger_ms=10, acks="all")
        await sender.start()
        await sender.send("orders", "0", partition=0)
        breaks(sender)
        sends = [sender.send("orders", "1", partition=number % 2) for number in range(4)]
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {ClientFailed}
        assert isinstance(outcomes[0], ClientFailed)
        assert isinstance(outcomes[0].__cause__, Surprise)
        with pytest.raises(ClientFailed):
            await sender.send("orders", "2")
        await sender.close()


async def test_an_answer_that_cannot_be_read_costs_a_producer_its_stream(peers: Any, log: Any) -> None:
    """It opens another one and sends the batch again, which the leader recognises."""
    async with asyncio.timeout(10), peers.client(Producer) as sender:
        await sender.send("orders", "0")
        peers.brokers[log.leader].garbage = 1
        await sender.send("orders", "1")
        peers.brokers[log.leader].drop_streams()
        peers.brokers[log.leader].garbage = 1  # now the message with the credit
        await sender.send("orders", "2")
    assert log.values() == [b"0", b"1", b"2"]


def keeper_breaks(reader: Any) -> None:
    reader._engine._keeper._find_offsets = surprise
    reader.seek_to_beginning()


def link_breaks(reader: Any) -> None:
    [link] = reader._engine._links.values()
    link._next_message = surprise
    link.wake()


def answer_breaks(reader: Any) -> None:
    [link] = reader._engine._links.values()
    link._answered = surprise


@pytest.mark.parametrize("breaks", [keeper_breaks, link_breaks, answer_breaks, broken_at_metadata])
async def test_a_consumer_that_fails_inside_says_so(peers: Any, breaks: Callable[[Any], None]) -> None:
    """From the poll that waits, and from each that follows."""
    peers.topic("orders")
    async with (
        asyncio.timeout(10),
        peers.client(Producer) as sender,
        peers.client(Consumer, auto_offset_reset="earliest") as reader,
    ):
        await sender.send("orders", "0")
        reader.assign([TopicPartition("orders", 0)])
        assert len(await reader.poll(1)) == 1
        breaks(reader)
        poll = asyncio.get_running_loop().create_task(reader.poll(60))
        if breaks is answer_breaks:
            await sender.send("orders", "1")
        for waiting in (poll, reader.poll(60)):
            with pytest.raises(ClientFailed):
                await waiting


async def test_an_answer_that_cannot_be_read_costs_a_consumer_its_stream(peers: Any, log: Any) -> None:
    """It opens another one and reads on from its position."""
    async with asyncio.timeout(10):
        async with peers.client(Producer) as sender:
            await sender.send("orders", "0")
        async with peers.client(Consumer, auto_offset_reset="earliest") as reader:
            reader.assign([TopicPartition("orders", 0)])
            peers.brokers[log.leader].garbage = 3
            assert [record.value for record in await reader.poll(5)] == [b"0"]
