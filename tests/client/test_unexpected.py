"""What nobody should give to a client, and what should not happen inside it: it is said, and nothing hangs."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from odradek import ConfigError, Producer, SerializationError

LATEST_TIMESTAMP = (1 << 63) - 1


def producer(peers: Any, **settings: Any) -> Producer:
    return Producer(peers.bootstrap, clock=peers.clock, network=peers.network, **settings)


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
def test_a_record_that_has_no_bytes_is_refused_at_the_door(peers: Any, wrong: Any) -> None:
    """Before it is in a batch, with a topic that is known as with one that is not; the next record goes."""
    [log] = peers.topic("orders")

    async def story() -> None:
        async with producer(peers) as sender:
            for _ in range(2):
                with pytest.raises(SerializationError):
                    await sender.send("orders", "bad", **wrong)
                await sender.send("orders", "good")

    peers.run(story(), limit_s=5)
    assert log.values() == [b"good", b"good"]


def test_a_record_of_a_batch_that_cannot_be_encoded_fails_alone(peers: Any) -> None:
    """Each timestamp is in range, but the distance between two of one batch is not; who comes later is not harmed."""
    [log] = peers.topic("orders")

    async def story() -> None:
        async with producer(peers, linger_ms=5) as sender:
            first = await sender.enqueue("orders", "a", timestamp=-1)
            second = await sender.enqueue("orders", "b", timestamp=LATEST_TIMESTAMP)
            for delivery in (first, second):
                with pytest.raises(SerializationError, match="orders-0"):
                    await delivery
            await sender.send("orders", "good")

    peers.run(story(), limit_s=5)
    assert log.values() == [b"good"]


@pytest.mark.parametrize(("codec", "library"), [("lz4", "lz4.frame"), ("snappy", "cramjam"), ("zstd", "zstandard")])
def test_a_codec_that_is_not_installed_is_a_wrong_setting(
    monkeypatch: pytest.MonkeyPatch, codec: Any, library: str
) -> None:
    """It is said when the producer is made, with what to install."""
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigError, match=r"pip install 'odradek\[compression\]'"):
        Producer("localhost:1", compression_type=codec)
