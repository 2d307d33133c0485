"""What a client costs where there is much of something: ratios within one run, which a busy machine changes least.

    python -m bench --only scale [--quick] [--json]

Three broker processes on this machine, acks=all, records of 100 B unless it is said. Both sides of a ratio are measured
in turn, several times, and the least of each counts. CPU is user and system time, of this process for a client, of the
brokers' processes for *connections*.

- *sync*: `odradek.sync.Producer.enqueue` over `Producer.enqueue`, CPU for each record.
- *produce*: the rate that `odradek produce --count` tells over that of a program with the same producer.
- *partitions*: records spread over 900 partitions over records spread over 6, CPU for each.
- *connections*: the same bytes by a hundred clients over one client, the brokers' CPU.
- *aiokafka*: aiokafka's consumer over odradek's, CPU for each record, in batches and one by one; both read the same
  topic of the same brokers.
- *at once*: consumers that begin at the same moment; seconds until the last one has its first record.
- *1,000 partitions*: one request each; how long somebody else's small request takes meanwhile, at worst.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

import odradek.sync
from aiokafka import AIOKafkaConsumer
from odradek import Admin, Consumer, NewTopic, Producer, TopicPartition
from odradek_broker.local.cluster import LocalCluster
from odradek_chaos.harness.waiting import wait_until_ready

from bench.processes import cpu_seconds, started_cluster
from bench.report import Figure

VALUE = b"v" * 100
LARGE_VALUE = b"v" * 1_000
FEW, MANY, PORTION = 6, 900, 1_000  # partitions
CONNECTIONS, AT_ONCE = 100, 50
TOLD = 200_000  # records of a rate: connections are made in it, too
READ_SHARE = 10  # of what is written in all, a tenth is read by each of a hundred
TURNS = 3
SYNC_FLOOR = PARTITIONS_FLOOR = CONNECTIONS_FLOOR = 2
PRODUCE_FLOOR = 0.5
AIOKAFKA_FLOOR = 1
AT_ONCE_FLOOR_S = 10
START_S = 60.0


def figures(quick: bool) -> list[Figure]:
    """All of them, each with its floor."""
    with started_cluster() as cluster:
        asyncio.run(wait_until_ready(cluster, timeout_s=START_S))
        with odradek.sync.Admin(cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("few", FEW, 3), NewTopic("many", MANY, 3)])
            admin.create_topics([NewTopic("written", FEW, 3), NewTopic("read", FEW, 3)])
        records = 30_000 if quick else 200_000
        return [
            *producing(cluster, records),
            *asyncio.run(consuming(cluster)),
            *asyncio.run(connections(cluster, 20 if quick else 60)),
            *asyncio.run(portions(cluster)),
            *asyncio.run(at_once(cluster)),
        ]


def least(*ways: Callable[[], float]) -> list[float]:
    """What each way costs, in turn and several times; the first turn warms up."""
    turns = [[way() for way in ways] for _ in range(TURNS + 1)]
    return [min(costs) for costs in zip(*turns[1:], strict=True)]


def producing(cluster: LocalCluster, records: int) -> list[Figure]:
    """The same records by each way; microseconds of CPU for each, and records a second."""
    rates: list[float] = []

    async def enqueue(topic: str, partitions: int, records: int = records) -> float:
        async with Producer(cluster.bootstrap) as producer:
            await producer.send(topic, VALUE)
            began, cpu = time.perf_counter(), time.process_time()
            for number in range(records):
                await producer.enqueue(topic, VALUE, partition=number % partitions)
            await producer.flush()
            rates.append(records / (time.perf_counter() - began))
            return (time.process_time() - cpu) / records * 1e6

    def enqueue_without_asyncio() -> float:
        with odradek.sync.Producer(cluster.bootstrap) as producer:
            producer.send("few", VALUE)
            cpu = time.process_time()
            for number in range(records):
                producer.enqueue("few", VALUE, partition=number % FEW)
            producer.flush()
            return (time.process_time() - cpu) / records * 1e6

    few, sync = least(lambda: asyncio.run(enqueue("few", FEW)), enqueue_without_asyncio)
    again, many = least(lambda: asyncio.run(enqueue("few", FEW)), lambda: asyncio.run(enqueue("many", MANY)))
    rates.clear()
    told = []
    for _ in range(TURNS):
        told.append(rate_told(cluster, TOLD))
        asyncio.run(enqueue("few", FEW, TOLD))
    return [
        Figure("scale", "enqueue, 6 partitions", few, "us CPU"),
        Figure("scale", "sync enqueue over enqueue", sync / few, "times", SYNC_FLOOR),
        Figure("scale", "enqueue, 900 partitions over 6", many / again, "times", PARTITIONS_FLOOR),
        Figure("scale", "`odradek produce` over a program, rate", max(told) / max(rates), "times", PRODUCE_FLOOR, True),
    ]


def rate_told(cluster: LocalCluster, records: int) -> float:
    """What the command says of itself, without its start."""
    command = [sys.executable, "-m", "odradek.cli", "produce", "few", "--count", str(records), "--json"]
    done = subprocess.run([*command, "-b", cluster.bootstrap], stdout=subprocess.PIPE, text=True, check=True)
    return float(json.loads(done.stdout)["records_per_second"])


async def consuming(cluster: LocalCluster) -> list[Figure]:
    """All of a topic by two clients, each value looked at."""
    partitions = [TopicPartition("few", number) for number in range(FEW)]
    async with Consumer(cluster.bootstrap, "few", auto_offset_reset="earliest") as consumer:
        records = sum((await consumer.end_offsets(partitions)).values())

    async def by_odradek() -> int:
        async with Consumer(cluster.bootstrap, "few", auto_offset_reset="earliest") as consumer:
            return sum([len(record.value or b"") async for batch in consumer.batches(until="end") for record in batch])

    async def one_by_one() -> int:
        async with Consumer(cluster.bootstrap, "few", auto_offset_reset="earliest") as consumer:
            return sum([len(record.value or b"") async for record in consumer.records(until="end")])

    def of_aiokafka() -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            "few",
            bootstrap_servers=cluster.kafka_bootstrap.split(","),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            group_id=None,
        )

    async def by_aiokafka() -> int:
        left, size = records, 0
        async with of_aiokafka() as consumer:
            while left:
                for batch in (await consumer.getmany(timeout_ms=1_000)).values():
                    left -= len(batch)
                    size += sum(len(record.value or b"") for record in batch)
        return size

    async def one_by_one_by_aiokafka() -> int:
        async with of_aiokafka() as consumer:
            return sum([len((await anext(consumer)).value or b"") for _ in range(records)])

    ways = (by_odradek, by_aiokafka, one_by_one, one_by_one_by_aiokafka)
    turns = [[await cost(way) / records * 1e6 for way in ways] for _ in range(TURNS)]
    ours, theirs, one, their_one = (min(costs) for costs in zip(*turns, strict=True))
    return [
        Figure("scale", "consumer.batches(), 100 B", ours, "us CPU"),
        Figure("scale", "aiokafka's getmany over it", theirs / ours, "times", AIOKAFKA_FLOOR, True),
        Figure("scale", "async for record, 100 B", one, "us CPU"),
        Figure("scale", "aiokafka's async for over it", their_one / one, "times", AIOKAFKA_FLOOR, True),
    ]


async def cost(work: Callable[[], Awaitable[object]]) -> float:
    """CPU seconds of this process."""
    before = time.process_time()
    await work()
    return time.process_time() - before


async def connections(cluster: LocalCluster, megabytes: int) -> list[Figure]:
    """The brokers' CPU for the same bytes, written and then read by one client and by a hundred."""
    each = megabytes * 1_000_000 // len(LARGE_VALUE) // CONNECTIONS

    def brokers() -> float:
        return sum(cpu_seconds(node.pid) for node in cluster.nodes.values())

    async def write(clients: int) -> float:
        producers = [Producer(cluster.bootstrap) for _ in range(clients)]
        async with contextlib.AsyncExitStack() as stack:
            for producer in producers:
                await stack.enter_async_context(producer)
                await producer.send("written", LARGE_VALUE)
            before = brokers()
            for _ in range(CONNECTIONS // clients):
                await asyncio.gather(*(one.enqueue_many("written", [LARGE_VALUE] * each) for one in producers))
            await asyncio.gather(*(one.flush() for one in producers))
            return brokers() - before

    async def read(clients: int) -> float:
        consumers = [Consumer(cluster.bootstrap, "read", auto_offset_reset="earliest") for _ in range(clients)]
        async with contextlib.AsyncExitStack() as stack:
            for consumer in consumers:
                await stack.enter_async_context(consumer)
                await consumer.poll(START_S, max_records=1)
            before = brokers()
            for _ in range(CONNECTIONS // clients):
                for consumer in consumers:
                    consumer.seek_to_beginning()
                await asyncio.gather(*(drain(consumer) for consumer in consumers))
            return brokers() - before

    async def drain(consumer: Consumer[bytes | None, bytes | None]) -> None:
        async for _ in consumer.batches(until="end"):
            pass

    async with Producer(cluster.bootstrap) as producer:
        await producer.enqueue_many("read", [LARGE_VALUE] * (each * READ_SHARE))
    written = [await write(clients) for clients in (1, CONNECTIONS)]
    taken = [await read(clients) for clients in (1, CONNECTIONS)]
    return [
        Figure("scale", "100 producers over one, brokers", written[1] / written[0], "times", CONNECTIONS_FLOOR),
        Figure("scale", "100 consumers over one, brokers", taken[1] / taken[0], "times", CONNECTIONS_FLOOR),
    ]


async def at_once(cluster: LocalCluster) -> list[Figure]:
    """From the start of all until each has had a record."""

    async def first(began: float) -> float:
        async with Consumer(cluster.bootstrap, "few", auto_offset_reset="earliest") as consumer:
            assert await consumer.poll(2 * START_S, max_records=1), "no record"
            return time.perf_counter() - began

    began = time.perf_counter()
    took = await asyncio.gather(*[first(began) for _ in range(AT_ONCE)])
    return [Figure("scale", f"{AT_ONCE} consumers at once, the last one", max(took), "s", AT_ONCE_FLOOR_S)]


async def portions(cluster: LocalCluster) -> list[Figure]:
    """A topic of a thousand partitions made, and their ends asked for, while somebody else asks small things."""
    partitions = [TopicPartition("portion", number) for number in range(PORTION)]
    async with Admin(cluster.bootstrap) as admin, Admin(cluster.bootstrap) as other:
        waits: list[float] = []

        async def ask_meanwhile() -> None:
            while True:
                began = time.perf_counter()
                await other.describe_cluster()
                waits.append(time.perf_counter() - began)

        asking = asyncio.create_task(ask_meanwhile())
        began = time.perf_counter()
        await admin.create_topics([NewTopic("portion", PORTION, 3)])
        created = time.perf_counter() - began
        async with Consumer(cluster.bootstrap, "portion") as consumer:
            began = time.perf_counter()
            ends = await consumer.end_offsets(partitions)
            asked = time.perf_counter() - began
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    assert len(ends) == PORTION, len(ends)
    return [
        Figure("scale", "1,000 partitions created", created, "s"),
        Figure("scale", "end offsets of 1,000 partitions", asked, "s"),
        Figure("scale", "another request meanwhile, at worst", max(waits), "s"),
    ]
