"""Log directories for measurements of the audit: as large as wanted, in seconds, without filling the disk.

One segment of each kind is written and linked into every partition of every replica, so the files are read from the
page cache, which is what is wanted here: how much the processors do, not how fast a disk is. Most batches are one batch
with other base offsets: the CRC does not cover them.
"""

from __future__ import annotations

import base64
import itertools
import os
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from odradek_proto.checksum import crc32c
from odradek_proto.compression import Codec
from odradek_proto.formats import (
    LEADER_EPOCH_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    REPLICATION_OFFSET_CHECKPOINT,
    AbortedTransaction,
    MetaProperties,
    encode_leader_epochs,
    encode_meta_properties,
    encode_offset_checkpoint,
    encode_offset_index,
    encode_partition_metadata,
    encode_time_index,
    segment_file_name,
)
from odradek_proto.records import (
    ControlType,
    decode_records,
    encode_batch,
    encode_control_batch,
    end_transaction_value,
    read_header,
)
from odradek_proto.topics import TopicPartition

CLUSTER_ID = "b2RyYWRlay1zYW1wbGUtMQ"
FIRST_TIMESTAMP = 1_700_000_000_000
RECORD_BYTES = 100
RECORD_OVERHEAD = 8  # lengths, deltas and attributes of such a record
HEADER_BYTES = 61
INDEX_INTERVAL_BYTES = 4096
REPLICAS = 2
PRODUCERS, TRANSACTION_BATCHES = 4, 10
CRC_FIELD, DELTA_FIELD, SEQUENCE_FIELD = slice(17, 21), slice(23, 27), slice(53, 57)


Batches = Iterator[tuple[int, bytes]]
"""Batches of a log without an end, each with its last offset."""


def one_batch(
    batch_bytes: int, codec: Codec = Codec.NONE, key: bytes | None = None, **fields: Any
) -> tuple[bytes, int]:
    """A batch of about so many bytes before compression, and its records: half chance, half words."""
    rng = random.Random(batch_bytes)
    count = max(1, (batch_bytes - HEADER_BYTES) // (RECORD_BYTES + RECORD_OVERHEAD))
    words = b"so much depends upon a red wheel barrow glazed with"[: RECORD_BYTES // 2]
    values = [rng.randbytes(RECORD_BYTES - len(words)) + words for _ in range(count)]
    records = [(FIRST_TIMESTAMP, key, value, ()) for value in values]
    return bytes(encode_batch(records, base_offset=0, leader_epoch=0, codec=codec, **fields)), count


def plain(batch_bytes: int, codec: Codec = Codec.NONE) -> Batches:
    """The same batch again and again: its offset lies outside of the CRC."""
    batch, count = one_batch(batch_bytes, codec)
    for base in itertools.count(0, count):
        yield base + count - 1, base.to_bytes(8, "big") + batch[8:]


def cleaned(batch_bytes: int) -> Batches:
    """What a cleaner leaves: batches with keys that have lost every other offset."""
    batch, count = one_batch(batch_bytes, key=b"a key")
    left = _sealed(bytearray(batch), DELTA_FIELD, 2 * count - 1)
    for base in itertools.count(0, 2 * count):
        yield base + 2 * count - 1, base.to_bytes(8, "big") + left[8:]


def transactional(batch_bytes: int, aborted: list[AbortedTransaction]) -> Batches:
    """Transactions of ten batches by producers in turn; every fourth is aborted, and told in `aborted`."""
    batches = {
        producer: bytearray(one_batch(batch_bytes, producer_id=producer, producer_epoch=0, transactional=True)[0])
        for producer in range(PRODUCERS)
    }
    count, base = one_batch(batch_bytes)[1], 0
    for number in itertools.count():
        producer, first = number % PRODUCERS, base
        for place in range(TRANSACTION_BATCHES):
            sequence = (number // PRODUCERS * TRANSACTION_BATCHES + place) * count
            batch = _sealed(batches[producer], SEQUENCE_FIELD, sequence)
            yield base + count - 1, base.to_bytes(8, "big") + batch[8:]
            base += count
        kind = ControlType.COMMIT if number % 4 else ControlType.ABORT
        marker = encode_control_batch(
            kind,
            end_transaction_value(0),
            timestamp=FIRST_TIMESTAMP,
            leader_epoch=0,
            producer_id=producer,
            producer_epoch=0,
        )
        if kind is ControlType.ABORT:
            aborted.append(AbortedTransaction(producer, first, base, base + 1))
        yield base, base.to_bytes(8, "big") + marker[8:]
        base += 1


def _sealed(batch: bytearray, field: slice, value: int) -> bytes:
    """The batch with another value in a field of four bytes, and its CRC right."""
    batch[field] = value.to_bytes(4, "big")
    batch[CRC_FIELD] = crc32c(memoryview(batch)[CRC_FIELD.stop :]).to_bytes(4, "big")
    return bytes(batch)


def write_segment(directory: Path, batches: Batches, segment_bytes: int) -> tuple[int, int]:
    """A partition's directory with one segment and its indexes; returns bytes and the log end offset."""
    directory.mkdir(parents=True)
    offsets: list[tuple[int, int]] = []
    position = since_entry = last = 0
    with open(directory / segment_file_name(0), "wb") as log:
        for last_offset, batch in batches:
            if position + len(batch) > segment_bytes:
                break
            if since_entry > INDEX_INTERVAL_BYTES:
                offsets.append((last_offset, position))
                since_entry = 0
            log.write(batch)
            position, last = position + len(batch), last_offset
            since_entry += len(batch)
    (directory / segment_file_name(0, ".index")).write_bytes(encode_offset_index(offsets))
    (directory / segment_file_name(0, ".timeindex")).write_bytes(encode_time_index([(FIRST_TIMESTAMP, last)]))
    (directory / LEADER_EPOCH_CHECKPOINT).write_bytes(encode_leader_epochs([(0, 0)]))
    (directory / PARTITION_METADATA).write_bytes(encode_partition_metadata(bytes(range(16))))
    return position, last + 1


def write_history(path: Path, replicas: Mapping[str, Path], batch_bytes: int, events: int) -> None:
    """A send and an acknowledgement of each record of every partition, at most so many lines; the values repeat."""
    batch, count = one_batch(batch_bytes, Codec.NONE)
    values = [base64.b64encode(record.value or b"").decode() for record in decode_records(batch, read_header(batch))]
    with path.open("w", encoding="ascii") as file:
        for directory in sorted(next(iter(replicas.values())).glob("bench-*")):
            records = os.stat(directory / segment_file_name(0)).st_size // len(batch) * count
            place = f'"topic":"bench","partition":{directory.name.rpartition("-")[2]},"client":"w"'
            for offset in range(min(records, events // 2)):
                line = f'{place},"value_b64":"{values[offset % count]}"'
                file.write(f'{{"type":"send",{line}}}\n{{"type":"ack",{line},"offset":{offset}}}\n')
            events -= 2 * min(records, events // 2)


def write_replicas(
    root: Path, batches: Batches, total_bytes: int, *, segment_bytes: int = 128_000_000
) -> tuple[dict[str, Path], int, int]:
    """Two equal replicas that hold `total_bytes` together; returns them with their bytes and offsets in all."""
    first = root / "1" / "bench-0"
    size, end = write_segment(first, batches, min(segment_bytes, total_bytes // REPLICAS))
    partitions = max(1, total_bytes // REPLICAS // size)
    for node in range(1, REPLICAS + 1):
        for partition in range(partitions):
            directory = root / str(node) / f"bench-{partition}"
            if directory != first:
                directory.mkdir(parents=True)
                for path in first.iterdir():
                    os.link(path, directory / path.name)
        meta = MetaProperties(node, CLUSTER_ID)
        marks = {TopicPartition("bench", partition): end for partition in range(partitions)}
        (root / str(node) / META_PROPERTIES).write_bytes(encode_meta_properties(meta))
        (root / str(node) / REPLICATION_OFFSET_CHECKPOINT).write_bytes(encode_offset_checkpoint(marks))
    replicas = {str(node): root / str(node) for node in range(1, REPLICAS + 1)}
    return replicas, size * partitions * REPLICAS, end * partitions * REPLICAS
