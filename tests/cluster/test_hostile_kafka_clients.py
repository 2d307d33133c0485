"""The same harm as in `test_hostile_clients.py`, done to the listener for Kafka's clients.

Everything here is raw sockets and bytes by hand. docs/limits.md says what is bounded and what is not.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import pytest
from odradek_broker.kafka.messages.codec import definition, writer_of
from odradek_broker.kafka.messages.primitives import MessageWriter
from odradek_proto.records import encode_batch

from tests.cluster.hostile import (
    BYTES_PER_CONNECTION,
    KIB,
    MIB,
    TOPIC,
    Abuses,
    Broker,
    broker,
    most_of,
    rises_under,
)
from tests.cluster.test_hostile_clients import attacks
from tests.kafka.raw import FETCH, METADATA, PRODUCE, framed, header, string

__all__ = ["broker"]

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

JOIN_GROUP, LIST_GROUPS, CREATE_TOPICS, DESCRIBE_CONFIGS, API_VERSIONS, INIT_PRODUCER_ID = 11, 16, 19, 32, 18, 22
WIDEST = 2**31 - 1
LARGER = {"thousands of partitions": MIB}  # each that is named becomes an object until the fetch is answered
BATCH = encode_batch([(0, None, b"x" * 1_000, ())])


def asked(key: int, version: int, message: Mapping[str, Any], number: int = 1) -> bytes:
    writer = MessageWriter()
    writer_of(key, "request", version)(writer, message)
    return framed(header(key, version, number, flexible=version >= definition(key).flexible_from) + bytes(writer.out))


def produce(records: bytes, acks: int = 1, topic: bytes = TOPIC.encode()) -> bytes:
    """Produce 3: transactional id, acks, timeout, one topic, one partition."""
    body = struct.pack(">hhii", -1, acks, 30_000, 1) + string(topic) + struct.pack(">iii", 1, 0, len(records)) + records
    return framed(header(PRODUCE, 3, 1) + body)


def fetch(partitions: int = 1, wait_ms: int = 0, topic: bytes = TOPIC.encode()) -> bytes:
    """Fetch 4: replica id, longest wait, least bytes, most bytes, isolation, one topic and its partitions."""
    each = b"".join(struct.pack(">iqi", number, 0, WIDEST) for number in range(partitions))
    body = struct.pack(">iiiibi", -1, wait_ms, 1, WIDEST, 0, 1) + string(topic) + struct.pack(">i", partitions) + each
    return framed(header(FETCH, 4, 1) + body)


def half(frame: bytes, claims: int) -> bytes:
    """The frame with another size in front."""
    return struct.pack(">i", claims) + frame[4:]


def join(number: int, metadata: bytes, group: str = "hostile") -> bytes:
    protocols = [{"name": "range", "metadata": metadata}]
    message = {"group_id": group, "session_timeout_ms": 30_000, "rebalance_timeout_ms": WIDEST, "member_id": ""}
    return asked(JOIN_GROUP, 1, {**message, "protocol_type": "consumer", "protocols": protocols}, number)


NAMES = [{"name": "n" * 30_000} for _ in range(2)]
EMPTY = framed(header(METADATA, 1, 1) + struct.pack(">i", 10_000) + bytes(20_000))
CONFIGS = [{"resource_type": 4, "resource_name": "1", "configuration_keys": None}]
ABUSES: Abuses = {
    "silent": lambda _: b"",
    "half a size": lambda _: b"\x00\x00",
    "half a header": lambda _: produce(BATCH)[:9],
    "half a frame": lambda _: half(produce(bytes(60_000)), 8 * MIB),
    "half a large frame": lambda _: half(produce(bytes(100_000)), 90 * MIB),
    "half a large frame without records": lambda _: half(EMPTY + bytes(140_000), 90 * MIB),
    "claims 2 GiB": lambda _: struct.pack(">i", WIDEST) + bytes(16_000),
    "a size below zero": lambda _: struct.pack(">i", -5) + bytes(16_000),
    "HTTP/1": lambda _: b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n" * 20,
    "TLS hello": lambda _: bytes.fromhex("160301020001fc0303") + bytes(509),
    "noise": lambda number: bytes((number * 31 + index * index) % 251 for index in range(2_000)),
    "an API that there is not": lambda _: framed(header(300, 0, 1) + bytes(100)) * 30,
    "records that lie about their size": lambda _: produce(struct.pack(">qi", 0, WIDEST) + BATCH[12:]) * 30,
    "giant names": lambda _: asked(METADATA, 1, {"topics": NAMES}) * 2,
    "giant names produced": lambda _: produce(BATCH, topic=b"n" * 32_000) * 2,
    "many empty names": lambda _: EMPTY,
    "thousands of partitions": lambda _: fetch(4_000, WIDEST),
    "writes and never reads": lambda _: produce(BATCH) * 30,
    "writes without an answer": lambda _: produce(BATCH, acks=0) * 30,
    "fetches and never reads": lambda _: fetch() * 8,
    "waits for records": lambda _: fetch(1, WIDEST, b"nothing") * 30,
    "asks for everything and never reads": lambda _: asked(DESCRIBE_CONFIGS, 1, {"resources": CONFIGS}) * 30,
    "joins a group and never reads": lambda number: join(number, bytes(7_000)),
    "joins groups of its own": lambda number: join(number, bytes(60_000), f"hostile-{number}"),
    "thirty requests at once": lambda _: b"".join(asked(API_VERSIONS, 0, {}, each) for each in range(30)),
    "lists of groups": lambda _: asked(LIST_GROUPS, 0, {}) * 30,
}  # fmt: skip


@pytest.mark.parametrize(("kinds", "count"), attacks(ABUSES))
def test_hostile_clients_stay_small(broker: Broker, kinds: list[str], count: int) -> None:
    """Hundreds of connections of a kind that means harm cost less than 256 KiB each, or 1 MiB, and writes go on."""
    rises = rises_under(broker, broker.kafka_bootstrap, ABUSES, kinds, count)
    bounds = {kind: LARGER.get(kind, BYTES_PER_CONNECTION) for kind in kinds}
    assert rises.pop("all") < most_of(0) + count * sum(bounds.values())
    assert {kind: rise // count // KIB for kind, rise in rises.items() if rise >= most_of(count, bounds[kind])} == {}
