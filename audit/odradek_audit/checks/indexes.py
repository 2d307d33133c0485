"""`index-unsound`: would an entry of an offset index or time index lead a reader past a record (I-10, A4; R-227)?

    offset index, 8 bytes an entry:  last offset of a batch - segment's base (int32) | a byte position (int32)
    time index, 12 bytes an entry:   largest timestamp so far (int64) | offset - segment's base (int32)

A look-up takes the greatest entry not above its target and scans forward. So an entry is sound when its position is
the start of a batch and the batch with its offset does not lie before it; a follower of an older Kafka that
appended several batches at once has such entries. Zeros at the end are room that Kafka keeps in the file of the
active segment. After an unclean stop, entries of the last segment may point behind the end of its log, and its last
entry may be there in part: recovery builds its indexes anew.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right

from odradek_audit.catalogue import INDEX_UNSOUND
from odradek_audit.checks.unread import note_file
from odradek_audit.findings import FindingSink
from odradek_audit.inputs.facts import BatchTable, ReplicaInputs, SegmentFile, SegmentReader
from odradek_audit.words import plural

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
LARGEST_INDEX = 64 * 1024 * 1024  # segment.index.bytes is 10 MiB by default


def check_indexes(inputs: ReplicaInputs, table: BatchTable, reader: SegmentReader, sink: FindingSink) -> None:
    """Both indexes of every segment of one replica. Segments with unreadable bytes are left out: their log is the
    finding."""
    damaged = {problem.facts.segment for problem in table.problems if problem.facts.problem != "torn"}
    for segment in inputs.segments:
        if segment.base_offset in damaged:
            continue
        if segment.has_index:
            _with_entries(inputs, segment, ".index", OFFSET_ENTRY, table, reader, sink)
        if segment.has_time_index:
            _with_entries(inputs, segment, ".timeindex", TIME_ENTRY, table, reader, sink)


def _with_entries(
    inputs: ReplicaInputs,
    segment: SegmentFile,
    suffix: str,
    layout: struct.Struct,
    table: BatchTable,
    reader: SegmentReader,
    sink: FindingSink,
) -> None:
    file = segment.stem + suffix
    try:
        data = reader.read(inputs.replica, file, 0, LARGEST_INDEX)
    except PermissionError as error:
        note_file(inputs, file, error, sink)
        return
    except OSError as error:
        _report(inputs, segment, sink, file, 0, segment.base_offset, f"cannot be read: {error}")
        return
    length = len(data) - len(data) % layout.size
    if length != len(data) and not _unrecovered(inputs, segment):
        what = f"has {plural(len(data), 'byte')}, no multiple of {layout.size}"
        _report(inputs, segment, sink, file, length, segment.base_offset, what)
    data = data[:length]
    entries = list(layout.iter_unpack(data.rstrip(b"\0") + bytes(-len(data.rstrip(b"\0")) % layout.size)))
    if layout is OFFSET_ENTRY:
        _check_offsets(inputs, segment, file, entries, table, sink)
    else:
        _check_times(inputs, segment, file, entries, table, sink)


def _unrecovered(inputs: ReplicaInputs, segment: SegmentFile) -> bool:
    """Whether the next start does not believe the indexes of a segment."""
    return segment == inputs.segments[-1] and not inputs.clean_shutdown


def _check_offsets(
    inputs: ReplicaInputs,
    segment: SegmentFile,
    file: str,
    entries: list[tuple[int, int]],
    table: BatchTable,
    sink: FindingSink,
) -> None:
    rows = table.rows_of_segment(segment.base_offset)
    valid_end = table.position[rows.stop - 1] + table.size[rows.stop - 1] if rows else 0
    unrecovered = _unrecovered(inputs, segment)
    last_relative = last_position = -1
    for number, (relative, position) in enumerate(entries):
        offset = segment.base_offset + relative
        if relative <= last_relative or position <= last_position:
            before = f"({segment.base_offset + last_relative}, byte {last_position})"
            what = f"has the entry ({offset}, byte {position}) behind {before}"
        elif position >= valid_end and unrecovered:
            return
        else:
            what = _offset_fault(table, rows, offset, position)
        if what:
            _report(
                inputs, segment, sink, file, number * OFFSET_ENTRY.size, offset, what, _epoch_at(table, rows, offset)
            )
        last_relative = relative if relative > last_relative else last_relative
        last_position = position if position > last_position else last_position


def _offset_fault(table: BatchTable, rows: range, offset: int, position: int) -> str:
    start = bisect_left(table.position, position, rows.start, rows.stop)
    if start == rows.stop or table.position[start] != position:
        return f"has an entry for offset {offset} that points to byte {position}, where no batch begins"
    if table.last_offset[start] == offset:
        return ""  # as nearly all are
    row = bisect_left(table.last_offset, offset, rows.start, rows.stop)
    if row == rows.stop or table.last_offset[row] != offset:
        return f"has an entry for offset {offset}, which is not the last offset of a batch"
    if row < start:
        return (
            f"has an entry for offset {offset} that points to byte {position}, behind the batch with that "
            "offset at byte "
            f"{table.position[row]}"
        )
    return ""


def _check_times(
    inputs: ReplicaInputs,
    segment: SegmentFile,
    file: str,
    entries: list[tuple[int, int]],
    table: BatchTable,
    sink: FindingSink,
) -> None:
    rows = table.rows_of_segment(segment.base_offset)
    largest = max(table.max_timestamp[rows.start : rows.stop], default=-1)
    log_end = table.last_offset[rows.stop - 1] + 1 if rows else segment.base_offset
    unrecovered = _unrecovered(inputs, segment)
    row, so_far = rows.start, -1
    previous_time, previous_relative = -1, -1
    for number, (timestamp, relative) in enumerate(entries):
        offset = segment.base_offset + relative
        what = ""
        if timestamp < previous_time or relative < previous_relative:
            before = f"({previous_time}, offset {segment.base_offset + previous_relative})"
            what = f"has the entry ({timestamp}, offset {offset}) behind {before}"
        elif offset >= log_end:
            if unrecovered:
                return
            what = f"has an entry for offset {offset}, and the segment ends at {log_end}"
        else:
            stop = bisect_right(table.last_offset, offset, row, rows.stop)
            if stop > row:  # entries may repeat an offset
                so_far, row = max(so_far, max(table.max_timestamp[row:stop])), stop
            if so_far > timestamp:
                what = f"says that no record up to offset {offset} is younger than {timestamp}, and one has {so_far}"
            elif timestamp > largest:
                what = (
                    f"has the timestamp {timestamp} at offset {offset}, and no record there is younger than {largest}"
                )
        if what:
            _report(inputs, segment, sink, file, number * TIME_ENTRY.size, offset, what, _epoch_at(table, rows, offset))
        previous_time, previous_relative = max(timestamp, previous_time), max(relative, previous_relative)


def _epoch_at(table: BatchTable, rows: range, offset: int) -> int:
    row = bisect_left(table.last_offset, offset, rows.start, rows.stop)
    return table.epoch[row] if row < rows.stop else -1


def _report(
    inputs: ReplicaInputs,
    segment: SegmentFile,
    sink: FindingSink,
    file: str,
    position: int,
    offset: int,
    what: str,
    epoch: int = -1,
) -> None:
    sink.report(
        INDEX_UNSOUND,
        inputs.replica,
        f"replica {inputs.replica}: {file} {what}",
        offset=offset,
        epoch=epoch,
        file=file,
        position=position,
    )
