"""Clients that mean harm, against a real broker process: its memory stays bounded, and honest writes go on.

Everything here is raw sockets, so that nothing polite stands in between. HTTP/2 frames are written by hand; headers
are literals without compression (RFC 7541, 6.2.2). docs/limits.md says what is bounded and what is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from odradek_proto.records import encode_batch
from odradek_proto.transport.frames import pack_frame
from odradek_proto.v1 import broker_pb2 as pb

from tests.cluster.hostile import (
    CONNECTIONS,
    CONNECTIONS_OF_EACH_KIND,
    KIB,
    MIB,
    TOPIC,
    Abuses,
    Broker,
    broker,
    most_of,
    rises_under,
)
from tests.seeds import TORTURE

__all__ = ["broker"]

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, WINDOW_UPDATE = 0, 1, 4, 8
END_HEADERS, END_STREAM, ACK = 4, 1, 1
INITIAL_WINDOW_SIZE = 4  # a SETTINGS identifier
WIDEST = 2**31 - 1
BATCH = encode_batch([(0, None, b"x" * 1_000, ())])
KINDS = 7  # that attack one broker together in CI
TLS_HELLO = bytes.fromhex("160301020001fc0303") + bytes(509)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """length 24 | kind 8 | flags 8 | stream 32 | payload."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def opening(window: int | None = None) -> bytes:
    """Preface and settings; with a window, leave to send that much without ever being told that it was read."""
    if window is None:
        return PREFACE + frame(SETTINGS, 0, 0, b"")
    settings = INITIAL_WINDOW_SIZE.to_bytes(2, "big") + window.to_bytes(4, "big")
    widened = frame(WINDOW_UPDATE, 0, 0, (window - 65_535).to_bytes(4, "big"))
    return PREFACE + frame(SETTINGS, 0, 0, settings) + frame(SETTINGS, ACK, 0, b"") + widened


def call(method: str, stream: int = 1) -> bytes:
    """The headers of one gRPC call."""
    fields = [(":method", "POST"), (":scheme", "http"), (":path", f"/odradek.v1.Broker/{method}"), (":authority", "x")]
    fields += [("te", "trailers"), ("content-type", "application/grpc")]
    block = b"".join(
        b"\x00" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode() for name, value in fields
    )
    return frame(HEADERS, END_HEADERS, stream, block)


def message(payload: bytes, *, claims: int | None = None, end: bool = False, stream: int = 1) -> bytes:
    """One gRPC message in DATA frames of at most 16 KiB, honest about its length or not."""
    body = b"\x00" + (len(payload) if claims is None else claims).to_bytes(4, "big") + payload
    parts = [body[start : start + 16_384] for start in range(0, len(body), 16_384)]
    return b"".join(
        frame(DATA, END_STREAM if end and index == len(parts) - 1 else 0, stream, part)
        for index, part in enumerate(parts)
    )


def produce(items: Sequence[tuple[str, int, int]], batches: bytes, acks: int = 1) -> bytes:
    """A ProduceFrame; items are (topic, partition, claimed size)."""
    header = pb.ProduceHeader()
    for topic, partition, size in items:
        header.items.add(correlation_id=1, acks=acks, topic=topic, partition=partition, size=size)
    return pack_frame(header.SerializeToString(), [batches])


def fetch(partitions: Sequence[tuple[str, int]], credit: int = 0) -> bytes:
    """A FetchFrame that asks for as much as there is."""
    header = pb.FetchHeader(replica_id=-1, max_bytes=WIDEST, credit_bytes=credit)
    for topic, partition in partitions:
        header.partitions.add(
            topic=topic, partition=partition, max_bytes=WIDEST, current_leader_epoch=-1, last_fetched_epoch=-1
        )
    return pack_frame(header.SerializeToString(), [])


LYING = message(produce([(TOPIC, 0, WIDEST)], BATCH))
NEGATIVE = message(produce([(TOPIC, 0, -1)], BATCH))
NO_ITEMS = message(pack_frame(b"", [BATCH * 50]))
EMPTY_ITEMS = message(pack_frame(b"\x0a\x00" * 25_000, []))  # 25,000 items of two bytes each
GIANT_NAME = message(produce([("n" * 50_000, 0, len(BATCH))], BATCH))
GIANT_NAMES = message(fetch([("n" * 25_000, 0), ("m" * 25_000, 1)]))
THOUSANDS = message(fetch([(TOPIC, number) for number in range(4_000)]))

ABUSES: Abuses = {
    "silent": lambda _: b"",
    "half a preface": lambda _: PREFACE[:14],
    "half a frame header": lambda _: opening() + call("ProduceStream") + b"\x00\x40",
    "half a message": lambda _: opening() + call("ProduceStream") + message(bytes(60_000), claims=8 * MIB),
    "half a call": lambda _: opening() + call("Produce") + message(bytes(60_000), claims=8 * MIB),
    "claims 2 GiB": lambda _: opening() + call("ProduceStream") + message(bytes(16_000), claims=WIDEST),
    "HTTP/1": lambda _: b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n" * 20,
    "TLS hello": lambda _: TLS_HELLO,
    "noise": lambda number: bytes((number * 31 + index * index) % 251 for index in range(2_000)),
    "lying sizes": lambda _: opening() + call("ProduceStream") + LYING + NEGATIVE + NO_ITEMS,
    "empty items": lambda _: opening() + call("ProduceStream") + EMPTY_ITEMS,
    "giant names produced": lambda _: opening() + call("ProduceStream") + GIANT_NAME,
    "giant names fetched": lambda _: opening() + call("FetchStream") + GIANT_NAMES,
    "thousands of partitions": lambda _: opening() + call("FetchStream") + THOUSANDS,
    "writes and never reads": lambda _: (
        opening() + call("ProduceStream") + message(produce([(TOPIC, 0, len(BATCH))], BATCH)) * 30
    ),
    "fetches and never reads": lambda _: (
        opening(WIDEST) + call("FetchStream") + message(fetch([(TOPIC, 0)])) * 4
    ),
    "fetches with credit and never reads": lambda _: (
        opening(WIDEST) + call("FetchStream") + message(fetch([(TOPIC, 0)], credit=WIDEST)) * 4
    ),
    "asks once and never reads": lambda _: (
        opening(WIDEST) + call("Fetch") + message(fetch([(TOPIC, 0)]), end=True)
    ),
    "thirty streams each": lambda _: opening() + b"".join(call("FetchStream", 2 * k + 1) for k in range(30)),
}  # fmt: skip


def attacks(abuses: Iterable[str]) -> list[tuple[list[str], int]]:
    """Which kinds of connections attack one broker together, and how many of each: in CI some kinds at a time, since
    most of what a test costs is its broker, and in `make torture` each kind alone, and all at once."""
    kinds = list(abuses)
    if TORTURE:
        return [*(([kind], CONNECTIONS) for kind in kinds), (kinds, CONNECTIONS_OF_EACH_KIND)]
    groups = -(-len(kinds) // KINDS)
    return [(kinds[group::groups], CONNECTIONS) for group in range(groups)]  # those alike apart: they share bounds


@pytest.mark.parametrize(("kinds", "count"), attacks(ABUSES))
def test_hostile_clients_stay_small(broker: Broker, kinds: list[str], count: int) -> None:
    """Hundreds of connections of a kind that means harm cost less than 256 KiB each, and writes go on."""
    rises = rises_under(broker, broker.bootstrap, ABUSES, kinds, count)
    assert rises.pop("all") < most_of(count * len(kinds))
    assert {kind: rise // count // KIB for kind, rise in rises.items() if rise >= most_of(count)} == {}
