"""Kafka's small file formats, as pure functions between bytes and values: for the broker and for the audit alike.

The text files of a log directory and of a partition (R-2, R-233):

    replication-offset-checkpoint and its like      leader-epoch-checkpoint
        0                                               0
        2                   number of entries           1
        orders 0 41         topic partition offset      3 17        epoch start-offset

    partition.metadata                              .kafka_cleanshutdown
        version: 0                                      {"version":0,"brokerEpoch":57}
        topic_id: GOOxVCtyTXmrkBSUDFvDPA

The files beside a segment's log: three indexes, the snapshot of the producers' state (R-225 to R-227, R-246):

    .index      relative offset int32 | position int32                                         8 bytes an entry
    .timeindex  timestamp int64 | relative offset int32                                       12 bytes an entry
    .txnindex   version int16 = 0 | producer id | first offset | last offset | last stable offset   int64 each: 34 bytes
    .snapshot   version int16 = 1 | CRC-32C uint32 of all that follows | count int32 | entries
      entry     producer id int64 | epoch int16 | last sequence int32 | last offset int64 | offset delta int32 |
                timestamp int64 | coordinator epoch int32 | current transaction's first offset int64            46 bytes

Rules of this module. Nothing here touches a file: whoever does writes a temporary file, flushes it and renames it.
What we write is what Kafka writes. What we read is refused as `CorruptFile` when Kafka would refuse it; an empty
checkpoint has no entries, as in Kafka. An index rises strictly; Kafka gives the index of the active segment its full
size beforehand, so zeros at the end are no entries. Indexes can be rebuilt, snapshots have an older neighbour. The
log's own format is in `records.py`.
"""

import json
import re
import struct
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from odradek_proto.checksum import crc32c
from odradek_proto.topics import TopicPartition, topic_id_from_text, topic_id_to_text, validate_topic_name
from odradek_proto.values import Value

REPLICATION_OFFSET_CHECKPOINT: Final = "replication-offset-checkpoint"  # high watermarks
RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT: Final = "log-start-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT: Final = "cleaner-offset-checkpoint"  # below: offsets may be missing
FLUSHED_OFFSET_CHECKPOINT: Final = "flushed-offset-checkpoint"  # of the metadata log alone, beside it
LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"

_VERSION: Final = "0"
_LARGEST: Final = 2**63 - 1
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)


class CorruptFile(ValueError):
    """A file that does not hold what its name says."""


class LeaderEpochEntry(NamedTuple):
    """One line of the leader epoch file: an epoch and the offset of its first record."""

    epoch: int
    start_offset: int


class MetaProperties(Value, frozen=True):
    """Whose log directory it is: node, cluster, and the directory's own id (text, 22 characters) where there is one."""

    node_id: int
    cluster_id: str
    directory_id: str | None = None


def encode_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The bytes of a checkpoint with one offset per partition, sorted by partition."""
    return _encode_lines(
        f"{partition.topic} {partition.partition} {offsets[partition]}" for partition in sorted(offsets)
    )


def decode_offset_checkpoint(data: bytes) -> dict[TopicPartition, int]:
    """Undo `encode_offset_checkpoint`. Raises `CorruptFile`, also for a partition that stands there twice."""
    offsets: dict[TopicPartition, int] = {}
    for line in _decode_lines(data):
        words = line.split()
        if len(words) != 3:
            raise CorruptFile(f"not 'topic partition offset': {line!r}")
        try:
            validate_topic_name(words[0])
        except ValueError as error:
            raise CorruptFile(str(error)) from None
        partition = TopicPartition(words[0], _number(words[1], 0, 0x7FFFFFFF))
        if partition in offsets:
            raise CorruptFile(f"{partition} stands there twice")
        offsets[partition] = _number(words[2])
    return offsets


def encode_leader_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    """The bytes of `leader-epoch-checkpoint` from (epoch, start offset) pairs, in the order given."""
    return _encode_lines(f"{epoch} {start_offset}" for epoch, start_offset in entries)


def decode_leader_epochs(data: bytes) -> list[LeaderEpochEntry]:
    """Undo `encode_leader_epochs`, in the file's order: whether it rises is for the reader to judge.

    Raises `CorruptFile`.
    """
    entries = []
    for line in _decode_lines(data):
        words = line.split()
        if len(words) != 2:
            raise CorruptFile(f"not 'epoch start-offset': {line!r}")
        entries.append(LeaderEpochEntry(_number(words[0], -0x80000000, 0x7FFFFFFF), _number(words[1])))
    return entries


def encode_partition_metadata(topic_id: bytes) -> bytes:
    """The bytes of `partition.metadata` for a topic id of 16 bytes."""
    return f"version: {_VERSION}\ntopic_id: {topic_id_to_text(topic_id)}".encode("ascii")


def decode_partition_metadata(data: bytes) -> bytes:
    """The topic id, 16 bytes. Raises `CorruptFile`, also for the id of all zeros, which means that there is none."""
    values = {}
    for line in _text(data).splitlines():
        name, colon, value = line.partition(":")
        if not colon:
            raise CorruptFile(f"not 'name: value': {line!r}")
        values[name.strip()] = value.strip()
    if values.get("version") != _VERSION:
        raise CorruptFile(f"version {values.get('version')!r}, not {_VERSION}")
    try:
        topic_id = topic_id_from_text(values.get("topic_id", ""))
    except ValueError as error:
        raise CorruptFile(str(error)) from None
    if not any(topic_id):
        raise CorruptFile("the topic id is zero")
    return topic_id


def encode_meta_properties(properties: MetaProperties) -> bytes:
    """The bytes of `meta.properties`, version 1 (KRaft). Unlike Kafka, without a comment that holds the time."""
    lines = ["#", f"cluster.id={_escape(properties.cluster_id)}"]
    if properties.directory_id is not None:
        lines.append(f"directory.id={_escape(properties.directory_id)}")
    lines += [f"node.id={properties.node_id}", "version=1", ""]
    return "\n".join(lines).encode("ascii")


def decode_meta_properties(data: bytes) -> MetaProperties:
    """Undo `encode_meta_properties`; version 0, which has broker.id instead of node.id, is read too.

    Raises `CorruptFile`.
    """
    values: dict[str, str] = {}
    for line in _text(data).splitlines():
        stripped = line.strip()
        if stripped and stripped[0] not in "#!":
            name, _, value = stripped.partition("=")
            values[name.strip()] = re.sub(r"\\(.)", r"\1", value.strip())
    version = values.get("version", "0")
    if version not in ("0", "1"):
        raise CorruptFile(f"version {version!r}, not 0 or 1")
    if values.keys().isdisjoint(("version", "broker.id")):
        raise CorruptFile("version and node.id are missing")
    node = "node.id" if version == "1" else "broker.id"
    for needed in (node, "cluster.id"):
        if needed not in values:
            raise CorruptFile(f"{needed} is missing")
    directory_id = values.get("directory.id")
    if directory_id is not None:
        try:
            topic_id_from_text(directory_id)
        except ValueError:
            raise CorruptFile(f"directory.id {directory_id!r} is no id") from None
    return MetaProperties(_number(values[node], 0, 0x7FFFFFFF), values["cluster.id"], directory_id)


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """The bytes of `.kafka_cleanshutdown`, with the epoch of the broker's last registration (-1: none)."""
    return b'{"version":0,"brokerEpoch":%d}' % broker_epoch


def decode_clean_shutdown(data: bytes) -> int:
    """The broker epoch, -1 when the file has none (before KIP-966 it was empty): the file alone means a clean shutdown.

    Raises `CorruptFile` when there is something else in it.
    """
    if not data.strip():
        return -1
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"no JSON: {error}") from None
    if not isinstance(content, dict):
        raise CorruptFile(f"not an object: {content!r}")
    epoch = content.get("brokerEpoch", -1)
    if not isinstance(epoch, int) or isinstance(epoch, bool):
        raise CorruptFile(f"brokerEpoch {epoch!r} is no number")
    if not -1 <= epoch <= _LARGEST:
        raise CorruptFile(f"brokerEpoch {epoch} is no offset")
    return epoch


def _encode_lines(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "\n".join([_VERSION, str(len(entries)), *entries, ""]).encode("ascii")


def _decode_lines(data: bytes) -> list[str]:
    """The lines of the entries, after version and count have been compared."""
    lines = _text(data).splitlines()
    if not lines:
        return []
    if lines[0] != _VERSION:
        raise CorruptFile(f"version {lines[0]!r}, not {_VERSION}")
    if len(lines) < 2:
        raise CorruptFile("the number of entries is missing")
    count = _number(lines[1])
    entries = lines[2:]
    if count != len(entries):
        raise CorruptFile(f"{len(entries)} entries, not {count}")
    return entries


def _text(data: bytes) -> str:
    try:
        return data.decode("ascii")
    except UnicodeDecodeError as error:
        raise CorruptFile(f"its byte {error.start} is no ASCII") from None


def _number(text: str, lowest: int = -(2**63), highest: int = _LARGEST) -> int:
    """A decimal number between two limits. Raises `CorruptFile`."""
    if _NUMBER.fullmatch(text) is None or not lowest <= int(text) <= highest:
        raise CorruptFile(f"{text!r} is no number from {lowest} to {highest}")
    return int(text)


def _escape(value: str) -> str:
    """What Java's Properties escape in a value that starts with no blank."""
    return re.sub(r"([\\=:#!])", r"\\\1", value)


# --- Files beside a segment ------------------------------------------------------------------------------------------


LOG_SUFFIX: Final = ".log"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
PRODUCER_SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"

_FILE_NAME: Final = re.compile(r"([0-9]{20})((?:\.[a-z]+)+)", re.ASCII)


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
    if not 0 <= base_offset <= _LARGEST:
        raise ValueError(f"{base_offset} is no offset")
    return f"{base_offset:020d}.{suffix.removeprefix('.')}"


def parse_segment_file_name(name: str) -> SegmentFileName | None:
    """Undo `segment_file_name`; None for any other name."""
    match = _FILE_NAME.fullmatch(name)
    if match is None or int(match[1]) > _LARGEST:
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
