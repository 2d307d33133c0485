"""What metrics cost: a scrape of many partitions, how long it holds the loop, memory and start with and without them.

    python -m bench --only metrics [--quick] [--json]

- *scrape*: one broker that leads 1,000 partitions, in this process; the median from the request to its last byte, for
  the full page and for `?view=cluster`.
- *loop held*: the longest time for which anything else on that loop waited during those scrapes, asked by a task that
  does nothing but come again.
- *start*, *memory*: one broker's process with nobody connected, with `odradek.metrics.listener` and without.
"""

from __future__ import annotations

import asyncio
import statistics
import time
import urllib.request
from collections.abc import Coroutine

from odradek_broker.local.processes import HOST
from odradek_broker.testing import AsyncCluster

from bench.processes import listening_broker, resident_mib
from bench.report import Figure

PARTITIONS = 1_000
PARTITIONS_AT_ONCE = 250  # in one request of creation
SETTLE_S = 1.5  # after a start, for the election and the first metadata
LISTENER = "odradek.metrics.listener"


def figures(quick: bool) -> list[Figure]:
    """All of them."""
    found = asyncio.run(scrapes(5 if quick else 20))
    rounds = 3 if quick else 7
    for what, setting in (("without metrics", ""), ("with metrics", f"HTTP://{HOST}:0")):
        starts = [start_of_one(setting) for _ in range(rounds)]
        found.append(Figure("metrics", f"start {what}", statistics.median(ms for ms, _ in starts), "ms"))
        found.append(Figure("metrics", f"memory {what}", statistics.median(mib for _, mib in starts), "MiB RSS"))
    return found


async def scrapes(rounds: int) -> list[Figure]:
    """One broker, many partitions, one scraper."""
    async with AsyncCluster(1, settings={LISTENER: f"HTTP://{HOST}:0"}) as cluster:
        for number in range(PARTITIONS // PARTITIONS_AT_ONCE):
            await cluster.create_topic(f"topic-{number}", PARTITIONS_AT_ONCE, timeout=120)
        url = f"{cluster.metrics_url(1)}/metrics"
        _, quiet = await watched(asyncio.sleep(0.5, 0))
        full = [await timed(url) for _ in range(rounds)]
        small = [await timed(f"{url}?view=cluster") for _ in range(rounds)]
        cpu = min([await cpu_of(url) for _ in range(rounds)])
    return [
        Figure("metrics", f"scrape of {PARTITIONS:,} partitions, median", _median(full, 0) * 1e3, "ms"),
        Figure("metrics", "its CPU on the broker's loop, least", cpu * 1e3, "ms CPU"),
        Figure("metrics", "its size", _median(full, 1) / 1024, "KiB"),
        Figure("metrics", "loop held by it, median of the longest", _median(full, 2) * 1e3, "ms"),
        Figure("metrics", "loop held without a scrape, longest", quiet * 1e3, "ms"),
        Figure("metrics", "scrape of view=cluster, median", _median(small, 0) * 1e3, "ms"),
        Figure("metrics", "its size, view=cluster", _median(small, 1) / 1024, "KiB"),
    ]


def _median(rows: list[tuple[float, int, float]], column: int) -> float:
    return statistics.median(row[column] for row in rows)


async def timed(url: str) -> tuple[float, int, float]:
    """Seconds, bytes, and seconds for which the loop was held."""
    started = time.perf_counter()
    size, held = await watched(asyncio.to_thread(_get, url))
    return time.perf_counter() - started, size, held


async def cpu_of(url: str) -> float:
    """CPU seconds that this loop's thread spends on one scrape; the scraper has a thread of its own."""
    started = time.thread_time()
    await asyncio.to_thread(_get, url)
    return time.thread_time() - started


async def watched(work: Coroutine[object, object, int]) -> tuple[int, float]:
    """What the work returns, and the longest time between two turns of this loop meanwhile."""
    task = asyncio.ensure_future(work)
    longest, before = 0.0, time.perf_counter()
    while not task.done():
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
    return task.result(), longest


def _get(url: str) -> int:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return len(answer.read())


def start_of_one(listener: str) -> tuple[float, float]:
    """Milliseconds from the start of a broker's process until it listens, and its memory when it is idle."""
    with listening_broker(**{LISTENER: listener}) as (elapsed, pid):
        time.sleep(SETTLE_S)
        return elapsed, resident_mib(pid)
