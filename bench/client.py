"""What the client costs: CPU of the producer and of the consumer per record and per batch, rates, latency.

    python -m bench --only client [--quick] [--json]

Three broker processes share this machine's cores, so the rates are those of the whole, while CPU is the client's own
process time. Records of 100 bytes in batches of 16 KiB, six partitions, acks=all.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable

import odradek.sync
from odradek import Consumer, NewTopic, Producer, TopicPartition
from odradek_chaos.harness.waiting import wait_until_ready

from bench.processes import started_cluster
from bench.report import Figure

TOPIC, PARTITIONS = "bench", 6
VALUE = b"v" * 100
BATCH_SIZE = 16_384
START_S = 60.0
LATENCY_RECORDS = 1_000


async def measured(name: str, records: int, work: Callable[[], Awaitable[object]]) -> list[Figure]:
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    await work()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return [
        Figure("client", name, cpu / records * 1e9, "ns CPU"),
        Figure("client", f"{name}, rate", records / wall, "rec/s"),
    ]


async def run(bootstrap: str, records: int) -> list[Figure]:
    found: list[Figure] = []
    async with Producer(bootstrap, batch_size=BATCH_SIZE) as producer:
        await producer.send(TOPIC, VALUE)

        async def enqueue() -> None:
            for _ in range(records):
                await producer.enqueue(TOPIC, VALUE)
            await producer.flush()

        async def enqueue_many() -> None:
            await producer.enqueue_many(TOPIC, [VALUE] * records)
            await producer.flush()

        async def spread() -> None:
            for number in range(records):
                await producer.enqueue(TOPIC, VALUE, partition=number % PARTITIONS)
            await producer.flush()

        async def send() -> None:
            left = iter(range(records // 4))

            async def sends() -> None:
                for _ in left:
                    await producer.send(TOPIC, VALUE)

            await asyncio.gather(*[sends() for _ in range(1_000)])

        await enqueue()  # warm
        found += await measured("enqueue", records, enqueue)
        found += await measured("enqueue_many", records, enqueue_many)
        found += await measured("enqueue, partitions in turn", records, spread)
        found += await measured("send, 1,000 tasks", records // 4, send)
        took: list[float] = []
        for _ in range(LATENCY_RECORDS):
            began = time.perf_counter()
            await producer.send(TOPIC, VALUE)
            took.append((time.perf_counter() - began) * 1e3)
    async with Consumer(bootstrap, TOPIC, auto_offset_reset="earliest", max_poll_records=5_000) as consumer:
        total = sum(
            (await consumer.end_offsets([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])).values()
        )

        async def batches() -> None:
            async for _ in consumer.batches(until="end"):
                pass

        async def one_by_one() -> None:
            async for _ in consumer.records(until="end"):
                pass

        found += await measured("consumer.batches()", total, batches)
        consumer.seek_to_beginning()
        found += await measured("async for record", total, one_by_one)
    quantiles = statistics.quantiles(took, n=100)
    return [
        *found,
        Figure("client", "one record in flight, p50", quantiles[49], "ms"),
        Figure("client", "one record in flight, p99", quantiles[98], "ms"),
    ]


def run_without_asyncio(bootstrap: str, records: int) -> list[Figure]:
    """The same of `odradek.sync`: what the asynchronous producer takes, and the way to the background loop."""
    with odradek.sync.Producer(bootstrap, batch_size=BATCH_SIZE) as producer:

        async def enqueue() -> None:
            for _ in range(records):
                producer.enqueue(TOPIC, VALUE)
            producer.flush()

        async def enqueue_many() -> None:
            producer.enqueue_many(TOPIC, [VALUE] * records)
            producer.flush()

        producer.send(TOPIC, VALUE)
        return [
            *asyncio.run(measured("sync enqueue", records, enqueue)),
            *asyncio.run(measured("sync enqueue_many", records, enqueue_many)),
        ]


def figures(quick: bool) -> list[Figure]:
    """CPU and rate by way of writing and reading."""
    records = 30_000 if quick else 300_000
    with started_cluster() as cluster:
        asyncio.run(wait_until_ready(cluster, timeout_s=START_S))
        with odradek.sync.Admin(cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2"})])
        return [*asyncio.run(run(cluster.bootstrap, records)), *run_without_asyncio(cluster.bootstrap, records)]
