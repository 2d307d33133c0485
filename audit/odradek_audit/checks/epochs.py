"""`epoch-cache-mismatch`: does `leader-epoch-checkpoint` say what the batches say (I-7, A5; R-60 to R-66)?

The file is written before an epoch's first batch, and cut behind the log's own cut, perhaps later. So after a crash
it may be ahead at the end (epochs without a record) and behind at the front (epochs whose records retention
removed); in the middle it must be exact.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Sequence
from itertools import islice, zip_longest
from operator import le

from odradek_audit.catalogue import EPOCH_CACHE_MISMATCH
from odradek_audit.findings import FindingSink
from odradek_audit.inputs.facts import NO_EPOCH, BatchTable, EpochLine, ReplicaInputs, log_end_offset

FILE = "leader-epoch-checkpoint"


CONFIRMED = 1000
"""How many batches one outweighs whose epoch the leader epoch file names at its offset."""


def misplaced_epochs(table: BatchTable, known: Sequence[EpochLine] | None, but: Container[int] = ()) -> list[range]:
    """Rows whose leader epoch does not fit between those around them, in runs; none where epochs never fall.

    They are the fewest without which epochs never fall: one changed header is one batch, whichever way it was changed.
    A batch with the epoch that `leader-epoch-checkpoint` (`known`) names for its offset counts for many others. Rows of
    `but` and those without an epoch are passed over.
    """
    if _never_fall(table.epoch):
        return []
    runs: list[tuple[int, int, list[int]]] = []  # epoch, weight, rows
    starts = [entry.start_offset for entry in known or ()]
    falls = False
    for row, epoch in enumerate(table.epoch):
        if epoch == NO_EPOCH or row in but:
            continue
        falls = falls or bool(runs and epoch < runs[-1][0])
        place = bisect_right(starts, table.base_offset[row]) - 1
        weight = CONFIRMED if known and place >= 0 and known[place].epoch == epoch else 1
        if runs and runs[-1][0] == epoch:
            runs[-1] = (epoch, runs[-1][1] + weight, runs[-1][2])
            runs[-1][2].append(row)
        else:
            runs.append((epoch, weight, [row]))
    if not falls:
        return []
    kept = _heaviest_rise([(epoch, weight) for epoch, weight, _ in runs])
    rows = [row for place, (*_, rows) in enumerate(runs) if place not in kept for row in rows]
    found: list[range] = []
    for row in rows:
        if found and found[-1].stop == row:
            found[-1] = range(found[-1].start, row + 1)
        else:
            found.append(range(row, row + 1))
    return found


def _never_fall(epochs: Sequence[int]) -> bool:
    return all(map(le, epochs, islice(epochs, 1, None)))


def _heaviest_rise(runs: Sequence[tuple[int, int]]) -> set[int]:
    """Places of the runs, (epoch, weight) each, that weigh most together while their epochs do not fall."""
    epochs: list[int] = []  # rising, and so are the weights: what the best choices end in
    ends: list[tuple[int, int]] = []  # weight, place
    before: list[int] = []
    for place, (epoch, weight) in enumerate(runs):
        at = bisect_right(epochs, epoch)
        total = weight + (ends[at - 1][0] if at else 0)
        before.append(ends[at - 1][1] if at else -1)
        stop = at
        while stop < len(ends) and ends[stop][0] <= total:
            stop += 1
        epochs[at:stop], ends[at:stop] = [epoch], [(total, place)]
    place, kept = ends[-1][1] if ends else -1, set()
    while place >= 0:
        kept.add(place)
        place = before[place]
    return kept


def epochs_of_log(inputs: ReplicaInputs, table: BatchTable) -> list[EpochLine]:
    """Epoch and first base offset, for each epoch that begins in a batch at or above the log start. Batches whose epoch
    does not fit do not count."""
    wrong = {row for rows in misplaced_epochs(table, inputs.epochs) for row in rows}
    entries: list[EpochLine] = []
    newest = NO_EPOCH
    epochs, lasts, bases, log_start = table.epoch, table.last_offset, table.base_offset, inputs.log_start
    rising = _never_fall(epochs)
    row = 0
    while row < len(epochs):
        epoch = epochs[row]
        if epoch > newest and lasts[row] >= log_start and row not in wrong:
            entries.append(EpochLine(epoch, max(bases[row], log_start)))
            newest = epoch
        row = bisect_right(epochs, newest, row) if rising and epoch <= newest else row + 1
    return entries


def check_epoch_cache(inputs: ReplicaInputs, table: BatchTable, sink: FindingSink, cleaned_to: int = 0) -> None:
    """Compare the epoch file with the log of a replica; below `cleaned_to` the first batches of epochs may be gone."""
    in_log = epochs_of_log(inputs, table)
    if inputs.epochs is None:
        if in_log and not any(problem.file == FILE for problem in inputs.problems):
            _report(
                inputs,
                sink,
                in_log[0],
                f"has no {FILE}, and its log holds epochs {in_log[0].epoch} to {in_log[-1].epoch}",
            )
        return
    if not _check_increasing(inputs, sink):
        return
    cached = {entry.epoch: entry.start_offset for entry in inputs.epochs}
    deleted = _deleted_before_checkpoint(inputs, sink)
    for place, entry in enumerate(in_log):
        if deleted is not None and entry.epoch <= deleted.epoch and entry.start_offset < deleted.start_offset:
            continue
        start = cached.get(entry.epoch)
        first = place == 0
        if start is None:
            _report(
                inputs,
                sink,
                entry,
                f"holds epoch {entry.epoch} from offset {entry.start_offset}, and its {FILE} has no such epoch",
            )
        elif start > entry.start_offset or not (
            start == entry.start_offset or first or start < cleaned_to or _after_hole(table, entry)
        ):
            _report(
                inputs,
                sink,
                entry,
                f"holds epoch {entry.epoch} from offset {entry.start_offset}, and its {FILE} says from {start}",
                recorded_start=start,
            )
    _check_empty_epochs(inputs, table, in_log, sink, cleaned_to)


def _deleted_before_checkpoint(inputs: ReplicaInputs, sink: FindingSink) -> EpochLine | None:
    """Where the log starts by its epochs, above what its checkpoint says: DeleteRecords cuts the file of the epochs at
    once, and the log start is written down once a minute and by a clean stop."""
    if inputs.clean_shutdown or not inputs.epochs or inputs.epochs[0].start_offset <= inputs.log_start:
        return None
    first = inputs.epochs[0]
    sink.note(
        "log-start",
        inputs.replica,
        f"replica {inputs.replica} begins at offset {inputs.log_start}, and its {FILE} at {first.start_offset}: "
        "records were deleted less than a checkpoint ago, or the file lost its beginning",
        offset=inputs.log_start,
        end_offset=first.start_offset,
    )
    return first


def _check_increasing(inputs: ReplicaInputs, sink: FindingSink) -> bool:
    assert inputs.epochs is not None
    for previous, entry in zip(inputs.epochs, inputs.epochs[1:], strict=False):
        if entry.epoch <= previous.epoch or entry.start_offset <= previous.start_offset:
            _report(
                inputs,
                sink,
                entry,
                f"has the entry ({entry.epoch}, {entry.start_offset}) after ({previous.epoch}, "
                f"{previous.start_offset}) in its {FILE}",
            )
            return False
    return True


def _after_hole(table: BatchTable, entry: EpochLine) -> bool:
    """Whether unreadable bytes stand before the epoch's first readable batch: they may have held the real first one."""
    return any(
        problem.row < len(table) and table.base_offset[problem.row] == entry.start_offset for problem in table.problems
    )


def _check_empty_epochs(
    inputs: ReplicaInputs, table: BatchTable, in_log: list[EpochLine], sink: FindingSink, cleaned_to: int
) -> None:
    """Entries without a batch: fine at the end of the log, below its start and where a cleaner has been; in between
    only where the next one starts."""
    assert inputs.epochs is not None
    known = {entry.epoch for entry in in_log}
    log_end = log_end_offset(inputs, table)
    starts = [entry.start_offset for entry in inputs.epochs]
    for entry, following in zip_longest(inputs.epochs, starts[1:]):
        if entry.epoch in known or table.problems or entry.start_offset < cleaned_to:
            continue
        below_start = following is not None and following <= inputs.log_start
        at_end = entry.start_offset == log_end or (entry.start_offset > log_end and not inputs.clean_shutdown)
        if not below_start and not at_end and entry.start_offset != following:
            _report(
                inputs,
                sink,
                entry,
                f"has the entry ({entry.epoch}, {entry.start_offset}) in its {FILE}, and no batch of epoch "
                f"{entry.epoch} in its log, which ends at {log_end}",
            )


def _report(inputs: ReplicaInputs, sink: FindingSink, entry: EpochLine, what: str, recorded_start: int = -1) -> None:
    sink.report(
        EPOCH_CACHE_MISMATCH,
        inputs.replica,
        f"replica {inputs.replica} {what}",
        offset=entry.start_offset,
        epoch=entry.epoch,
        file=FILE,
        recorded_start=recorded_start,
    )
