"""How long a fetch session waits for fetch.min.bytes (R-121).

Rules of this module. Whoever asks for one byte, the default, never waits for more. A session that has nothing to tell
has no deadline and no timer; the wait begins with the first bytes that are not enough. It ends when a client that
repeats its fetch every fetch.max.wait.ms, as Kafka's clients do, would be answered: so no record waits longer here
than it would there.
"""

from __future__ import annotations


class MinimumBytes:
    """What one session's client wants at least, and until when it is waited for. Times are monotonic."""

    __slots__ = ("_max_wait_ms", "_named_ms", "deadline_ms", "wanted")

    def __init__(self) -> None:
        self.wanted = 1  # bytes over all partitions of the session
        self.deadline_ms: int | None = None
        self._max_wait_ms = 0
        self._named_ms = 0

    def asked(self, wanted: int, max_wait_ms: int, now_ms: int) -> None:
        """The client named partitions: a fetch, as Kafka sees it."""
        self.wanted = wanted
        self._max_wait_ms = max(1, max_wait_ms)
        self._named_ms = now_ms

    def begin(self, now_ms: int) -> int:
        """There are bytes, and not enough. Returns the deadline."""
        if self.deadline_ms is None:
            repeats = (now_ms - self._named_ms) // self._max_wait_ms
            self.deadline_ms = self._named_ms + (repeats + 1) * self._max_wait_ms
        return self.deadline_ms

    def is_over(self, now_ms: int) -> bool:
        return self.wanted <= 1 or (self.deadline_ms is not None and now_ms >= self.deadline_ms)

    def rest(self) -> None:
        """Nothing is ready any more."""
        self.deadline_ms = None
