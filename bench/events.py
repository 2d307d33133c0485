"""What the evidence file costs producers: three brokers that write it over three that do not.

    python -m bench --only events [--quick] [--json]

acks=all in batches of 16 KiB, six partitions, as in `replicated`. Both clusters run all the while and are measured in
many short turns, with, without, without, with: what else the machine does, and whatever grows, meets both alike. Each
four turns give one ratio of the brokers' CPU for a batch (user and system, from the kernel), and the figure is their
geometric mean with a confidence interval of 95 %. Progress is written every half second and not every five, so that
each turn has some: what a broker writes in a steady state counts ten times. The CPU of one line of progress by itself
is what a busy machine changes least.
"""

from __future__ import annotations

import asyncio
import math
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from odradek_broker.local.cluster import LocalCluster
from odradek_broker.runtime.events import EventLog
from odradek_broker.runtime.replicas.progress import ProgressLog
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.clock import LoopClock
from odradek_proto.transport.files import OsFiles

from bench.replicated import Row, measure, prepare
from bench.report import Figure

PARTITIONS, IN_FLIGHT, BATCH_BYTES = 6, 5, 16_384
GIVEN = {
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "log.retention.bytes": str(32 << 20),  # of each partition, or the disk is full before the end
    "log.segment.bytes": str(16 << 20),
    "log.retention.check.interval.ms": "5000",
    "log.segment.delete.delay.ms": "1000",
}
WAYS = {"with": GIVEN, "without": GIVEN | {"odradek.events.enable": "false"}}
ORDER = ("with", "without", "without", "with")
ROUNDS, SECONDS = 80, 1.5
LINES = 200
FLOOR = 1.03
DEVIATIONS = 1.96
"""Of a normal distribution to either side: 95 % lie between."""


async def measured(directory: Path, rounds: int) -> list[dict[str, list[Row]]]:
    """Two rows of each way for each round; the first round warms up and is left out."""
    clusters = {way: LocalCluster.create(directory / way, brokers=3, settings=given) for way, given in WAYS.items()}
    rows = []
    try:
        for cluster in clusters.values():
            cluster.start_all()
        leaders = {way: await prepare(cluster, "bench", PARTITIONS) for way, cluster in clusters.items()}
        for _ in range(rounds + 1):
            row: dict[str, list[Row]] = {way: [] for way in WAYS}
            for way in ORDER:
                given = (clusters[way], way, "bench", leaders[way], PARTITIONS, IN_FLIGHT, BATCH_BYTES, SECONDS)
                row[way].append(await measure(*given))
            rows.append(row)
        kept = {way: list(cluster.directory.rglob("odradek-events.jsonl")) for way, cluster in clusters.items()}
        assert [len(kept["with"]), len(kept["without"])] == [3, 0], kept
        assert all('"progress"' in path.read_text() for path in kept["with"])
    finally:
        for cluster in clusters.values():
            cluster.kill_all()
    return rows[1:]


async def line(partitions: int, directory: Path) -> float:
    """Microseconds of CPU of a line of progress when all partitions have changed: the least of many."""
    events = EventLog(files=OsFiles(), clock=LoopClock(random.Random()), directory=str(directory), broker_id=1)
    progress, best = ProgressLog(events), float("inf")
    for end in range(LINES):
        marks = SimpleNamespace(log_end_offset=end, high_watermark=end)
        replicas: list[Any] = [
            SimpleNamespace(topic_partition=TopicPartition("bench", number), state=marks)
            for number in range(partitions)
        ]
        began = time.process_time()
        progress.write(replicas)
        best = min(best, time.process_time() - began)
    return best * 1e6


def figures(quick: bool) -> list[Figure]:
    """CPU of the brokers for a batch, and the rate, with the evidence file and without; and of a line of progress."""
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory:
        lines = {count: asyncio.run(line(count, Path(directory))) for count in (PARTITIONS, 50, 2_000)}
        rows = asyncio.run(measured(Path(directory), 3 if quick else ROUNDS))
    cpu = ratio([_cpu(each["with"]) / _cpu(each["without"]) for each in rows])
    rate = ratio([_rate(each["without"]) / _rate(each["with"]) for each in rows])
    return [
        *(
            Figure("events", f"a line of progress, {count:,} partitions", cost, "us CPU")
            for count, cost in lines.items()
        ),
        Figure("events", "brokers' CPU for a batch, without events", min(_cpu(each["without"]) for each in rows), "us"),
        Figure("events", "the same with events over without", cpu.mean, "times", FLOOR),
        Figure("events", "95 % of it from", cpu.low, "times"),
        Figure("events", "95 % of it to", cpu.high, "times", FLOOR),
        Figure("events", "rate without events over with", rate.mean, "times", FLOOR),
        Figure("events", "95 % of it from", rate.low, "times"),
        Figure("events", "95 % of it to", rate.high, "times"),
    ]


class Ratio(NamedTuple):
    """A geometric mean and where it lies with 95 %."""

    mean: float
    low: float
    high: float


def ratio(measured: Sequence[float]) -> Ratio:
    """Ratios are as often above their mean as below it by the same factor, so their logarithms are averaged."""
    logs = [math.log(each) for each in measured]
    middle, off = statistics.fmean(logs), DEVIATIONS * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(middle), math.exp(middle - off), math.exp(middle + off))


def _cpu(rows: Sequence[Row]) -> float:
    """CPU of all brokers for a batch, in two turns."""
    used = sum((row.leader_us_per_batch + row.followers_us_per_batch) * row.batches for row in rows)
    return used / sum(row.batches for row in rows)


def _rate(rows: Sequence[Row]) -> float:
    return sum(row.batches for row in rows) / sum(row.seconds for row in rows)
