"""The files of a log directory as rows with Kafka's field names, for `odradek log`.

Rules of this module. It reads what `odradek_proto` can read and nothing of the broker: files of Apache Kafka are as
good as ours. A file is read batch by batch, so a segment may be larger than memory. Wrong bytes become a row with
`isvalid` false and a reason, and reading goes on behind them where the next batch can be found. A pipe or a device
under a segment's name is such a row, too: nothing here waits for what somebody might write into it.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Final

from odradek_proto import formats
from odradek_proto.command_line import text_or_base64
from odradek_proto.headers import HEADER_SIZE, BatchHeader, CorruptBatch, check_batch, read_header
from odradek_proto.metadata_snapshots import PART_SUFFIX, parse_snapshot_file_name
from odradek_proto.records import CodecUnavailable, Record, decode_records

Row = dict[str, Any]


def rows_of(path: Path, *, records: bool = False, metadata: bool = False) -> Iterator[Row]:
    """The rows of one file; with `records` those of a segment's records, too, with `metadata` as fields of the metadata
    log. A snapshot of the metadata is read like a segment.

    Raises `OSError`, and `ValueError` for a file of an unknown kind.
    """
    name = parse_name(path.name)
    is_segment = name == formats.LOG_SUFFIX or is_metadata_snapshot(path)
    reader = SMALL_FILES.get(path.name) or SMALL_FILES.get(name)
    if reader is None and not is_segment:
        raise ValueError(unknown_file(path))
    try:
        with open_regular(path) as file:
            if reader is None or is_segment:
                yield from segment_rows(file, records=records or metadata, metadata=metadata)
            else:
                yield from reader(file.read())
    except formats.CorruptFile as error:
        yield {"isvalid": False, "error": str(error)}


def unknown_file(path: Path) -> str:
    return f"{path} is no file of a log directory that this command knows"


def open_regular(path: Path) -> BinaryIO:
    """Open for reading, and never wait for a pipe's other end. Raises `CorruptFile` for what is no regular file."""
    if path.is_file():
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file
        file.close()  # another one took its place in between
    raise formats.CorruptFile("it is no regular file")


def parse_name(name: str) -> str:
    """The suffix of a segment's file (`.log`, `.index`), without `.deleted` and the like; empty for other names."""
    found = formats.parse_segment_file_name(name)
    return "." + found.suffix.split(".")[1] if found is not None else ""


def is_known(path: Path) -> bool:
    if is_metadata_snapshot(path):
        return True
    return path.name in SMALL_FILES or parse_name(path.name) in (*SMALL_FILES, formats.LOG_SUFFIX)


def is_metadata_snapshot(path: Path) -> bool:
    """Also one that was set aside, or is not complete."""
    return parse_snapshot_file_name(path.name.removesuffix(".damaged").removesuffix(PART_SUFFIX)) is not None


def segment_rows(file: BinaryIO, *, records: bool = False, metadata: bool = False) -> Iterator[Row]:
    """A row per batch, with its CRC checked, and behind it one per record."""
    for position, header, batch, problem in batches(file):
        if header is None:
            yield {"position": position, "size": len(batch), "isvalid": False, "error": problem}
            continue
        yield batch_row(position, header, problem)
        if records and not problem:
            yield from _records(batch, header, metadata=metadata)


def batches(file: BinaryIO) -> Iterator[tuple[int, BatchHeader | None, bytes, str]]:
    """(position, header, bytes, what is wrong with it or empty) of each batch.

    The header is None for a last stretch of bytes in which no batch can be found; nothing comes behind it.
    """
    position = 0
    while True:
        file.seek(position)
        start = file.read(HEADER_SIZE)
        if not start:
            return
        try:
            header = read_header(start)
        except CorruptBatch as error:
            rest = start + file.read()
            if any(rest):  # zeros are what a preallocated file has behind its last batch
                yield position, None, rest, error.reason
            return
        batch = start + file.read(header.size - HEADER_SIZE)
        if len(batch) < header.size:
            yield position, None, batch, f"torn: {len(batch)} of {header.size} bytes"
            return
        try:
            check_batch(batch, compacted=True)
        except CorruptBatch as error:
            yield position, header, batch, error.reason
        else:
            yield position, header, batch, ""
        position += header.size


def batch_row(position: int, header: BatchHeader, problem: str) -> Row:
    """A batch as kafka-dump-log describes it."""
    time = "LogAppendTime" if header.timestamp_type_log_append else "CreateTime"
    row: Row = {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "position": position,
        time: header.max_timestamp,
        "size": header.size,
        "magic": header.magic,
        "compresscodec": _codec(header),
        "crc": header.crc,
        "isvalid": not problem,
    }
    if problem:
        row["error"] = problem
    return row


def _codec(header: BatchHeader) -> str:
    try:
        return header.codec.name.lower()
    except CorruptBatch:
        return f"unknown ({header.attributes & 7})"


def _records(batch: bytes, header: BatchHeader, *, metadata: bool) -> Iterator[Row]:
    try:
        found = decode_records(batch, header)
    except CorruptBatch as error:
        yield {"offset": header.base_offset, "isvalid": False, "error": error.reason}
        return
    except CodecUnavailable as error:
        yield {"offset": header.base_offset, "isvalid": True, "isdecoded": False, "error": f"not decoded: {error}"}
        return
    for number, record in enumerate(found):
        sequence = header.base_sequence + number if header.base_sequence >= 0 else -1
        row = _record_row(record, sequence)
        if metadata:
            from odradek_broker.commands.log_metadata import metadata_payload

            yield {**row, **metadata_payload(record, is_control=header.is_control)}
        else:
            yield {**row, **text_or_base64("key", record.key), **text_or_base64("payload", record.value)}


def _record_row(record: Record, sequence: int) -> Row:
    return {
        "offset": record.offset,
        "CreateTime": record.timestamp,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
        "sequence": sequence,
        "headerKeys": [name for name, _ in record.headers],
    }


def _entries(decode: Callable[[bytes], Iterable[Any]]) -> Callable[[bytes], Iterator[Row]]:
    """Entries as rows whose names are those of the fields, in camel case as Kafka's are."""

    def rows(data: bytes) -> Iterator[Row]:
        for entry in decode(data):
            yield {_camel(name): value for name, value in entry._asdict().items()}

    return rows


@cache
def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _offsets(data: bytes) -> Iterator[Row]:
    for partition, offset in formats.decode_offset_checkpoint(data).items():
        yield {"topic": partition.topic, "partition": partition.partition, "offset": offset}


def _partition_metadata(data: bytes) -> Iterator[Row]:
    from odradek_proto.topics import topic_id_to_text

    yield {"topicId": topic_id_to_text(formats.decode_partition_metadata(data))}


def _meta_properties(data: bytes) -> Iterator[Row]:
    found = formats.decode_meta_properties(data)
    yield {"nodeId": found.node_id, "clusterId": found.cluster_id, "directoryId": found.directory_id}


def _clean_shutdown(data: bytes) -> Iterator[Row]:
    yield {"brokerEpoch": formats.decode_clean_shutdown(data)}


def _quorum_state(data: bytes) -> Iterator[Row]:
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise formats.CorruptFile(f"it is no JSON: {error}") from error
    if not isinstance(fields, dict):
        raise formats.CorruptFile("it is no JSON object")
    yield fields


SMALL_FILES: Final[dict[str, Callable[[bytes], Iterator[Row]]]] = {
    formats.OFFSET_INDEX_SUFFIX: _entries(formats.decode_offset_index),
    formats.TIME_INDEX_SUFFIX: _entries(formats.decode_time_index),
    formats.TRANSACTION_INDEX_SUFFIX: _entries(formats.decode_transaction_index),
    formats.PRODUCER_SNAPSHOT_SUFFIX: _entries(formats.decode_producer_snapshot),
    formats.REPLICATION_OFFSET_CHECKPOINT: _offsets,
    formats.RECOVERY_POINT_CHECKPOINT: _offsets,
    formats.LOG_START_OFFSET_CHECKPOINT: _offsets,
    formats.FLUSHED_OFFSET_CHECKPOINT: _offsets,
    formats.LEADER_EPOCH_CHECKPOINT: _entries(formats.decode_leader_epochs),
    formats.PARTITION_METADATA: _partition_metadata,
    formats.META_PROPERTIES: _meta_properties,
    formats.CLEAN_SHUTDOWN: _clean_shutdown,
    "quorum-state": _quorum_state,
}
