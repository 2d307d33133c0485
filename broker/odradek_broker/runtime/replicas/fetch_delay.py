"""An artificial delay of this broker's fetches from the leaders of its replicas: none, except for a rehearsal.

A follower whose fetches are late by more than `replica.lag.time.max.ms`, while its leader gets writes, leaves the ISR
(R-40); its heartbeats continue, so its session does not end. `odradek chaos slow` sets it, `process/slow.py` passes it
to the process.
"""

from __future__ import annotations

from odradek_proto.transport.ports import Clock, TimerHandle
from odradek_proto.transport.wakeup import WakeupSignal


class FetchDelay:
    """One for all fetchers of a broker. It ends by itself."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._delay_ms = 0
        self._end: TimerHandle | None = None
        self._waiting: dict[WakeupSignal, None] = {}

    @property
    def delay_ms(self) -> int:
        """0: fetches leave at once."""
        return self._delay_ms

    def set(self, delay_ms: int, for_ms: int) -> None:
        """From now on for `for_ms` each fetch leaves `delay_ms` late; those that wait for another delay leave now."""
        if self._end is not None:
            self._end.cancel()
            self._end = None
        before, self._delay_ms = self._delay_ms, delay_ms if for_ms > 0 else 0
        if self._delay_ms:
            self._end = self._clock.call_later(for_ms, lambda: self.set(0, 0))
        if self._delay_ms != before:
            for signal in self._waiting:
                signal.set()

    async def wait(self) -> None:
        """Return when a fetch that could leave now may leave. Only while there is a delay."""
        signal = WakeupSignal()
        self._waiting[signal] = None
        timer = self._clock.call_later(self._delay_ms, signal.set)
        try:
            await signal.wait()
        finally:
            timer.cancel()
            del self._waiting[signal]
