"""Writes log directories such as a healthy cluster leaves behind: for tests, for measurements, and to try the audit
out.

The files are made from `odradek_proto` alone, by the rules that the checks know: segments, sparse indexes, leader
epoch file, checkpoints. `planting` damages copies of them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from odradek_proto.compression import Codec
from odradek_proto.formats import (
    CLEAN_SHUTDOWN,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    AbortedTransaction,
    MetaProperties,
    encode_clean_shutdown,
    encode_leader_epochs,
    encode_meta_properties,
    encode_offset_checkpoint,
    encode_offset_index,
    encode_partition_metadata,
    encode_time_index,
    encode_transaction_index,
    segment_file_name,
)
from odradek_proto.records import ControlType, encode_batch, encode_control_batch, end_transaction_value, read_header
from odradek_proto.topics import TopicPartition, partition_directory

WriteCluster = Callable[..., dict[str, Path]]
"""What the fixture `write_cluster` gives."""
CLUSTER_ID = "b2RyYWRlay1zYW1wbGUtMQ"
FIRST_TIMESTAMP = 1_700_000_000_000
INDEX_INTERVAL_BYTES = 4096  # index.interval.bytes, Kafka's default
SEGMENT_BYTES = 1 << 30  # segment.bytes, Kafka's default


@dataclass(frozen=True)
class SampleBatch:
    """One encoded batch and what of it the files beside the log need."""

    base_offset: int
    last_offset: int
    epoch: int
    max_timestamp: int
    data: bytes

    @classmethod
    def of(cls, data: bytes) -> SampleBatch:
        header = read_header(data)
        return cls(header.base_offset, header.last_offset, header.leader_epoch, header.max_timestamp, bytes(data))


@dataclass
class SampleLog:
    """A partition's log in the making. Timestamps rise by one millisecond a record."""

    batches: list[SampleBatch] = field(default_factory=list)
    next_offset: int = 0
    sequences: dict[tuple[int, int], int] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)
    """First offsets of the transactions that have no end yet, by producer id."""
    aborted: list[AbortedTransaction] = field(default_factory=list)

    def append(
        self,
        values: Sequence[bytes],
        *,
        epoch: int = 0,
        codec: Codec = Codec.NONE,
        producer_id: int = -1,
        producer_epoch: int = 0,
        transactional: bool = False,
    ) -> SampleLog:
        """Add one batch at the log's end. A producer's sequence numbers follow by themselves."""
        first = self.next_offset
        sequence = -1
        if producer_id >= 0:
            key = (producer_id, producer_epoch)
            sequence = self.sequences.get(key, 0)
            self.sequences[key] = sequence + len(values)
        data = encode_batch(
            [(FIRST_TIMESTAMP + first + number, b"key-%d" % number, value, ()) for number, value in enumerate(values)],
            base_offset=first,
            leader_epoch=epoch,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
        )
        if transactional:
            self.open.setdefault(producer_id, first)
        return self.add(data)

    def add(self, data: bytes) -> SampleLog:
        """Add a batch that is encoded already, whatever its offsets are."""
        self.batches.append(SampleBatch.of(data))
        self.next_offset = self.batches[-1].last_offset + 1
        return self

    def end(self, kind: ControlType, producer_id: int, *, epoch: int = 0, producer_epoch: int = 0) -> SampleLog:
        """Add the marker that ends a producer's transaction."""
        offset = self.next_offset
        data = encode_control_batch(
            kind,
            end_transaction_value(0),
            timestamp=FIRST_TIMESTAMP + offset,
            base_offset=offset,
            leader_epoch=epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        first = self.open.pop(producer_id, -1)
        if kind is ControlType.ABORT and first >= 0:
            self.aborted.append(AbortedTransaction(producer_id, first, offset, offset))
        return self.add(data)

    def fill(
        self, batches: int, *, records: int = 4, size: int = 100, epoch: int = 0, name: str = "value"
    ) -> SampleLog:
        """Add many batches of unique values of `size` bytes."""
        for _ in range(batches):
            first = self.next_offset
            self.append(
                [f"{name}-{first + number}-".encode().ljust(size, b".") for number in range(records)], epoch=epoch
            )
        return self

    def copy(self) -> SampleLog:
        """What is appended to it leaves this one as it is."""
        return SampleLog(list(self.batches), self.next_offset)

    def without(self, *numbers: int) -> SampleLog:
        """A copy that lacks some batches."""
        kept = [batch for number, batch in enumerate(self.batches) if number not in numbers]
        return SampleLog(kept, self.next_offset)

    def up_to(self, offset: int) -> SampleLog:
        """A copy that ends at a batch boundary, at or below an offset."""
        kept = [batch for batch in self.batches if batch.last_offset < offset]
        end = kept[-1].last_offset + 1 if kept else 0
        return SampleLog(kept, end, dict(self.sequences))

    def since(self, offset: int) -> SampleLog:
        """A copy without the batches that lie wholly below an offset, as retention leaves it."""
        return SampleLog([batch for batch in self.batches if batch.last_offset >= offset], self.next_offset)

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """What belongs into the leader epoch file."""
        entries: list[tuple[int, int]] = []
        for batch in self.batches:
            if not entries or batch.epoch > entries[-1][0]:
                entries.append((batch.epoch, batch.base_offset))
        return entries


@dataclass(frozen=True)
class SamplePartition:
    """One replica's copy of a partition and its numbers; None in a number means: what a healthy broker would have
    written."""

    log: SampleLog
    high_watermark: int | None = None
    recovery_point: int = 0
    log_start: int | None = None
    epochs: Sequence[tuple[int, int]] | None = None
    segment_bytes: int = SEGMENT_BYTES
    topic_id: bytes = bytes(range(1, 17))


def write_log_directory(
    root: Path,
    node_id: int,
    partitions: Mapping[TopicPartition, SamplePartition],
    *,
    clean_shutdown: bool = False,
    cluster_id: str = CLUSTER_ID,
) -> Path:
    """Write one broker's log directory and return it."""
    root.mkdir(parents=True, exist_ok=True)
    for partition, sample in partitions.items():
        _write_partition(root / partition_directory(partition), sample)
    marks = {
        partition: sample.log.next_offset if sample.high_watermark is None else sample.high_watermark
        for partition, sample in partitions.items()
    }
    recovery = {partition: sample.recovery_point for partition, sample in partitions.items()}
    starts = {partition: sample.log_start for partition, sample in partitions.items() if sample.log_start is not None}
    (root / REPLICATION_OFFSET_CHECKPOINT).write_bytes(encode_offset_checkpoint(marks))
    (root / RECOVERY_POINT_CHECKPOINT).write_bytes(encode_offset_checkpoint(recovery))
    (root / LOG_START_OFFSET_CHECKPOINT).write_bytes(encode_offset_checkpoint(starts))
    (root / META_PROPERTIES).write_bytes(encode_meta_properties(MetaProperties(node_id, cluster_id)))
    if clean_shutdown:
        (root / CLEAN_SHUTDOWN).write_bytes(encode_clean_shutdown(-1))
    return root


def _write_partition(directory: Path, sample: SamplePartition) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for segment in _segments(sample.log.batches, sample.segment_bytes):
        _write_segment(directory, segment)
        inside = range(segment[0].base_offset, segment[-1].last_offset + 1)
        if aborted := [each for each in sample.log.aborted if each.last_offset in inside]:
            path = directory / segment_file_name(inside.start, TRANSACTION_INDEX_SUFFIX)
            path.write_bytes(encode_transaction_index(aborted))
    epochs = sample.log.epochs if sample.epochs is None else sample.epochs
    (directory / LEADER_EPOCH_CHECKPOINT).write_bytes(encode_leader_epochs(epochs))
    (directory / PARTITION_METADATA).write_bytes(encode_partition_metadata(sample.topic_id))
    if not sample.log.batches:
        (directory / segment_file_name(sample.log.next_offset)).write_bytes(b"")


def _segments(batches: Iterable[SampleBatch], segment_bytes: int) -> list[list[SampleBatch]]:
    segments: list[list[SampleBatch]] = []
    size = 0
    for batch in batches:
        if not segments or size + len(batch.data) > segment_bytes:
            segments.append([])
            size = 0
        segments[-1].append(batch)
        size += len(batch.data)
    return segments


def _write_segment(directory: Path, batches: list[SampleBatch]) -> None:
    """The log and its two indexes; an entry whenever more than index.interval.bytes came since the last one (R-227)."""
    base = batches[0].base_offset
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    position = since_entry = 0
    for batch in batches:
        if since_entry > INDEX_INTERVAL_BYTES:
            offsets.append((batch.last_offset - base, position))
            times.append((batch.max_timestamp, batch.last_offset - base))
            since_entry = 0
        position += len(batch.data)
        since_entry += len(batch.data)
    (directory / segment_file_name(base)).write_bytes(b"".join(batch.data for batch in batches))
    (directory / segment_file_name(base, OFFSET_INDEX_SUFFIX)).write_bytes(encode_offset_index(offsets))
    (directory / segment_file_name(base, TIME_INDEX_SUFFIX)).write_bytes(encode_time_index(times))


def commits_of(*values: bytes | None) -> SampleLog:
    """A partition of `__consumer_offsets`: what a coordinator wrote, one behind the other, of group g and t-0."""
    key = struct.pack(">hh1sh1si", 1, 1, b"g", 1, b"t", 0)
    records = [(FIRST_TIMESTAMP, key, value, ()) for value in values]
    return SampleLog().add(encode_batch(records, base_offset=0, leader_epoch=0))


def committed(offset: int) -> bytes:
    """The value of a commit."""
    return struct.pack(">hqihqq", 3, offset, -1, 0, 0, 0)


def write_lines(path: Path, events: Iterable[object]) -> None:
    """A file of one JSON object a line, as brokers' events and injected faults are."""
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
