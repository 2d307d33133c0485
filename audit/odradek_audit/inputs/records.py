"""Records of a replica, decoded from its files batch by batch, for the checks against a history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from odradek_proto.compression import CodecUnavailable
from odradek_proto.records import CorruptBatch, Record, decode_records, read_header

from odradek_audit.inputs.facts import BatchTable, SegmentReader

READ_BYTES = 4 * 1024 * 1024
TRANSACTIONAL_BIT, CONTROL_BIT = 0x10, 0x20


class DecodedBatch(NamedTuple):
    """The records of one row of a table; `problem` says why there are none."""

    row: int
    records: list[Record]
    problem: str = ""
    unavailable: bool = False


def iter_decoded(
    table: BatchTable, replica: str, reader: SegmentReader, *, control: bool = False
) -> Iterator[DecodedBatch]:
    """Every data batch of a replica with its records, and with `control` transactions' markers among them. Reads runs
    of neighbouring batches at once; raises `OSError`."""
    row = 0
    while row < len(table):
        stop = _run_end(table, row)
        start = table.position[row]
        length = table.position[stop - 1] + table.size[stop - 1] - start
        data = reader.read(replica, table.file(row), start, length)
        for current in range(row, stop):
            if control or not table.attributes[current] & CONTROL_BIT:
                yield _decode(data, table.position[current] - start, current)
        row = stop


def record_at(table: BatchTable, offset: int, replica: str, reader: SegmentReader) -> Record | None:
    """The record at one offset of a replica, or None when the log has none there or it cannot be read."""
    for row in range(len(table)):
        if table.base_offset[row] <= offset <= table.last_offset[row]:
            try:
                decoded = decoded_row(table, row, replica, reader)
            except OSError:
                return None
            return next((record for record in decoded.records if record.offset == offset), None)
    return None


def decoded_row(table: BatchTable, row: int, replica: str, reader: SegmentReader) -> DecodedBatch:
    """One batch of a replica with its records. Raises `OSError`."""
    file = table.file(row)
    return _decode(reader.read(replica, file, table.position[row], table.size[row]), 0, row)


def first_apart(one: bytes, other: bytes) -> int:
    """Where two values begin to differ; the end of the shorter one, if the longer one begins with it."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _run_end(table: BatchTable, row: int) -> int:
    """One past the last row that stands in the same segment and within `READ_BYTES` of this one."""
    stop = row + 1
    limit = table.position[row] + READ_BYTES
    while (
        stop < len(table)
        and table.segment[stop] == table.segment[row]
        and table.position[stop] + table.size[stop] <= limit
    ):
        stop += 1
    return stop


def _decode(data: bytes, position: int, row: int) -> DecodedBatch:
    try:
        header = read_header(data, position)
        return DecodedBatch(row, decode_records(data, header, position))
    except CorruptBatch as error:
        return DecodedBatch(row, [], error.reason)
    except CodecUnavailable as error:
        return DecodedBatch(row, [], str(error), unavailable=True)
