"""Which leaders respond to this broker (R-147).

A leader that has been silent for a probe's interval is probed. One that has not answered several probes in a row is
unreachable until any message of it arrives. Failures are counted, not milliseconds: a broker that was suspended finds
one probe unanswered, and the messages that arrived meanwhile.
"""

from __future__ import annotations

FAILURES = 3  # in a row


class LeaderReachability:
    """Leaders by the id of their broker."""

    def __init__(self) -> None:
        self._failures: dict[int, int] = {}

    @property
    def unreachable(self) -> list[int]:
        return [leader for leader, failures in sorted(self._failures.items()) if failures >= FAILURES]

    def answered(self, leader: int) -> bool:
        """Something of it has arrived; True when it was unreachable."""
        return self._failures.pop(leader, 0) >= FAILURES

    def failed(self, leader: int) -> bool:
        """A question had no answer; True when this makes it unreachable."""
        failures = self._failures[leader] = self._failures.get(leader, 0) + 1
        return failures == FAILURES

    def forget(self, leader: int) -> None:
        """It is fenced, or nobody follows it and it answered last: nothing is to be said of it."""
        self._failures.pop(leader, None)
