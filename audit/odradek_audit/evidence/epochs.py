"""Which leader epochs stand at an offset on every replica, as their batches say and, at the end of a log, their leader
epoch files."""

from __future__ import annotations

from typing import NamedTuple

from odradek_audit.results import PartitionSummary, ReplicaSummary


class EpochStart(NamedTuple):
    """A leader epoch, and the highest offset at which it begins on a replica; `later` says that others came before it
    in the logs that are left, `at_end` that no log goes beyond."""

    epoch: int
    offset: int
    later: bool
    at_end: bool


def _starts(replica: ReplicaSummary) -> dict[int, int]:
    """The file's entries count at the end of the log alone: before it batches say the same, and cannot be stale."""
    at_end = [entry for entry in replica.epoch_file or () if entry[1] == replica.log_end]
    return {entry[0]: entry[1] for entry in [*at_end, *replica.epochs]}


def epoch_at(replica: ReplicaSummary, offset: int) -> int:
    """The leader epoch in which an offset of a replica's log lies, or that begins at its end; -1: none."""
    return max((epoch for epoch, start in _starts(replica).items() if start <= offset), default=-1)


def epochs_begun(summary: PartitionSummary, offset: int) -> list[EpochStart]:
    """The leader epochs that begin at or below an offset on every replica whose log goes beyond it, the oldest first;
    where none does, on any replica."""
    beyond = [each for each in summary.replicas if each.log_end > offset]
    known = [_starts(each) for each in beyond or summary.replicas]
    highest: dict[int, int] = {}
    for starts in known:
        for epoch, start in starts.items():
            highest[epoch] = max(start, highest.get(epoch, start))
    return [
        EpochStart(epoch, start, later=epoch > min(highest), at_end=not beyond)
        for epoch, start in sorted(highest.items())
        if start <= offset and (not beyond or all(epoch in starts for starts in known))
    ]
