"""The views of the `kafka-log` data source: their columns, and how batches become Arrow rows.

Every view yields `pyarrow.RecordBatch`es of a few thousand rows, flushed by bytes too, since one Arrow column of
bytes holds at most 2 GiB. Column names are those of Spark's own Kafka source where it has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from odradek_proto.records import BatchHeader, CodecUnavailable, CorruptBatch, decode_records, read_header

from odradek_audit.columns import arrow_schema
from odradek_audit.inputs.disk import FileSystem
from odradek_audit.inputs.facts import BAD_CRC, BatchFacts

ROWS_PER_BATCH = 8192
BYTES_PER_BATCH = 32 * 1024 * 1024
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

_PLACE = "replica STRING, topic STRING, partition INT"

SCHEMAS = {
    "records": (
        "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
        "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, replica STRING, leader_epoch INT, base_offset BIGINT, "
        "batch_crc BIGINT, producer_id BIGINT, producer_epoch INT, sequence INT, is_control BOOLEAN, "
        "is_transactional BOOLEAN, codec STRING, file STRING, position BIGINT, crc_ok BOOLEAN"
    ),
    "batches": (
        f"{_PLACE}, segment BIGINT, position BIGINT, size BIGINT, base_offset BIGINT, last_offset BIGINT, epoch INT, "
        "crc BIGINT, attributes INT, max_timestamp BIGINT, producer_id BIGINT, producer_epoch INT, base_sequence INT, "
        "record_count INT, problem STRING, detail STRING, crc_ok BOOLEAN"
    ),
    "segments": f"{_PLACE}, base_offset BIGINT, file STRING, size BIGINT, has_index BOOLEAN, has_time_index BOOLEAN",
    "indexes": f"{_PLACE}, file STRING, kind STRING, entry INT, offset BIGINT, position BIGINT, timestamp BIGINT",
    "epochs": f"{_PLACE}, epoch INT, start_offset BIGINT",
    "checkpoints": (
        f"{_PLACE}, log_start BIGINT, high_watermark BIGINT, recovery_point BIGINT, cleaned_to BIGINT, "
        "clean_shutdown BOOLEAN, topic_id STRING, cluster_id STRING"
    ),
}

BATCH_SCHEMA, RECORD_SCHEMA = arrow_schema(SCHEMAS["batches"]), arrow_schema(SCHEMAS["records"])
OFFSET_COLUMN = RECORD_SCHEMA.names.index("offset")
Place = tuple[str, str, int]
"""Replica, topic, partition."""


def batch_rows(place: Place, facts: Iterable[BatchFacts]) -> Iterator[pa.RecordBatch]:
    """Digests as Arrow rows of the `batches` view."""
    rows: list[BatchFacts] = []
    for fact in facts:
        rows.append(fact)
        if len(rows) >= ROWS_PER_BATCH:
            yield _batch_arrow(place, rows)
            rows = []
    if rows:
        yield _batch_arrow(place, rows)


def _batch_arrow(place: Place, rows: list[BatchFacts]) -> pa.RecordBatch:
    count = len(rows)
    replica, topic, partition = place
    columns: list[Any] = [[replica] * count, [topic] * count, [partition] * count]
    columns.extend(zip(*rows, strict=True))
    columns.append([row.problem == "" for row in rows])
    arrays = [pa.array(values, type=field.type) for values, field in zip(columns, BATCH_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=BATCH_SCHEMA)


class CorruptLog(ValueError):
    """A log holds bytes that are no batch, and the reader was asked to stop at such."""


def record_rows(
    disk: FileSystem,
    path: str,
    place: Place,
    facts: Iterable[BatchFacts],
    on_corrupt: str,
    wanted: Callable[[int], bool],
) -> Iterator[pa.RecordBatch]:
    """Wanted records of readable batches as Arrow rows; a batch with a wrong CRC is decoded as far as it can be. What
    cannot be decoded raises `CorruptLog` if `on_corrupt` is "fail"."""
    rows: list[tuple[Any, ...]] = []
    size = 0
    for fact in facts:
        if fact.problem and fact.problem != BAD_CRC:
            continue
        try:
            data = disk.read(path, fact.position, fact.size)
            header = read_header(data)
            rows.extend(row for row in _rows_of_batch(data, header, place, path, fact) if wanted(row[OFFSET_COLUMN]))
        except (CorruptBatch, CodecUnavailable) as error:
            if on_corrupt == "fail":
                raise CorruptLog(f"{path}, byte {fact.position}: {error}") from error
            continue
        size += fact.size
        if len(rows) >= ROWS_PER_BATCH or size >= BYTES_PER_BATCH:
            yield _record_arrow(rows)
            rows, size = [], 0
    if rows:
        yield _record_arrow(rows)


def _rows_of_batch(
    data: bytes, header: BatchHeader, place: Place, path: str, fact: BatchFacts
) -> Iterator[tuple[Any, ...]]:
    replica, topic, partition = place
    codec = CODECS[header.codec]
    file = path.rpartition("/")[2]
    kind = int(header.timestamp_type_log_append)
    for record in decode_records(data, header):
        sequence = -1
        if header.base_sequence >= 0:
            sequence = (header.base_sequence + record.offset - header.base_offset) & 0x7FFFFFFF
        yield (
            record.key,
            record.value,
            topic,
            partition,
            record.offset,
            _microseconds(record.timestamp),
            kind,
            [{"key": name, "value": content} for name, content in record.headers],
            replica,
            header.leader_epoch,
            header.base_offset,
            header.crc,
            header.producer_id,
            header.producer_epoch,
            sequence,
            header.is_control,
            header.is_transactional,
            codec,
            file,
            fact.position,
            fact.problem == "",
        )


def _microseconds(timestamp: int) -> int | None:
    """Spark's timestamps are microseconds in 64 bits; what does not fit, or is none, is null."""
    return timestamp * 1000 if 0 <= timestamp < 1 << 52 else None


def _record_arrow(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    arrays = [
        pa.array(values, type=field.type) for values, field in zip(zip(*rows, strict=True), RECORD_SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA)
