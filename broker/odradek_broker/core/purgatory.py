"""Where produce requests with acks=all wait until the high watermark has passed their records (R-14, R-15, R-124).

Rules of this module. A waiting request completes exactly once: who takes it out answers it. In Kafka a request is
tried, registered, and tried again, since the condition may become true between the first two (R-120). Here a step of
the core is never interrupted: the high watermark that `prepare_append` and `on_appended` left behind is the one that
holds when `add` runs, and every later rise comes with an effect, on which the rim calls `on_progress`. So a request
whose offset is reached already is to be answered by `on_progress` right after `add`, and none can be overlooked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from operator import attrgetter
from typing import NamedTuple

from odradek_proto.errors import ErrorCode

from odradek_broker.core.partition.leader import LeaderPartition


class _Waiting(NamedTuple):
    required_offset: int
    deadline_ms: int
    token: object


_by_offset = attrgetter("required_offset")


class ProducePurgatory:
    """The waiting produce requests of one partition, in the order of the offsets that they wait for.

    It has no limit of its own: what may wait is bounded by the credit that connections are given (R-13). A deadline
    that belonged to a request completed since may cause one look for nothing; `next_deadline_ms` is a lower bound.
    """

    __slots__ = ("_earliest_deadline_ms", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()
        self._earliest_deadline_ms: int | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, required_offset: int, deadline_ms: int, token: object) -> None:
        """Wait for the high watermark to reach `required_offset`, until `deadline_ms`. `token` comes back as it is."""
        waiting = self._waiting
        entry = _Waiting(required_offset, deadline_ms, token)
        if not waiting or waiting[-1].required_offset <= required_offset:
            waiting.append(entry)
        else:
            # A repeated batch waits for the offset of the first one.
            waiting.insert(bisect_right(waiting, required_offset, key=_by_offset), entry)
        if self._earliest_deadline_ms is None or deadline_ms < self._earliest_deadline_ms:
            self._earliest_deadline_ms = deadline_ms

    def on_progress(self, leader: LeaderPartition) -> list[tuple[object, ErrorCode]]:
        """Take out those that are decided: after the high watermark rose or the ISR changed. Lowest offsets first."""
        waiting = self._waiting
        if not waiting or waiting[0].required_offset > leader.log.high_watermark:
            return []
        done: list[tuple[object, ErrorCode]] = []
        while waiting:
            outcome = leader.produce_outcome(waiting[0].required_offset)
            if outcome is None:
                return done
            done.append((waiting.popleft().token, outcome))
        self._earliest_deadline_ms = None
        return done

    def on_time(self, now_ms: int) -> list[tuple[object, ErrorCode]]:
        """Take out those whose deadline has come. REQUEST_TIMED_OUT means "unknown", not "not written" (R-15)."""
        if self._earliest_deadline_ms is None or now_ms < self._earliest_deadline_ms:
            return []
        expired = [entry for entry in self._waiting if entry.deadline_ms <= now_ms]
        self._waiting = deque(entry for entry in self._waiting if entry.deadline_ms > now_ms)
        self._earliest_deadline_ms = min((entry.deadline_ms for entry in self._waiting), default=None)
        return [(entry.token, ErrorCode.REQUEST_TIMED_OUT) for entry in expired]

    def fail_all(self, error: ErrorCode) -> list[tuple[object, ErrorCode]]:
        """Take out all: this broker leads no more (NOT_LEADER_OR_FOLLOWER), or its disk failed."""
        failed = [(entry.token, error) for entry in self._waiting]
        self._waiting.clear()
        self._earliest_deadline_ms = None
        return failed

    def next_deadline_ms(self) -> int | None:
        """When `on_time` wants to be called; None when nothing waits."""
        return self._earliest_deadline_ms
