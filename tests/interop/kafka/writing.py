"""Writes to a cluster of Apache Kafka through aiokafka, and reads back what it holds.

The clients are aiokafka's, not ours: bytes in Kafka's directories owe nothing to this project.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import (
    InvalidReplicationFactorError,
    KafkaConnectionError,
    KafkaError,
    NoError,
    TopicAlreadyExistsError,
    for_code,
)
from odradek_proto.transport.clock import LoopClock

CODECS = (None, "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 180
REQUEST_TIMEOUT_MS = 90_000  # after which aiokafka gives up a batch, however alive the cluster is
POLL_MS = 100


@dataclass(frozen=True, order=True)
class Written:
    """A record that was acknowledged with acks=all, and where it lies."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


@dataclass
class Writing:
    """Records of one topic, written through one idempotent producer for each codec."""

    bootstrap: Sequence[str]
    topic: str
    partitions: int
    rng: random.Random
    now_ms: int
    value_bytes: int = 60
    compacted: bool = False  # then each record has a key, and one without a value is a tombstone
    written: list[Written] = field(default_factory=list)

    @asynccontextmanager
    async def producers(self) -> AsyncIterator[list[Any]]:
        """Idempotent producers with acks=all, started, one for each codec."""
        made = [
            AIOKafkaProducer(
                bootstrap_servers=list(self.bootstrap),
                enable_idempotence=True,
                compression_type=codec,
                linger_ms=3,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
            )
            for codec in CODECS
        ]
        try:
            for producer in made:
                await producer.start()
            yield made
        finally:
            for producer in made:
                await producer.stop()

    async def write(self, producers: Sequence[Any], count: int, step_ms: int = 1) -> None:
        """So many records, spread over producers and partitions; returns when all are acknowledged."""
        rng, waiting = self.rng, []
        for _ in range(count):
            self.now_ms += step_ms
            partition, key = rng.randrange(self.partitions), rng.choice((None, b"", b"k%d" % rng.randrange(9)))
            key = b"k%d" % rng.randrange(200) if self.compacted and key is None else key
            value = rng.choice(
                (None, b"", rng.randbytes(rng.randrange(self.value_bytes)), b"word " * rng.randrange(20))
            )
            value = value if key is not None or value is not None else b"not nothing"
            headers = [(f"h{place}", rng.choice((b"", b"v"))) for place in range(rng.choice((0, 0, 1, 3)))]
            sent = await rng.choice(producers).send(
                self.topic, value, key, partition, timestamp_ms=self.now_ms, headers=headers
            )
            waiting.append((sent, self.now_ms, key, value, tuple(headers)))
        for sent, timestamp, key, value, record_headers in waiting:
            found = await asyncio.wait_for(sent, TIMEOUT_S)
            self.written.append(Written(found.partition, found.offset, timestamp, key, value, record_headers))


async def write_transactions(bootstrap: Sequence[str], topic: str, ends: Sequence[str]) -> None:
    """Transactions of five records each into partition 0, each of them ended by "commit" or "abort"."""
    producer = AIOKafkaProducer(
        bootstrap_servers=list(bootstrap),
        transactional_id=f"{topic}-transactions",
        compression_type="lz4",
        request_timeout_ms=REQUEST_TIMEOUT_MS,
    )
    await producer.start()
    try:
        for number, end in enumerate(ends):
            await producer.begin_transaction()
            for place in range(5):
                await producer.send_and_wait(topic, b"%s %d" % (end.encode(), place), b"%d" % number, 0)
            await (producer.commit_transaction() if end == "commit" else producer.abort_transaction())
    finally:
        await producer.stop()


async def create_topic(bootstrap: Sequence[str], topic: str, partitions: int, settings: dict[str, str]) -> None:
    """A topic with three replicas of each partition, all of them in sync when this returns.

    A node that listens may not be registered yet, and the controller refuses three replicas then: the order is given
    again. So it is when its answer was lost, and that the topic exists is a success from then on.
    """
    clock = LoopClock(random.Random())
    deadline_ms, lost = clock.now_ms() + TIMEOUT_S * 1000, False
    wanted = NewTopic(topic, partitions, 3, topic_configs=settings)
    while (refusal := await ordered(bootstrap, wanted)) is not NoError:
        if lost and issubclass(refusal, TopicAlreadyExistsError):
            break
        assert refusal.retriable or issubclass(refusal, InvalidReplicationFactorError), refusal
        assert clock.now_ms() < deadline_ms, refusal
        lost = lost or refusal.retriable
        await clock.sleep(POLL_MS)
    await whole(bootstrap, topic)


async def ordered(bootstrap: Sequence[str], topic: NewTopic) -> Any:
    """Order one topic; aiokafka's class for what the controller said, or for that nobody knows."""
    admin = AIOKafkaAdminClient(bootstrap_servers=list(bootstrap))
    try:
        await admin.start()
        answer = await admin.create_topics([topic])
    except (KafkaError, OSError):
        return KafkaConnectionError
    finally:
        await admin.close()
    ((_, code, *_),) = answer.topic_errors
    return for_code(code)


async def leaders(bootstrap: Sequence[str], topic: str) -> dict[int, tuple[int, list[int]]]:
    """Leader and ISR of each partition, as some broker knows them now."""
    admin = AIOKafkaAdminClient(bootstrap_servers=list(bootstrap))
    await admin.start()
    try:
        (described,) = await admin.describe_topics([topic])
        return {each["partition"]: (each["leader"], each["isr"]) for each in described["partitions"]}
    finally:
        await admin.close()


async def whole(bootstrap: Sequence[str], topic: str) -> None:
    """Wait until every partition has a leader and three replicas in sync. Raises `AssertionError`."""
    clock = LoopClock(random.Random())
    deadline_ms = clock.now_ms() + TIMEOUT_S * 1000
    found: dict[int, tuple[int, list[int]]] = {}
    while clock.now_ms() < deadline_ms:
        try:
            found = await leaders(bootstrap, topic)
        except (KafkaError, OSError):
            found = {}
        if found and all(leader >= 0 and len(isr) == 3 for leader, isr in found.values()):
            return
        await clock.sleep(POLL_MS)
    raise AssertionError(f"{topic} is not whole after {TIMEOUT_S} s: {found}")


async def read_all(bootstrap: Sequence[str], topic: str, partitions: int) -> list[Written]:
    """Every record of a topic, sorted by partition and offset."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=list(bootstrap),
        enable_auto_commit=False,
        metadata_max_age_ms=1000,
        fetch_max_wait_ms=100,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
    )
    await consumer.start()
    try:
        assigned = [KafkaPartition(topic, partition) for partition in range(partitions)]
        consumer.assign(assigned)
        await consumer.seek_to_beginning(*assigned)
        ends = await consumer.end_offsets(assigned)
        found: list[Written] = []
        while any([await consumer.position(each) < end for each, end in ends.items()]):
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                found += [
                    Written(each.partition, each.offset, each.timestamp, each.key, each.value, tuple(each.headers))
                    for each in records
                ]
        return sorted(found, key=lambda each: (each.partition, each.offset))
    finally:
        await consumer.stop()
