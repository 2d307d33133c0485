"""acks=all through three real brokers: throughput by batch size, CPU per batch, and latency with one record in flight.

The batches are encoded beforehand and sent on produce streams, so that the brokers are measured and not the codec.
CPU is what the kernel charged to each broker process; the leader's share is told from the followers' because one
topic is led by one broker in the `leader` rows. Everything runs within one go on one machine.

    python -m bench --only replicated [--quick] [--json]
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from dataclasses import dataclass

from odradek import Admin, NewTopic
from odradek_broker.local.cluster import LocalCluster
from odradek_chaos.harness.waiting import wait_until_ready
from odradek_proto.errors import ErrorCode
from odradek_proto.records import encode_batch
from odradek_proto.transport.frames import pack_frame
from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.v1 import broker_pb2 as pb

from bench.processes import cpu_seconds, started_cluster
from bench.report import Figure

PRODUCE_STREAM = "/odradek.v1.Broker/ProduceStream"
FLOOR_ROW = "16 KiB batches"
LEADER_FLOOR_US, RATE_FLOOR_MB_PER_S, LATENCY_FLOOR_MS = 250, 45, 2.5


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement."""

    what: str
    partitions: int
    in_flight: int
    batches: int
    seconds: float
    mb_per_s: float
    p50_ms: float
    p99_ms: float
    leader_us_per_batch: float
    followers_us_per_batch: float
    client_us_per_batch: float


def make_batch(size: int, record_size: int = 100) -> bytes:
    """A batch of about `size` bytes with records of `record_size`."""
    now_ms = int(time.time() * 1000)
    count = max(1, size // (record_size + 8))
    value = os.urandom(record_size)
    return encode_batch([(now_ms, None, value, ())] * count)


class Driver:
    """One produce stream with a fixed number of unanswered batches for each partition."""

    def __init__(self, network: GrpcNetwork, address: str, topic: str, partitions: list[int], batch: bytes) -> None:
        self._network = network
        self._address = address
        self._topic = topic
        self._partitions = partitions
        self._batch = batch
        self.latencies: list[float] = []

    async def run(self, in_flight: int, deadline: float) -> int:
        """Keep the pipeline full until the deadline; returns how many batches were acknowledged."""
        stream = await self._network.open(self._address, PRODUCE_STREAM)
        await stream.recv()  # the grant
        sent_at: dict[int, tuple[int, float]] = {}
        correlation, done = 0, 0
        due = [partition for partition in self._partitions for _ in range(in_flight)]
        while due or sent_at:
            if due and time.perf_counter() < deadline:
                items = []
                for partition in due:
                    correlation += 1
                    sent_at[correlation] = (partition, time.perf_counter())
                    items.append(
                        pb.ProduceItem(
                            correlation_id=correlation, acks=-1, timeout_ms=30_000, topic=self._topic,
                            partition=partition, size=len(self._batch),
                        )
                    )  # fmt: skip
                header = pb.ProduceHeader(items=items).SerializeToString()
                await stream.send(pack_frame(header, [self._batch] * len(due)))
            due = []
            if not sent_at:
                break
            answers = pb.ProduceAnswers.FromString(await stream.recv())
            now = time.perf_counter()
            for answer in answers.answers:
                partition, at = sent_at.pop(answer.correlation_id)
                if answer.error_code:
                    raise RuntimeError(f"{ErrorCode(answer.error_code).name}: {answer.error_message}")
                self.latencies.append(now - at)
                done += 1
                due.append(partition)
        stream.close()
        return done


async def measure(
    cluster: LocalCluster, what: str, topic: str, leader: int, partitions: int, in_flight: int, size: int,
    seconds: float, record_size: int = 100,
) -> Row:  # fmt: skip
    """One row: all partitions of the topic are led by one broker."""
    network = GrpcNetwork()
    batch = make_batch(size, record_size)
    driver = Driver(network, cluster.nodes[leader].grpc, topic, list(range(partitions)), batch)
    await driver.run(in_flight, time.perf_counter() + min(1.0, seconds / 3))
    driver.latencies.clear()
    before = {node_id: cpu_seconds(node.pid) for node_id, node in cluster.nodes.items()}
    mine = time.process_time()
    started = time.perf_counter()
    batches = await driver.run(in_flight, started + seconds)
    elapsed = time.perf_counter() - started
    mine = time.process_time() - mine
    used = {node_id: cpu_seconds(node.pid) - before[node_id] for node_id, node in cluster.nodes.items()}
    await network.close()
    latencies = sorted(driver.latencies)
    per_batch = 1e6 / batches
    return Row(
        what, partitions, in_flight, batches, round(elapsed, 2), round(batches * len(batch) / elapsed / 1e6, 1),
        round(statistics.median(latencies) * 1e3, 2), round(latencies[int(len(latencies) * 0.99)] * 1e3, 2),
        round(used[leader] * per_batch, 1),
        round(sum(cpu for node_id, cpu in used.items() if node_id != leader) * per_batch, 1),
        round(mine * per_batch, 1),
    )  # fmt: skip


async def prepare(cluster: LocalCluster, topic: str, partitions: int) -> int:
    """A topic whose partitions are all led by broker 1; returns that broker."""
    await wait_until_ready(cluster)
    replicas = [1, *(node_id for node_id in cluster.nodes if node_id != 1)]
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, assignments=dict.fromkeys(range(partitions), replicas))])
    return 1


async def run(seconds: float) -> list[Row]:
    rows: list[Row] = []
    with started_cluster() as cluster:
        for what, partitions, in_flight, size, record in (
            ("one record in flight", 1, 1, 100, 100),
            ("16 KiB batches", 1, 5, 16_384, 100),
            ("16 KiB batches", 6, 5, 16_384, 100),
            ("1 KiB batches", 6, 5, 1_024, 100),
            ("256 KiB batches", 6, 2, 262_144, 100),
            ("16 KiB batches of 1 KiB records", 6, 5, 16_384, 1_024),
        ):
            topic = f"bench-{len(rows)}"
            leader = await prepare(cluster, topic, partitions)
            rows.append(await measure(cluster, what, topic, leader, partitions, in_flight, size, seconds, record))
    return rows


def figures(quick: bool) -> list[Figure]:
    """Rate, latency and the leader's CPU, by batch size."""
    found = []
    for row in asyncio.run(run(1.5 if quick else 5.0)):
        name = f"{row.what}, {row.partitions} x {row.in_flight}"
        if row.in_flight == 1:
            found.append(Figure("replicated", f"{name}, p50", row.p50_ms, "ms", LATENCY_FLOOR_MS))
            found.append(Figure("replicated", f"{name}, p99", row.p99_ms, "ms"))
            continue
        floors = row.what == FLOOR_ROW and row.partitions > 1
        rate, leader = (RATE_FLOOR_MB_PER_S, LEADER_FLOOR_US) if floors else (None, None)
        found.append(Figure("replicated", name, row.mb_per_s, "MB/s", rate, at_least=True))
        found.append(Figure("replicated", f"{name}, leader per batch", row.leader_us_per_batch, "us CPU", leader))
        found.append(Figure("replicated", f"{name}, followers per batch", row.followers_us_per_batch, "us CPU"))
        found.append(Figure("replicated", f"{name}, client per batch", row.client_us_per_batch, "us CPU"))
        found.append(Figure("replicated", f"{name}, p50", row.p50_ms, "ms"))
    return found
