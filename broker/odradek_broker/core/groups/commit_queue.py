"""The effects of one step of a shard, and the responses that wait until a write is committed (K-43).

Batches are committed in the order of their ids. A response that depends on a write is held back until that write is
committed; so is a response that only reads, if the last write of its group is not committed yet: its content was true
at the time of the request, and cannot be undone. No order of time is needed beyond that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from odradek_proto.errors import ErrorCode

from odradek_broker.core.groups.messages import Answer, CoordinatorRecord, Effect, ErrorAnswer, GroupReply, WriteRecords


class CommitQueue:
    """Every token is in here from its request to its answer; it is answered once, and not at all once cancelled."""

    def __init__(self) -> None:
        self.now_ms = 0  # monotonic, of the present step
        self.wall_ms = 0
        self._effects: list[Effect] = []
        self._asked: dict[object, bool] = {}  # tokens without an answer: whether somebody still waits for it
        self._waiting: dict[int, list[Callable[[], None]]] = {}  # by write id: answers, and what else follows
        self._last_of_group: dict[str, int] = {}  # the last write of each group, while it is not committed
        self.rebalances: Counter[str] = Counter()  # by kind of group: generations and group epochs that began
        self._written = 0
        self._committed = 0

    # --- Steps ------------------------------------------------------------------------------------------------------

    def begin(self, now_ms: int, wall_ms: int | None = None) -> None:
        """A step begins. Without a wall clock, it has moved as the other one has."""
        self.wall_ms = self.wall_ms + now_ms - self.now_ms if wall_ms is None else wall_ms
        self.now_ms = now_ms

    def end(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    # --- Callers ----------------------------------------------------------------------------------------------------

    def ask(self, token: object) -> None:
        assert token not in self._asked, token
        self._asked[token] = True

    def cancel(self, token: object) -> None:
        if token in self._asked:
            self._asked[token] = False

    def reply(self, token: object, answer: Answer, after: int = 0) -> None:
        """Now, or once the write of that id is committed."""
        if after > self._committed:
            self.then(after, lambda: self.reply(token, answer))
        elif self._asked.pop(token):
            self._effects.append(GroupReply(token, answer))

    def refuse_all(self, error: ErrorCode) -> list[GroupReply]:
        replies = [GroupReply(token, ErrorAnswer(error)) for token, wanted in self._asked.items() if wanted]
        self._asked.clear()
        return replies

    # --- Writes -----------------------------------------------------------------------------------------------------

    def write(self, group_ids: Sequence[str], records: Sequence[CoordinatorRecord]) -> int:
        """One batch, which changes these groups. Returns its id."""
        assert records, group_ids
        self._written += 1
        self._effects.append(WriteRecords(self._written, tuple(records)))
        for group_id in group_ids:
            self._last_of_group[group_id] = self._written
        return self._written

    def then(self, write_id: int, action: Callable[[], None]) -> None:
        """Do this once the write is committed."""
        self._waiting.setdefault(write_id, []).append(action)

    def last_write(self, group_id: str | None = None) -> int:
        """What an answer about the group, or about all groups, rests on; 0: on nothing that is not committed."""
        if group_id is None:
            return self._written
        write_id = self._last_of_group.get(group_id, 0)
        if write_id and write_id <= self._committed:
            del self._last_of_group[group_id]
            return 0
        return write_id

    def on_committed(self, write_id: int) -> None:
        assert self._committed < write_id <= self._written, (write_id, self._committed, self._written)
        committed, self._committed = self._committed, write_id
        if write_id == self._written:
            self._last_of_group.clear()
        for each in range(committed + 1, write_id + 1):
            for action in self._waiting.pop(each, ()):
                action()
