"""What the evidence file costs producers: three brokers that write it over three that do not.

    python -m bench.events [--quick] [--json]

acks=all in batches of 16 KiB, six partitions, as in `replicated`. Both clusters run all the while and are measured in
turn, so that what else the machine does meets both, and the best turn of each counts. A turn is longer than
`replica.high.watermark.checkpoint.interval.ms`, so progress is written in each. What a busy machine changes least is
the CPU of one line of progress by itself: in a steady state a broker writes one in five seconds and nothing else.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from odradek_broker.local.cluster import LocalCluster
from odradek_broker.runtime.events import EventLog
from odradek_broker.runtime.replicas.progress import ProgressLog
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.clock import LoopClock
from odradek_proto.transport.files import OsFiles

from bench.replicated import Row, measure, prepare
from bench.report import Figure
from bench.run import main

PARTITIONS, IN_FLIGHT, BATCH_BYTES = 6, 5, 16_384
WAYS = {"with": {}, "without": {"odradek.events.enable": "false"}}
TURNS, SECONDS = 9, 6.0
LINES = 200
FLOOR = 1.03


async def measured(directory: Path, turns: int) -> list[dict[str, Row]]:
    """A row of each way for each turn; the first turn warms up and is left out."""
    clusters = {way: LocalCluster.create(directory / way, brokers=3, settings=given) for way, given in WAYS.items()}
    rows = []
    try:
        for cluster in clusters.values():
            cluster.start_all()
        leaders = {way: await prepare(cluster, "bench", PARTITIONS) for way, cluster in clusters.items()}
        for turn in range(turns + 1):
            order = list(clusters) if turn % 2 else list(clusters)[::-1]
            row = {
                way: await measure(
                    clusters[way], way, "bench", leaders[way], PARTITIONS, IN_FLIGHT, BATCH_BYTES, SECONDS
                )
                for way in order
            }
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
        rows = asyncio.run(measured(Path(directory), 3 if quick else TURNS))
    cpu = {way: min(_cpu(each[way]) for each in rows) for way in WAYS}
    rate = {way: max(each[way].mb_per_s for each in rows) for way in WAYS}
    return [
        *(
            Figure("events", f"a line of progress, {count:,} partitions", cost, "us CPU")
            for count, cost in lines.items()
        ),
        Figure("events", "brokers' CPU for a batch, without events", cpu["without"], "us"),
        Figure("events", "the same with events over without", cpu["with"] / cpu["without"], "times", FLOOR),
        Figure("events", "rate without events over with", rate["without"] / rate["with"], "times", FLOOR),
    ]


def _cpu(row: Row) -> float:
    return row.leader_us_per_batch + row.followers_us_per_batch


if __name__ == "__main__":
    main(figures)
