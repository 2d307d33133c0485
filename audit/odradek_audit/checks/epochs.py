"""`epoch-cache-mismatch`: does `leader-epoch-checkpoint` say what the batches say (I-7, A5; R-60 to R-66)?

The file is written before an epoch's first batch, and cut behind the log's own cut, perhaps later. So after a crash
it may be ahead at the end (epochs without a record) and behind at the front (epochs whose records retention
removed); in the middle it must be exact.
"""

from __future__ import annotations

from itertools import zip_longest

from odradek_audit.catalogue import EPOCH_CACHE_MISMATCH
from odradek_audit.findings import FindingSink
from odradek_audit.inputs.facts import BatchTable, EpochEntry, ReplicaInputs, log_end_offset

FILE = "leader-epoch-checkpoint"


def epochs_of_log(table: BatchTable, log_start: int) -> list[EpochEntry]:
    """Epoch and first base offset, for each epoch that begins in a batch at or above the log start."""
    entries: list[EpochEntry] = []
    newest = -1
    lasts, bases = table.last_offset, table.base_offset
    for row, epoch in enumerate(table.epoch):
        if epoch > newest and lasts[row] >= log_start:
            entries.append(EpochEntry(epoch, max(bases[row], log_start)))
            newest = epoch
    return entries


def check_epoch_cache(inputs: ReplicaInputs, table: BatchTable, sink: FindingSink) -> None:
    """Compare the epoch file with the log of one replica."""
    in_log = epochs_of_log(table, inputs.log_start)
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
    for place, entry in enumerate(in_log):
        start = cached.get(entry.epoch)
        first = place == 0
        if start is None:
            _report(
                inputs,
                sink,
                entry,
                f"holds epoch {entry.epoch} from offset {entry.start_offset}, and its {FILE} has no such epoch",
            )
        elif start > entry.start_offset or (start < entry.start_offset and not (first or _after_hole(table, entry))):
            _report(
                inputs,
                sink,
                entry,
                f"holds epoch {entry.epoch} from offset {entry.start_offset}, and its {FILE} says from {start}",
                recorded_start=start,
            )
    _check_empty_epochs(inputs, table, in_log, sink)


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


def _after_hole(table: BatchTable, entry: EpochEntry) -> bool:
    """Whether unreadable bytes stand before the epoch's first readable batch: they may have held the real first one."""
    return any(
        problem.row < len(table) and table.base_offset[problem.row] == entry.start_offset for problem in table.problems
    )


def _check_empty_epochs(inputs: ReplicaInputs, table: BatchTable, in_log: list[EpochEntry], sink: FindingSink) -> None:
    """Entries without a batch: fine at the end of the log, and below its start; in between only where the next one
    starts."""
    assert inputs.epochs is not None
    known = {entry.epoch for entry in in_log}
    log_end = log_end_offset(inputs, table)
    starts = [entry.start_offset for entry in inputs.epochs]
    for entry, following in zip_longest(inputs.epochs, starts[1:]):
        if entry.epoch in known or table.problems:
            continue
        below_start = following is not None and following <= inputs.log_start
        at_end = entry.start_offset == log_end or (entry.start_offset > log_end and not inputs.clean_shutdown)
        if not below_start and not at_end and entry.start_offset != following:
            _report(
                inputs,
                sink,
                entry,
                f"has the entry ({entry.epoch}, {entry.start_offset}) in its {FILE}, and no batch of epoch "
                f"{entry.epoch} in its log, "
                f"which ends at {log_end}",
            )


def _report(inputs: ReplicaInputs, sink: FindingSink, entry: EpochEntry, what: str, recorded_start: int = -1) -> None:
    sink.report(
        EPOCH_CACHE_MISMATCH,
        inputs.replica,
        f"replica {inputs.replica} {what}",
        offset=entry.start_offset,
        epoch=entry.epoch,
        file=FILE,
        recorded_start=recorded_start,
    )
