"""Log directories for measurements of the audit: as large as wanted, in seconds, without filling the disk.

One segment of each kind is written and linked into every partition of every replica, so the files are read from the
page cache, which is what is wanted here: how much the processors do, not how fast a disk is. The batches are one batch
with other base offsets: the CRC does not cover them.
"""

from __future__ import annotations

import base64
import os
import random
from collections.abc import Mapping
from pathlib import Path

from odradek_proto.compression import Codec
from odradek_proto.formats import (
    LEADER_EPOCH_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    REPLICATION_OFFSET_CHECKPOINT,
    MetaProperties,
    encode_leader_epochs,
    encode_meta_properties,
    encode_offset_checkpoint,
    encode_offset_index,
    encode_partition_metadata,
    encode_time_index,
    segment_file_name,
)
from odradek_proto.records import decode_records, encode_batch, read_header
from odradek_proto.topics import TopicPartition

CLUSTER_ID = "b2RyYWRlay1zYW1wbGUtMQ"
FIRST_TIMESTAMP = 1_700_000_000_000
RECORD_BYTES = 100
RECORD_OVERHEAD = 8  # lengths, deltas and attributes of such a record
HEADER_BYTES = 61
INDEX_INTERVAL_BYTES = 4096
REPLICAS = 2


def one_batch(batch_bytes: int, codec: Codec) -> tuple[bytes, int]:
    """A batch of about so many bytes before compression, and its records: half chance, half words."""
    rng = random.Random(batch_bytes)
    count = max(1, (batch_bytes - HEADER_BYTES) // (RECORD_BYTES + RECORD_OVERHEAD))
    words = b"so much depends upon a red wheel barrow glazed with"[: RECORD_BYTES // 2]
    values = [rng.randbytes(RECORD_BYTES - len(words)) + words for _ in range(count)]
    records = [(FIRST_TIMESTAMP, None, value, ()) for value in values]
    return bytes(encode_batch(records, base_offset=0, leader_epoch=0, codec=codec)), count


def write_segment(directory: Path, batch_bytes: int, segment_bytes: int, codec: Codec) -> tuple[int, int]:
    """A partition's directory with one segment and its indexes; returns bytes and records."""
    directory.mkdir(parents=True)
    batch, count = one_batch(batch_bytes, codec)
    tail, batches = batch[8:], segment_bytes // len(batch)
    offsets: list[tuple[int, int]] = []
    position = since_entry = 0
    with open(directory / segment_file_name(0), "wb") as log:
        for number in range(batches):
            if since_entry > INDEX_INTERVAL_BYTES:
                offsets.append((number * count + count - 1, position))
                since_entry = 0
            log.write((number * count).to_bytes(8, "big") + tail)
            position += len(batch)
            since_entry += len(batch)
    (directory / segment_file_name(0, ".index")).write_bytes(encode_offset_index(offsets))
    (directory / segment_file_name(0, ".timeindex")).write_bytes(encode_time_index([(FIRST_TIMESTAMP, count - 1)]))
    (directory / LEADER_EPOCH_CHECKPOINT).write_bytes(encode_leader_epochs([(0, 0)]))
    (directory / PARTITION_METADATA).write_bytes(encode_partition_metadata(bytes(range(16))))
    return position, batches * count


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
    root: Path, batch_bytes: int, total_bytes: int, *, segment_bytes: int = 128_000_000, codec: Codec = Codec.NONE
) -> tuple[dict[str, Path], int, int]:
    """Two equal replicas that hold `total_bytes` together; returns them with their bytes and records in all."""
    first = root / "1" / "bench-0"
    size, records = write_segment(first, batch_bytes, min(segment_bytes, total_bytes // REPLICAS), codec)
    partitions = max(1, total_bytes // REPLICAS // size)
    for node in range(1, REPLICAS + 1):
        for partition in range(partitions):
            directory = root / str(node) / f"bench-{partition}"
            if directory != first:
                directory.mkdir(parents=True)
                for path in first.iterdir():
                    os.link(path, directory / path.name)
        meta = MetaProperties(node, CLUSTER_ID)
        marks = {TopicPartition("bench", partition): records for partition in range(partitions)}
        (root / str(node) / META_PROPERTIES).write_bytes(encode_meta_properties(meta))
        (root / str(node) / REPLICATION_OFFSET_CHECKPOINT).write_bytes(encode_offset_checkpoint(marks))
    replicas = {str(node): root / str(node) for node in range(1, REPLICAS + 1)}
    return replicas, size * partitions * REPLICAS, records * partitions * REPLICAS
