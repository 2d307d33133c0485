"""Checks of one replica's log by itself: is every batch whole, and do offsets and epochs go the one way they may.

Checks: `crc-mismatch`, `batch-unreadable`, `torn-tail`, `offset-gap`, `offset-not-increasing`,
`epoch-not-monotonic`, `record-count-mismatch`. Unreadable bytes are one finding; the offsets that they held are not
reported again as a gap. Two neighbours that changed places are one finding, so is a batch whose own offset is wrong.
"""

from __future__ import annotations

from odradek_audit.catalogue import (
    BATCH_UNREADABLE,
    CRC_MISMATCH,
    EPOCH_NOT_MONOTONIC,
    OFFSET_GAP,
    OFFSET_NOT_INCREASING,
    RECORD_COUNT_MISMATCH,
    TORN_TAIL,
)
from odradek_audit.findings import FindingSink
from odradek_audit.inputs.facts import (
    BAD_CRC,
    NO_EPOCH,
    TORN,
    BatchFacts,
    BatchTable,
    PartitionInputs,
    ReplicaInputs,
    problems_before,
)
from odradek_audit.words import plural


def check_structure(partition: PartitionInputs, inputs: ReplicaInputs, table: BatchTable, sink: FindingSink) -> None:
    """I-4, I-5, I-6, I-9 and A7 for one replica."""
    damaged: set[int] = set()
    for row, problems in problems_before(table):
        damaged.add(row)
        for problem in problems:
            _report_problem(inputs, table, row, problem, sink)
    _check_order(partition, inputs, table, damaged, sink)


def _report_problem(inputs: ReplicaInputs, table: BatchTable, row: int, facts: BatchFacts, sink: FindingSink) -> None:
    expected = table.last_offset[row - 1] + 1 if row else facts.segment
    offset = facts.base_offset if facts.base_offset >= 0 else expected
    epoch = facts.epoch if facts.problem == BAD_CRC else (table.epoch[row - 1] if row else NO_EPOCH)
    file = f"{facts.segment:020d}.log"
    if facts.problem == BAD_CRC:
        sink.report(
            CRC_MISMATCH,
            inputs.replica,
            f"replica {inputs.replica} holds a batch at offset {offset} of epoch {epoch} whose {facts.size} "
            "bytes do not have "
            f"the CRC {facts.crc:#010x} of its header ({file}, byte {facts.position})",
            offset=offset,
            end_offset=max(facts.last_offset + 1, offset + 1),
            epoch=epoch,
            file=file,
            position=facts.position,
            size=facts.size,
            crc=facts.crc,
        )
        return
    if facts.problem == TORN and _may_be_torn(inputs, facts, offset):
        sink.note(
            "torn-tail",
            inputs.replica,
            f"replica {inputs.replica} ends in {plural(facts.size, 'byte')} of an incomplete batch at offset {offset}, "
            "as a crash "
            f"leaves it; recovery cuts it off ({file}, byte {facts.position}: {facts.detail})",
            offset=offset,
        )
        return
    check = TORN_TAIL if facts.problem == TORN else BATCH_UNREADABLE
    what = (
        "an incomplete batch where no crash can have left one" if facts.problem == TORN else "bytes that are no batch"
    )
    sink.report(
        check,
        inputs.replica,
        f"replica {inputs.replica} holds {what}, {plural(facts.size, 'byte')} where offset {expected} should be: "
        f"{facts.detail} ({file}, byte {facts.position})",
        offset=expected,
        epoch=epoch,
        file=file,
        position=facts.position,
        size=facts.size,
        detail=facts.detail,
    )


def _may_be_torn(inputs: ReplicaInputs, facts: BatchFacts, offset: int) -> bool:
    """Whether a crash explains it: last segment, no clean shutdown, nothing that was flushed or counted (R-234,
    R-239)."""
    if not inputs.segments or facts.segment != inputs.segments[-1].base_offset or inputs.clean_shutdown:
        return False
    return offset >= (inputs.recovery_point or 0)


def _check_order(
    partition: PartitionInputs, inputs: ReplicaInputs, table: BatchTable, damaged: set[int], sink: FindingSink
) -> None:
    first_segment = inputs.segments[0].base_offset if inputs.segments else 0
    previous_last = first_segment - 1
    previous_epoch = NO_EPOCH
    bases, lasts, epochs = table.base_offset, table.last_offset, table.epoch
    cleaned_to = (1 << 62) if partition.compacted else inputs.cleaned_to
    row = 0
    while row < len(table):
        base, epoch = bases[row], epochs[row]
        span = lasts[row] - base + 1
        if row not in damaged and base > cleaned_to and _swapped(table, row, previous_last):
            _report_swapped(inputs, table, row, sink)
            previous_last, previous_epoch = lasts[row], max(previous_epoch, epoch, epochs[row + 1])
            row += 2
            continue
        if base != previous_last + 1 and row + 1 < len(table) and bases[row + 1] == previous_last + 1 + span:
            if row not in damaged and base >= cleaned_to:
                _report_misplaced(inputs, table, row, previous_last, sink)
            previous_last += span
            row += 1
            continue
        if base <= previous_last or base < table.segment[row]:
            _report_not_increasing(inputs, table, row, previous_last, sink)
        elif base > previous_last + 1 and base > cleaned_to and row not in damaged:
            _report_gap(inputs, table, row, previous_last, sink)
        if NO_EPOCH < epoch < previous_epoch:
            _report_epoch(inputs, table, row, previous_epoch, sink)
        previous_last = max(previous_last, lasts[row])
        previous_epoch = max(previous_epoch, epoch)
        if table.record_count[row] != span and base >= cleaned_to:
            _report_count(inputs, table, row, sink)
            if row + 1 < len(table) and bases[row + 1] == base + table.record_count[row]:
                previous_last = bases[row + 1] - 1  # its last offset is what is wrong
        row += 1


def _swapped(table: BatchTable, row: int, previous_last: int) -> bool:
    """Whether a batch and the one behind it would follow on what is before them the other way round."""
    bases, lasts = table.base_offset, table.last_offset
    return (
        row + 1 < len(table)
        and bases[row + 1] == previous_last + 1
        and bases[row] == lasts[row + 1] + 1
        and (row + 2 == len(table) or bases[row + 2] == lasts[row] + 1)
    )


def _report_not_increasing(
    inputs: ReplicaInputs, table: BatchTable, row: int, previous_last: int, sink: FindingSink
) -> None:
    file = table.file(row)
    sink.report(
        OFFSET_NOT_INCREASING,
        inputs.replica,
        f"replica {inputs.replica} holds a batch at offset {table.base_offset[row]} of epoch {table.epoch[row]} where "
        f"{max(previous_last + 1, table.segment[row])} is the smallest that may follow ({file}, byte "
        f"{table.position[row]})",
        **table.place(row),
        previous_last_offset=previous_last,
    )


def _report_gap(inputs: ReplicaInputs, table: BatchTable, row: int, previous_last: int, sink: FindingSink) -> None:
    file = table.file(row)
    sink.report(
        OFFSET_GAP,
        inputs.replica,
        f"replica {inputs.replica} has no records from offset {previous_last + 1} to "
        f"{table.base_offset[row] - 1}; the next "
        f"batch is {table.base_offset[row]} of epoch {table.epoch[row]} ({file}, byte {table.position[row]})",
        offset=previous_last + 1,
        end_offset=table.base_offset[row],
        epoch=table.epoch[row],
        file=file,
        position=table.position[row],
    )


def _report_misplaced(
    inputs: ReplicaInputs, table: BatchTable, row: int, previous_last: int, sink: FindingSink
) -> None:
    """One batch's offset is wrong and the next one's is right: the field lies outside of the CRC."""
    file = table.file(row)
    expected, base = previous_last + 1, table.base_offset[row]
    span = table.last_offset[row] - base + 1
    sink.report(
        OFFSET_GAP if base > expected else OFFSET_NOT_INCREASING,
        inputs.replica,
        f"replica {inputs.replica} holds a batch that says offset {base} of epoch {table.epoch[row]} where "
        f"{expected} should "
        f"stand; the batch behind it goes on with {expected + span} ({file}, byte {table.position[row]})",
        offset=expected,
        end_offset=expected + span,
        epoch=table.epoch[row],
        file=file,
        position=table.position[row],
        stored_offset=base,
    )


def _report_epoch(inputs: ReplicaInputs, table: BatchTable, row: int, previous_epoch: int, sink: FindingSink) -> None:
    file = table.file(row)
    sink.report(
        EPOCH_NOT_MONOTONIC,
        inputs.replica,
        f"replica {inputs.replica} holds a batch of epoch {table.epoch[row]} at offset "
        f"{table.base_offset[row]}, after one of "
        f"epoch {previous_epoch} ({file}, byte {table.position[row]})",
        **table.place(row),
        previous_epoch=previous_epoch,
    )


def _report_swapped(inputs: ReplicaInputs, table: BatchTable, row: int, sink: FindingSink) -> None:
    file = table.file(row)
    sink.report(
        OFFSET_NOT_INCREASING,
        inputs.replica,
        f"replica {inputs.replica} holds the batches at offsets {table.base_offset[row + 1]} and "
        f"{table.base_offset[row]} in the wrong order ({file}, byte {table.position[row]})",
        offset=table.base_offset[row + 1],
        end_offset=table.last_offset[row] + 1,
        epoch=table.epoch[row + 1],
        file=file,
        position=table.position[row],
        swapped=[table.base_offset[row], table.base_offset[row + 1]],
    )


def _report_count(inputs: ReplicaInputs, table: BatchTable, row: int, sink: FindingSink) -> None:
    """A broker accepts a batch only when the two agree; after that, only the cleaner takes records out of it."""
    file = table.file(row)
    base, last, count = table.base_offset[row], table.last_offset[row], table.record_count[row]
    sink.report(
        RECORD_COUNT_MISMATCH,
        inputs.replica,
        f"replica {inputs.replica} holds a batch of offsets {base} to {last} of epoch {table.epoch[row]} that says it "
        f"has {plural(count, 'record')} ({file}, byte {table.position[row]})",
        **table.place(row),
        record_count=count,
    )
