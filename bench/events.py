"""What the evidence file costs producers: three brokers that write it over three that do not.

    python -m bench.events [--quick] [--json]

acks=all in batches of 16 KiB, six partitions, as in `replicated`. Both clusters run all the while and are measured in
turn, so that what else the machine does meets both, and the best turn of each counts. A turn is longer than
`replica.high.watermark.checkpoint.interval.ms`, so progress is written in each.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from odradek_broker.local.cluster import LocalCluster

from bench.replicated import Row, measure, prepare
from bench.report import Figure
from bench.run import main

PARTITIONS, IN_FLIGHT, BATCH_BYTES = 6, 5, 16_384
WAYS = {"with": {}, "without": {"odradek.events.enable": "false"}}
TURNS, SECONDS = 9, 6.0
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


def figures(quick: bool) -> list[Figure]:
    """CPU of the brokers for a batch, and the rate, with the evidence file and without."""
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory:
        rows = asyncio.run(measured(Path(directory), 3 if quick else TURNS))
    cpu = {way: min(_cpu(each[way]) for each in rows) for way in WAYS}
    rate = {way: max(each[way].mb_per_s for each in rows) for way in WAYS}
    return [
        Figure("events", "brokers' CPU for a batch, without events", cpu["without"], "us"),
        Figure("events", "the same with events over without", cpu["with"] / cpu["without"], "times", FLOOR),
        Figure("events", "rate without events over with", rate["without"] / rate["with"], "times", FLOOR),
    ]


def _cpu(row: Row) -> float:
    return row.leader_us_per_batch + row.followers_us_per_batch


if __name__ == "__main__":
    main(figures)
