"""What the client costs: CPU of the producer and of the consumer per record and per batch, rates, latency.

    python bench/client.py [--bootstrap HOST:PORT,...] [--records 300000] [--size 100] [--batch-size 16384] [--secure]

Without `--bootstrap` three broker processes are started on this machine and stopped again; they share its cores, so
the rates are those of the whole, while the CPU columns are the client's own process time.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import odradek.sync
from odradek import Admin, BrokerError, Consumer, NewTopic, OdradekError, Producer, TopicPartition
from odradek.cli.clusters.current import talk_as_told
from odradek_broker.local.cluster import LocalCluster

TOPIC = "bench"
LATENCY_RECORDS = 1_000


async def is_there(bootstrap: str) -> bool:
    """Whether somebody answers, and knows the user that it was told to create."""
    try:
        async with Admin(bootstrap):
            return True
    except OdradekError:
        return False


async def create_topic(bootstrap: str, partitions: int) -> None:
    """With three replicas, once three brokers are there."""
    async with asyncio.timeout(20):
        while not await is_there(bootstrap):
            pass
    async with Admin(bootstrap) as admin:
        async with asyncio.timeout(20):
            while sum(not broker.fenced for broker in (await admin.describe_cluster()).brokers) < 3:
                pass
        try:
            await admin.create_topics([NewTopic(TOPIC, partitions, 3, {"min.insync.replicas": "2"})])
        except BrokerError as error:
            if error.code.name != "TOPIC_ALREADY_EXISTS":
                raise


async def measured(name: str, records: int, per_batch: int, work: Callable[[], Awaitable[object]]) -> None:
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    await work()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    ns_per_record = cpu / records * 1e9
    print(
        f"| {name:<28} | {records / wall:>9,.0f} | {ns_per_record:>8,.0f} | {ns_per_record * per_batch / 1e3:>8,.0f} |"
    )


async def run(bootstrap: str, records: int, size: int, batch_size: int, partitions: int) -> None:
    await create_topic(bootstrap, partitions)
    value = b"v" * size
    per_batch = max(batch_size // (size + 10), 1)
    print(f"{records} records of {size} bytes, batches of {batch_size} bytes, {partitions} partitions, acks=all")
    print("|                              | records/s | CPU ns/r | us/batch |")
    print("| ---------------------------- | --------- | -------- | -------- |")
    async with Producer(bootstrap, batch_size=batch_size) as producer:
        await producer.send(TOPIC, value)

        async def enqueue() -> None:
            for _ in range(records):
                await producer.enqueue(TOPIC, value)
            await producer.flush()

        async def enqueue_many() -> None:
            await producer.enqueue_many(TOPIC, [value] * records)
            await producer.flush()

        async def spread() -> None:
            for number in range(records):
                await producer.enqueue(TOPIC, value, partition=number % partitions)
            await producer.flush()

        async def send() -> None:
            left = iter(range(records // 4))

            async def sends() -> None:
                for _ in left:
                    await producer.send(TOPIC, value)

            await asyncio.gather(*[sends() for _ in range(1_000)])

        await enqueue()  # warm
        await measured("enqueue", records, per_batch, enqueue)
        await measured("enqueue_many", records, per_batch, enqueue_many)
        await measured("enqueue, partitions in turn", records, per_batch, spread)
        await measured("send, 1,000 tasks", records // 4, per_batch, send)
        took: list[float] = []
        for _ in range(LATENCY_RECORDS):
            began = time.perf_counter()
            await producer.send(TOPIC, value)
            took.append((time.perf_counter() - began) * 1e3)
    async with Consumer(bootstrap, TOPIC, auto_offset_reset="earliest", max_poll_records=5_000) as consumer:
        total = sum((await consumer.end_offsets([*map_partitions(partitions)])).values())

        async def batches() -> None:
            async for _ in consumer.batches(until="end"):
                pass

        async def one_by_one() -> None:
            async for _ in consumer.records(until="end"):
                pass

        await measured("consumer.batches()", total, per_batch, batches)
        consumer.seek_to_beginning()
        await measured("async for record", total, per_batch, one_by_one)
    quantiles = statistics.quantiles(took, n=100)
    print(f"one record in flight, acks=all: p50 {quantiles[49]:.2f} ms, p99 {quantiles[98]:.2f} ms")


def run_without_asyncio(bootstrap: str, records: int, size: int, batch_size: int) -> None:
    """The same of `odradek.sync`: what the asynchronous producer takes, and the way to the background loop."""
    value = b"v" * size
    per_batch = max(batch_size // (size + 10), 1)
    with odradek.sync.Producer(bootstrap, batch_size=batch_size) as producer:

        async def enqueue() -> None:
            for _ in range(records):
                producer.enqueue(TOPIC, value)
            producer.flush()

        async def enqueue_many() -> None:
            producer.enqueue_many(TOPIC, [value] * records)
            producer.flush()

        producer.send(TOPIC, value)
        asyncio.run(measured("sync enqueue", records, per_batch, enqueue))
        asyncio.run(measured("sync enqueue_many", records, per_batch, enqueue_many))


def map_partitions(partitions: int) -> list[TopicPartition]:
    return [TopicPartition(TOPIC, number) for number in range(partitions)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--bootstrap", default="")
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=16_384)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--secure", action="store_true", help="with TLS, SASL and ACLs")
    options = parser.parse_args()
    shape = (options.records, options.size, options.batch_size, options.partitions)
    if options.bootstrap:
        asyncio.run(run(options.bootstrap, *shape))
        run_without_asyncio(options.bootstrap, *shape[:3])
        return
    with tempfile.TemporaryDirectory() as directory:
        cluster = LocalCluster.create(Path(directory) / "cluster", brokers=3, temporary=True, secure=options.secure)
        try:
            talk_as_told(cluster.directory)
            cluster.start_all()
            asyncio.run(run(cluster.bootstrap, *shape))
            run_without_asyncio(cluster.bootstrap, *shape[:3])
        finally:
            cluster.stop_all()


if __name__ == "__main__":
    main()
