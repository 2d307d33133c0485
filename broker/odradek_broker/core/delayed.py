"""Waiting requests: until a condition holds, a deadline passes, or a failure (R-14, R-15, R-120).

Kafka's DelayedOperationPurgatory. An operation is registered under the keys on which it depends; code that changes a
key's state calls `check`, which returns the completed operations. An operation completes exactly once, by its
condition, its deadline or a failure of one of its keys, and is then removed from all its keys; the caller that gets it
sends the response.

In Kafka an operation is tried, registered, and tried again, since its condition may become true between the first two.
Here a step of the core is never interrupted: a condition that is false before `register` is false when it returns.

Operations of one key may wait for a position in it, such as an offset that its high watermark has to reach: they are
kept in the order of `required`, and those beyond the current position are not visited. So the cost of a check is
proportional to the operations that it completes, however many wait.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Generic, TypeVar

from msgspec import Struct
from odradek_proto.errors import ErrorCode

from odradek_broker.core.partition.leader import LeaderPartition

K = TypeVar("K")
Op = TypeVar("Op", bound="DelayedOperation")

NO_LIMIT = (1 << 63) - 1  # as what was reached: every operation of the key is looked at
PURGE_ABOVE = 16  # entries of completed operations that may always stay behind

_required = attrgetter("required")


class DelayedOperation(Struct, eq=False, kw_only=True):
    """One waiting request. A wait ends once; a request that has to wait again registers another operation."""

    required: int = 0  # the position that its keys have to reach before it is looked at
    deadline_ms: int | None = None  # monotonic; None: it waits as long as it takes
    completed: bool = False

    def outcome(self) -> ErrorCode | None:
        """The response to the request now; None: not yet. Called when a key has reached the required position."""
        return ErrorCode.NONE

    def complete(self, outcome: ErrorCode) -> None:
        """Answer it: the rim's part, called once for each operation that is taken out."""
        raise NotImplementedError


class DelayedProduce(DelayedOperation, eq=False):
    """A batch that is written, and waits for the high watermark to reach its end (R-14)."""

    leader: LeaderPartition

    def outcome(self) -> ErrorCode | None:
        return self.leader.produce_outcome(self.required)


class _Watched(Generic[Op]):
    """The operations of one key, by required position. Completed ones stay until they come first, or are too many."""

    __slots__ = ("operations", "purge_at")

    def __init__(self) -> None:
        self.operations: deque[Op] = deque()
        self.purge_at = PURGE_ABOVE

    def purge(self) -> None:
        self.operations = deque(each for each in self.operations if not each.completed)
        self.purge_at = 2 * len(self.operations) + PURGE_ABOVE


class DelayedOperations(Generic[K, Op]):
    """All waiting operations, by key and by deadline. No limit here: requests are limited where they arrive."""

    __slots__ = ("_by_deadline", "_sequence", "_timed", "_watched")

    def __init__(self) -> None:
        self._watched: dict[K, _Watched[Op]] = {}
        self._by_deadline: list[tuple[int, int, Op]] = []  # a heap, with entries of completed operations
        self._sequence = 0  # of equal deadlines the first to come is the first to go
        self._timed = 0  # operations that wait and have a deadline

    def register(self, operation: Op, *keys: K) -> None:
        """Wait. The condition does not hold; `check` of any of the keys looks at it again."""
        for key in dict.fromkeys(keys):
            watched = self._watched.get(key)
            if watched is None:
                watched = self._watched[key] = _Watched()
            operations = watched.operations
            if not operations or operations[-1].required <= operation.required:
                operations.append(operation)
            else:
                insort(operations, operation, key=_required)  # as a repeated batch, which waits as its first
            if len(operations) > watched.purge_at:
                watched.purge()
        if operation.deadline_ms is not None:
            self._enter(operation, operation.deadline_ms)

    def set_deadline(self, operation: Op, deadline_ms: int) -> None:
        """An operation that waits without one gets a deadline."""
        assert operation.deadline_ms is None, operation
        assert not operation.completed, operation
        operation.deadline_ms = deadline_ms
        self._enter(operation, deadline_ms)

    def check(self, key: K, reached: int = NO_LIMIT) -> list[tuple[Op, ErrorCode]]:
        """Take out completed operations: the key's state has changed, up to `reached`. Lowest required first."""
        watched = self._watched.get(key)
        if watched is None or not watched.operations:
            return []
        operations = watched.operations
        done: list[tuple[Op, ErrorCode]] = []
        kept: list[Op] = []
        while operations and operations[0].required <= reached:
            operation = operations.popleft()
            if operation.completed:
                continue
            outcome = operation.outcome()
            if outcome is None:
                kept.append(operation)
            else:
                operation.completed = True
                if operation.deadline_ms is not None:
                    self._timed -= 1
                done.append((operation, outcome))
        if kept:
            operations.extendleft(reversed(kept))
        return done

    def fail(self, key: K, error: ErrorCode) -> list[tuple[Op, ErrorCode]]:
        """Take out everything that waits for this key: it is gone, or will never get there."""
        watched = self._watched.pop(key, None)
        failed = [] if watched is None else [each for each in watched.operations if not each.completed]
        for operation in failed:
            self._complete(operation)
        return [(operation, error) for operation in failed]

    def on_time(self, now_ms: int) -> list[tuple[Op, ErrorCode]]:
        """Take out those whose deadline has come. Of a write, REQUEST_TIMED_OUT means "unknown" (R-15)."""
        expired: list[tuple[Op, ErrorCode]] = []
        while (deadline_ms := self.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            _, _, operation = heappop(self._by_deadline)
            self._complete(operation)
            expired.append((operation, ErrorCode.REQUEST_TIMED_OUT))
        return expired

    def cancel(self, operation: Op) -> None:
        """The request has been abandoned. Of a completed one nothing is left to cancel."""
        if not operation.completed:
            self._complete(operation)

    def next_deadline_ms(self) -> int | None:
        """When `on_time` wants to be called; None when nothing waits for its deadline."""
        heap = self._by_deadline
        while heap and heap[0][2].completed:
            heappop(heap)
        return heap[0][0] if heap else None

    def is_watched(self, key: K) -> bool:
        """Whether a check of this key may find something."""
        watched = self._watched.get(key)
        return watched is not None and bool(watched.operations)

    def count(self, key: K) -> int:
        """How many operations wait for a key."""
        watched = self._watched.get(key)
        if watched is None or not watched.operations:
            return 0
        return sum(not each.completed for each in watched.operations)

    def waiting(self, key: K) -> Iterator[Op]:
        """The operations that wait for a key."""
        watched = self._watched.get(key)
        return iter(()) if watched is None else (each for each in watched.operations if not each.completed)

    def on_earliest(self, deadline_ms: int) -> None:
        """A deadline is earlier than all others: for the owner of the timer."""

    def _enter(self, operation: Op, deadline_ms: int) -> None:
        heap = self._by_deadline
        is_earliest = not heap or deadline_ms < heap[0][0]
        self._timed += 1
        self._sequence += 1
        heappush(heap, (deadline_ms, self._sequence, operation))
        if len(heap) > 2 * self._timed + PURGE_ABOVE:
            self._by_deadline = [entry for entry in heap if not entry[2].completed]
            heapify(self._by_deadline)
        if is_earliest:
            self.on_earliest(deadline_ms)

    def _complete(self, operation: Op) -> None:
        assert not operation.completed, operation
        operation.completed = True
        if operation.deadline_ms is not None:
            self._timed -= 1
