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

    @property
    def rng(self) -> random.Random:
        return self._rng

    def now_ms(self) -> int:
        """Monotonic milliseconds of the running loop. Raises `RuntimeError` when no loop runs in this thread."""
        return int(asyncio.get_running_loop().time() * 1000)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, delay_ms: float) -> None:
        await asyncio.sleep(delay_ms / 1000)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> TimerHandle:
        return asyncio.get_running_loop().call_later(delay_ms / 1000, callback)
