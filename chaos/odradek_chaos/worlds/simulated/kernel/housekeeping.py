"""What the simulated loop does now and then: collect garbage, and notice that time stands still for ever.

Rules of this module. Cyclic garbage is collected at places that a seed determines, and only there, since a collection
may run code. Both are counted in callbacks, never in real time.
"""

from __future__ import annotations

import gc

INTERVAL_EVENTS = 1_000  # the loop looks up from its callbacks so often
GC_INTERVAL_EVENTS = 1_000_000  # what a busy run leaves by then are some 100 MB
OLD_GARBAGE_EVERY = 5  # every fifth collection also looks at what outlived one before
MAX_EVENTS_AT_ONE_INSTANT = 2_000_000


class Housekeeping:
    """Counts of what was last done and seen. Events are callbacks since the loop began."""

    def __init__(self, most_at_one_instant: int = MAX_EVENTS_AT_ONE_INSTANT) -> None:
        self.most_at_one_instant = most_at_one_instant
        self._collect_at = GC_INTERVAL_EVENTS
        self._collections = 0
        self._instant_us = self._instant_began_at = 0  # when the loop last looked up, and the events before that

    def collect_garbage(self, events: int) -> None:
        """Do it if enough has happened since."""
        if events >= self._collect_at:
            self._collect_at = events + GC_INTERVAL_EVENTS
            self._collections += 1
            gc.collect(2 if self._collections % OLD_GARBAGE_EVERY == 0 else 1)

    def is_stuck(self, events: int, now_us: int) -> bool:
        """Whether too much has happened at one instant."""
        if now_us > self._instant_us:
            self._instant_us, self._instant_began_at = now_us, events
        return events > self._instant_began_at + self.most_at_one_instant
