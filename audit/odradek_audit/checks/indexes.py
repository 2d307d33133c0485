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
from collections.abc import Iterable, Iterator

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
        for present, kind in ((segment.has_index, _OffsetIndex), (segment.has_time_index, _TimeIndex)):
            if present:
                kind(inputs, segment, table, sink).check(reader)


class _Index:
    """One index of a segment."""

    suffix: str
    layout: struct.Struct

    def __init__(self, inputs: ReplicaInputs, segment: SegmentFile, table: BatchTable, sink: FindingSink) -> None:
        self.inputs = inputs
        self.segment = segment
        self.table = table
        self.sink = sink
        self.file = segment.stem + self.suffix
        self.rows = table.rows_of_segment(segment.base_offset)
        self.unrecovered = segment == inputs.segments[-1] and not inputs.clean_shutdown
        """Whether the next start does not believe it."""

    def check(self, reader: SegmentReader) -> None:
        try:
            data = reader.read(self.inputs.replica, self.file, 0, LARGEST_INDEX)
        except PermissionError as error:
            note_file(self.inputs, self.file, error, self.sink)
            return
        except OSError as error:
            self.report(0, self.segment.base_offset, f"cannot be read: {error}")
            return
        size = self.layout.size
        length = len(data) - len(data) % size
        if length != len(data) and not self.unrecovered:
            what = f"has {plural(len(data), 'byte')}, no multiple of {size}"
            self.report(length, self.segment.base_offset, what)
        filled = data[:length].rstrip(b"\0")
        entries = self.layout.iter_unpack(filled + bytes(-len(filled) % size))
        for number, (offset, what) in enumerate(self.faults(entries)):
            if what:
                row = bisect_left(self.table.last_offset, offset, self.rows.start, self.rows.stop)
                epoch = self.table.epoch[row] if row < self.rows.stop else -1
                self.report(number * size, offset, what, epoch)

    def faults(self, entries: Iterable[tuple[int, int]]) -> Iterator[tuple[int, str]]:
        """The offset of each entry, and what is wrong with it; up to the entries that a start would cut off."""
        raise NotImplementedError

    def report(self, position: int, offset: int, what: str, epoch: int = -1) -> None:
        self.sink.report(
            INDEX_UNSOUND,
            self.inputs.replica,
            f"replica {self.inputs.replica}: {self.file} {what}",
            offset=offset,
            epoch=epoch,
            file=self.file,
            position=position,
        )


class _OffsetIndex(_Index):
    suffix, layout = ".index", OFFSET_ENTRY

    def faults(self, entries: Iterable[tuple[int, int]]) -> Iterator[tuple[int, str]]:
        table, rows, base_offset = self.table, self.rows, self.segment.base_offset
        valid_end = table.position[rows.stop - 1] + table.size[rows.stop - 1] if rows else 0
        last_relative = last_position = -1
        for relative, position in entries:
            offset = base_offset + relative
            if relative <= last_relative or position <= last_position:
                before = f"({base_offset + last_relative}, byte {last_position})"
                yield offset, f"has the entry ({offset}, byte {position}) behind {before}"
            elif position >= valid_end and self.unrecovered:
                return
            else:
                yield offset, self._fault(offset, position)
            last_relative, last_position = max(relative, last_relative), max(position, last_position)

    def _fault(self, offset: int, position: int) -> str:
        table, rows = self.table, self.rows
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
                f"has an entry for offset {offset} that points to byte {position}, behind the batch with that offset "
                f"at byte {table.position[row]}"
            )
        return ""


class _TimeIndex(_Index):
    suffix, layout = ".timeindex", TIME_ENTRY

    def faults(self, entries: Iterable[tuple[int, int]]) -> Iterator[tuple[int, str]]:
        table, rows, base_offset = self.table, self.rows, self.segment.base_offset
        largest = max(table.max_timestamp[rows.start : rows.stop], default=-1)
        log_end = table.last_offset[rows.stop - 1] + 1 if rows else base_offset
        row, so_far = rows.start, -1
        previous_time, previous_relative = -1, -1
        for timestamp, relative in entries:
            offset = base_offset + relative
            what = ""
            if timestamp < previous_time or relative < previous_relative:
                before = f"({previous_time}, offset {base_offset + previous_relative})"
                what = f"has the entry ({timestamp}, offset {offset}) behind {before}"
            elif offset >= log_end:
                if self.unrecovered:
                    return
                what = f"has an entry for offset {offset}, and the segment ends at {log_end}"
            else:
                stop = bisect_right(table.last_offset, offset, row, rows.stop)
                if stop > row:  # entries may repeat an offset
                    so_far, row = max(so_far, max(table.max_timestamp[row:stop])), stop
                if so_far > timestamp:
                    what = (
                        f"says that no record up to offset {offset} is younger than {timestamp}, and one has {so_far}"
                    )
                elif timestamp > largest:
                    what = f"has the timestamp {timestamp} at offset {offset}"
                    what += f", and no record there is younger than {largest}"
            yield offset, what
            previous_time, previous_relative = max(timestamp, previous_time), max(relative, previous_relative)
