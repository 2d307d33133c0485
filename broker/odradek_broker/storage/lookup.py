"""Offsets by timestamp: what ListOffsets asks. Blocking: it may read and decompress batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from odradek_proto.records import (
    BatchHeader,
    CodecUnavailable,
    CorruptBatch,
    Record,
    decode_records,
    verify_crc,
)

from odradek_broker.storage.errors import CannotDecompress, LogCorrupted
from odradek_broker.storage.segment import Segment


class TimestampAndOffset(NamedTuple):
    timestamp: int
    offset: int


def offset_for_timestamp(
    segments: Sequence[Segment], timestamp: int, log_start_offset: int, limit: int
) -> TimestampAndOffset | None:
    """The first record whose timestamp is at least `timestamp`, with an offset below `limit`; None: there is none."""
    for segment in segments:
        if segment.base_offset >= limit:
            break
        if segment.largest_timestamp < timestamp:
            continue
        start = max(log_start_offset, segment.lookup_timestamp(timestamp))
        for record in _records(segment, start, timestamp):
            if record.offset >= limit:
                return None
            if record.timestamp >= timestamp and record.offset >= log_start_offset:
                return TimestampAndOffset(record.timestamp, record.offset)
    return None


def largest_timestamp(segments: Sequence[Segment], log_start_offset: int, limit: int) -> TimestampAndOffset | None:
    """The first record that has the largest timestamp below `limit`; None when no record has a timestamp."""
    best: TimestampAndOffset | None = None
    for segment in segments:
        if segment.base_offset >= limit:
            break
        if best is not None and segment.largest_timestamp <= best.timestamp:
            continue
        best = _largest_in(segment, best, log_start_offset, limit)
    return best


def _largest_in(
    segment: Segment, best: TimestampAndOffset | None, log_start_offset: int, limit: int
) -> TimestampAndOffset | None:
    for position, header in _headers(segment, segment.base_offset):
        if header.base_offset >= limit:
            break
        if header.max_timestamp < 0 or (best is not None and header.max_timestamp <= best.timestamp):
            continue
        for record in _decode(segment, position, header):
            if log_start_offset <= record.offset < limit and (best is None or record.timestamp > best.timestamp):
                best = TimestampAndOffset(record.timestamp, record.offset)
    return best


def _records(segment: Segment, offset: int, timestamp: int) -> Iterator[Record]:
    """The records of those batches from `offset` on that have a timestamp of at least `timestamp`."""
    for position, header in _headers(segment, offset):
        if header.max_timestamp >= timestamp and header.next_offset > offset:
            yield from _decode(segment, position, header)


def _headers(segment: Segment, offset: int) -> Iterator[tuple[int, BatchHeader]]:
    try:
        yield from segment.batches(segment.lookup(offset))
    except CorruptBatch as error:
        raise LogCorrupted(segment.path, error.position, offset, error.reason) from None


def _decode(segment: Segment, position: int, header: BatchHeader) -> list[Record]:
    batch = segment.file.pread(position, header.size)
    try:
        if not verify_crc(batch, header):
            raise CorruptBatch(f"the CRC is not {header.crc:#010x}", 0)
        return decode_records(batch, header)
    except CorruptBatch as error:
        raise LogCorrupted(segment.path, position, header.base_offset, error.reason) from None
    except CodecUnavailable as error:
        raise CannotDecompress(f"{segment.path}: offset {header.base_offset}: {error}") from None
