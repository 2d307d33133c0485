"""odradek beside Apache Kafka: the same client, the same minutes, as ratios.

    python -m bench.side_by_side [--quick] [--json] [--only produce read latency java kill]

Three nodes of Apache Kafka 4.1.1 (KRaft, each broker and controller; its own JIT and garbage collector, 512 MiB of
heap) and three brokers of odradek, each in processes of their own, stand on the same machine. Both are driven in turn,
several rounds of each, by confluent-kafka in a process of its own and by Kafka's own performance tools; what is told is
the median of each, and odradek's over Kafka's. Topics have three replicas, `min.insync.replicas=2`; writes acks=all.

- always: from the start of the processes to the first acknowledgement, and last the memory (RSS) of all three.
- *produce*: MB/s of records at linger 5 ms, and the CPU that the three brokers took for a GB.
- *read*: the same of a consumer that reads what was written before, 1 KiB records in 16 KiB batches.
- *latency*: one record of 100 B in flight, the next one when it is acknowledged; p50.
- *java*: Kafka's performance tools, both directions.
- *kill*: kill -9 of a leader under an idempotent producer; the longest time without an acknowledgement.

Needs Java and Maven, which fetches Kafka. First Kafka is warmed up, until its CPU for the same work does not fall.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from odradek_broker.local.cluster import LocalCluster

from bench.processes import cpu_seconds, resident_mib
from bench.report import Figure, show
from tests.interop.kafka.cluster import KafkaCluster
from tests.interop.kafka.java import classpath_of, run_java

PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
OWN_JVM = ("-Xmx512m", "-Xms512m")
PATIENCE_S = 120
MOST_WARM_UPS = 20
KIB = 1024
WORKLOADS = [
    (size, batch, partitions) for batch in (16 * KIB, 256 * KIB) for size in (1024, 100) for partitions in (6, 1)
]
JUDGED = (16 * KIB, 6)  # batch and partitions for which there are floors, odradek over Kafka:
THROUGHPUT_FLOOR, CPU_FLOOR, LATENCY_FLOOR = 1.0, 0.5, 1.5
OF_CLIENT = {"log_level": 2}  # it would tell of every broker that is stopped


@dataclass(frozen=True)
class System:
    """One of the two, running."""

    name: str
    bootstrap: str
    pids: Callable[[], list[int]]
    kill: Callable[[int], None]
    revive: Callable[[int], object]

    def cpu_s(self) -> float:
        return sum(cpu_seconds(pid) for pid in self.pids())

    def memory_mib(self) -> float:
        return sum(resident_mib(pid) for pid in self.pids())

    def admin(self) -> AdminClient:
        """That has found the cluster: or the first request may be lost with the connection that only led to others."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **OF_CLIENT})
        admin.list_topics(timeout=PATIENCE_S)
        return admin

    def create(self, topic: str, partitions: int) -> None:
        """With three replicas; returns when all of it is led, and everybody is in sync."""
        admin = self.admin()
        new = NewTopic(topic, partitions, 3, config={"min.insync.replicas": "2"})
        while True:
            try:
                admin.create_topics([new])[topic].result(PATIENCE_S)
                break
            except KafkaException as error:
                if error.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:  # until all three have registered
                    raise
                time.sleep(0.02)
        while not all(each.leader >= 0 and len(each.isrs) == 3 for each in partitions_of(admin, topic)):
            time.sleep(0.05)

    def leader(self, topic: str) -> int:
        [partition] = partitions_of(self.admin(), topic)
        return int(partition.leader)


def partitions_of(admin: AdminClient, topic: str) -> list[Any]:
    return list(admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions.values())


# --- In the client's process ------------------------------------------------------------------------------------------


def produce(bootstrap: str, topic: str, count: int, size: int, batch: int) -> float:
    """MB/s."""
    settings = {"acks": "all", "batch.size": batch, "linger.ms": 5, "queue.buffering.max.kbytes": 64 * KIB}
    producer = Producer({"bootstrap.servers": bootstrap, **OF_CLIENT, **settings})
    failed: list[object] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failed.append(error)

    value = bytes(size)
    producer.list_topics(topic, timeout=PATIENCE_S)
    begun = time.perf_counter()
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, value, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    left = producer.flush(PATIENCE_S)
    taken = time.perf_counter() - begun
    if left or failed:
        raise RuntimeError(f"{left} records were not delivered, {len(failed)} failed: {failed[:1]}")
    return count * size / taken / 1e6


def one_in_flight(bootstrap: str, topic: str, count: int) -> float:
    """Milliseconds, p50."""
    producer = Producer({"bootstrap.servers": bootstrap, **OF_CLIENT, "acks": "all", "linger.ms": 0})
    times: list[float] = []
    for number in range(count + count // 10):
        begun = time.perf_counter()
        producer.produce(topic, bytes(100), partition=0)
        while producer.flush(PATIENCE_S):
            pass
        if number >= count // 10:
            times.append((time.perf_counter() - begun) * 1000)
    return statistics.median(times)


def consume(bootstrap: str, topic: str, count: int, partitions: int) -> float:
    """MB/s of values, from the assignment on."""
    settings = {"group.id": "bench", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    settings["fetch.queue.backoff.ms"] = 10  # or its pause of a second, when its queue is full, is what is measured
    consumer = Consumer({"bootstrap.servers": bootstrap, **OF_CLIENT, **settings})
    seen = size = 0
    begun = time.perf_counter()
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    while seen < count:
        for message in consumer.consume(min(1_000, count - seen), PATIENCE_S):
            size += len(message.value() or b"")
            seen += 1
    taken = time.perf_counter() - begun
    consumer.close()
    return size / taken / 1e6


def silence(bootstrap: str, topic: str) -> float:
    """Milliseconds: the longest time without an acknowledgement, in ten seconds."""
    producer = Producer({"bootstrap.servers": bootstrap, **OF_CLIENT, "enable.idempotence": True, "linger.ms": 0})
    acknowledged: list[float] = []
    producer.produce(topic, b"first")
    producer.flush(PATIENCE_S)
    print("writing", flush=True)
    end = time.perf_counter() + 10
    while time.perf_counter() < end:
        producer.produce(
            topic, b"x" * 100, on_delivery=lambda _error, _message: acknowledged.append(time.perf_counter())
        )
        producer.poll(0.002)
    producer.flush(PATIENCE_S)
    return max(later - earlier for earlier, later in pairwise(acknowledged)) * 1000


def in_process(function: Callable[..., float], *arguments: object) -> subprocess.Popen[str]:
    """Run one of these in a process of its own; its last line is what it found."""
    code = f"from bench.side_by_side import {function.__name__} as f; print(f(*{arguments!r}))"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def found(process: subprocess.Popen[str]) -> float:
    output, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"a client ended with {process.returncode}")
    return float(output.split()[-1])


# --- What is measured -------------------------------------------------------------------------------------------------


class Comparison:
    """Both systems, odradek first, and the figures so far."""

    def __init__(self, systems: Sequence[System], classpath: str, *, quick: bool) -> None:
        self.systems = systems
        self.quick = quick
        self.figures: list[Figure] = []
        self._classpath = classpath
        self._rounds = 2 if quick else 3
        self._megabytes = 20 if quick else 60
        self._topics = 0

    def topic(self, partitions: int) -> str:
        """A new one, on both."""
        self._topics += 1
        for system in self.systems:
            system.create(f"t{self._topics}", partitions)
        return f"t{self._topics}"

    def count(self, size: int) -> int:
        """Records of a round; small ones cost the client more."""
        return self._megabytes * 1_000_000 // size // (4 if size == 100 else 1)

    def tell(
        self, what: str, unit: str, values: dict[str, float], floor: float | None = None, *, at_least: bool = False
    ) -> None:
        for name, value in values.items():
            self.figures.append(Figure("beside", f"{what}, {name}", value, unit))
        ratio = values["odradek"] / values["kafka"]
        self.figures.append(Figure("beside", f"{what}, odradek / kafka", ratio, "x", floor, at_least))
        print(f"{what}: {values}, {ratio:.2f}", file=sys.stderr, flush=True)

    def compare(self, what: str, unit: str, measure: Callable[[System], float], floor: float | None = None) -> None:
        """Both in turn, several times: the medians, and odradek's over Kafka's."""
        values: dict[str, list[float]] = {system.name: [] for system in self.systems}
        for _ in range(self._rounds):
            for system in self.systems:
                values[system.name].append(measure(system))
        self.tell(what, unit, {name: statistics.median(each) for name, each in values.items()}, floor)

    def rate(self, what: str, size: int, measure: Callable[[System], float], *, judged: bool = False) -> None:
        """The same for MB/s, and for the brokers' CPU, of `size` bytes each time."""
        rates: dict[str, list[float]] = {system.name: [] for system in self.systems}
        cpu: dict[str, list[float]] = {system.name: [] for system in self.systems}
        for _ in range(self._rounds):
            for system in self.systems:
                before = system.cpu_s()
                rates[system.name].append(measure(system))
                cpu[system.name].append((system.cpu_s() - before) / size * 1e9)
        medians = {name: statistics.median(each) for name, each in rates.items()}
        self.tell(what, "MB/s", medians, THROUGHPUT_FLOOR if judged else None, at_least=True)
        medians = {name: statistics.median(each) for name, each in cpu.items()}
        self.tell(f"{what}, CPU", "s/GB", medians, CPU_FLOOR if judged else None)

    # --- Its parts --------------------------------------------------------------------------------------------------

    def warm_up(self) -> None:
        """Until a round costs Kafka hardly less CPU than the one before: then its JIT has done most of its work."""
        topic, before_s = self.topic(6), float("inf")
        for number in range(MOST_WARM_UPS):
            took_s = [self._warm_up(system, topic) for system in self.systems][-1]
            print(f"warm-up {number + 1}: {took_s:.1f} s of CPU", file=sys.stderr, flush=True)
            if took_s > before_s * 0.95:
                break
            before_s = took_s

    def _warm_up(self, system: System, topic: str) -> float:
        """Both directions, which makes the offsets topic, too; returns the seconds of CPU."""
        before = system.cpu_s()
        found(in_process(produce, system.bootstrap, topic, 300_000, 100, 16 * KIB))
        found(in_process(consume, system.bootstrap, topic, 300_000, 6))
        return system.cpu_s() - before

    def produce(self) -> None:
        for size, batch, partitions in WORKLOADS:
            judged = (batch, partitions) == JUDGED
            if not self.quick or judged:
                self._produce(size, batch, partitions, judged=judged)

    def _produce(self, size: int, batch: int, partitions: int, *, judged: bool) -> None:
        topic, count = self.topic(partitions), self.count(size)
        self.rate(
            f"produce {size} B, {batch // KIB} KiB, {partitions} p.",
            count * size,
            lambda each: found(in_process(produce, each.bootstrap, topic, count, size, batch)),
            judged=judged,
        )

    def read(self) -> None:
        topic, count, size = self.topic(6), self.count(KIB) * 2, KIB
        for system in self.systems:
            found(in_process(produce, system.bootstrap, topic, count, size, 16 * KIB))
        self.rate(
            f"consume {size} B, 6 p.",
            count * size,
            lambda each: found(in_process(consume, each.bootstrap, topic, count, 6)),
        )

    def latency(self) -> None:
        topic, count = self.topic(1), 500 if self.quick else 2_000
        self.compare(
            "one in flight, p50",
            "ms",
            lambda each: found(in_process(one_in_flight, each.bootstrap, topic, count)),
            LATENCY_FLOOR,
        )

    def java(self) -> None:
        """By Kafka's own tools, 16 KiB batches, 6 partitions."""
        for size in (KIB, 100):
            self._java(size)

    def _java(self, size: int) -> None:
        topic, count = self.topic(6), self.count(size)

        def write(system: System) -> float:
            settings = [f"bootstrap.servers={system.bootstrap}", "acks=all", "batch.size=16384", "linger.ms=5"]
            numbers = ["--num-records", str(count), "--record-size", str(size), "--throughput", "-1"]
            arguments = ["--topic", topic, *numbers, "--producer-props", *settings]
            said = run_java(self._classpath, PRODUCER_PERFORMANCE, arguments)
            line = next(line for line in reversed(said.splitlines()) if "99th" in line)
            return float(line.split("records sent, ")[1].split(" records/sec")[0]) * size / 1e6

        def read(system: System) -> float:
            arguments = ["--bootstrap-server", system.bootstrap, "--topic", topic, "--messages", str(count)]
            line = run_java(self._classpath, CONSUMER_PERFORMANCE, [*arguments, "--timeout", "60000"]).splitlines()[-1]
            return float(line.split(", ")[8]) * (KIB * KIB / 1e6)

        self.rate(f"Java, produce {size} B, 16 KiB, 6 p.", count * size, write)
        self.rate(f"Java, consume {size} B, 6 p.", count * size, read)

    def kill(self) -> None:
        topic = self.topic(1)

        def longest(system: System) -> float:
            process = in_process(silence, system.bootstrap, topic)
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(2)
            leader = system.leader(topic)
            system.kill(leader)
            found_ms = found(process)
            system.revive(leader)
            return found_ms

        self.compare("silence after kill -9", "ms", longest)


PARTS: dict[str, Callable[[Comparison], None]] = {
    "produce": Comparison.produce,
    "read": Comparison.read,
    "latency": Comparison.latency,
    "java": Comparison.java,
    "kill": Comparison.kill,
}


def start_odradek(directory: Path, stack: ExitStack) -> System:
    cluster = LocalCluster.create(directory, brokers=3)
    stack.callback(cluster.stop_all)
    cluster.start_all()
    nodes = cluster.nodes.values()
    bootstrap = ",".join(node.kafka for node in nodes)
    return System("odradek", bootstrap, lambda: [node.pid for node in nodes if node.pid], cluster.kill, cluster.start)


def start_kafka(cluster: KafkaCluster, stack: ExitStack) -> System:
    stack.callback(cluster.stop)
    cluster.start()
    return System("kafka", ",".join(cluster.bootstrap), cluster.pids, cluster.kill, cluster.start)


def first_acknowledgement(start: Callable[[], System]) -> tuple[System, float]:
    """The system, and the milliseconds until it acknowledged a record."""
    begun = time.perf_counter()
    system = start()
    system.create("first", 1)
    one_in_flight(system.bootstrap, "first", 1)
    return system, (time.perf_counter() - begun) * 1000


def figures(quick: bool, parts: Sequence[str]) -> list[Figure]:
    """Both, in turn."""
    classpath = classpath_of()
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as name, ExitStack() as stack:
        kafka = KafkaCluster(classpath, Path(name) / "kafka", flags=OWN_JVM)
        kafka.format()
        ours, ours_ms = first_acknowledgement(lambda: start_odradek(Path(name) / "odradek", stack))
        theirs, theirs_ms = first_acknowledgement(lambda: start_kafka(kafka, stack))
        comparison = Comparison((ours, theirs), classpath, quick=quick)
        comparison.tell("start, first acknowledgement", "ms", {"odradek": ours_ms, "kafka": theirs_ms})
        comparison.warm_up()
        for part in parts:
            PARTS[part](comparison)
        memory = {each.name: each.memory_mib() for each in comparison.systems}
        comparison.tell("memory of three", "MiB RSS", memory)
        return comparison.figures


def main() -> None:
    parser = argparse.ArgumentParser(description=figures.__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter, and less exact")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    options = parser.parse_args()
    show(figures(options.quick, options.only), as_json=options.json)


if __name__ == "__main__":
    main()
