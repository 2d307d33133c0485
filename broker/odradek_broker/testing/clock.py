"""The clocks of the brokers of one process.

A frozen broker's timers wait until it goes on, while time passes, as under SIGSTOP. When a cluster starts for the first
time, one broker's clock skips what its first timers wait for: it stands for election before the others, and alone.

Brokers have the machine's time, as those in processes of their own do, when the test freezes Python's.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable

from odradek_proto.transport.clock import LoopClock
from odradek_proto.transport.ports import TimerHandle

from odradek_broker.testing.fabric import Fabric

REALTIME = 0  # clock_gettime's
FIRST_ELECTION_MS = 150  # a voter of a new quorum waits up to so long before it stands


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_clock_gettime = ctypes.CDLL(None).clock_gettime  # of C: all of Python's clocks may be replaced


class BrokerClock(LoopClock):
    """`Clock` of one life of one broker. Timers are due at once as long as they wait for `skips_ms` altogether."""

    def __init__(self, fabric: Fabric, broker: int, *, skips_ms: float = 0) -> None:
        super().__init__()
        self._self_link = fabric.link(broker, broker)
        self._skips_ms = skips_ms
        self._ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms

    def wall_ms(self) -> int:
        time = _Timespec()
        _clock_gettime(REALTIME, ctypes.byref(time))
        return int(time.seconds) * 1_000 + int(time.nanoseconds) // 1_000_000

    async def sleep(self, delay_ms: float) -> None:
        await super().sleep(delay_ms)
        await self._self_link.passage()

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> TimerHandle:
        if delay_ms <= self._skips_ms:
            self._skips_ms -= delay_ms
            self._ahead_ms += int(delay_ms)
            delay_ms = 0
        timer = _Timer(self._self_link.deliver, callback)
        timer.handle = asyncio.get_running_loop().call_later(delay_ms / 1000, timer.due)
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
