"""Snapshots of the metadata log: their names and the frame around their records (KIP-630).

    00000000000000000813-0000000004.checkpoint      holds everything below offset 813, whose last record is of epoch 4

    SNAPSHOT_HEADER   control batch   version int16 = 0 | timestamp of the last record int64 | 0, as a flexible message
    records           batches, from base offset 1 on, each with its CRC
    SNAPSHOT_FOOTER   control batch   version int16 = 0 | 0

Offsets in the file count from 0 without gaps and say nothing of the log; every batch has the snapshot's epoch. A file
without its footer was not finished, and whatever stands behind a footer is damage.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from odradek_proto.control import ControlType, control_type, encode_control_batch
from odradek_proto.decoding import decode_records
from odradek_proto.encoding import encode_batch
from odradek_proto.headers import HEADER_SIZE, BatchHeader, CorruptBatch, check_batch, read_header

CHECKPOINT_SUFFIX: Final = ".checkpoint"
PART_SUFFIX: Final = ".part"  # behind the name while the file is not complete
_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint", re.ASCII)
_HEADER: Final = struct.Struct(">hqB")
_FOOTER: Final = struct.Struct(">hB")

Read = Callable[[int, int], bytes]
"""(position, length) -> that many bytes of a file, fewer only at its end."""


class CorruptSnapshot(ValueError):
    """The bytes are no whole snapshot."""


class SnapshotName(NamedTuple):
    end_offset: int
    epoch: int


def snapshot_file_name(end_offset: int, epoch: int) -> str:
    if end_offset < 0 or epoch < 0:
        raise ValueError(f"no snapshot ends at offset {end_offset} of epoch {epoch}")
    return f"{end_offset:020d}-{epoch:010d}{CHECKPOINT_SUFFIX}"


def parse_snapshot_file_name(name: str) -> SnapshotName | None:
    """Undo `snapshot_file_name`; None for any other name."""
    match = _NAME.fullmatch(name)
    return None if match is None else SnapshotName(int(match[1]), int(match[2]))


def encode_snapshot_header(epoch: int, last_timestamp: int) -> bytes:
    """The batch that a snapshot begins with; `last_timestamp` is that of the last record which it contains, in ms."""
    value = _HEADER.pack(0, last_timestamp, 0)
    return encode_control_batch(
        ControlType.SNAPSHOT_HEADER, value, timestamp=last_timestamp, base_offset=0, leader_epoch=epoch
    )


def encode_snapshot_records(values: Sequence[bytes], base_offset: int, epoch: int, last_timestamp: int) -> bytes:
    """One batch of a snapshot. The same state makes the same bytes on every node."""
    records = [(last_timestamp, None, value, ()) for value in values]
    return encode_batch(records, base_offset=base_offset, leader_epoch=epoch)


def encode_snapshot_footer(base_offset: int, epoch: int, last_timestamp: int) -> bytes:
    """The batch that a snapshot ends with."""
    value = _FOOTER.pack(0, 0)
    return encode_control_batch(
        ControlType.SNAPSHOT_FOOTER, value, timestamp=last_timestamp, base_offset=base_offset, leader_epoch=epoch
    )


def snapshot_timestamp(read: Read) -> int:
    """When the last record that a snapshot contains was written, in ms. Raises `CorruptSnapshot`."""
    return header_timestamp(_control(*_batch(read, 0), ControlType.SNAPSHOT_HEADER))


def header_timestamp(value: bytes) -> int:
    """The timestamp in the value of a SNAPSHOT_HEADER, in ms. Raises `CorruptSnapshot`."""
    if len(value) < _HEADER.size:
        raise CorruptSnapshot("the header has no timestamp")
    return int(_HEADER.unpack_from(value)[1])


def snapshot_records(read: Read, size: int, epoch: int) -> Iterator[bytes]:
    """The values of a snapshot's records. Everything is checked on the way: whoever reached the end has read a whole
    and sound file. Raises `CorruptSnapshot`.
    """
    snapshot_timestamp(read)
    position = expected = 0
    while position < size:
        header, batch = _batch(read, position)
        if header.base_offset != expected or header.leader_epoch != epoch:
            found = f"a batch at {header.base_offset} of epoch {header.leader_epoch}"
            raise CorruptSnapshot(f"byte {position}: {found}, where {expected} of epoch {epoch} was to follow")
        position += header.size
        if header.is_control and expected > 0:
            _control(header, batch, ControlType.SNAPSHOT_FOOTER)
            if position != size:
                raise CorruptSnapshot(f"{size - position} bytes behind the footer")
            return
        expected = header.next_offset
        if not header.is_control:
            try:
                yield from (record.value or b"" for record in decode_records(batch, header))
            except CorruptBatch as error:
                raise CorruptSnapshot(f"byte {position - header.size}: {error.reason}") from error
    raise CorruptSnapshot(f"no footer in {size} bytes: it was not finished")


def _batch(read: Read, position: int) -> tuple[BatchHeader, bytes]:
    """The batch at a position, whole and with the right CRC."""
    try:
        header = read_header(read(position, HEADER_SIZE))
        batch = read(position, header.size)
        return check_batch(batch), batch
    except CorruptBatch as error:
        raise CorruptSnapshot(f"byte {position}: {error.reason}") from error


def _control(header: BatchHeader, batch: bytes, expected: ControlType) -> bytes:
    """The value of a control batch that has to be of this type."""
    try:
        record = decode_records(batch, header)[0]
        found = control_type(record) if header.is_control else -1
    except CorruptBatch as error:
        raise CorruptSnapshot(error.reason) from error
    if found != expected:
        raise CorruptSnapshot(f"offset {header.base_offset}: no {expected.name} where one has to be")
    return record.value or b""
