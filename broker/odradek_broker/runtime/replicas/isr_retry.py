"""The timer of an ISR proposal that must be retried: it does not wait for the next ISR check (R-50)."""

from __future__ import annotations

from collections.abc import Callable

from odradek_proto.transport.ports import Clock, TimerHandle

from odradek_broker.core.partition.leader import LeaderPartition


class IsrRetry:
    """`look` lets the leader of the time look at its ISR, and returns it; None when nobody can lead here any more."""

    __slots__ = ("_clock", "_look", "_timer")

    def __init__(self, clock: Clock, look: Callable[[], LeaderPartition | None]) -> None:
        self._clock = clock
        self._look = look
        self._timer: TimerHandle | None = None

    def arm(self, leader: LeaderPartition) -> None:
        """Called when the controller's answer left a proposal pending; nothing happens when none is due again."""
        if leader.replicas.isr.retry_at_ms is None or self._timer is not None:
            return
        deadline_ms = leader.next_deadline_ms()
        if deadline_ms is not None:
            self._timer = self._clock.call_later(max(0, deadline_ms - self._clock.now_ms()), self._retry)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _retry(self) -> None:
        self._timer = None
        leader = self._look()
        if leader is not None:
            self.arm(leader)
