"""One timer for the earliest of many things that become due.

Rules of this module. The timer is never moved to a later time: one that fires too early does no harm, since its
callback looks what is due and arms it again. There is one timer however many things wait: a timer for each would cost
more than what it waits for.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek_proto.transport.ports import Clock, TimerHandle


class Deadline:
    """Has `callback` called once, at the earliest time for which it was armed since it was last called."""

    __slots__ = ("_at_ms", "_callback", "_clock", "_timer")

    def __init__(self, clock: Clock, callback: Callable[[], None]) -> None:
        self._clock = clock
        self._callback = callback
        self._timer: TimerHandle | None = None
        self._at_ms = 0

    @property
    def is_armed(self) -> bool:
        return self._timer is not None

    def arm(self, at_ms: int | None) -> None:
        """Have the callback called at this time (of the monotonic clock) at the latest. None changes nothing."""
        if at_ms is None or (self._timer is not None and self._at_ms <= at_ms):
            return
        self.cancel()
        self._at_ms = at_ms
        self._timer = self._clock.call_later(max(at_ms - self._clock.now_ms(), 0), self._fire)

    def cancel(self) -> None:
        """Call nothing, until it is armed again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        self._callback()
