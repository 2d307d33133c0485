"""Walking over the batches of a segment's file.

Two ways to walk. `walk_headers` reads as little as it can and trusts the bytes: they were checked when they were
written or recovered. `walk_verified` reads everything and checks each batch, for recovery.
Both raise `CorruptBatch`, whose `position` is the place in the file, when the bytes before `end` are no whole batches.
No CRC covers the base offset: `contiguous` finds one that was changed by those of its neighbours.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from odradek_proto.records import HEADER_SIZE, BatchHeader, CorruptBatch, check_batch, read_header
from odradek_proto.transport.ports import File

HEADER_CHUNK = 64 << 10  # small batches: many headers in one read; large ones: little is read in vain
VERIFY_CHUNK = 1 << 20
batch_length = struct.Struct(">i").unpack_from


def contiguous(
    batches: Iterable[tuple[int, BatchHeader]], next_offset: int | None
) -> Iterator[tuple[int, BatchHeader]]:
    """The same batches, each of which begins where the one before it ended; the first at `next_offset`, None: anywhere.

    Raises `CorruptBatch` otherwise (R-221).
    """
    for position, header in batches:
        if next_offset is not None and header.base_offset != next_offset:
            raise CorruptBatch(f"offset {header.base_offset} instead of {next_offset}", position)
        next_offset = header.next_offset
        yield position, header


def walk_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of the batches from `position` on, which has to be the start of one, up to `end`."""
    chunk = b""
    start = position  # of the chunk in the file
    while position < end:
        at = position - start
        if at + HEADER_SIZE > len(chunk):
            start, at = position, 0
            chunk = file.pread(position, min(HEADER_CHUNK, end - position))
        try:
            header = read_header(chunk, at)
        except CorruptBatch as error:
            raise CorruptBatch(error.reason, position) from None
        if position + header.size > end:
            raise CorruptBatch(f"{end - position} of {header.size} bytes", position)
        yield position, header
        position += header.size


def walk_verified(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of the batches from `position` on, after the CRC and all promises were checked."""
    chunk = b""
    start = position
    while position < end:
        at = position - start
        try:
            if at + HEADER_SIZE > len(chunk) or at + 12 + batch_length(chunk, at + 8)[0] > len(chunk):
                start, at = position, 0
                chunk = file.pread(position, min(VERIFY_CHUNK, end - position))
                size = read_header(chunk).size
                if len(chunk) < size <= end - position:
                    chunk = file.pread(position, size)
            header = check_batch(chunk, at, compacted=True)
        except CorruptBatch as error:
            raise CorruptBatch(error.reason, position) from None
        yield position, header
        position += header.size
