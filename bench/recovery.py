"""How fast a log is recovered after a crash, and how long a clean start takes that has producers to remember.

*Recovery*: every batch read, checked, and entered into new indexes.

A log of 512 MiB in a temporary directory, in the page cache, opened as after a kill with a recovery point of 0. The
best of three rounds, wall clock.

*Clean start*: the opening of a log that was closed cleanly, whose idempotent producers wrote eight batches of 100 B
each in turn. The last five of each are read back from its end; with 10,000 producers the bound of that ends it.

Run: `python -m bench --only recovery [--quick] [--json]`.
"""

from __future__ import annotations

import tempfile
import time

from odradek_broker.storage.log import Log
from odradek_broker.storage.settings import LogSettings
from odradek_proto.records import encode_batch, read_header
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.files import OsFiles

from bench.report import Figure

SIZES = {"1 KiB": 1024, "16 KiB": 16 * 1024, "1 MiB": 1 << 20}
PRODUCERS = (1, 1_000, 10_000)
LOG_BYTES = 512 << 20
QUICK_LOG_BYTES = 64 << 20
ROUNDS = 3
SETTINGS = LogSettings(segment_bytes=128 << 20)
BENCH = TopicPartition("bench", 0)


def fill(files: OsFiles, directory: str, size: int, log_bytes: int) -> int:
    log = Log.open(files, directory, BENCH, settings=SETTINGS, clean=True, wall_ms=0)
    written = 0
    while written < log_bytes:
        run = [
            encode_batch([(0, None, b"x" * (size - 70), ())], base_offset=log.end_offset + place, leader_epoch=0)
            for place in range(max(1, (1 << 20) // size))
        ]
        log.append([read_header(each) for each in run], run)
        written += sum(map(len, run))
    log.close(clean=False)
    return written


def measure(size: int, log_bytes: int) -> float:
    """MB/s of the recovery of a log with batches of that size."""
    files = OsFiles()
    best = float("inf")
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        written = fill(files, f"{folder}/bench-0", size, log_bytes)
        for _ in range(ROUNDS):
            started = time.perf_counter()
            log = Log.open(files, f"{folder}/bench-0", BENCH, settings=SETTINGS, clean=False, wall_ms=0)
            best = min(best, time.perf_counter() - started)
            assert log.recovery.bytes == written, log.recovery
            log.close(clean=False)
    files.close()
    return written / best / 1e6


def clean_start_ms(producers: int) -> float:
    """Of a log with so many producers."""
    files, best = OsFiles(), float("inf")
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        log = Log.open(files, f"{folder}/bench-0", BENCH, settings=SETTINGS, clean=True, wall_ms=0)
        for offset in range(8 * producers):
            sequence, producer = divmod(offset, producers)
            batch = encode_batch(
                [(0, None, b"x" * 30, ())], base_offset=offset, leader_epoch=0,
                producer_id=producer, producer_epoch=0, base_sequence=sequence,
            )  # fmt: skip
            header = read_header(batch)
            log.append([header], [batch])
            log.state.producers.update(header)
        for _ in range(ROUNDS):
            log.close(clean=True)
            started = time.perf_counter()
            log = Log.open(files, f"{folder}/bench-0", BENCH, settings=SETTINGS, clean=True, wall_ms=0)
            best = min(best, time.perf_counter() - started)
        assert len(log.state.producers) == producers, log.state.producers
        log.close(clean=True)
    files.close()
    return best * 1e3


def figures(quick: bool) -> list[Figure]:
    """Speed of the recovery by batch size, clean starts by the number of producers."""
    log_bytes = QUICK_LOG_BYTES if quick else LOG_BYTES
    return [
        *(
            Figure("recovery", f"log of {name} batches", measure(size, log_bytes), "MB/s")
            for name, size in SIZES.items()
        ),
        *(Figure("clean start", f"{count} producers", clean_start_ms(count), "ms") for count in PRODUCERS),
    ]
