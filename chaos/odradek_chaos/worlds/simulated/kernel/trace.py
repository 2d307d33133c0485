"""The trace of a run: one number made of everything that happened, in order.

Two runs of a seed that did the same have the same trace, in every process and on every machine. Steps are gathered
while time stands still and become part of the trace when it goes on, so that each costs no more than an append.
"""

from __future__ import annotations

import zlib


class Trace:
    """Grows by `steps`: the indexes of the processes that ran, and what the world said of itself in between."""

    __slots__ = ("_value", "steps")

    def __init__(self) -> None:
        self._value = 0
        self.steps: list[int] = []  # what happened at this instant, and is not yet part of the trace

    def label(self, label: str) -> None:
        self.steps.append(zlib.crc32(label.encode()))

    def mix(self, now_us: int) -> None:
        """Make what happened at this instant part of the trace."""
        steps = self.steps
        self._value = hash((self._value, now_us, *steps))
        steps.clear()

    def digest(self, now_us: int) -> str:
        """16 hexadecimal digits for all that happened until now; to look at them changes nothing."""
        return f"{hash((self._value, now_us, *self.steps)) & 0xFFFF_FFFF_FFFF_FFFF:016x}"
