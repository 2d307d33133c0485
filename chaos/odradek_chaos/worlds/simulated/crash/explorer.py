"""Power losses at many moments of one broker's life (`odradek chaos crash-states`).

A seed of the simulated world is run with a recorder on one broker's disk; then the disks that a power loss could have
left are built for moments of it, and each is opened and judged (`checks.py`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from odradek_chaos.worlds.simulated.crash.checks import LOOP, Bench, judge, open_everything, written_by_name
from odradek_chaos.worlds.simulated.crash.durability import DurabilityModel, OwedLogs
from odradek_chaos.worlds.simulated.crash.model import DiskModel
from odradek_chaos.worlds.simulated.crash.states import CrashState, crash_states
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.disk.recording import DirectoryChange, DurabilityMark, Operation, Recorder, Write

FINDINGS_KEPT = 20
INSIDE_PER_POINT = 8
INSIDE_SHARE = 0.002


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
    states: int = 0
    recoveries: int = 0  # that were interrupted, too
    findings: list[CrashFinding] = field(default_factory=list)


@dataclass(slots=True)
class Explorer:
    """Tries the states of recordings, one after the other; what it finds is in `result`.

    Of a share `inside` of all states the recovery is recorded, too, and loses power at each of its own moments, or at
    `points_inside` of them.
    """

    bench: Bench
    seed: int = 0
    per_point: int = 100  # states of one moment, about
    inside: float = 0.0
    points_inside: int | None = None
    wanted: str | None = None  # a finding that says this is the last one
    result: Exploration = field(default_factory=Exploration)
    _rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)

    def explore(self, operations: Sequence[Operation], points: int | None = None) -> Exploration:
        """Lose power after every operation, or after so many that chance picks. Ends early when there are findings."""
        promises = DurabilityModel(operations, self.bench.root)
        self._run(operations, self._moments(operations, points), promises, self.per_point, self.inside)
        return self.result

    def _moments(self, operations: Sequence[Operation], points: int | None) -> set[int]:
        if points is None or points >= len(operations):
            return set(range(len(operations)))
        return set(self._rng.sample(range(len(operations)), points))

    def _run(
        self,
        operations: Sequence[Operation],
        points: set[int],
        promises: DurabilityModel,
        per_point: int,
        inside: float,
    ) -> None:
        model, result, seen, last_mark = DiskModel(), self.result, set[int](), "before any mark"
        for index, operation in enumerate(operations):
            model.apply(operation)
            if isinstance(operation, DurabilityMark):
                last_mark = f"after {operation.word}"
            if index not in points:
                continue
            owed = promises.owed_at(index)
            result.points += 1
            for state in crash_states(model, self._rng, per_point):
                key = hash((state.tree(), owed.index))
                if key in seen:
                    continue
                seen.add(key)
                result.states += 1
                for sentence in judge(state, promises, owed, index, self.bench):
                    what = _describe(operation)
                    result.findings.append(CrashFinding(index, what, last_mark, state.describe(), sentence))
                if len(result.findings) >= FINDINGS_KEPT or self._is_found():
                    return
                if inside and self._rng.random() < inside:
                    self._recover_and_crash(state, promises, owed)

    def _is_found(self) -> bool:
        wanted = self.wanted
        return wanted is not None and any(wanted in finding.sentence for finding in self.result.findings)

    def _recover_and_crash(self, state: CrashState, promises: DurabilityModel, owed: OwedLogs) -> None:
        """The power goes once more while everything is opened."""
        disk = state.disk()
        disk.recorder = Recorder(disk.root)
        open_everything(SimFiles(disk, LOOP, random.Random(0)), self.bench)
        operations = disk.recorder.operations
        inner = DurabilityModel(operations, self.bench.root)
        inner.go_on(owed, written_by_name(state, promises))
        self.result.recoveries += 1
        self._run(operations, self._moments(operations, self.points_inside), inner, INSIDE_PER_POINT, 0.0)


def _describe(operation: Operation) -> str:
    if isinstance(operation, Write):
        return f"write of {len(operation.data)} bytes at {operation.offset} of file {operation.file}"
    if isinstance(operation, DirectoryChange):
        steps = ", ".join(f"{step.name} -> {step.node}" for step in operation.steps)
        return f"directory {operation.directory}: {steps}"
    return repr(operation) if len(repr(operation)) < 100 else type(operation).__name__
