"""A real broker process under attack: its memory, and honest writes while hundreds of connections mean harm (a thousand
in `make torture`)."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer as KafkaProducer
from odradek import Admin, NewTopic, OdradekError, Producer
from odradek.broker_errors import TopicAlreadyExists
from odradek_broker.local.cluster import LocalCluster

from tests.seeds import unless_torture

KIB, MIB = 1024, 1024 * 1024
# What one connection may cost: some 48 KiB for itself and its stream, the 64 KiB that HTTP/2 lets it send unread, the
# message that was made of them and is looked at, its copy, and what the allocator has not given back. As measured it is
# 122 KiB at the most, 146 on a busy machine: which connections are looked at together is chance. Without a bound each
# would hold megabytes: what it asks for (24 MiB), claims (2 GiB) or sends in one message (16 MiB).
BYTES_PER_CONNECTION = 256 * KIB
CONNECTIONS = unless_torture(150, 1_000)
# What all together may hold before they wait for each other: up to 100 MiB, which is little beside a thousand only.
SHARED_BYTES = unless_torture(128 * MIB, 0)
CONNECTIONS_OF_EACH_KIND = unless_torture(20, 50)
HONEST_WRITES = 20
# Well below the 35 s after which keepalive would cut whoever stands in their way, beside what a busy machine takes.
HONEST_DEADLINE_S = 30
TOPIC = "honest"
CONNECT_S = 300  # the kernel accepts at once, unless its queue is full because the broker had no turn for a while
DATA_BYTES = 24 * MIB  # what fetches that never read may ask for


Abuses = Mapping[str, Callable[[int], bytes]]
"""What a connection of each kind says at once; the argument is its number."""


class Broker:
    """One broker process that is a cluster of its own."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self.bootstrap = cluster.bootstrap
        self.kafka_bootstrap = cluster.kafka_bootstrap

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self._cluster.nodes[1].pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    def starved_s(self) -> list[float]:
        """For how long the broker's loop, and this process, have waited for a processor that others had."""
        paths = [f"/proc/{self._cluster.nodes[1].pid}/schedstat", "/proc/self/schedstat"]
        return [int(Path(path).read_text().split()[1]) / 1e9 for path in paths]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    cluster = LocalCluster.create(tmp_path / "cluster", brokers=1)
    try:
        cluster.start_all()
        asyncio.run(fill(cluster.bootstrap))
        yield Broker(cluster)
    finally:
        cluster.stop_all()


async def fill(bootstrap: str) -> None:
    """Wait for the broker, make the topic, and give the hostile fetches something to fetch."""
    async with asyncio.timeout(CONNECT_S):
        while True:
            try:
                async with Admin(bootstrap) as admin:
                    await admin.create_topics([NewTopic(TOPIC, 1, 1)])
                break
            except TopicAlreadyExists:  # an answer was lost
                break
            except OdradekError:
                continue
    async with Producer(bootstrap, bootstrap_timeout_ms=CONNECT_S * 1_000) as producer:
        for _ in range(DATA_BYTES // 10_000):
            await producer.enqueue(TOPIC, b"d" * 10_000)


def attack(address: str, connections: contextlib.ExitStack, count: int, say: Callable[[int], bytes]) -> None:
    """Connect and say it without waiting; a connection that the broker has cut already is as good as one more."""
    host, _, port = address.rpartition(":")
    for number in range(count):
        connection = connections.enter_context(socket.create_connection((host, int(port)), timeout=CONNECT_S))
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.send(say(number))


class HonestDeadline:
    """Over after HONEST_DEADLINE_S, of which what a busy machine kept from the broker or from this process does not
    count, whichever is more."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._began_s, self._starved_s = time.monotonic(), broker.starved_s()

    @property
    def is_over(self) -> bool:
        starved_s = max(now - then for now, then in zip(self._broker.starved_s(), self._starved_s, strict=True))
        return time.monotonic() - self._began_s - starved_s > HONEST_DEADLINE_S


async def write_honestly(broker: Broker) -> None:
    """Acknowledged writes over connections that are made while the attack goes on."""
    deadline = HonestDeadline(broker)

    async def write() -> None:
        async with Producer[bytes, bytes](
            broker.bootstrap, acks="all", bootstrap_timeout_ms=CONNECT_S * 1_000
        ) as producer:
            for _ in range(HONEST_WRITES):
                await producer.send(TOPIC, b"honest")

    writing = asyncio.ensure_future(write())
    while not (await asyncio.wait([writing], timeout=1))[0]:
        assert not deadline.is_over, "writes do not go on"
    await writing


def write_honestly_as_kafka(broker: Broker) -> None:
    """The same by a client of Kafka's protocol."""
    deadline = HonestDeadline(broker)
    producer = KafkaProducer({"bootstrap.servers": broker.kafka_bootstrap, "acks": "all"})
    delivered: list[object] = []
    for _ in range(HONEST_WRITES):
        producer.produce(TOPIC, b"honest", on_delivery=lambda error, _: delivered.append(error))
    while producer.flush(1):
        assert not deadline.is_over, "writes do not go on"
    assert delivered == [None] * HONEST_WRITES


def most_of(connections: int, each: int = BYTES_PER_CONNECTION) -> int:
    """How much memory so many connections may cost."""
    return SHARED_BYTES + connections * each


def rises_under(broker: Broker, address: str, abuses: Abuses, names: Sequence[str], count: int) -> dict[str, int]:
    """How much the broker's memory rose with the connections of each kind, while honest writes went on by both
    protocols; under "all" with those of all kinds together."""
    at_first = broker.resident_bytes()
    rises: dict[str, int] = {}
    with contextlib.ExitStack() as connections:
        for name in names:
            before = broker.resident_bytes()
            attack(address, connections, count, abuses[name])
            write_by_both(broker)
            rises[name] = broker.resident_bytes() - before
        rises["all"] = broker.resident_bytes() - at_first
        for _ in range(2):
            write_by_both(broker)
            rises["all"] = max(rises["all"], broker.resident_bytes() - at_first)
    return rises


def write_by_both(broker: Broker) -> None:
    asyncio.run(write_honestly(broker))
    write_honestly_as_kafka(broker)
