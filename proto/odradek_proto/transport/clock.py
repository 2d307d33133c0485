"""The clock port over the running event loop.

Monotonic time is the loop's own, so that timers and decisions see one clock; only `wall_ms` reads the wall clock.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

from odradek_proto.transport.ports import TimerHandle


class LoopClock:
    """`Clock` of a real process. Without `rng`, chance is seeded by the operating system."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = random.Random() if rng is None else rng
        self._time: Callable[[], float] | None = None  # of the loop; to ask for the loop each time is a system call

    @property
    def rng(self) -> random.Random:
        return self._rng

    def now_ms(self) -> int:
        """Monotonic milliseconds of the loop that ran at the first call. Raises `RuntimeError` when none did."""
        if self._time is None:
            self._time = asyncio.get_running_loop().time
        return int(self._time() * 1000)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, delay_ms: float) -> None:
        await asyncio.sleep(delay_ms / 1000)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> TimerHandle:
        return asyncio.get_running_loop().call_later(delay_ms / 1000, callback)
