"""Reads a part of a segment once and condenses it: the proof that every check of its batches would be silent.

Most parts of most clusters are sound. For those nothing is kept of a batch but its share in a hash: 28 bytes for 1,024
offsets, instead of 70 bytes for each batch. Where anything at all is out of the ordinary, the part is a `doubt`, and
the checks in `checks` look at that partition batch by batch; they alone say what is wrong. `verdict` puts the proofs of
a partition together.

Rules of this module. It proves or it doubts; it never reports. What it proves must be exactly what the checks demand:
structure, sequence numbers, transactions, the indexes. It may doubt whatever is rare: compacted logs, torn tails. It
believes nothing that the file says before the CRC does.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek_proto.checksum import crc32c
from odradek_proto.compression import CodecUnavailable
from odradek_proto.formats import TRANSACTION_INDEX_SUFFIX, AbortedTransaction, CorruptFile, decode_transaction_index
from odradek_proto.headers import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LAST_CODEC,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
)
from odradek_proto.records import ControlType, CorruptBatch, control_type, decode_records, read_header

from odradek_audit.checks.decoding import contradiction
from odradek_audit.checks.indexes import LARGEST_INDEX, OFFSET_ENTRY, TIME_ENTRY
from odradek_audit.checks.producers import SEQUENCES
from odradek_audit.engine.spans import PartTransactions, ProducerSpan, TransactionSpan, Unproven, join_spans
from odradek_audit.inputs.disk import FileSystem, join
from odradek_audit.inputs.facts import BLOCK_OFFSETS, NO_PRODUCER, BatchFacts
from odradek_audit.inputs.scan import CHUNK_BYTES, MAX_BATCH_BYTES, SegmentPart, facts_of

KNOWN_ATTRIBUTES = frozenset(each for each in range(0x80) if each & CODEC_MASK <= LAST_CODEC)
LAST_BASE = 1 << 62
MASK = (1 << 64) - 1
NOTHING, SAMPLE, EVERYTHING = "nothing", "sample", "everything"
READ, COMPARED = "read", "compared"
PRODUCING = CONTROL | TRANSACTIONAL
NEVER = 1 << 63
"""Larger than every offset, position and time: nothing more is awaited."""


class PartTask(NamedTuple):
    """A part of a segment of one replica, and what of the files around it a proof needs."""

    topic: str
    partition: int
    replica: str
    directory: str
    part: SegmentPart
    log_start: int
    has_index: bool
    has_time_index: bool
    decode: str = NOTHING
    """Which batches' records are decoded."""
    snapshots: tuple[int, ...] = ()
    """Offsets inside of the segment of which there is a producer snapshot: a broker was stopped there."""
    markers: str = READ
    """Whether transactions' markers are compared with the transaction index of the segment, too."""
    has_transaction_index: bool = False

    @property
    def size(self) -> int:
        return self.part.end - self.part.start


@dataclass
class PartProof:
    """A part that is sound by itself, condensed; or the `doubt` why that is not certain.

    The block columns have one row for each block of offsets in which a batch of this part begins: the offset and
    position of the first such batch, the sum of the hashes of all, and how many they are.
    """

    doubt: str = ""
    batches: int = 0
    first_offset: int = -1
    next_offset: int = -1
    max_timestamp: int = -1
    last_epoch: int = -1
    skeleton: list[BatchFacts] = field(default_factory=list)
    """The first batch, the last, the first of each leader epoch and behind each change of the timestamp type, and the
    one that holds the log start."""
    producers: dict[int, ProducerSpan] = field(default_factory=dict)
    snapshot_producers: dict[int, dict[int, ProducerSpan]] = field(default_factory=dict)
    """The same as far as the offset of a snapshot."""
    transactions: dict[int, TransactionSpan] = field(default_factory=dict)
    first_time: int = NEVER
    last_time: int = -1
    """Timestamps of the first and the last time index entry that points into the part."""
    block_offsets: array[int] = field(default_factory=lambda: array("q"))
    block_positions: array[int] = field(default_factory=lambda: array("q"))
    block_hashes: array[int] = field(default_factory=lambda: array("Q"))
    block_batches: array[int] = field(default_factory=lambda: array("I"))

    @property
    def last_stamp(self) -> int:
        """The bit of the timestamp type in the last batch so far."""
        return self.skeleton[-1].attributes & LOG_APPEND_TIME if self.skeleton else 0


class _Entries:
    """The entries of an index file that belong to one part, as pairs; `key` and `value` are one entry ahead of what was
    dealt with."""

    def __init__(self, pairs: Sequence[tuple[int, int]]) -> None:
        self.pairs = pairs
        self.place = 0

    def at(self, place: int) -> tuple[int, int]:
        return self.pairs[place] if place < len(self.pairs) else (NEVER, NEVER)


def prove_part(disk: FileSystem, task: PartTask) -> PartProof:
    """Condense one part, or say why it must be looked at batch by batch. Raises nothing because of what files hold."""
    try:
        return _Prover(disk, task).run()
    except Unproven as reason:
        return PartProof(doubt=str(reason))
    except OSError as error:
        return PartProof(doubt=f"{task.part.path}: {error}")


class _Prover:
    """One walk over a part."""

    def __init__(self, disk: FileSystem, task: PartTask) -> None:
        self.disk = disk
        self.task = task
        self.part = task.part
        self.proof = PartProof()
        self.offsets = _Entries(())
        self.offset_place = self.position_place = 0
        self.times = _Entries(())
        self.so_far = -1
        self.snapshots: list[int] = []
        self.transactions = PartTransactions(self._read_transaction_index())
        self.last: BatchFacts | None = None

    def run(self) -> PartProof:
        proof = self.proof
        self._read_offset_index()
        position = self.part.start
        while position < self.part.end:
            data = self.disk.read(self.part.path, position, min(CHUNK_BYTES, self.part.file_size - position))
            used = self._walk(data, position)
            if not used:
                used = self._walk_long(data, position)
            position += used
        if position != self.part.end:
            raise Unproven(f"{self.part.path}: no batch ends at byte {self.part.end}")
        if self.last is not None and proof.skeleton[-1:] != [self.last]:
            proof.skeleton.append(self.last)
        if self.offsets.at(self.position_place)[1] != NEVER or self.offsets.at(self.offset_place)[0] != NEVER:
            raise Unproven(f"{self.part.path}: index entries that lead elsewhere")
        self._finish_times()
        self._finish_transactions()
        return proof

    def _walk_long(self, data: bytes, position: int) -> int:
        """A batch that is longer than a chunk."""
        if len(data) < LENGTH_END:
            raise Unproven(f"{self.part.path}: an incomplete batch at byte {position}")
        size = LENGTH_END + int.from_bytes(data[8:12], "big", signed=True)
        if not HEADER_SIZE <= size <= min(MAX_BATCH_BYTES, self.part.file_size - position):
            raise Unproven(f"{self.part.path}: no whole batch at byte {position}")
        used = self._walk(self.disk.read(self.part.path, position, size), position)
        if not used:
            raise Unproven(f"{self.part.path}: no whole batch at byte {position}")
        return used

    def _walk(self, data: bytes, start: int) -> int:
        """The whole batches in `data`, from byte `start` of the file on; returns the bytes that they take. Once for
        each batch of the cluster, so everything is in locals."""
        proof, part, view = self.proof, self.part, memoryview(data)
        unpack, length, limit = HEADER.unpack_from, len(data), part.end - start
        expected, last_epoch, so_far = proof.next_offset, proof.last_epoch, self.so_far
        wanted_position, wanted_offset = self.offsets.at(self.position_place)[1], self.offsets.at(self.offset_place)[0]
        wanted_time = self.times.at(self.times.place)[0]
        wanted_snapshot, decode = self._next_snapshot(), self.task.decode
        block_end, block_hash, block_batches = 0, 0, 0
        if proof.block_offsets:
            block_end = (proof.block_offsets[-1] // BLOCK_OFFSETS + 1) * BLOCK_OFFSETS
            block_hash, block_batches = proof.block_hashes.pop(), proof.block_batches.pop()
        at, last_at, before, stamped = 0, -1, proof.batches, proof.last_stamp
        while at < limit and at + HEADER_SIZE <= length:
            header = unpack(data, at)
            base, size, epoch, magic, crc, attributes, delta, _, timestamp, producer, _, _, count = header
            size += LENGTH_END
            if at + size > length:
                break
            if expected < 0:
                expected = self._begin(base, start + at)
                wanted_time, wanted_snapshot = self.times.at(0)[0], self._next_snapshot()
            if (
                base != expected
                or magic != MAGIC
                or epoch < last_epoch
                or delta < 0
                or count != delta + 1
                or size < HEADER_SIZE
                or attributes not in KNOWN_ATTRIBUTES
                or crc32c(view[at + CRC_START : at + size]) != crc
            ):
                raise Unproven(f"{part.path}: not a plain batch at byte {start + at}")
            if base >= wanted_snapshot:
                wanted_snapshot = self._snapshot_reached(base)
            expected = base + count
            if start + at >= wanted_position:
                wanted_position = self._position_reached(start + at)
            if expected > wanted_offset:
                wanted_offset = self._offset_reached(expected - 1)
            if expected - 1 > wanted_time:
                wanted_time = self._time_reached(expected - 1, so_far)
            so_far = timestamp if timestamp > so_far else so_far
            if decode == EVERYTHING or (decode == SAMPLE and base >= block_end):
                self._decode(data, at)
            if base >= block_end:
                if block_batches:
                    proof.block_hashes.append(block_hash & MASK)
                    proof.block_batches.append(block_batches)
                proof.block_offsets.append(base)
                proof.block_positions.append(start + at)
                block_end, block_hash, block_batches = (base // BLOCK_OFFSETS + 1) * BLOCK_OFFSETS, 0, 0
            block_hash += hash((base, expected, epoch, crc, size))
            block_batches += 1
            if epoch > last_epoch or base <= self.task.log_start < expected or attributes & LOG_APPEND_TIME != stamped:
                proof.skeleton.append(facts_of(part, start + at, read_header(data, at)))
                last_epoch, stamped = epoch, attributes & LOG_APPEND_TIME
            if producer != NO_PRODUCER or attributes & PRODUCING:
                self._producer(header, data, at)
            proof.batches += 1
            last_at = at
            at += size
        if block_batches:
            proof.block_hashes.append(block_hash & MASK)
            proof.block_batches.append(block_batches)
        proof.next_offset, proof.last_epoch, self.so_far, proof.max_timestamp = expected, last_epoch, so_far, so_far
        if proof.batches > before:
            self.last = facts_of(part, start + last_at, read_header(data, last_at))
        return at

    def _decode(self, data: bytes, at: int) -> None:
        """Whether a batch's records are what its header says. What cannot be decompressed here proves nothing."""
        header = read_header(data, at)
        try:
            wrong = contradiction(header.attributes, header.max_timestamp, decode_records(data, header, at))
        except CorruptBatch as error:
            raise Unproven(f"{self.part.path}: {error.reason}") from error
        except CodecUnavailable as error:
            if self.task.decode == EVERYTHING:
                raise Unproven(str(error)) from error
        else:
            if wrong:
                raise Unproven(f"{self.part.path}: {wrong}")

    def _begin(self, base: int, position: int) -> int:
        """The first batch: only now is known which offsets the part holds, and so which time index entries."""
        if not self.part.base_offset <= base < LAST_BASE:
            raise Unproven(f"{self.part.path}: offset {base} at byte {position}")
        self.proof.first_offset = base
        self._read_time_index(base)
        self.snapshots = [offset for offset in self.task.snapshots if offset >= base]
        return base

    # --- Offset index: an entry's position begins a batch, and its offset is the last of this batch or of a later one.

    def _read_offset_index(self) -> None:
        part = self.part
        if not self.task.has_index:
            return
        entries = self._entries(".index", OFFSET_ENTRY)
        begin = bisect_left(entries, part.start, key=lambda entry: entry[1])
        end = bisect_left(entries, part.end, key=lambda entry: entry[1])
        if (part.start == 0 and begin) or (part.end == part.file_size and end != len(entries)):
            raise Unproven(f"{part.path}: index entries outside of the file")
        previous = entries[begin - 1] if begin else (-1, -1)
        for entry in entries[begin:end]:
            if entry[0] <= previous[0] or entry[1] <= previous[1]:
                raise Unproven(f"{part.path}: index entries that do not rise")
            previous = entry
        self.offsets = _Entries([(part.base_offset + relative, position) for relative, position in entries[begin:end]])

    def _position_reached(self, position: int) -> int:
        if self.offsets.at(self.position_place)[1] != position:
            raise Unproven(f"{self.part.path}: an index entry that points into a batch")
        self.position_place += 1
        return self.offsets.at(self.position_place)[1]

    def _offset_reached(self, last_offset: int) -> int:
        if self.offsets.at(self.offset_place)[0] != last_offset or self.offset_place >= self.position_place:
            raise Unproven(f"{self.part.path}: an index entry that points behind its offset, or to no batch's last one")
        self.offset_place += 1
        return self.offsets.at(self.offset_place)[0]

    # --- Time index: no record up to an entry's offset is younger than the entry says.

    def _read_time_index(self, first_offset: int) -> None:
        part = self.part
        if not self.task.has_time_index:
            return
        entries = self._entries(".timeindex", TIME_ENTRY)
        begin = bisect_left(entries, first_offset - part.base_offset, key=lambda entry: entry[1])
        if part.start == 0 and begin:
            raise Unproven(f"{part.path}: time index entries below the segment")
        previous = entries[begin - 1] if begin else (-1, -1)
        for entry in entries[begin:]:
            if entry[0] < previous[0] or entry[1] < previous[1]:
                raise Unproven(f"{part.path}: time index entries that do not rise")
            previous = entry
        self.times = _Entries([(part.base_offset + relative, time) for time, relative in entries[begin:]])

    def _time_reached(self, last_offset: int, so_far: int) -> int:
        """A batch ends behind the next entries' offsets: what came before it must not be younger than they say."""
        while (entry := self.times.at(self.times.place))[0] < last_offset:
            self._time_entry(entry[1], so_far)
        return entry[0]

    def _time_entry(self, timestamp: int, so_far: int) -> None:
        if so_far > timestamp:
            raise Unproven(f"{self.part.path}: a time index entry that is too old")
        self.times.place += 1
        self.proof.first_time = min(self.proof.first_time, timestamp)
        self.proof.last_time = timestamp

    def _finish_times(self) -> None:
        while (entry := self.times.at(self.times.place))[0] < self.proof.next_offset:
            self._time_entry(entry[1], self.so_far)
        if entry[0] != NEVER and self.part.end == self.part.file_size:
            raise Unproven(f"{self.part.path}: time index entries behind the segment's end")

    def _entries(self, suffix: str, layout: struct.Struct) -> list[tuple[int, int]]:
        path = join(self.task.directory, f"{self.part.base_offset:020d}{suffix}")
        data = self.disk.read(path, 0, min(LARGEST_INDEX, self.disk.size(path)))
        if len(data) % layout.size:
            raise Unproven(f"{path}: half an entry")
        used = len(data.rstrip(b"\0"))
        return list(layout.iter_unpack(data[: used + -used % layout.size]))

    # --- Producers

    def _next_snapshot(self) -> int:
        return self.snapshots[0] if self.snapshots else NEVER

    def _snapshot_reached(self, base: int) -> int:
        if self.snapshots[0] != base:
            raise Unproven(f"{self.part.path}: a producer snapshot inside of a batch")
        self.proof.snapshot_producers[self.snapshots.pop(0)] = dict(self.proof.producers)
        return self._next_snapshot()

    def _producer(self, header: tuple[int, ...], data: bytes, at: int) -> None:
        """A batch of a producer that has an id, or of a transaction."""
        base, _, leader_epoch, _, _, attributes, _, _, timestamp, producer, epoch, first, count = header
        if producer == NO_PRODUCER or attributes & CONTROL:
            if producer == NO_PRODUCER and not attributes & TRANSACTIONAL:
                return
            if producer == NO_PRODUCER or not attributes & TRANSACTIONAL:
                raise Unproven(f"{self.part.path}: a transaction of nobody, or a marker of none")
            self.transactions.marker(producer, base, self._is_aborted(data, at))
            self._note(producer, ProducerSpan(epoch, leader_epoch))
            return
        if attributes & TRANSACTIONAL:
            self.transactions.records(producer, base, timestamp)
        if first >= 0:
            last = ((first + count - 1) % SEQUENCES, timestamp, base + count - 1, leader_epoch)
            self._note(producer, ProducerSpan(-1, -1, epoch, first, timestamp, epoch, *last))

    def _note(self, producer: int, span: ProducerSpan) -> None:
        known = self.proof.producers.get(producer)
        self.proof.producers[producer] = span if known is None else join_spans(known, span)

    # --- Transactions

    def _is_aborted(self, data: bytes, at: int) -> bool:
        try:
            kind = control_type(decode_records(data, read_header(data, at), at)[0])
        except (CorruptBatch, CodecUnavailable) as error:
            raise Unproven(f"{self.part.path}: a transaction marker that cannot be read") from error
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            raise Unproven(f"{self.part.path}: a marker of another kind")
        return kind == ControlType.ABORT

    def _read_transaction_index(self) -> list[AbortedTransaction] | None:
        """What the segment's index names, nothing when it has none; None when it is not compared."""
        if self.task.markers != COMPARED:
            return None
        if not self.task.has_transaction_index:
            return []
        path = join(self.task.directory, f"{self.part.base_offset:020d}{TRANSACTION_INDEX_SUFFIX}")
        try:
            return decode_transaction_index(self.disk.read(path, 0, min(LARGEST_INDEX, self.disk.size(path))))
        except CorruptFile as error:
            raise Unproven(f"{path}: {error}") from error

    def _finish_transactions(self) -> None:
        part, proof = self.part, self.proof
        first = proof.first_offset if part.start else 0
        proof.transactions = self.transactions.finish(first, NEVER if part.end == part.file_size else proof.next_offset)
