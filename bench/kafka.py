"""What a Produce request of Kafka's protocol costs the leader, beside the same batch on a produce stream of gRPC.

One broker, one partition, one replica; the batches are encoded beforehand. CPU is what the kernel charged to the
broker's process. Both ways run in turn against the same broker, so that their ratio holds on a busy machine, too.

    python -m bench --only kafka [--quick] [--json]
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import struct
import time
from collections.abc import Iterator

from odradek_proto.transport.grpc_network import GrpcNetwork

from bench.processes import cpu_seconds, started_cluster
from bench.replicated import Driver, make_batch, prepare
from bench.report import Figure

TOPIC = "bench"
SIZES = {"one record": 100, "16 KiB": 16_384, "256 KiB": 262_144}
FLOORS_US = {"one record": 60, "16 KiB": 120, "256 KiB": 450}  # of leader CPU, pipelined
IN_FLIGHT = 5  # Java's max.in.flight.requests.per.connection
ROUNDS = 3


def request(batch: bytes) -> bytes:
    """Produce 7, acks=all."""
    name = struct.pack(">h", len(TOPIC)) + TOPIC.encode()
    body = struct.pack(">hhihhhii", 0, 7, 1, -1, -1, -1, 30_000, 1) + name
    body += struct.pack(">iii", 1, 0, len(batch)) + batch
    return struct.pack(">i", len(body)) + body


def produce(address: str, batch: bytes, seconds: float) -> int:
    """Keep so many requests in flight for so long; returns how many were answered."""
    host, _, port = address.rpartition(":")
    frame, done = request(batch), 0
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = connection.makefile("rb")
        end = time.perf_counter() + seconds
        connection.sendall(frame * IN_FLIGHT)
        while time.perf_counter() < end:
            answers.read(int.from_bytes(answers.read(4)))
            connection.sendall(frame)
            done += 1
        for _ in range(IN_FLIGHT):
            answer = answers.read(int.from_bytes(answers.read(4)))
            done += 1
        (error,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(TOPIC) + 4 + 4)
        if error:
            raise RuntimeError(f"the broker answered error {error}")
    return done


async def produce_by_grpc(address: str, batch: bytes, seconds: float) -> int:
    network = GrpcNetwork()
    done = await Driver(network, address, TOPIC, [0], batch).run(IN_FLIGHT, time.perf_counter() + seconds)
    await network.close()
    return done


def measured(seconds: float) -> Iterator[Figure]:
    with started_cluster(1) as cluster:
        asyncio.run(prepare(cluster, TOPIC, 1))
        node = cluster.nodes[1]
        for what, size in SIZES.items():
            batch = make_batch(size)
            kafka, grpc = [], []
            for _ in range(ROUNDS):
                before = cpu_seconds(node.pid)
                done = produce(node.kafka, batch, seconds)
                between = cpu_seconds(node.pid)
                kafka.append((between - before) / done * 1e6)
                done = asyncio.run(produce_by_grpc(node.grpc, batch, seconds))
                grpc.append((cpu_seconds(node.pid) - between) / done * 1e6)
            ours, theirs = statistics.median(kafka), statistics.median(grpc)
            yield Figure("kafka", f"Produce, {what}, {IN_FLIGHT} in flight", ours, "us CPU", FLOORS_US[what])
            yield Figure("kafka", f"the same on a gRPC stream, {what}", theirs, "us CPU")
            yield Figure("kafka", f"ratio, {what}", ours / theirs, "x")


def figures(quick: bool) -> list[Figure]:
    """The leader's CPU for a batch, by either protocol."""
    return list(measured(0.7 if quick else 2.0))
