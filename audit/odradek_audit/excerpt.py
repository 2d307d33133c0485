"""What a finding shows as evidence: the batch of each replica at the place of the finding, laid side by side.

Plain data of bounded size, ready for JSON: bytes are hexadecimal text, and what is longer than a limit is cut, with
its true length beside it. `checks.excerpts` collects it where the bytes are, so that whoever writes the report needs
no access to the brokers' disks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from odradek_audit.words import plural

ACCUSED, REFERENCE, OTHER = "accused", "reference", "other"
NO_BATCH = "no batch there"
"""Why a side has none, where its log begins before and ends behind."""
SHOWN_BYTES = 48
"""Bytes of a key, or of the part of a value around its first difference, that an excerpt keeps."""


@dataclass(frozen=True)
class Bytes:
    """A part of some bytes: `data` in hexadecimal, from byte `start` of `size`. `size` -1: there are none (null)."""

    start: int
    size: int
    data: str

    @classmethod
    def part(cls, content: bytes | None, start: int = 0, length: int = SHOWN_BYTES) -> Bytes:
        if content is None:
            return cls(0, -1, "")
        return cls(start, len(content), content[start : start + length].hex())

    @property
    def content(self) -> bytes:
        return bytes.fromhex(self.data)

    @property
    def end(self) -> int:
        return self.start + len(self.data) // 2


@dataclass(frozen=True)
class RecordView:
    """A record of a batch. `digest` is the same for two records if key, value, headers and timestamp are."""

    offset: int
    timestamp: int
    key: Bytes
    value: Bytes
    headers: int
    digest: str


@dataclass(frozen=True)
class BatchLine:
    """A batch of the neighbourhood, as its header says. `problem` is why it cannot be trusted, or empty."""

    base_offset: int
    last_offset: int
    epoch: int
    crc: int
    size: int
    position: int
    problem: str = ""

    def holds(self, offset: int) -> bool:
        return self.base_offset <= offset <= self.last_offset


@dataclass(frozen=True)
class BatchView:
    """The batch at the place of the finding. `windows` are parts of its bytes, counted from its beginning.

    `computed_crc` is -1 when the batch was too large to be read as a whole. `trouble` says why no record is shown, as
    what would be said of the batch ("cannot be decompressed here: ...").
    """

    line: BatchLine
    attributes: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    computed_crc: int
    records: tuple[RecordView, ...]
    windows: tuple[Bytes, ...]
    trouble: str = ""

    @property
    def origin(self) -> tuple[int, ...]:
        """What only the same append has: offsets, producer, sequence, count and time."""
        producer = (self.producer_id, self.producer_epoch, self.base_sequence)
        return (self.line.base_offset, self.line.last_offset, *producer, self.record_count, self.max_timestamp)


@dataclass(frozen=True)
class ExcerptSide:
    """One replica at the place of the finding. `absent` says why there is no batch; `raw` are bytes of another file."""

    replica: str
    role: str
    file: str
    absent: str
    lines: tuple[BatchLine, ...]
    batch: BatchView | None
    raw: Bytes | None = None


class MissingRange(NamedTuple):
    """What the reference has where records are missing, up to an offset (exclusive)."""

    batches: int
    records: int
    size: int
    end_offset: int


@dataclass(frozen=True)
class Excerpt:
    """All replicas at the place of one finding.

    `first_difference` is a byte of the batch, -1 when there is none or nothing to compare with; `differing_bytes` how
    many bytes differ from the reference, and `differing_in_records` how many of these stand behind the header.
    `agreeing` names the replicas that hold the reference's bytes.
    """

    offset: int
    first_difference: int
    differing_bytes: int
    agreeing: tuple[str, ...]
    sides: tuple[ExcerptSide, ...]
    differing_in_records: int = 0
    lacked: MissingRange | None = None

    def counterpart(self, side: ExcerptSide) -> ExcerptSide | None:
        """What a side is compared with: the reference; and the reference with the accused."""
        return self.side(ACCUSED if side.role == REFERENCE else REFERENCE)

    def side(self, role: str) -> ExcerptSide | None:
        """The first side with a role."""
        return next((side for side in self.sides if side.role == role), None)


def batch_words(side: ExcerptSide, where: str = "") -> str:
    """A batch as a noun: its records, where it is, its offsets; empty without one."""
    if side.batch is None:
        return ""
    line = side.batch.line
    place = f" (offsets {line.base_offset} to {line.last_offset})" if line.last_offset > line.base_offset else ""
    return f"batch of {plural(side.batch.record_count, 'record')}{where}{place}"


def wrong_offsets(excerpt: Excerpt) -> list[int]:
    """Offsets whose record, as far as it is shown, is not the same on the accused replica and on the reference."""
    accused, reference = excerpt.side(ACCUSED), excerpt.side(REFERENCE)
    if accused is None or reference is None or accused.batch is None or reference.batch is None:
        return []
    mine = {record.offset: record.digest for record in accused.batch.records}
    theirs = {record.offset: record.digest for record in reference.batch.records}
    if not mine or not theirs:
        return []
    return sorted(offset for offset in mine | theirs if mine.get(offset) != theirs.get(offset))
