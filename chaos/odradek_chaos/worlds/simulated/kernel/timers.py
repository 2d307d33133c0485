"""Virtual time: everything that waits for it, in the order in which it is due.

Rules of this module. Time is counted in whole microseconds. Timers of one instant fire in the order in which they were
set. A cancelled timer stays in the heap until it is its turn, or until cancelled ones are the most.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import Any

from odradek_chaos.worlds.simulated.kernel.process import Process, SimTimer

MANY_CANCELLED_TIMERS = 10_000

Sleeper = asyncio.Future[None]
# When, a number that keeps the order of equal times, whose (None: the world's), and what: a timer of a node, a sleeper
# to wake, or a function of the world.
Entry = tuple[int, int, Process | None, Any]


class Timers:
    """The heap. `heap` may be read and popped from; what is popped there and was cancelled goes into `cancelled`."""

    __slots__ = ("_number", "cancelled", "heap")

    def __init__(self) -> None:
        self.heap: list[Entry] = []
        self.cancelled = 0  # of those that stand in the heap; sleepers are too few to be counted
        self._number = 0

    def add(self, when_us: int, process: Process | None, what: Any) -> None:
        self._number += 1
        heapq.heappush(self.heap, (when_us, self._number, process, what))

    def on_cancelled(self) -> None:
        self.cancelled += 1

    def next_us(self) -> int | None:
        """When the next timer is due that nobody cancelled."""
        heap = self.heap
        while heap and is_cancelled(heap[0]):
            _, _, _, what = heapq.heappop(heap)
            self.cancelled -= type(what) is SimTimer
        return heap[0][0] if heap else None

    def forget_cancelled(self) -> None:
        """Take the cancelled timers out of the heap when they are many, and most of it."""
        if self.cancelled > MANY_CANCELLED_TIMERS and self.cancelled * 2 > len(self.heap):
            self.heap[:] = [entry for entry in self.heap if not is_cancelled(entry)]
            heapq.heapify(self.heap)
            self.cancelled = 0


def is_cancelled(entry: Entry) -> bool:
    what = entry[3]
    if type(what) is SimTimer:
        return what._cancelled
    return type(what) is asyncio.Future and what.cancelled()


def wake(sleeper: Sleeper) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
