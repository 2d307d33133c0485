"""How fast the audit reads: MB/s and records/s of the header and CRC path, and of whole audits by the local engine
and by Spark.

    python bench/audit.py [--mb 128] [--spark] [--json]

Two replicas of one partition, uncompressed records of 100 bytes, files in the page cache. `scan` is one core
reading headers and CRCs; `local` is the whole audit of both replicas on one core; `spark` the same on local[*],
without the start of the session.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from odradek_audit import local
from odradek_audit.disk import LocalDisk
from odradek_audit.layout import read_layout
from odradek_audit.local import scan_replica
from odradek_audit.sample import SampleLog, SamplePartition, write_log_directory
from odradek_proto.topics import TopicPartition

BATCH_SIZES = (1024, 16 * 1024, 256 * 1024)
RECORD_BYTES = 100
RECORD_OVERHEAD = 17


def write_replicas(root: Path, batch_size: int, megabytes: int) -> tuple[dict[str, Path], int, int]:
    """Two equal replicas; returns them with the bytes and records of one."""
    records = max(1, batch_size // (RECORD_BYTES + RECORD_OVERHEAD))
    log = SampleLog()
    size = 0
    while size < megabytes * 1_000_000:
        log.fill(1, records=records, size=RECORD_BYTES)
        size += len(log.batches[-1].data)
    sample = {TopicPartition("bench", 0): SamplePartition(log)}
    replicas = {str(node): write_log_directory(root / str(node), node, sample) for node in (1, 2)}
    return replicas, size, log.next_offset


def measure(work: Callable[[], object], repeat: int = 3) -> float:
    """The best of some runs, in seconds."""
    best = float("inf")
    for _ in range(repeat):
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best


def scan(replica: Path) -> int:
    """Read one replica's headers and CRCs."""
    inputs = read_layout(LocalDisk(), {"1": str(replica)}).partitions[0].replicas["1"]
    return sum(1 for _ in scan_replica(LocalDisk(), inputs))


def rows_of(batch_size: int, megabytes: int, with_spark: bool) -> list[dict[str, float | str | int]]:
    """Measurements for one batch size."""
    with tempfile.TemporaryDirectory() as name:
        replicas, size, records = write_replicas(Path(name), batch_size, megabytes)
        timings = {
            "scan": (measure(lambda: scan(replicas["1"])), 1),
            "local": (measure(lambda: local.audit(replicas)), 2),
        }
        if with_spark:
            timings["spark"] = (measure_spark(replicas), 2)
    cores = {"scan": 1, "local": 1, "spark": os.cpu_count() or 1}
    return [
        {
            "engine": engine,
            "batch_bytes": batch_size,
            "mb_per_second_per_core": round(copies * size / seconds / 1e6 / cores[engine], 1),
            "records_per_second_per_core": round(copies * records / seconds / cores[engine]),
            "seconds": round(seconds, 3),
        }
        for engine, (seconds, copies) in timings.items()
    ]


def measure_spark(replicas: dict[str, Path]) -> float:
    """A whole audit in a session that has already run one."""
    from odradek_audit import spark
    from odradek_audit.launch import spark_session

    with spark_session("local[*]") as session:
        return measure(lambda: spark.audit(session, replicas, split_bytes=16 * 1024 * 1024), repeat=2)


def main() -> None:
    """Print one table."""
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    arguments.add_argument("--mb", type=int, default=128, help="megabytes a replica")
    arguments.add_argument("--spark", action="store_true", help="measure the Spark engine too")
    arguments.add_argument("--json", action="store_true")
    given = arguments.parse_args()
    rows = [row for size in BATCH_SIZES for row in rows_of(size, given.mb, given.spark)]
    if given.json:
        print(json.dumps({"machine": platform.platform(), "cores": os.cpu_count(), "rows": rows}, indent=2))
        return
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, {given.mb} MB a replica")
    print(f"{'engine':8} {'batch':>8} {'MB/s/core':>10} {'records/s/core':>15} {'seconds':>8}")
    for row in rows:
        print(
            f"{row['engine']:8} {row['batch_bytes']:>8} {row['mb_per_second_per_core']:>10} "
            f"{row['records_per_second_per_core']:>15} {row['seconds']:>8}"
        )


if __name__ == "__main__":
    main()
