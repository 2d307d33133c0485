"""Virtual time: what the clock of the simulated loop shows, and everything that waits for it.

Rules of this module. Time is counted in whole microseconds and only ever goes on to the next timer. Timers of one
instant fire in the order in which they were set. A cancelled timer stays in the heap until it is its turn, or until
cancelled ones are the most.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections.abc import Callable
from typing import Any, TypeVarTuple, Unpack

from odradek_chaos.worlds.simulated.kernel.process import PROCESS, Process, SimTimer
from odradek_chaos.worlds.simulated.kernel.turns import Context, LoopOfProcesses

Ts = TypeVarTuple("Ts")

MICROSECONDS = 1_000_000
MANY_CANCELLED_TIMERS = 10_000

Sleeper = asyncio.Future[None]
# When, a number that keeps the order of equal times, whose (None: the world's), and what: a timer of a node, a sleeper
# to wake, or a function of the world.
Entry = tuple[int, int, Process | None, Any]


class TimedLoop(LoopOfProcesses):
    """A loop's clock and timers. Times of its own methods are microseconds."""

    def __init__(self) -> None:
        super().__init__()
        self.now_us = 0
        self._timers: list[Entry] = []
        self._timer_number = 0
        self._cancelled_timers = 0
        self._on_timer_cancelled = self._timer_cancelled

    def time(self) -> float:
        return self.now_us / MICROSECONDS

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at_us(self.now_us + max(0, round(delay * MICROSECONDS)), callback, args, context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at_us(round(when * MICROSECONDS), callback, args, context)

    def call_world_at(self, when_us: int, callback: Callable[[], object]) -> None:
        """A timer of the world, whoever sets it: deliveries and faults go on while the node that sent is paused."""
        self._timer_number += 1
        heapq.heappush(self._timers, (when_us, self._timer_number, None, callback))

    async def sleep_us(self, delay_us: int) -> None:
        """Let the node that asks sleep; `asyncio.sleep` does the same with more callbacks."""
        sleeper: Sleeper = asyncio.Future(loop=self)
        self._timer_number += 1
        when_us = self.now_us + delay_us
        heapq.heappush(self._timers, (when_us, self._timer_number, PROCESS.get(self._world), sleeper))
        await sleeper

    def call_at_us(
        self,
        when_us: int,
        callback: Callable[..., object],
        args: tuple[Any, ...] = (),
        context: Context | None = None,
    ) -> SimTimer:
        """A timer of the node that asks."""
        if context is None:
            context = contextvars.copy_context()
        timer = SimTimer(when_us, callback, args, context, self._on_timer_cancelled)
        self._timer_number += 1
        heapq.heappush(self._timers, (when_us, self._timer_number, context.get(PROCESS, self._world), timer))
        return timer

    def _timer_cancelled(self) -> None:
        """A cancelled timer stays in the heap until many have gathered; sleepers are too few to be counted."""
        self._cancelled_timers += 1

    def _next_us(self) -> int | None:
        """When the next timer is due that nobody cancelled."""
        timers = self._timers
        while timers and is_cancelled(timers[0]):
            _, _, _, what = heapq.heappop(timers)
            self._cancelled_timers -= type(what) is SimTimer
        return timers[0][0] if timers else None

    def _forget_cancelled(self) -> None:
        """Take the cancelled timers out of the heap when they are many, and most of it."""
        if self._cancelled_timers > MANY_CANCELLED_TIMERS and self._cancelled_timers * 2 > len(self._timers):
            self._timers[:] = [entry for entry in self._timers if not is_cancelled(entry)]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0


def is_cancelled(entry: Entry) -> bool:
    what = entry[3]
    if type(what) is SimTimer:
        return what._cancelled
    return type(what) is asyncio.Future and what.cancelled()


def wake(sleeper: Sleeper) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
