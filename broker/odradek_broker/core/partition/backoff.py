"""How long a follower's partition waits after an error (R-90).

Unlike Kafka, which waits `replica.fetch.backoff.ms` at once, the first waits are short and double up to that setting.
Most errors come from two brokers that learn of a new leader a moment apart, and a follower that slept for a second
then would hold every acks=all write for that second.
"""

from __future__ import annotations

FIRST_DELAY_MS = 20  # longer than it takes a metadata record to reach every broker on a healthy network


class Backoff:
    """The delay of one partition. `until_ms` is None when there is none."""

    __slots__ = ("_errors", "until_ms")

    def __init__(self) -> None:
        self._errors = 0
        self.until_ms: int | None = None

    def is_delayed(self, now_ms: int) -> bool:
        return self.until_ms is not None and now_ms < self.until_ms

    def delay(self, now_ms: int, longest_ms: int) -> None:
        """Wait after one more error in a row, never longer than `longest_ms`."""
        self.until_ms = now_ms + min(FIRST_DELAY_MS << min(self._errors, 20), longest_ms)
        self._errors += 1

    def reset(self) -> None:
        """An answer was fine."""
        self._errors = 0
        self.until_ms = None
