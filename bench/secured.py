"""What security costs: the throughput of each door with TLS, SASL and ACLs on, over that of the same door without.

Two clusters of three brokers stand side by side, the second one as `odradek cluster up --secure` makes it, with mTLS
among its brokers. Both are written to and read in turn, so that the ratio holds on a busy machine, too.

    python -m bench --only secured [--quick] [--json]
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka import TopicPartition as KafkaPartition
from msgspec.structs import asdict
from odradek import Admin, Consumer, NewTopic, OdradekError, Producer
from odradek.shared.properties import security_from
from odradek.shared.security import Security
from odradek_broker.local.cluster import LocalCluster
from odradek_proto.command_line import CLIENT_SETTINGS

from bench.report import Figure

TOPICS = ("grpc", "kafka")
PARTITIONS = 3
SIZE = 1_000
LARGE = 16_000  # fills a TLS record: of those that do not fit its buffer librdkafka makes two for each record of Kafka
LEAST = 0.6
START_S = 60
WAIT_S = 1.0  # for the next records, before one looks again


class Side:
    """One of the two clusters, and how its clients get in."""

    def __init__(self, directory: Path, *, secure: bool) -> None:
        self.cluster = LocalCluster.create(directory, brokers=3, temporary=True, secure=secure)
        known = security_from(directory / CLIENT_SETTINGS) if secure else Security()
        self.own: dict[str, Any] = asdict(known)
        self.librdkafka = {
            "bootstrap.servers": self.cluster.kafka_bootstrap,
            "security.protocol": known.security_protocol,
        }
        if secure:
            self.librdkafka |= {
                "ssl.ca.location": known.ssl_truststore_location, "sasl.mechanism": known.sasl_mechanism,
                "sasl.username": known.sasl_username, "sasl.password": known.sasl_password,
            }  # fmt: skip

    def start(self) -> None:
        self.cluster.start_all()
        asyncio.run(self._prepare())

    async def _prepare(self) -> None:
        async with asyncio.timeout(START_S):
            while True:
                try:
                    async with Admin(self.cluster.bootstrap, **self.own) as admin:
                        while sum(not broker.fenced for broker in (await admin.describe_cluster()).brokers) < 3:
                            pass
                        await admin.create_topics([NewTopic(topic, PARTITIONS, 3) for topic in TOPICS])
                        return
                except OdradekError:  # until they listen, and know the user that they were told to create
                    pass

    # --- each returns how long it took for so many records, in seconds, once its client was connected

    def produce(self, count: int) -> float:
        async def run() -> float:
            async with Producer(self.cluster.bootstrap, batch_size=65_536, **self.own) as producer:
                await asyncio.gather(*[producer.send("grpc", b"", partition=each) for each in range(PARTITIONS)])
                began = time.perf_counter()
                for each in range(PARTITIONS):
                    await producer.enqueue_many("grpc", [bytes(SIZE)] * (count // PARTITIONS), partition=each)
                await producer.flush()
                return time.perf_counter() - began

        return asyncio.run(run())

    def consume(self, count: int) -> float:
        async def run() -> float:
            left, began = count, 0.0
            async with Consumer(self.cluster.bootstrap, "grpc", auto_offset_reset="earliest", **self.own) as consumer:
                async for batch in consumer.batches():
                    began, left = began or time.perf_counter(), left - len(batch)
                    if left <= 0:
                        break
            return time.perf_counter() - began

        return asyncio.run(run())

    def produce_by_kafka(self, count: int, size: int = SIZE) -> float:
        producer = KafkaProducer({**self.librdkafka, "acks": "all", "batch.size": 65_536, "linger.ms": 5})
        for each in range(PARTITIONS):
            producer.produce("kafka", b"", partition=each)
        assert producer.flush(START_S) == 0
        began = time.perf_counter()
        for number in range(count):
            while True:
                try:
                    producer.produce("kafka", bytes(size), partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(WAIT_S)
        assert producer.flush(START_S) == 0
        return time.perf_counter() - began

    def consume_by_kafka(self, count: int) -> float:
        consumer = KafkaConsumer({**self.librdkafka, "group.id": "none", "enable.auto.commit": False})
        consumer.assign([KafkaPartition("kafka", each, 0) for each in range(PARTITIONS)])
        left, began = count, 0.0
        while left > 0:
            found = [each for each in consumer.consume(1_000, WAIT_S) if each.error() is None]
            began, left = began or (time.perf_counter() if found else 0.0), left - len(found)
        took = time.perf_counter() - began
        consumer.close()
        return took


WORKS: dict[str, Callable[[Side, int], float]] = {
    "gRPC, acks=all": Side.produce,
    "gRPC, read": Side.consume,
    "Kafka's protocol, acks=all": Side.produce_by_kafka,
    "Kafka's protocol, read": Side.consume_by_kafka,
    "Kafka's protocol, acks=all, records of 16,000 bytes": lambda side, count: side.produce_by_kafka(
        count * SIZE // LARGE, LARGE
    ),
}


def measured(sides: tuple[Side, Side], count: int, rounds: int) -> list[Figure]:
    found = []
    for what, work in WORKS.items():
        rates: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds + 1):
            for side, rate in zip(sides, rates, strict=True):
                rate.append(count * SIZE / 1e6 / work(side, count))
        plain, secure = (statistics.median(rate[1:]) for rate in rates)  # the first round is for warming up
        ratio = statistics.median(b / a for a, b in zip(rates[0][1:], rates[1][1:], strict=True))
        found += [
            Figure("secured", f"{what}, in the clear", plain, "MB/s"),
            Figure("secured", f"{what}, TLS, SASL and ACLs", secure, "MB/s"),
            Figure("secured", f"{what}, ratio", ratio, "x", LEAST, at_least=True),
        ]
    return found


def figures(quick: bool) -> list[Figure]:
    """What clients get through, with security over without."""
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory:
        sides = tuple(Side(Path(directory) / name, secure=name == "secure") for name in ("plain", "secure"))
        try:
            for side in sides:
                side.start()
            return measured((sides[0], sides[1]), 15_000 if quick else 45_000, 3 if quick else 5)
        finally:
            for side in sides:
                side.cluster.stop_all()
