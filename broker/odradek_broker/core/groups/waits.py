"""The waits of the groups of a shard, as delayed operations: join and sync phases by group, and sessions of members."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from odradek_proto.errors import ErrorCode

from odradek_broker.core.delayed import DelayedOperation, DelayedOperations
from odradek_broker.core.groups.commit_queue import CommitQueue


class GroupWait(DelayedOperation, eq=False):
    """One wait of a group; `complete` is what follows."""

    is_over: Callable[[], bool]
    then: Callable[[ErrorCode], None]

    def outcome(self) -> ErrorCode | None:
        return ErrorCode.NONE if self.is_over() else None

    def complete(self, outcome: ErrorCode) -> None:
        self.then(outcome)


Waits: TypeAlias = DelayedOperations[str, GroupWait]


def never() -> bool:
    """Only time ends it."""
    return False


class GroupPhase:
    """The phase that a group is in, until it is over by itself, by its timeout, or by what ends it: one at a time."""

    def __init__(self, group_id: str, queue: CommitQueue, waits: Waits) -> None:
        self._group_id = group_id
        self._queue = queue
        self._waits = waits
        self._wait: GroupWait | None = None

    def start(self, timeout_ms: int, is_over: Callable[[], bool], then: Callable[[ErrorCode], None]) -> None:
        """`then` is given NONE if it was over, REQUEST_TIMED_OUT if its time was."""
        self.end()

        def over(outcome: ErrorCode) -> None:
            if self._wait is wait:  # what fell due in the same step may have ended it
                self._wait = None
                then(outcome)

        self._wait = wait = GroupWait(deadline_ms=self._queue.now_ms + timeout_ms, is_over=is_over, then=over)
        self._waits.register(wait, self._group_id)

    def check(self) -> None:
        for wait, outcome in self._waits.check(self._group_id):
            wait.complete(outcome)

    def end(self) -> None:
        if self._wait is not None:
            self._waits.cancel(self._wait)
            self._wait = None

    def close(self) -> None:
        self._waits.fail(self._group_id, ErrorCode.GROUP_ID_NOT_FOUND)
        self._wait = None


class _Session:
    __slots__ = ("due_ms", "wait")

    def __init__(self, due_ms: int, wait: GroupWait) -> None:
        self.due_ms = due_ms  # may be later than the wait's deadline: a heartbeat only moves this
        self.wait = wait


class Sessions:
    """Of the members of a group, and of ids that were given out to members."""

    def __init__(self, queue: CommitQueue, waits: Waits, on_over: Callable[[str], None]) -> None:
        self._queue = queue
        self._waits = waits
        self._on_over = on_over
        self._by_member: dict[str, _Session] = {}

    def start(self, member_id: str, timeout_ms: int) -> None:
        """From now on; also again."""
        due_ms = self._queue.now_ms + timeout_ms
        session = self._by_member.get(member_id)
        if session is not None and session.wait.deadline_ms is not None and session.wait.deadline_ms <= due_ms:
            session.due_ms = due_ms
            return
        self.end(member_id)
        self._register(member_id, due_ms)

    def end(self, member_id: str) -> None:
        if (session := self._by_member.pop(member_id, None)) is not None:
            self._waits.cancel(session.wait)

    def close(self) -> None:
        for member_id in list(self._by_member):
            self.end(member_id)

    def _register(self, member_id: str, due_ms: int) -> None:
        def over(_: ErrorCode) -> None:
            if self._by_member.get(member_id) is not session:
                return  # what fell due in the same step has ended it
            del self._by_member[member_id]
            if session.due_ms > self._queue.now_ms:  # it was heard of since
                self._register(member_id, session.due_ms)
            else:
                self._on_over(member_id)

        wait = GroupWait(deadline_ms=due_ms, is_over=never, then=over)
        self._by_member[member_id] = session = _Session(due_ms, wait)
        self._waits.register(wait)
