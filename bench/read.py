"""What a read costs: CPU per batch of 16 KiB, from the cache of recent batches and from the disk.

    python -m bench --only read [--quick] [--json]

One log in a temporary directory, larger than the cache, files in the page cache of the kernel. Each read asks for up to
1 MiB, as a fetch does. A batch from the disk has its CRC checked before it is served; one from the cache needs none.
"""

from __future__ import annotations

import time

from odradek_broker.storage.cache import RecentBatches
from odradek_broker.storage.log import Log
from odradek_proto.records import read_header

from bench.append import a_batch, new_log
from bench.report import Figure

BATCH_BYTES = 16 * 1024
READ_BYTES = 1024 * 1024
CACHE_BYTES = 16 * 1024 * 1024  # odradek.cache.bytes
LOG_BATCHES = 4_096  # 64 MiB
HOT_BATCHES = 512  # of the end, surely in the cache


def figures(quick: bool) -> list[Figure]:
    """CPU per batch, the best of several rounds."""
    with new_log(cache=RecentBatches(CACHE_BYTES)) as (_, log):
        for _ in range(LOG_BATCHES):
            batch = a_batch_at(log.end_offset)
            log.append((read_header(batch),), (batch[:16], memoryview(batch)[16:]))
        rounds = 3 if quick else 10
        hot = min(_read_us(log, log.end_offset - HOT_BATCHES, log.end_offset) for _ in range(rounds))
        cold = min(_read_us(log, 0, LOG_BATCHES // 2) for _ in range(rounds))
    return [
        Figure("read", "16 KiB batch from the cache", hot, "us CPU"),
        Figure("read", "16 KiB batch from the disk, CRC checked", cold, "us CPU"),
    ]


def a_batch_at(offset: int, made: bytes = a_batch(BATCH_BYTES)) -> bytes:
    """One batch of one record, stamped with its base offset and leader epoch 0."""
    return offset.to_bytes(8, "big") + made[8:12] + (0).to_bytes(4, "big") + made[16:]


def _read_us(log: Log, start: int, end: int) -> float:
    """CPU microseconds per batch of reading all from `start` to `end`; every batch here holds one record."""
    began = time.process_time()
    offset = start
    while offset < end:
        size = sum(map(len, log.read(offset, READ_BYTES, end)))
        assert size, offset
        offset += size // BATCH_BYTES
    return (time.process_time() - began) / (end - start) * 1e6
