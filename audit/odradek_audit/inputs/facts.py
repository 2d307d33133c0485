"""What the checks look at: digests of record batches, and what the files of a partition's replicas say.

A `BatchFacts` holds what the 61 bytes of a batch's header say, where the batch lies and whether its CRC is right. A
`BatchTable` holds those of one replica in the order of its files, about 70 bytes each, so that a partition of any
size is compared by digests: the CRC does not cover base offset and leader epoch, so batches are compared by (base
offset, last offset, epoch, CRC, size).
"""

from __future__ import annotations

import json
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from operator import add
from typing import NamedTuple, Protocol, TypedDict

from odradek_proto.headers import HEADER_SIZE, LENGTH_END

UNKNOWN = "?"
METADATA_TOPIC = "__cluster_metadata"
NO_EPOCH = -1
_PACKED = struct.Struct("<QQ")
NO_PRODUCER = -1
ROWS_AT_ONCE = 4096
CLEANED_EVERYWHERE = 1 << 62
"""Where the cleaner may have been in topics of Kafka's own, or when its checkpoint may not be read."""
BLOCK_OFFSETS = 1024
"""Offsets that are proven together: they share one hash, and one of their batches is decoded."""

TORN = "torn"
"""The file ends before the batch does."""
UNREADABLE = "unreadable"
"""No batch begins here: impossible length, magic or counts."""
REFUSED = "refused"
"""The file may not be read, so nobody has seen what stands here."""
BAD_CRC = "crc"
"""A batch as long as it says, whose bytes do not have the CRC that its header names; so its other fields may lie."""


class BatchFacts(NamedTuple):
    """One batch as the header says, or one stretch of bytes that cannot be trusted (`problem` not empty).

    A problem's `size` is the number of bytes concerned; its other fields are what the bytes claim, or -1.
    """

    segment: int
    position: int
    size: int
    base_offset: int = -1
    last_offset: int = -1
    epoch: int = NO_EPOCH
    crc: int = 0
    attributes: int = 0
    max_timestamp: int = -1
    producer_id: int = NO_PRODUCER
    producer_epoch: int = -1
    base_sequence: int = -1
    record_count: int = 0
    problem: str = ""
    detail: str = ""


_COLUMNS = tuple(name for name in BatchFacts._fields if name not in ("problem", "detail"))
"""The fields that a `BatchTable` keeps, each in an array of this name."""


class SoundRun(NamedTuple):
    """Sound batches that stand one behind the other from a byte of a segment on: the 61 bytes of each header."""

    segment: int
    position: int
    headers: list[bytes]


class BatchPlace(TypedDict):
    """The place of a batch, by the names of a finding's fields."""

    offset: int
    end_offset: int
    epoch: int
    file: str
    position: int


class DamagedRange(NamedTuple):
    """A stretch of bytes that cannot be trusted; it stands before row `row` of its table."""

    row: int
    facts: BatchFacts


class BatchTable:
    """The batches of one replica of one partition, in the order of segments and positions."""

    def __init__(self, facts: Iterable[BatchFacts] = ()) -> None:
        self.segment = array("q")
        self.position = array("q")
        self.size = array("q")
        self.base_offset = array("q")
        self.last_offset = array("q")
        self.epoch = array("i")
        self.crc = array("I")
        self.attributes = array("h")
        self.max_timestamp = array("q")
        self.producer_id = array("q")
        self.producer_epoch = array("h")
        self.base_sequence = array("i")
        self.record_count = array("i")
        self.problems: list[DamagedRange] = []
        self.extend(facts)

    def __len__(self) -> int:
        return len(self.position)

    def extend(self, facts: Iterable[BatchFacts]) -> None:
        """Add batches; they must come in the order of (segment, position)."""
        columns, remaining = self._columns(), iter(facts)
        while batches := list(islice(remaining, ROWS_AT_ONCE)):
            sound = batches
            if any(fact.problem for fact in batches):
                sound = []
                for fact in batches:
                    if fact.problem:
                        self.problems.append(DamagedRange(len(self) + len(sound), fact))
                    else:
                        sound.append(fact)
            for column, values in zip(columns, zip(*sound, strict=True), strict=False):
                column.extend(values)

    def add(self, scanned: SoundRun | BatchFacts) -> None:
        """Add what was scanned; it must follow on what is there. Runs field by field, which is much faster."""
        if isinstance(scanned, BatchFacts):
            self.extend((scanned,))
            return
        headers = b"".join(scanned.headers)
        bases, deltas = _field("q", headers, 0), _field("i", headers, 23)
        sizes = array("q", map(LENGTH_END.__add__, _field("i", headers, 8)))
        self.segment.extend(array("q", (scanned.segment,)) * len(sizes))
        self.position.extend(islice(accumulate(sizes, initial=scanned.position), len(sizes)))
        self.size.extend(sizes)
        self.base_offset.extend(bases)
        self.last_offset.extend(map(add, bases, deltas))
        self.epoch.extend(_field("i", headers, 12))
        self.crc.extend(_field("I", headers, 17))
        self.attributes.extend(_field("h", headers, 21))
        self.max_timestamp.extend(_field("q", headers, 35))
        self.producer_id.extend(_field("q", headers, 43))
        self.producer_epoch.extend(_field("h", headers, 51))
        self.base_sequence.extend(_field("i", headers, 53))
        self.record_count.extend(_field("i", headers, 57))

    def _columns(self) -> list[array[int]]:
        """In the order of a `BatchFacts`."""
        return [getattr(self, name) for name in _COLUMNS]

    def pack(self) -> bytes:
        """The table as bytes, for the way to another process: rows, length of the problems' JSON, that JSON,
        columns."""
        problems = json.dumps(self.problems).encode()
        columns = [_little_endian(column).tobytes() for column in self._columns()]
        return b"".join((_PACKED.pack(len(self), len(problems)), problems, *columns))

    def extend_packed(self, data: bytes) -> None:
        """Add the rows of a packed table; they must follow this one's."""
        rows, length = _PACKED.unpack_from(data)
        start = len(self)
        place = _PACKED.size + length
        for row, facts in json.loads(data[_PACKED.size : place]):
            self.problems.append(DamagedRange(start + row, BatchFacts(*facts)))
        for column in self._columns():
            piece = array(column.typecode)
            piece.frombytes(data[place : place + rows * column.itemsize])
            place += rows * column.itemsize
            column.extend(_little_endian(piece))
        assert place == len(data), (place, len(data))

    def rows_of_segment(self, segment: int) -> range:
        """Rows whose batches lie in a segment, by its base offset."""
        return range(bisect_left(self.segment, segment), bisect_right(self.segment, segment))

    def row_at(self, segment: int, position: int) -> int | None:
        """The row of the batch that begins at a byte of a segment."""
        rows = self.rows_of_segment(segment)
        row = bisect_left(self.position, position, rows.start, rows.stop)
        return row if row < rows.stop and self.position[row] == position else None

    def facts(self, row: int) -> BatchFacts:
        """One batch, which has no problem."""
        return BatchFacts._make([*(column[row] for column in self._columns()), "", ""])

    def file(self, row: int) -> str:
        """The file in which a row's batch lies."""
        return f"{self.segment[row]:020d}.log"

    def place(self, row: int) -> BatchPlace:
        """Where a row's batch is, as a finding about it says."""
        return {
            "offset": self.base_offset[row],
            "end_offset": self.last_offset[row] + 1,
            "epoch": self.epoch[row],
            "file": self.file(row),
            "position": self.position[row],
        }

    def digest(self, row: int) -> tuple[int, int, int, int, int]:
        """What must be equal for two batches to be the same bytes."""
        return (self.base_offset[row], self.last_offset[row], self.epoch[row], self.crc[row], self.size[row])

    def digest_columns(self) -> tuple[array[int], ...]:
        """The same of all rows."""
        return (self.base_offset, self.last_offset, self.epoch, self.crc, self.size)

    def records(self) -> int:
        return sum(self.record_count)


def _field(typecode: str, headers: bytes, place: int) -> array[int]:
    """What all headers hold in the field at a byte of theirs (`odradek_proto.headers`)."""
    column = array(typecode)
    content = bytearray(len(headers) // HEADER_SIZE * column.itemsize)
    for byte in range(column.itemsize):
        content[byte :: column.itemsize] = headers[place + byte :: HEADER_SIZE]
    column.frombytes(content)
    if sys.byteorder == "little":
        column.byteswap()
    return column


def _little_endian(column: array[int]) -> array[int]:
    """A column in, or from, the one byte order that packed tables have."""
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column


class SegmentFile(NamedTuple):
    """One `.log` file: the base offset that its name says and its size in bytes."""

    base_offset: int
    size: int
    has_index: bool = True
    has_time_index: bool = True

    @property
    def stem(self) -> str:
        return f"{self.base_offset:020d}"


class EpochLine(NamedTuple):
    """A line of `leader-epoch-checkpoint`."""

    epoch: int
    start_offset: int


@dataclass(frozen=True)
class FileProblem:
    """A small file that could not be read or parsed; `refused` says that it may not be read."""

    file: str
    reason: str
    refused: bool = False


@dataclass(frozen=True)
class ReplicaInputs:
    """What the files around the segments say about one replica of a partition. `None` means: no entry, or no such file.

    `cleaned_to` is where Kafka's cleaner has been (its `cleaner-offset-checkpoint`): below it offsets may be missing.
    """

    replica: str
    directory: str
    segments: tuple[SegmentFile, ...] = ()
    high_watermark: int | None = None
    recovery_point: int | None = None
    log_start_checkpoint: int | None = None
    cleaned_to: int = 0
    epochs: tuple[EpochLine, ...] | None = None
    topic_id: str = ""
    cluster_id: str = ""
    clean_shutdown: bool = False
    problems: tuple[FileProblem, ...] = ()
    snapshots: tuple[int, ...] = ()
    """Offsets of the producer snapshots: each knows the producers of all records below its offset."""
    transaction_indexes: tuple[int, ...] = ()
    """Base offsets of the segments that have a transaction index."""
    metadata_snapshots: tuple[str, ...] = ()
    """Files with the state of the metadata log at an offset, `%020d-%010d.checkpoint`, the oldest first."""
    refused: str = ""
    """Why the directory cannot be read; nothing is known of the log then."""
    quorum_epoch: int | None = None
    """The leader epoch of the metadata log's `quorum-state`, where there is one."""

    @property
    def log_start(self) -> int:
        """First offset that the replica still offers: the checkpoint, or the first segment's base (R-3)."""
        first = self.segments[0].base_offset if self.segments else 0
        return max(first, self.log_start_checkpoint or 0)


class TopicSettings(NamedTuple):
    """What two settings of a topic have ever been since it was made, as the metadata log says: `cleanup.policy` and
    `message.timestamp.type`. None stands for the brokers' own default, `UNKNOWN` for what came before the log."""

    topic_id: str
    policies: frozenset[str | None]
    timestamp_types: frozenset[str | None]

    @property
    def is_never_compacted(self) -> bool:
        """Whether no cleaner can ever have been there."""
        return all(policy == "delete" for policy in self.policies)

    @property
    def is_unsaid(self) -> bool:
        """Whether nothing but the brokers' own default decides whether it is compacted."""
        return self.policies <= {None, "delete"} and not self.is_never_compacted


@dataclass(frozen=True)
class PartitionInputs:
    """One partition, as its replicas' directories describe it. `compacted` is true for topics that may be cleaned
    anywhere."""

    topic: str
    partition: int
    replicas: Mapping[str, ReplicaInputs]
    compacted: bool = False
    unread: tuple[str, ...] = ()
    """Brokers that may have a copy, and the newest one, which cannot be read."""
    settings: TopicSettings | None = None
    """None where the metadata log was not read from the topic's beginning on."""

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    def cleaned_to(self, *replicas: ReplicaInputs) -> int:
        """Below it these may lack offsets: their own cleaners took them out, or that of one they may have followed.

        A checkpoint that cannot be read excuses only its own replica.
        """
        if self.compacted:
            return CLEANED_EVERYWHERE
        known = [each.cleaned_to for each in self.replicas.values() if each.cleaned_to < CLEANED_EVERYWHERE]
        return max([0, *known, *(each.cleaned_to for each in replicas)])


class SegmentReader(Protocol):
    """Reads bytes of a replica's files again: for indexes, and to find the first differing record in a batch."""

    def read(self, replica: str, file: str, position: int, length: int) -> bytes:
        """Up to `length` bytes; raises `OSError` when the file is gone."""
        ...


@dataclass(frozen=True)
class Bounds:
    """What clients were told about a partition: the highest acknowledged and delivered offset, plus one."""

    acknowledged_end: int = 0
    delivered_end: int = 0


def log_end_offset(inputs: ReplicaInputs, table: BatchTable) -> int:
    """The offset that the next record would get: one past the last batch, at least the last segment's base.

    A batch with a wrong CRC counts when its offsets fit its record count: the record is damaged, the log is not
    shorter.
    """
    end = max((segment.base_offset for segment in inputs.segments), default=0)
    if len(table):
        end = max(end, table.last_offset[-1] + 1)
    for problem in table.problems:
        facts = problem.facts
        if facts.problem == BAD_CRC and facts.last_offset - facts.base_offset + 1 == facts.record_count:
            previous = table.last_offset[problem.row - 1] if problem.row else facts.segment - 1
            if facts.base_offset - previous <= 1:
                end = max(end, facts.last_offset + 1)
    return end


def problems_before(table: BatchTable) -> Iterator[tuple[int, list[BatchFacts]]]:
    """Rows before which unreadable bytes stand, in order, each with those bytes."""
    grouped: dict[int, list[BatchFacts]] = {}
    for problem in table.problems:
        grouped.setdefault(problem.row, []).append(problem.facts)
    yield from sorted(grouped.items())


def choose_reference_replica(ends: Sequence[tuple[str, int, int]], damaged: frozenset[str] = frozenset()) -> str:
    """The replica whose log the others must follow, of (replica, newest epoch, log end offset).

    The newest epoch wins, then the longest log, as in an election; then one that is not `damaged`; then the smaller
    name, so that the choice is the same in every run. A leader writes its epoch down before it appends (R-61), so the
    newest epoch is known even without a record.
    """
    return min(ends, key=lambda end: (-end[1], -end[2], end[0] in damaged, end[0]))[0] if ends else ""
