"""What an append costs: CPU per batch for reading the header, checking the CRC, stamping, writing, indexing, caching.

One log in a temporary directory on the real file system, no fsync, segments of 1 GiB, the shared cache at its default,
the collector of cycles tuned as in a broker. The steps are those of a leader: `check_batch`, `stamped_prefix`,
`Log.append`, producer state. CPU is user plus system of this process, the best of three rounds.
Run: `python -m bench --only append [--quick] [--json]`.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from odradek_broker.storage.cache import RecentBatches
from odradek_broker.storage.log import Log
from odradek_broker.storage.settings import LogSettings
from odradek_proto.records import check_batch, encode_batch, stamped_prefix
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.files import OsFiles

from bench.report import Figure

SIZES = {"161 B": 161, "1 KiB": 1024, "16 KiB": 16 * 1024, "1 MiB": 1 << 20}
BYTES_PER_ROUND = 256 << 20
MOST_BATCHES = 40_000
ROUNDS = 3
FLOORS_US = {"16 KiB": 15.0}


BENCH = TopicPartition("bench", 0)


@contextmanager
def new_log(settings: LogSettings | None = None, cache: RecentBatches | None = None) -> Iterator[tuple[OsFiles, Log]]:
    """A log in a temporary directory."""
    files = OsFiles()
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        given = settings or LogSettings()
        log = Log.open(files, f"{folder}/bench-0", BENCH, settings=given, clean=True, wall_ms=0, cache=cache)
        yield files, log
        log.close(clean=False)
    files.close()


def a_batch(size: int) -> bytes:
    empty = len(encode_batch([(0, None, b"", ())]))
    made = encode_batch([(0, None, b"x" * (size - empty), ())], producer_id=7, producer_epoch=0, base_sequence=0)
    over = len(made) - size  # the lengths inside are varints
    return encode_batch([(0, None, b"x" * (size - empty - over), ())], producer_id=7, producer_epoch=0, base_sequence=0)


def append_all(log: Log, batch: bytes, count: int) -> float:
    """CPU seconds for `count` appends of a produced batch."""
    update = log.state.producers.update
    view = memoryview(batch)
    started = time.process_time()
    for _ in range(count):
        header = check_batch(view)
        header = header._replace(base_offset=log.end_offset, leader_epoch=1)
        log.append((header,), (stamped_prefix(header.base_offset, header.length, 1), view[16:]))
        update(header)
    return time.process_time() - started


def measure(size: int, rounds: int, round_bytes: int) -> float:
    """CPU microseconds for each append of a batch of that size."""
    batch = a_batch(size)
    count = min(MOST_BATCHES, round_bytes // size)
    best = float("inf")
    for _ in range(rounds):
        with new_log() as (_, log):
            append_all(log, batch, min(count, 200))
            best = min(best, append_all(log, batch, count) / count)
    return best * 1e6


def figures(quick: bool) -> list[Figure]:
    """CPU per appended batch, by size."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    round_bytes = BYTES_PER_ROUND // 8 if quick else BYTES_PER_ROUND
    return [
        Figure("append", f"batch of {name}", measure(size, ROUNDS, round_bytes), "us CPU", FLOORS_US.get(name))
        for name, size in SIZES.items()
    ]
