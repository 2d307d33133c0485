"""How long partitions acknowledged nothing, by kind of fault (L8: published, not judged).

A silence is the time between two acknowledgements of one partition in which somebody waits for the second: a lull of
the load is none. It is told of every kind of fault that struck
in it, or in the second before it: with several kinds in one run each gets what they did together, so campaigns of one
kind alone tell what that kind costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

BEFORE_US = 1_000_000
SHORTEST_US = 20_000  # what is shorter is no silence


class Unavailability:
    """Of one run. `longest_ms` is by kind of fault."""

    def __init__(self) -> None:
        self.longest_ms: dict[str, int] = {}
        self._injections: list[tuple[int, str]] = []  # in order of time
        self._last_us: dict[tuple[str, int], int] = {}

    def struck(self, now_us: int, kind: str) -> None:
        self._injections.append((now_us, kind))

    def awaited(self, now_us: int, topic: str, partition: int) -> None:
        """A record was handed over while none was on its way: nobody has waited until now."""
        self._last_us[topic, partition] = now_us

    def acknowledged(self, now_us: int, topic: str, partition: int) -> None:
        last_us = self._last_us.get((topic, partition), now_us)
        self._last_us[topic, partition] = now_us
        if now_us - last_us < SHORTEST_US:
            return
        silence_ms = (now_us - last_us) // 1000
        for at_us, kind in reversed(self._injections):
            if at_us < last_us - BEFORE_US:
                break
            if silence_ms > self.longest_ms.get(kind, -1):
                self.longest_ms[kind] = silence_ms


def percentile(values: Sequence[int], share: float) -> int:
    """The smallest of the values that so large a share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def in_words(silences: dict[str, list[int]]) -> str:
    """`kill 210/980/980, ...`: median, 99th percentile and largest of the seeds' longest silences, in ms."""
    return ", ".join(
        f"{kind} {percentile(found, 0.5)}/{percentile(found, 0.99)}/{max(found)}"
        for kind, found in sorted(silences.items())
    )
