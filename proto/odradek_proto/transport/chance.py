"""Chance points: places where the product asks whether to do something rare but legal, and branches worth reaching.

    if chance("fetch-answer-small", 0.1):
        budget = 1

Outside of a simulated run `chance` is constant False and `reached` does nothing. In one, some points strike with their
probability, decided by the seed: tiny answers, early timeouts, late flushes, small segments. Whatever a point makes
the product do must be allowed at any time, so no promise may depend on it (FoundationDB calls this BUGGIFY).

Rules of this module. A name belongs to one place, and docs/simulation.md lists it. A path that every record takes asks
a few times for a batch and never for a record: an append asks whether to begin a segment, to add an index entry and to
forget what it keeps in memory. Only runtime, storage and client ask; the core has no chance of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Protocol


class Chance(Protocol):
    """Who decides in a simulated run, and counts."""

    def fires(self, point: str, probability: float) -> bool: ...

    def reached(self, branch: str) -> None: ...


_present: Chance | None = None
_thread = 0  # of the run; brokers on the loop of another thread are real, and nothing strikes them


def chance(point: str, probability: float) -> bool:
    """Whether to do the rare thing here, now. False in every real process."""
    return _present is not None and get_ident() == _thread and _present.fires(point, probability)


def reached(branch: str) -> None:
    """Say that a rare branch was taken; counted in a simulated run."""
    if _present is not None and get_ident() == _thread:
        _present.reached(branch)


@contextmanager
def decided_by(present: Chance) -> Iterator[None]:
    """Let `present` decide for what this thread does until the block ends. One run at a time in a process."""
    global _present, _thread
    assert _present is None, "a simulated run is going on in this process"
    _present, _thread = present, get_ident()
    try:
        yield
    finally:
        _present = None
