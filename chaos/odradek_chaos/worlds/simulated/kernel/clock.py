"""The clock port of a simulated node: the loop's virtual time, and a wall clock of its own that may be wrong."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from odradek_proto.transport.ports import TimerHandle

from odradek_chaos.worlds.simulated.kernel.loop import SimLoop

WALL_START_MS = 1_700_000_000_000  # 14 November 2023; every simulated history begins there


class SimClock:
    """`Clock` of one node. `skew_ms` may be changed at any time: that is a jump of the node's wall clock."""

    def __init__(self, loop: SimLoop, rng: random.Random, skew_ms: int = 0) -> None:
        self._loop = loop
        self._rng = rng
        self.skew_ms = skew_ms

    @property
    def rng(self) -> random.Random:
        return self._rng

    def now_ms(self) -> int:
        return self._loop.now_us // 1000

    def wall_ms(self) -> int:
        return WALL_START_MS + self._loop.now_us // 1000 + self.skew_ms

    async def sleep(self, delay_ms: float) -> None:
        if delay_ms > 0:
            await self._loop.sleep_us(round(delay_ms * 1000))
        else:
            await asyncio.sleep(0)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> TimerHandle:
        loop = self._loop
        return loop.call_at_us(loop.now_us + max(0, round(delay_ms * 1000)), callback)
