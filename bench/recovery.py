"""How fast a log is recovered after a crash: every batch read, checked, and entered into new indexes.

A log of 512 MiB in a temporary directory, in the page cache, opened as after a kill with a recovery point of 0. The
best of three rounds, wall clock. Run: `python bench/recovery.py [--json]`.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time

from odradek_broker.storage.log import Log
from odradek_broker.storage.settings import LogSettings
from odradek_proto.records import encode_batch, read_header
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.files import OsFiles

SIZES = {"1 KiB": 1024, "16 KiB": 16 * 1024, "1 MiB": 1 << 20}
LOG_BYTES = 512 << 20
ROUNDS = 3
SETTINGS = LogSettings(segment_bytes=128 << 20)
BENCH = TopicPartition("bench", 0)


def fill(files: OsFiles, directory: str, size: int) -> int:
    log = Log.open(files, directory, BENCH, settings=SETTINGS, clean=True, wall_ms=0)
    written = 0
    while written < LOG_BYTES:
        run = [
            encode_batch([(0, None, b"x" * (size - 70), ())], base_offset=log.end_offset + place, leader_epoch=0)
            for place in range(max(1, (1 << 20) // size))
        ]
        log.append([read_header(each) for each in run], run)
        written += sum(map(len, run))
    log.close(clean=False)
    return written


def measure(size: int) -> dict[str, float]:
    files = OsFiles()
    best = float("inf")
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        written = fill(files, f"{folder}/bench-0", size)
        for _ in range(ROUNDS):
            started = time.perf_counter()
            log = Log.open(files, f"{folder}/bench-0", BENCH, settings=SETTINGS, clean=False, wall_ms=0)
            best = min(best, time.perf_counter() - started)
            assert log.recovery.bytes == written, log.recovery
            log.close(clean=False)
    files.close()
    return {"bytes": written, "seconds": round(best, 3), "mb_per_s": round(written / best / 1e6)}


def main() -> None:
    parser = argparse.ArgumentParser(description="speed of the recovery of a log")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    results = {name: measure(size) for name, size in SIZES.items()}
    machine = f"{platform.machine()}, {platform.python_implementation()} {platform.python_version()}"
    if arguments.json:
        print(json.dumps({"bench": "recovery", "machine": machine, "results": results}))
        return
    print(f"recovery of {LOG_BYTES >> 20} MiB by batch size ({machine})")
    for name, result in results.items():
        print(f"{name:>8} {result['mb_per_s']:>8} MB/s {result['seconds']:>8.3f} s")


if __name__ == "__main__":
    main()
