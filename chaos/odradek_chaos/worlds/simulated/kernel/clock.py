"""The clock port of a simulated node: the loop's virtual time, and a wall clock of its own that may be wrong."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from odradek_proto.transport.ports import TimerHandle

from odradek_chaos.worlds.simulated.kernel.loop import SimLoop

WALL_START_MS = 1_700_000_000_000  # 14 November 2023; every simulated history begins there


class Monotonic:
    """The monotonic clock of a machine: the loop's virtual time, as long as its rate is 1."""

    def __init__(self, loop: SimLoop) -> None:
        self.rate = 1.0
        self._loop = loop
        self._ahead_us = 0  # of virtual time, when this rate began
        self._since_us = 0

    def now_us(self) -> int:
        now_us = self._loop.now_us
        if self.rate != 1.0:
            return now_us + self._ahead_us + round((now_us - self._since_us) * (self.rate - 1.0))
        return now_us + self._ahead_us

    def go_at(self, rate: float) -> None:
        """So many of its seconds to one of virtual time, from now on. Timers that are set keep their moment."""
        self._ahead_us = self.now_us() - self._loop.now_us
        self._since_us, self.rate = self._loop.now_us, rate


class SimClock:
    """`Clock` of one node. `skew_ms` may be changed at any time: that is a jump of the node's wall clock.

    `monotonic` is the machine's, and outlives the node's processes.
    """

    def __init__(self, loop: SimLoop, rng: random.Random, skew_ms: int = 0, monotonic: Monotonic | None = None) -> None:
        self._loop = loop
        self._rng = rng
        self._monotonic = monotonic or Monotonic(loop)
        self.skew_ms = skew_ms

    @property
    def rng(self) -> random.Random:
        return self._rng

    def now_ms(self) -> int:
        return self._monotonic.now_us() // 1000

    def wall_ms(self) -> int:
        return WALL_START_MS + self._loop.now_us // 1000 + self.skew_ms

    async def sleep(self, delay_ms: float) -> None:
        if delay_ms > 0:
            await self._loop.sleep_us(round(delay_ms * 1000 / self._monotonic.rate))
        else:
            await asyncio.sleep(0)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> TimerHandle:
        loop = self._loop
        return loop.call_at_us(loop.now_us + max(0, round(delay_ms * 1000 / self._monotonic.rate)), callback)
