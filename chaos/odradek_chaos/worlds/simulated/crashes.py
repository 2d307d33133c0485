"""`python -m odradek_chaos.worlds.simulated.crashes SEED`: power losses at many moments of one broker's life.

A seed of the simulated world is run with a recorder on one broker's disk; then the disks that a power loss could have
left are built for moments of it, and each is opened and judged (`crash_checks.py`).
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from odradek_chaos.worlds.simulated.crash_checks import Bench, judge
from odradek_chaos.worlds.simulated.crash_model import DiskModel
from odradek_chaos.worlds.simulated.crash_promises import NOTHING, Owed, Promises
from odradek_chaos.worlds.simulated.crash_states import CrashState, crash_states
from odradek_chaos.worlds.simulated.recording import Change, Mark, Operation, Write

FINDINGS_KEPT = 20


@dataclass(frozen=True, slots=True)
class CrashFinding:
    """A power loss after operation `index` of a recording, what it left, and what is wrong then."""

    index: int
    operation: str
    after: str  # the last mark
    fates: str
    sentence: str

    def __str__(self) -> str:
        return (
            f"power loss after operation {self.index} ({self.operation}; {self.after}): {self.sentence} [{self.fates}]"
        )


@dataclass(slots=True)
class Exploration:
    """What was tried. Equal disks with equal promises count once."""

    points: int = 0
    built: int = 0
    states: int = 0
    exhausted: int = 0  # points at which all states were tried
    findings: list[CrashFinding] = field(default_factory=list)

    def add(self, other: Exploration) -> None:
        self.points += other.points
        self.built += other.built
        self.states += other.states
        self.exhausted += other.exhausted
        self.findings += other.findings


def explore(
    operations: Sequence[Operation],
    bench: Bench,
    *,
    seed: int = 0,
    per_point: int = 100,
    points: int | None = None,
    stop_at: int = FINDINGS_KEPT,
) -> Exploration:
    """Lose power after every operation of a recording, or after so many that chance picks; open what is left.

    `per_point` bounds the states of one moment, about. Ends early after `stop_at` findings.
    """
    rng = random.Random(seed)
    promises, model, result = Promises(operations, bench.root), DiskModel(), Exploration()
    chosen = range(len(operations))
    looked_at = set(chosen if points is None or points >= len(operations) else rng.sample(chosen, points))
    marks = [owed.index for owed in promises.marks]
    seen: set[int] = set()
    last_mark = "the beginning"
    for index, operation in enumerate(operations):
        model.apply(operation)
        if isinstance(operation, Mark) and operation.word:
            last_mark = f"after {operation.word}"
        if index not in looked_at:
            continue
        place = bisect_right(marks, index) - 1
        before = promises.marks[place] if place >= 0 else NOTHING
        after = promises.marks[place + 1] if place + 1 < len(marks) else before
        owed = promises.between(before, after)
        result.points += 1
        for state in crash_states(model, rng, per_point):
            result.built += 1
            key = hash((state.tree(), owed.index))
            if key in seen:
                continue
            seen.add(key)
            result.states += 1
            for sentence in judge(state, promises, owed, index, bench):
                what = _describe(operation)
                result.findings.append(CrashFinding(index, what, last_mark, state.describe(), sentence))
        if len(result.findings) >= stop_at:
            break
    return result


def _describe(operation: Operation) -> str:
    if isinstance(operation, Write):
        return f"write of {len(operation.data)} bytes at {operation.offset} of file {operation.file}"
    if isinstance(operation, Change):
        steps = ", ".join(f"{step.name} -> {step.node}" for step in operation.steps)
        return f"directory {operation.directory}: {steps}"
    return repr(operation) if len(repr(operation)) < 100 else type(operation).__name__


__all__ = ["Bench", "CrashFinding", "CrashState", "Exploration", "Owed", "explore"]
