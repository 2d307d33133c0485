"""Produce requests of one partition that wait for its high watermark, and the timer of the first to expire.

What completes a request is decided by the core's purgatory; here its answer finds its way to whoever waits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from odradek_proto.errors import ErrorCode
from odradek_proto.transport.ports import Clock, TimerHandle
from odradek_proto.values import Value

from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.core.purgatory import ProducePurgatory


class ProduceAnswer(Value, frozen=True):
    """What the producer of one batch is told."""

    error: ErrorCode
    message: str = ""
    base_offset: int = -1
    log_start_offset: int = -1
    leader_id: int = -1
    leader_epoch: int = -1


AnswerCallback = Callable[[ProduceAnswer], None]


@dataclass(slots=True)
class _Waiting:
    """A token in the purgatory."""

    base_offset: int
    answer: AnswerCallback


class DelayedProduces:
    """`describe` turns an outcome and a base offset into what the producer is told."""

    def __init__(self, clock: Clock, describe: Callable[[ErrorCode, int], ProduceAnswer]) -> None:
        self._clock = clock
        self._describe = describe
        self._purgatory = ProducePurgatory()
        self._timer: TimerHandle | None = None
        self._timer_at_ms = 0

    def __len__(self) -> int:
        return len(self._purgatory)

    def add(self, required_offset: int, base_offset: int, deadline_ms: int, answer: AnswerCallback) -> None:
        """Wait until the high watermark reaches `required_offset` (R-14), at most until the deadline (R-15)."""
        self._purgatory.add(required_offset, deadline_ms, _Waiting(base_offset, answer))
        self._arm()

    def complete(self, leader: LeaderPartition) -> None:
        """Answer those whose condition holds now, in the order of their offsets (R-124)."""
        for token, error in self._purgatory.on_progress(leader):
            self._tell(token, error)

    def fail_all(self, error: ErrorCode) -> None:
        """Answer everybody: this replica leads no more, or its disk failed (R-103)."""
        for token, outcome in self._purgatory.fail_all(error):
            self._tell(token, outcome)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell(self, token: object, error: ErrorCode) -> None:
        assert isinstance(token, _Waiting), token
        token.answer(self._describe(error, token.base_offset))

    def _arm(self) -> None:
        deadline_ms = self._purgatory.next_deadline_ms()
        if deadline_ms is None or (self._timer is not None and self._timer_at_ms <= deadline_ms):
            return
        self.close()
        self._timer_at_ms = deadline_ms
        self._timer = self._clock.call_later(max(0, deadline_ms - self._clock.now_ms()), self._expire)

    def _expire(self) -> None:
        self._timer = None
        for token, error in self._purgatory.on_time(self._clock.now_ms()):
            self._tell(token, error)
        self._arm()
