"""A batch as an excerpt shows it: fields, some records, some bytes; and how two batches' bytes differ.

Nothing is raised because of what the bytes are: a batch that cannot be decoded says why.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import NamedTuple

from odradek_proto.checksum import crc32c
from odradek_proto.compression import CodecUnavailable, CorruptCompression
from odradek_proto.headers import CRC_START
from odradek_proto.records import HEADER_SIZE, CorruptBatch, Record, decode_records, read_header

from odradek_audit.excerpt import SHOWN_BYTES, BatchLine, BatchView, Bytes, RecordView
from odradek_audit.inputs.facts import BatchFacts
from odradek_audit.inputs.records import first_apart

RECORDS_BEFORE, RECORDS_AFTER = 2, 5
LARGEST_DECODED = 8 * 1024 * 1024
HEADER_WINDOW = 64
PAYLOAD_WINDOW, PAYLOAD_BEFORE = 128, 32
ROW = 16


@dataclass(frozen=True)
class FoundBatch:
    """Where a replica's batch at an offset is, and its bytes; `facts` None: there is none, `absent` says why."""

    replica: str
    facts: BatchFacts | None
    row: int
    absent: str
    data: bytes = b""
    whole: bool = False


def same_bytes(one: FoundBatch, other: FoundBatch | None) -> bool:
    return other is not None and one.whole and other.whole and one.data == other.data


class Difference(NamedTuple):
    """`first`: the first byte of the records that differs, else the first of the header, or -1. How many bytes of the
    whole batch differ, and how many of those behind the header."""

    first: int
    total: int
    in_records: int


def first_difference(one: FoundBatch, other: FoundBatch | None) -> Difference:
    """Where two batches' bytes differ; bytes that only the longer one has differ too."""
    if other is None or not one.data or not other.data:
        return Difference(-1, 0, 0)
    mine, theirs = one.data, other.data
    if mine == theirs:
        return Difference(-1, 0, 0)
    my_records, their_records = mine[HEADER_SIZE:], theirs[HEADER_SIZE:]
    differ = my_records != their_records
    first = HEADER_SIZE + first_apart(my_records, their_records) if differ else first_apart(mine, theirs)
    return Difference(first, _bytes_apart(mine, theirs), _bytes_apart(my_records, their_records))


def _bytes_apart(one: bytes, other: bytes) -> int:
    """How many bytes differ, those included that only the longer one has."""
    shorter, longer = sorted((len(one), len(other)))
    apart = int.from_bytes(one[:shorter], "big") ^ int.from_bytes(other[:shorter], "big")
    return longer - apart.to_bytes(shorter, "big").count(0)


def first_wrong_record(one: FoundBatch, other: FoundBatch | None, offset: int) -> int:
    """The first record from an offset on that is not the same in two batches: it may be the last one of a batch whose
    CRC is wrong. The offset itself, where the records cannot be compared or are all the same."""
    mine, theirs = _records(one), _records(other)
    apart = sorted(each for each in mine | theirs if mine.get(each) != theirs.get(each)) if mine and theirs else []
    return next((each for each in apart if each >= offset), offset)


def payload_start(difference: int) -> int:
    if difference < HEADER_WINDOW + PAYLOAD_BEFORE:
        return HEADER_WINDOW
    return (difference - PAYLOAD_BEFORE) // ROW * ROW


def batch_line(facts: BatchFacts) -> BatchLine:
    return BatchLine(
        facts.base_offset, facts.last_offset, facts.epoch, facts.crc, facts.size, facts.position, facts.problem
    )


def batch_view(found: FoundBatch, facts: BatchFacts, start: int, offset: int, against: FoundBatch | None) -> BatchView:
    records, trouble = _decoded(found)
    theirs = _records(against)
    shown = [record for record in records if offset - RECORDS_BEFORE <= record.offset <= offset + RECORDS_AFTER]
    if not shown:
        shown = records[: RECORDS_BEFORE + RECORDS_AFTER]
    windows = [Bytes.part(found.data, 0, HEADER_WINDOW)]
    if len(found.data) > start:
        windows.append(Bytes.part(found.data, start, PAYLOAD_WINDOW))
    return BatchView(
        line=batch_line(facts),
        attributes=facts.attributes,
        max_timestamp=facts.max_timestamp,
        producer_id=facts.producer_id,
        producer_epoch=facts.producer_epoch,
        base_sequence=facts.base_sequence,
        record_count=facts.record_count,
        computed_crc=crc32c(found.data[CRC_START:]) if found.whole and len(found.data) >= HEADER_SIZE else -1,
        records=tuple(_record(record, theirs.get(record.offset)) for record in shown),
        windows=tuple(replace(window, size=facts.size) for window in windows),
        trouble=trouble,
    )


def _records(found: FoundBatch | None) -> dict[int, Record]:
    """The records of a batch by offset, as far as they can be decoded."""
    if found is None or found.facts is None:
        return {}
    return {record.offset: record for record in _decoded(found)[0]}


def _decoded(found: FoundBatch) -> tuple[list[Record], str]:
    if not found.whole or len(found.data) < HEADER_SIZE:
        return [], "is too large to be shown whole, or its file ends before it does"
    try:
        return decode_records(found.data, read_header(found.data), max_bytes=LARGEST_DECODED), ""
    except CodecUnavailable as error:
        return [], f"cannot be decompressed here: {error}"
    except CorruptBatch as error:
        what = "decompressed" if isinstance(error.__cause__, CorruptCompression) else "decoded"
        return [], f"cannot be {what} here: {error.reason}"


def _record(record: Record, other: Record | None) -> RecordView:
    key, value = record.key, record.value
    digest = sha256(repr((record.timestamp, key, value, record.headers)).encode()).hexdigest()[:16]
    return RecordView(
        record.offset,
        record.timestamp,
        Bytes.part(key, _around(key, other.key if other is not None else None)),
        Bytes.part(value, _around(value, other.value if other is not None else None)),
        len(record.headers),
        digest,
    )


def _around(content: bytes | None, other: bytes | None) -> int:
    """Where to begin so that the first difference is among the bytes that are shown."""
    if content is None or other is None or content == other or len(content) <= SHOWN_BYTES:
        return 0
    place = first_apart(content, other)
    return max(0, place - SHOWN_BYTES // 2) if place >= SHOWN_BYTES else 0
