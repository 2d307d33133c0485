"""How fast a compacted log is cleaned, and how long the event loop waits for it.

A log of 64 MiB in a temporary directory, in the page cache: batches of 16 records with 1 KiB or of 150 records with
100 B, of a tenth as many keys as there are records. It is cleaned as a broker does it, by slices in a thread, while the
loop counts how late a timer of one millisecond comes, at worst. The same timer without any cleaning stands beside it.

Run: `python -m bench --only compaction [--quick] [--json]`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from functools import partial

from odradek_broker.core.cleaning import CompactionSettings
from odradek_broker.runtime.offloading import finish
from odradek_broker.storage.cleaning.round import CleanedSegment, CleaningRound
from odradek_broker.storage.log import Log
from odradek_broker.storage.settings import LogSettings
from odradek_proto.records import Codec, encode_batch, read_header
from odradek_proto.transport.files import OsFiles

from bench.append import new_log
from bench.report import Figure

SHAPES = {"100 B": (150, 100, Codec.NONE), "1 KiB": (16, 1024, Codec.NONE), "1 KiB, LZ4": (16, 1024, Codec.LZ4)}
LOG_BYTES, QUICK_LOG_BYTES = 64 << 20, 16 << 20
SETTINGS = LogSettings(segment_bytes=8 << 20, compaction=CompactionSettings())


def fill(log: Log, count: int, size: int, codec: Codec, log_bytes: int) -> None:
    rng = random.Random(1)
    keys = log_bytes // size // 10
    while log.size_bytes < log_bytes:
        rows = [
            (0, b"key %d" % rng.randrange(keys), rng.randbytes(size // 2) + b"x" * (size // 2), ())
            for _ in range(count)
        ]
        batch = encode_batch(rows, base_offset=log.end_offset, leader_epoch=0, codec=codec)
        log.append([read_header(batch)], [batch])
    log.roll(0)
    log.flush()


async def clean(files: OsFiles, log: Log) -> None:
    """What the cleaner does, but for the checkpoint."""
    log.allow_gaps()
    end = log.segments[-1].base_offset
    work = CleaningRound(files, log, first_dirty_offset=0, end_offset=end, wall_ms=0, map_bytes=1 << 30)
    steps = work.steps()
    while (step := await finish(files, partial(next, steps, steps))) is not steps:
        if isinstance(step, CleanedSegment):
            replacement = log.replace(step.old, step.new)
            for act in (replacement.begin, replacement.exchange, replacement.finish):
                act()
                await finish(files, log.flush_directory)


async def latest(work: Callable[[], Coroutine[object, object, None]]) -> tuple[float, float, float]:
    """Seconds that the work took, and how many milliseconds a timer came too late: 99 of 100 at most, and at worst."""
    task, began = asyncio.ensure_future(work()), time.perf_counter()
    late: list[float] = []
    while not task.done():
        asked = time.perf_counter()
        await asyncio.sleep(0.001)
        late.append((time.perf_counter() - asked - 0.001) * 1e3)
    await task
    late.sort()
    return time.perf_counter() - began, late[int(len(late) * 0.99)], late[-1]


def measure(name: str, log_bytes: int) -> list[Figure]:
    count, size, codec = SHAPES[name]
    with new_log(SETTINGS) as (files, log):
        fill(log, count, size, codec, log_bytes)
        before = log.size_bytes
        idle = asyncio.run(latest(lambda: asyncio.sleep(0.5)))
        seconds, late, worst = asyncio.run(latest(lambda: clean(files, log)))
    return [
        Figure("compaction", f"records of {name}", before / seconds / 1e6, "MB/s"),
        Figure("compaction", f"records of {name}: loop late, 99 %", late, "ms"),
        Figure("compaction", f"records of {name}: loop late, at worst", worst, "ms"),
        Figure("compaction", f"records of {name}: the same idle, at worst", idle[2], "ms"),
    ]


def figures(quick: bool) -> list[Figure]:
    """Speed of cleaning, and what the event loop waits."""
    log_bytes = QUICK_LOG_BYTES if quick else LOG_BYTES
    return [figure for name in SHAPES for figure in measure(name, log_bytes)]
