"""The clocks of the brokers of one process.

A frozen broker's timers wait until it goes on, while time passes, as under SIGSTOP. While a cluster starts its time is
faster than the world's: nobody is there yet whom the chance of an election would spare.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek_proto.transport.clock import LoopClock
from odradek_proto.transport.ports import TimerHandle

from odradek_broker.testing.fabric import Fabric

HASTE = 10.0
HASTE_S = 0.1  # and no longer: to brokers on a busy machine everything would seem to be late


class Pace:
    """How fast the time of a cluster goes: at first `HASTE` times the world's, for `HASTE_S` or until `slow_down`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._end = self._began + HASTE_S

    def world_ms(self, delay_ms: float) -> float:
        """How long that takes in the world: what reaches beyond the beginning is as long as everywhere."""
        left_ms = max(self._end - self._loop.time(), 0.0) * 1000
        return min(delay_ms / HASTE, left_ms) + max(delay_ms - left_ms * HASTE, 0.0)

    def time(self) -> float:
        """Seconds, which never go back."""
        now = self._loop.time()
        return now + (min(now, self._end) - self._began) * (HASTE - 1)

    def slow_down(self) -> None:
        """From now on as fast as the world's."""
        self._end = min(self._end, self._loop.time())


class BrokerClock(LoopClock):
    """`Clock` of one life of one broker."""

    def __init__(self, fabric: Fabric, broker: int, pace: Pace) -> None:
        super().__init__()
        self._self_link = fabric.link(broker, broker)
        self._pace = pace

    def now_ms(self) -> int:
        return int(self._pace.time() * 1000)

    async def sleep(self, delay_ms: float) -> None:
        await super().sleep(self._pace.world_ms(delay_ms))
        await self._self_link.passage()

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> TimerHandle:
        timer = _Timer(self._self_link.deliver, callback)
        timer.handle = asyncio.get_running_loop().call_later(self._pace.world_ms(delay_ms) / 1000, timer.due)
        return timer


class _Timer:
    """A call that may be called off while it is due and its broker is frozen."""

    __slots__ = ("_callback", "_deliver", "_is_off", "handle")

    def __init__(self, deliver: Callable[[Callable[[], None]], None], callback: Callable[[], None]) -> None:
        self._deliver = deliver
        self._callback = callback
        self._is_off = False
        self.handle: asyncio.TimerHandle

    def due(self) -> None:
        self._deliver(self._ring)

    def _ring(self) -> None:
        if not self._is_off:
            self._callback()

    def cancel(self) -> None:
        self._is_off = True
        self.handle.cancel()
