"""Deadlines of many members, most of which are extended long before they expire.

Extending one costs only the note; the heap discovers it at the old time. So `next_ms` may be too early, and is never
too late.
"""

from __future__ import annotations

from heapq import heappop, heappush


class Deadlines:
    """Monotonic ms by key. For each key that is noted the heap has an entry that is not later."""

    def __init__(self) -> None:
        self._deadlines: dict[str, int] = {}
        self._entries: dict[str, int] = {}  # the time of the one entry of a key that counts
        self._heap: list[tuple[int, str]] = []

    def set(self, key: str, deadline_ms: int) -> None:
        self._deadlines[key] = deadline_ms
        entry = self._entries.get(key)
        if entry is None or deadline_ms < entry:
            self._entries[key] = deadline_ms
            heappush(self._heap, (deadline_ms, key))

    def is_set(self, key: str) -> bool:
        return key in self._deadlines

    def clear(self, key: str) -> None:
        self._deadlines.pop(key, None)

    def next_ms(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> list[str]:
        """The keys whose time has come, each once; they are cleared."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            entry, key = heappop(self._heap)
            if self._entries.get(key) != entry:
                continue
            del self._entries[key]
            if (deadline_ms := self._deadlines.get(key)) is None:
                continue
            if deadline_ms <= now_ms:
                del self._deadlines[key]
                due.append(key)
            else:
                self.set(key, deadline_ms)
        return due
