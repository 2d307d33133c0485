"""Checks of one replica's log by itself: is every batch whole, and do offsets and epochs go the one way they may.

Checks: `crc-mismatch`, `batch-unreadable`, `torn-tail`, `offset-gap`, `offset-not-increasing`,
`epoch-not-monotonic`, `record-count-mismatch`, `header-mismatch`. Unreadable bytes are one finding; the offsets
that they held are not reported again as a gap. Two neighbours that changed places are one finding, so
is a batch whose own offset is wrong, a run of batches that begin again where the log has been, a file with another
file's batches, and a changed epoch.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from itertools import pairwise
from operator import sub

from odradek_proto.headers import RESERVED

from odradek_audit.catalogue import (
    BATCH_UNREADABLE,
    CRC_MISMATCH,
    EPOCH_NOT_MONOTONIC,
    HEADER_MISMATCH,
    OFFSET_GAP,
    OFFSET_NOT_INCREASING,
    RECORD_COUNT_MISMATCH,
    TORN_TAIL,
)
from odradek_audit.checks.epochs import misplaced_epochs
from odradek_audit.checks.walking import ROWS_AT_ONCE
from odradek_audit.findings import FindingSink
from odradek_audit.inputs.facts import (
    BAD_CRC,
    NO_EPOCH,
    TORN,
    BatchFacts,
    BatchTable,
    PartitionInputs,
    ReplicaInputs,
    SegmentFile,
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
    _check_attributes(inputs, table, sink)
    _check_empty_files(partition, inputs, table, sink)


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
            f"bytes do not have the CRC {facts.crc:#010x} of its header ({file}, byte {facts.position})",
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
            f"as a crash leaves it; recovery cuts it off ({file}, byte {facts.position}: {facts.detail})",
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


def _check_attributes(inputs: ReplicaInputs, table: BatchTable, sink: FindingSink) -> None:
    """Bits that no version of Kafka has a meaning for."""
    if not any(attributes & RESERVED for attributes in set(table.attributes)):
        return
    for row, attributes in enumerate(table.attributes):
        if attributes & RESERVED:
            sink.report(
                HEADER_MISMATCH,
                inputs.replica,
                f"replica {inputs.replica} holds the batch {table.base_offset[row]} to {table.last_offset[row]} of "
                f"epoch {table.epoch[row]} with the attributes {attributes & 0xFFFF:#06x}, of which "
                f"{RESERVED & 0xFFFF:#06x} are reserved",
                **table.place(row),
                attributes=attributes,
            )


def _check_order(
    partition: PartitionInputs, inputs: ReplicaInputs, table: BatchTable, damaged: set[int], sink: FindingSink
) -> None:
    first_segment = inputs.segments[0].base_offset if inputs.segments else 0
    previous_last = first_segment - 1
    bases, lasts, segments, counts = table.base_offset, table.last_offset, table.segment, table.record_count
    cleaned_to = partition.cleaned_to(inputs)
    elsewhere: set[int] = set()  # rows that are not where they belong, whatever their epochs
    exchanged: dict[int, int] = {}
    misnamed = row = 0
    columns = _columns(table)
    while row < len(table):
        if row and bases[row] == previous_last + 1 and (stop := _end_of_plain(table, columns, row)) > row:
            previous_last, row = lasts[stop - 1], stop
            continue
        base, segment = bases[row], segments[row]
        span = lasts[row] - base + 1
        if base == previous_last + 1 and counts[row] == span and row and segments[row - 1] == segment <= base:
            previous_last = lasts[row]  # as nearly all are
            row += 1
            continue
        if base == previous_last + 1 >= cleaned_to and row and segments[row - 1] != segment != base:
            _report_misnamed(inputs, table, row, sink)
            misnamed = segment
        home = segment if segment == misnamed else _home(inputs, table, row)
        if home != segment >= cleaned_to and row not in damaged:
            stop = _end_of_foreign(inputs, table, row)
            if exchanged.get(home) != segment:
                _report_foreign(inputs, table, range(row, stop), home, sink)
            exchanged[segment] = home
            elsewhere.update(range(row, stop))
            previous_last = _last_of_segment(inputs, table, row, previous_last)
            row = stop
            continue
        if row not in damaged and base > cleaned_to and _swapped(table, row, previous_last):
            _report_swapped(inputs, table, row, sink)
            elsewhere.update((row, row + 1))
            previous_last = lasts[row]
            row += 2
            continue
        if base != previous_last + 1 and row + 1 < len(table) and bases[row + 1] == previous_last + 1 + span:
            if row not in damaged and base >= cleaned_to:
                _report_misplaced(inputs, table, row, previous_last, sink)
            elsewhere.add(row)
            previous_last += span
            row += 1
            continue
        if base <= previous_last or base < segment != misnamed:
            stop = _end_of_repetition(table, row, previous_last)
            _report_not_increasing(inputs, table, range(row, stop), previous_last, sink)
            elsewhere.update(range(row, stop))
            previous_last = max(previous_last, lasts[stop - 1])
            row = stop
            continue
        if base > previous_last + 1 and base > cleaned_to and row not in damaged:
            _report_gap(inputs, table, row, previous_last, sink)
        previous_last = max(previous_last, lasts[row])
        if counts[row] != span and base >= cleaned_to:
            _report_count(inputs, table, row, sink)
            if row + 1 < len(table) and bases[row + 1] == base + counts[row]:
                previous_last = bases[row + 1] - 1  # its last offset is what is wrong
        row += 1
    for rows in misplaced_epochs(table, inputs.epochs, elsewhere):
        _report_epoch(inputs, table, rows, sink)


def _check_empty_files(partition: PartitionInputs, inputs: ReplicaInputs, table: BatchTable, sink: FindingSink) -> None:
    """A file without a batch begins where the log before it ends, for an append makes it (R-227). A gap that a batch
    behind it shows is told there."""
    unreadable = {problem.facts.segment for problem in table.problems}
    for before, segment in pairwise(inputs.segments):
        if segment.size or before.base_offset in unreadable:
            continue
        row = bisect_left(table.segment, segment.base_offset)
        end = max(table.last_offset[row - 1] + 1 if row else 0, before.base_offset)
        cleaned = end < partition.cleaned_to(inputs)
        if segment.base_offset < end or (segment.base_offset > end and row == len(table) and not cleaned):
            _report_empty_file(inputs, table, row, segment, end, sink)


def _columns(table: BatchTable) -> tuple[array[int], ...]:
    """Of each batch the offset behind it, how many offsets it spans and how many records it counts."""
    ends = array("q", map((1).__add__, table.last_offset))
    return ends, array("q", map(sub, ends, table.base_offset)), array("q", table.record_count)


def _end_of_plain(table: BatchTable, columns: tuple[array[int], ...], row: int) -> int:
    """One past the batches from a row on that are as they should be, in steps of `ROWS_AT_ONCE`: each follows on the
    one before it in the same segment. Nearly all do, so they are looked at by columns."""
    ends, spans, counts = columns
    while (
        (stop := row + ROWS_AT_ONCE) <= len(table)
        and table.segment[row - 1] == table.segment[stop - 1] <= table.base_offset[row]
        and table.base_offset[row:stop] == ends[row - 1 : stop - 1]
        and spans[row:stop] == counts[row:stop]
    ):
        row = stop
    return row


def _home(inputs: ReplicaInputs, table: BatchTable, row: int) -> int:
    """The segment to which a file's first batch belongs by its offset; its own one for every other batch."""
    segment, base = table.segment[row], table.base_offset[row]
    if row and table.segment[row - 1] == segment:
        return segment
    behind = segment + table.last_offset[row] - base + 1
    if row + 1 < len(table) and table.segment[row + 1] == segment and table.base_offset[row + 1] == behind:
        return segment  # its own offset is wrong
    starts = [each.base_offset for each in inputs.segments]
    home = starts[max(bisect_right(starts, base) - 1, 0)]
    whole = all(table.base_offset[each] >= base for each in table.rows_of_segment(segment))
    return home if whole else segment


def _end_of_foreign(inputs: ReplicaInputs, table: BatchTable, row: int) -> int:
    """One past the last row of a file that lies outside of the offsets that its name and the next file's leave it."""
    rows = table.rows_of_segment(table.segment[row])
    low = table.segment[row]
    high = min((each.base_offset for each in inputs.segments if each.base_offset > low), default=1 << 62)
    return next((each for each in range(row, rows.stop) if low <= table.base_offset[each] < high), rows.stop)


def _last_of_segment(inputs: ReplicaInputs, table: BatchTable, row: int, previous_last: int) -> int:
    """The last offset that a file should hold; of the last file nobody knows it."""
    behind = [each.base_offset for each in inputs.segments if each.base_offset > table.segment[row]]
    return max(previous_last, min(behind) - 1 if behind else table.last_offset[row])


def _end_of_repetition(table: BatchTable, row: int, previous_last: int) -> int:
    """One past the last of the batches of one file that begin again where the log has been."""
    stop = row + 1
    while (
        stop < len(table)
        and table.segment[stop] == table.segment[row]
        and table.base_offset[stop] == table.last_offset[stop - 1] + 1
        and table.base_offset[stop] <= previous_last
    ):
        stop += 1
    return stop


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
    inputs: ReplicaInputs, table: BatchTable, rows: range, previous_last: int, sink: FindingSink
) -> None:
    row, last = rows.start, rows.stop - 1
    more = f", and {_behind(rows)} up to offset {table.last_offset[last]}" if len(rows) > 1 else ""
    sink.report(
        OFFSET_NOT_INCREASING,
        inputs.replica,
        f"replica {inputs.replica} holds a batch at offset {table.base_offset[row]} of epoch {table.epoch[row]} where "
        f"{max(previous_last + 1, table.segment[row])} is the smallest that may follow ({table.file(row)}, byte "
        f"{table.position[row]}){more}",
        **(table.place(row) | {"end_offset": table.last_offset[last] + 1}),
        previous_last_offset=previous_last,
        batches=len(rows),
    )


def _behind(rows: range) -> str:
    return plural(len(rows) - 1, "batch", "batches") + " behind it"


def _report_foreign(inputs: ReplicaInputs, table: BatchTable, rows: range, home: int, sink: FindingSink) -> None:
    """A file with batches of another file's offsets: one finding for the file, or for two that were exchanged."""
    row, last = rows.start, rows.stop - 1
    first, end = table.base_offset[row], table.last_offset[last] + 1
    missing = _last_of_segment(inputs, table, row, table.segment[row]) + 1
    sink.report(
        OFFSET_NOT_INCREASING,
        inputs.replica,
        f"replica {inputs.replica} holds in {table.file(row)} the offsets {first} to {end - 1}, which belong into "
        f"{home:020d}.log ({plural(len(rows), 'batch', 'batches')}, byte {table.position[row]})",
        **(table.place(row) | {"offset": min(table.segment[row], first), "end_offset": max(end, missing)}),
        batches=len(rows),
        foreign=[first, end],
    )


def _report_misnamed(inputs: ReplicaInputs, table: BatchTable, row: int, sink: FindingSink) -> None:
    """A file that follows on the one before it and is called by another offset: who looks one up opens the wrong."""
    file, base = table.file(row), table.base_offset[row]
    sink.report(
        OFFSET_NOT_INCREASING,
        inputs.replica,
        f"replica {inputs.replica} holds offsets from {base} on in {file}, which follow on the file before it: it "
        f"should be called {base:020d}.log",
        **table.place(row),
    )


def _report_empty_file(
    inputs: ReplicaInputs, table: BatchTable, row: int, segment: SegmentFile, end: int, sink: FindingSink
) -> None:
    file, base = f"{segment.stem}.log", segment.base_offset
    ahead = base > end
    follows = f"the next record would get offset {base}" if ahead else "who looks an offset up from there finds none"
    sink.report(
        OFFSET_GAP if ahead else OFFSET_NOT_INCREASING,
        inputs.replica,
        f"replica {inputs.replica} has an empty file {file}, and the log before it ends at offset {end}: {follows}",
        offset=min(base, end),
        end_offset=max(base, end),
        epoch=table.epoch[row - 1] if row else NO_EPOCH,
        file=file,
        position=0,
        log_end=end,
    )


def _report_gap(inputs: ReplicaInputs, table: BatchTable, row: int, previous_last: int, sink: FindingSink) -> None:
    file, base = table.file(row), table.base_offset[row]
    sink.report(
        OFFSET_GAP,
        inputs.replica,
        f"replica {inputs.replica} has no records from offset {previous_last + 1} to {base - 1}; the next "
        f"batch is {base} of epoch {table.epoch[row]} ({file}, byte {table.position[row]})",
        **(table.place(row) | {"offset": previous_last + 1, "end_offset": base}),
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
        f"replica {inputs.replica} holds a batch that says offset {base} of epoch {table.epoch[row]} where {expected} "
        f"should stand; the batch behind it goes on with {expected + span} ({file}, byte {table.position[row]})",
        **(table.place(row) | {"offset": expected, "end_offset": expected + span}),
        stored_offset=base,
    )


def _report_epoch(inputs: ReplicaInputs, table: BatchTable, rows: range, sink: FindingSink) -> None:
    row, last = rows.start, rows.stop - 1
    before = table.epoch[row - 1] if row else NO_EPOCH
    behind = table.epoch[rows.stop] if rows.stop < len(table) else NO_EPOCH
    around = [epoch for epoch in (before, behind) if epoch != NO_EPOCH]
    more = f", and {_behind(rows)} up to offset {table.last_offset[last]}" if len(rows) > 1 else ""
    sink.report(
        EPOCH_NOT_MONOTONIC,
        inputs.replica,
        f"replica {inputs.replica} holds a batch of epoch {table.epoch[row]} at offset {table.base_offset[row]}, "
        f"{_between(around, before)} ({table.file(row)}, byte {table.position[row]}){more}",
        **(table.place(row) | {"end_offset": table.last_offset[last] + 1}),
        epochs_around=around,
        batches=len(rows),
    )


def _between(around: list[int], before: int) -> str:
    if len(around) == 2:
        return f"between batches of epoch {around[0]} and {around[1]}"
    return f"{'after' if before != NO_EPOCH else 'before'} one of epoch {around[0]}"


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
