"""What is said of many records while they are written or read, and measured afterwards."""

from __future__ import annotations

import asyncio
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from odradek_proto.words import noun

from odradek import ConsumerRecord, OdradekError
from odradek.cli.terminal.screen import Screen, human_bytes

NEWS_EVERY_S: Final = 5.0
BAR_EVERY_S: Final = 0.1
PATIENCE_S: Final = 2.0  # before somebody is told what is waited for: an election is over sooner
LOOK_EVERY_S: Final = 0.5
REMEDY: Final = "`odradek cluster health` says what is wrong"
SHARES: Final = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "p999_ms": 0.999, "max_ms": 1.0}


def percentiles_ms(latencies: Sequence[float]) -> dict[str, float | None]:
    """Of latencies in ms; None where there are none."""
    ordered = sorted(latencies)
    last = len(ordered) - 1
    return {name: round(ordered[min(last, int(share * len(ordered)))], 2) if ordered else None
            for name, share in SHARES.items()}  # fmt: skip


def rates(records: int, size: int, seconds: float) -> str:
    """`12,345/s, 1.2 MiB/s`."""
    return f"{records / seconds:,.0f}/s, {human_bytes(size / seconds)}/s"


class ReceiveStatistics:
    """Records that were read, from the moment on at which this is made. With `stamped`, how late each of them was."""

    def __init__(self, *, stamped: bool) -> None:
        self.records = self.bytes = 0
        self._stamped = stamped
        self._started = time.monotonic()
        self._latencies_ms = array("f")

    @property
    def seconds(self) -> float:
        return max(time.monotonic() - self._started, 1e-9)

    def take(self, records: Sequence[ConsumerRecord[bytes | None, bytes | None]]) -> None:
        self.records += len(records)
        self.bytes += sum(len(record.value or b"") + len(record.key or b"") for record in records)
        if self._stamped:
            now_ms = time.time() * 1000
            self._latencies_ms.extend([max(now_ms - record.timestamp, 0) for record in records])

    def pace(self) -> str:
        return rates(self.records, self.bytes, self.seconds)

    def summary(self) -> dict[str, Any]:
        """Ready for JSON. Latencies are None when they were not measured, or nothing was read."""
        seconds = self.seconds
        return {
            "records": self.records,
            "bytes": self.bytes,
            "seconds": round(seconds, 3),
            "records_per_second": round(self.records / seconds, 1),
            "bytes_per_second": round(self.bytes / seconds, 1),
            **percentiles_ms(self._latencies_ms),
        }


class SendingNotices:
    """What is said of records that wait: why, when that has lasted for `PATIENCE_S`, once until all goes well again,
    and once more when it is something else."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._since: float | None = None  # the last look at which all went well, or the first one of all
        self._told: dict[str, None] = {}

    def look(self, trouble: OdradekError | None, now: float) -> None:
        """`trouble` is the producer's `held_up_by`, `now` is in seconds."""
        if trouble is None or self._since is None:
            self._since = now
        if trouble is None:
            if self._told:
                self._told.clear()
                self._screen.say("records are acknowledged again")
        elif trouble.message not in self._told and now - self._since >= PATIENCE_S:
            self._told[trouble.message] = None
            self._screen.say(f"held up: {trouble.message}; waiting")
            self._screen.say(f"  try: {'; '.join(filter(None, [trouble.hint, REMEDY]))}")


async def tell(
    screen: Screen, subject: str, total: int, done: Callable[[], tuple[int, str]], pace: Callable[[], str]
) -> None:
    """Until cancelled: a bar on a terminal; elsewhere a line every five seconds, if there is news; nothing when nobody
    wants to know.

    `done`: how many records by now, and what happened to them. `total`: how many there will be; 0 when nobody knows.
    """
    if screen.quiet or not screen.for_people:
        return
    if not sys.stderr.isatty():
        told = -1
        while True:
            await asyncio.sleep(NEWS_EVERY_S)
            count, what = done()
            if count != told:
                screen.say(f"{count} {noun(count, 'record')} {what}, {pace()}")
            told = count
    if not total and sys.stdin.isatty():
        return  # a bar would disturb whoever types
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[pace]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    shown: AbstractContextManager[object] = progress if total else nullcontext(progress)
    with shown:
        task = progress.add_task(subject, total=total or None, pace="")
        while True:
            progress.update(task, completed=done()[0], pace=pace())
            await asyncio.sleep(BAR_EVERY_S)
