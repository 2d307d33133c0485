"""Reads from the disk: whole batches, each checked before it is served (R-227 to R-229).

May run in another thread while the loop appends: what it needs is captured once, the limit by its caller and the end of
a segment here. Appends beyond do not matter; a truncation does, and the log throws away what was read meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek_proto.records import HEADER_SIZE, Buffer, CorruptBatch, check_batch, read_header

from odradek_broker.storage.errors import LogCorrupted
from odradek_broker.storage.segment import Segment


def read_batches(
    segments: Sequence[Segment], offset: int, max_bytes: int, limit: int, at_least_one: bool
) -> list[Buffer]:
    """Whole batches from the one that contains `offset` on, or the next one where there is a gap, below `limit`.

    `segments` begins with the one that may contain the offset. Raises `LogCorrupted` when the first batch is bad; a bad
    one behind good ones ends the read before it, and the next read names it.
    """
    out: list[Buffer] = []
    room = max_bytes
    for segment in segments:
        if segment.base_offset >= limit:
            break
        piece, more = _read_segment(segment, offset, room, limit, at_least_one and not out)
        if piece:
            out.append(piece)
            room -= len(piece)
        if not more or (out and room < HEADER_SIZE):
            break
    return out


def _read_segment(
    segment: Segment, offset: int, room: int, limit: int, at_least_one: bool
) -> tuple[memoryview | None, bool]:
    """The bytes of one segment that a read gets, and whether it may go on in the next segment."""
    end = segment.size
    try:
        batches = segment.batches(segment.lookup(offset))
        found = next((each for each in batches if each[1].next_offset > offset), None)
    except CorruptBatch as error:
        raise LogCorrupted(segment.path, error.position, offset, error.reason) from None
    if found is None:
        return None, True
    position, header = found
    if header.next_offset > limit or (header.size > room and not at_least_one):
        return None, False
    chunk = segment.file.pread(position, min(max(room, header.size), end - position))
    length = _whole_batches(segment, chunk, position, header.base_offset, limit)
    return memoryview(chunk)[:length], position + length == end


def _whole_batches(segment: Segment, chunk: bytes, position: int, offset: int, limit: int) -> int:
    """How many bytes of the chunk, which starts at `position`, are whole and sound batches below the limit."""
    at = 0
    while at + HEADER_SIZE <= len(chunk):
        try:
            if at + read_header(chunk, at).size > len(chunk):
                break
            header = check_batch(chunk, at, compacted=True)
            if header.base_offset < offset or (segment.contiguous and header.base_offset > offset):
                raise CorruptBatch(f"base offset {header.base_offset} instead of {offset}", at)
        except CorruptBatch as error:
            if at:
                break
            raise LogCorrupted(segment.path, position + at, offset, error.reason) from None
        if header.next_offset > limit:
            break
        at += header.size
        offset = header.next_offset
    return at
