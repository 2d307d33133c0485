"""The files beside a segment's log: names, three indexes, the snapshot of the producers' state (R-225 to R-227, R-246).

    .index      relative offset int32 | position int32                                         8 bytes an entry
    .timeindex  timestamp int64 | relative offset int32                                       12 bytes an entry
    .txnindex   version int16 = 0 | producer id | first offset | last offset | last stable offset   int64 each: 34 bytes
    .snapshot   version int16 = 1 | CRC-32C uint32 of all that follows | count int32 | entries
      entry     producer id int64 | epoch int16 | last sequence int32 | last offset int64 | offset delta int32 |
                timestamp int64 | coordinator epoch int32 | current transaction's first offset int64            46 bytes

Rules of this module. An index rises strictly; Kafka gives the index of the active segment its full size beforehand,
so zeros at the end are no entries. Wrong bytes are `CorruptFile`: indexes can be rebuilt, snapshots have an older
neighbour.
"""

import re
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from odradek_proto.checkpoints import CorruptFile
from odradek_proto.checksum import crc32c

LOG_SUFFIX: Final = ".log"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
PRODUCER_SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"

_FILE_NAME: Final = re.compile(r"([0-9]{20})((?:\.[a-z]+)+)", re.ASCII)
_LARGEST_OFFSET: Final = 2**63 - 1


class SegmentFileName(NamedTuple):
    """A segment's file: base offset (of a snapshot: the offset where it ends) and suffixes, like `.log.deleted`."""

    base_offset: int
    suffix: str


class OffsetIndexEntry(NamedTuple):
    """The last offset of a batch, counted from the segment's base offset, and where this batch starts in the log."""

    relative_offset: int
    position: int


class TimeIndexEntry(NamedTuple):
    """The largest timestamp so far, in ms, and the offset that has it, counted from the segment's base offset."""

    timestamp: int
    relative_offset: int


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted: whose, from where to where (the marker's offset), and the LSO after it."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class ProducerSnapshotEntry(NamedTuple):
    """What is known of a producer: epoch and last batch. `offset_delta` is that batch's last sequence minus its first.

    `last_sequence` is -1 when it has written nothing, `current_txn_first_offset` -1 when it has no open transaction.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_ABORTED_TRANSACTION: Final = struct.Struct(">hqqqq")
_SNAPSHOT_HEADER: Final = struct.Struct(">hI")
_SNAPSHOT_COUNT: Final = struct.Struct(">i")
_SNAPSHOT_ENTRY: Final = struct.Struct(">qhiqiqiq")
OFFSET_INDEX_ENTRY_SIZE: Final = _OFFSET_ENTRY.size
TIME_INDEX_ENTRY_SIZE: Final = _TIME_ENTRY.size
PRODUCER_SNAPSHOT_VERSION: Final = 1


def segment_file_name(base_offset: int, suffix: str = LOG_SUFFIX) -> str:
    """The name of a segment's file: `00000000000000000041.log`. The suffix may come with its dot or without."""
    if not 0 <= base_offset <= _LARGEST_OFFSET:
        raise ValueError(f"{base_offset} is no offset")
    return f"{base_offset:020d}.{suffix.removeprefix('.')}"


def parse_segment_file_name(name: str) -> SegmentFileName | None:
    """Undo `segment_file_name`; None for any other name."""
    match = _FILE_NAME.fullmatch(name)
    if match is None or int(match[1]) > _LARGEST_OFFSET:
        return None
    return SegmentFileName(int(match[1]), match[2])


def encode_offset_index(entries: Iterable[tuple[int, int]]) -> bytes:
    """(relative offset, position) pairs as the bytes of an `.index` file, or of a piece to append to it."""
    return b"".join([_OFFSET_ENTRY.pack(*entry) for entry in entries])


def decode_offset_index(data: bytes) -> list[OffsetIndexEntry]:
    """The entries of an `.index` file.

    Raises `CorruptFile` for a broken size and for offsets or positions that do not rise.
    """
    entries: list[OffsetIndexEntry] = []
    last = OffsetIndexEntry(-1, -1)
    for pair in _iter_entries(_OFFSET_ENTRY, data):
        entry = OffsetIndexEntry._make(pair)
        if entry == (0, 0):
            _check_padding(data, len(entries) * OFFSET_INDEX_ENTRY_SIZE)
            break
        if entry.relative_offset <= last.relative_offset or entry.position <= last.position:
            raise CorruptFile(f"offset index entry {len(entries)} is {tuple(entry)} after {tuple(last)}")
        entries.append(entry)
        last = entry
    return entries


def encode_time_index(entries: Iterable[tuple[int, int]]) -> bytes:
    """(timestamp, relative offset) pairs as the bytes of a `.timeindex` file, or of a piece to append to it."""
    return b"".join([_TIME_ENTRY.pack(*entry) for entry in entries])


def decode_time_index(data: bytes) -> list[TimeIndexEntry]:
    """The entries of a `.timeindex` file.

    Raises `CorruptFile` for a broken size, timestamps that do not rise, or offsets that fall.
    """
    entries: list[TimeIndexEntry] = []
    last = TimeIndexEntry(-1, 0)
    for pair in _iter_entries(_TIME_ENTRY, data):
        entry = TimeIndexEntry._make(pair)
        if entry == (0, 0):
            _check_padding(data, len(entries) * TIME_INDEX_ENTRY_SIZE)
            break
        if entry.timestamp <= last.timestamp or entry.relative_offset < last.relative_offset:
            raise CorruptFile(f"time index entry {len(entries)} is {tuple(entry)} after {tuple(last)}")
        entries.append(entry)
        last = entry
    return entries


def encode_transaction_index(entries: Iterable[AbortedTransaction]) -> bytes:
    """The bytes of a `.txnindex` file, or of a piece to append to it."""
    return b"".join([_ABORTED_TRANSACTION.pack(0, *entry) for entry in entries])


def decode_transaction_index(data: bytes) -> list[AbortedTransaction]:
    """The aborted transactions of a segment, by last offset. Raises `CorruptFile`."""
    entries: list[AbortedTransaction] = []
    for version, *fields in _iter_entries(_ABORTED_TRANSACTION, data):
        if version != 0:
            raise CorruptFile(f"transaction index entry {len(entries)} has version {version}")
        entry = AbortedTransaction._make(fields)
        if entries and entry.last_offset <= entries[-1].last_offset:
            raise CorruptFile(f"transaction index entry {len(entries)} ends at {entry.last_offset}, not above the last")
        entries.append(entry)
    return entries


def encode_producer_snapshot(entries: Iterable[ProducerSnapshotEntry]) -> bytes:
    """The bytes of a `.snapshot` file, version 1, in the order given."""
    packed = [_SNAPSHOT_ENTRY.pack(*entry) for entry in entries]
    body = b"".join([_SNAPSHOT_COUNT.pack(len(packed)), *packed])
    return _SNAPSHOT_HEADER.pack(PRODUCER_SNAPSHOT_VERSION, crc32c(body)) + body


def decode_producer_snapshot(data: bytes) -> list[ProducerSnapshotEntry]:
    """Undo `encode_producer_snapshot`.

    Raises `CorruptFile` for another version, a wrong CRC, or a count that does not fit.
    """
    if len(data) < _SNAPSHOT_HEADER.size + _SNAPSHOT_COUNT.size:
        raise CorruptFile(f"{len(data)} bytes are no producer snapshot")
    version, crc = _SNAPSHOT_HEADER.unpack_from(data)
    if version != PRODUCER_SNAPSHOT_VERSION:
        raise CorruptFile(f"producer snapshot version {version}, not {PRODUCER_SNAPSHOT_VERSION}")
    body = data[_SNAPSHOT_HEADER.size :]
    if crc32c(body) != crc:
        raise CorruptFile(f"the producer snapshot's CRC is not {crc:#010x}")
    (count,) = _SNAPSHOT_COUNT.unpack_from(body)
    packed = body[_SNAPSHOT_COUNT.size :]
    if count * _SNAPSHOT_ENTRY.size != len(packed):
        raise CorruptFile(f"{count} producers in {len(packed)} bytes")
    return [ProducerSnapshotEntry._make(fields) for fields in _SNAPSHOT_ENTRY.iter_unpack(packed)]


def _iter_entries(layout: struct.Struct, data: bytes) -> Iterable[tuple[int, ...]]:
    if len(data) % layout.size:
        raise CorruptFile(f"{len(data)} bytes are not a multiple of {layout.size}")
    return layout.iter_unpack(data)


def _check_padding(data: bytes, position: int) -> None:
    """Behind the last entry there may be nothing but zeros."""
    if data.count(0, position) != len(data) - position:
        raise CorruptFile(f"entries behind the zeros at byte {position}")
