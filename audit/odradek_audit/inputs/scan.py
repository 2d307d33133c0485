"""From a segment's bytes to digests of its batches, whatever the bytes are.

Rules of this module. It never raises because of what a file holds, never reads more than `CHUNK_BYTES` plus one
batch at a time, and never believes a length before the CRC does. Where bytes are no batch it looks for the next
place where a whole batch with a right CRC begins, and reports the stretch between. So the
result does not depend on where a reader started, as long as it started at a batch: parts of a segment can be read
by different workers and give together what one reader gives.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from odradek_proto.checksum import crc32c
from odradek_proto.headers import CRC_START, MAGIC
from odradek_proto.records import HEADER_SIZE, BatchHeader, CorruptBatch, read_header, verify_crc

from odradek_audit.inputs.disk import FileSystem, join
from odradek_audit.inputs.facts import (
    BAD_CRC,
    REFUSED,
    TORN,
    UNREADABLE,
    BatchFacts,
    BatchTable,
    ReplicaInputs,
    SegmentFile,
    SoundRun,
)
from odradek_audit.words import count, plural

CHUNK_BYTES = 4 * 1024 * 1024
MAX_BATCH_BYTES = 128 * 1024 * 1024
"""A longer claim is not believed. Kafka's max.message.bytes is 1 MiB by default; nobody sets it to more than this."""
SEARCH_BYTES = 64 * 1024 * 1024
"""CRC work that one search for the next batch may cost: hostile bytes must not make it quadratic."""
LAST_OFFSET = (1 << 62) - 1
"""No log gets so far, and sums of two such offsets are still numbers of 64 bits."""
LOG_OVERHEAD = 12
MAGIC_OFFSET, MAGIC_BYTE = 16, b"\x02"
"""Base offset and length: what must be there before a batch's size is known."""
SOUND_FIELDS = struct.Struct(">qi4xbI2xi30xi")
"""Of a header: base offset, length, magic, CRC, last offset delta, record count."""


@dataclass(frozen=True)
class SegmentPart:
    """Bytes [start, end) of a segment's file; both are places where a batch begins, or the end of the file."""

    path: str
    base_offset: int
    file_size: int
    start: int
    end: int

    @classmethod
    def whole(cls, inputs: ReplicaInputs, segment: SegmentFile) -> SegmentPart:
        path = join(inputs.directory, f"{segment.stem}.log")
        return cls(path, segment.base_offset, segment.size, 0, segment.size)


class _Window:
    """A moving view of a file: one chunk in memory, refilled when a batch does not fit into the rest."""

    def __init__(self, disk: FileSystem, path: str, size: int) -> None:
        self.disk = disk
        self.path = path
        self.size = size
        self.start = 0
        self.data = b""

    def local(self, position: int, length: int) -> int:
        """Make [position, position + length) available if the file has it; returns its place in `data`."""
        offset = position - self.start
        if offset < 0 or offset + length > len(self.data):
            self.data = self.disk.read(self.path, position, max(length, min(CHUNK_BYTES, self.size - position)))
            self.start = position
            return 0
        return offset

    def has(self, position: int, length: int) -> bool:
        return position - self.start + length <= len(self.data)


def scan_part(disk: FileSystem, part: SegmentPart) -> Iterator[BatchFacts]:
    """Digests of the batches that begin in [start, end), and of the stretches that are none. Raises as `scan_runs`."""
    for scanned in scan_runs(disk, part):
        if isinstance(scanned, BatchFacts):
            yield scanned
            continue
        position = scanned.position
        for header in scanned.headers:
            facts = facts_of(part, position, read_header(header))
            yield facts
            position += facts.size


def scan_runs(disk: FileSystem, part: SegmentPart) -> Iterator[SoundRun | BatchFacts]:
    """The same, sound batches in runs where many stand together.

    A file that shrinks while it is read ends where it ends now. Raises `OSError` only.
    """
    window = _Window(disk, part.path, part.file_size)
    position = part.start
    while position < part.end:
        run, position = _sound_ahead(window, part, position)
        if run.headers:
            yield run
        if position >= part.end:
            return
        facts = _facts_at(window, part, position)
        if facts.problem == BAD_CRC:
            yield facts
            position = _after_bad_crc(window, part, facts)
            continue
        if facts.problem:
            following = _find_batch(window, part, position + 1, part.end)
            stop = following if following >= 0 else part.end
            problem = UNREADABLE if following >= 0 or part.end < part.file_size else facts.problem
            yield facts._replace(size=stop - position, problem=problem)
            position = stop
            continue
        yield facts
        position += facts.size


def _sound_ahead(window: _Window, part: SegmentPart, position: int) -> tuple[SoundRun, int]:
    """The sound batches from here on that are in the window already, and where they end; `_facts_at` judges what stands
    behind them. It is most of what there is to read, so everything is in locals."""
    data, view = window.data, memoryview(window.data)
    headers: list[bytes] = []
    unpack, keep, length = SOUND_FIELDS.unpack_from, headers.append, len(data)
    at = position - window.start
    end = min(part.end - window.start, length - HEADER_SIZE + 1) if at >= 0 else 0
    while at < end:
        base, size, magic, crc, delta, records = unpack(data, at)
        stop = at + LOG_OVERHEAD + size
        if (
            magic != MAGIC
            or not HEADER_SIZE <= stop - at <= MAX_BATCH_BYTES
            or stop > length
            or not (0 <= base <= LAST_OFFSET - delta and delta >= 0)
            or not 0 <= records <= delta + 1
            or crc32c(view[at + CRC_START : stop]) != crc
        ):
            break
        keep(data[at : at + HEADER_SIZE])
        at = stop
    return SoundRun(part.base_offset, position, headers), window.start + at


def unread_part(part: SegmentPart, error: OSError) -> BatchFacts:
    """A part that could not be read. Without permission nobody knows what stands there; all else is damage."""
    problem, detail = UNREADABLE, str(error)
    if isinstance(error, PermissionError):
        problem, detail = REFUSED, error.strerror or detail
    return BatchFacts(part.base_offset, part.start, part.end - part.start, problem=problem, detail=detail)


def readable(disk: FileSystem, part: SegmentPart) -> Iterator[SoundRun | BatchFacts]:
    """The batches of a part; a file that is gone is a stretch that cannot be read."""
    try:
        yield from scan_runs(disk, part)
    except OSError as error:
        yield unread_part(part, error)


def scan_replica(
    disk: FileSystem,
    inputs: ReplicaInputs,
    read: Callable[[FileSystem, SegmentPart], Iterable[SoundRun | BatchFacts]] = readable,
) -> BatchTable:
    """All batches of a replica, segment by segment. A segment that cannot be read is unreadable bytes, and an `OSError`
    with `read=scan_runs`."""
    table = BatchTable()
    for segment in inputs.segments:
        for scanned in read(disk, SegmentPart.whole(inputs, segment)):
            table.add(scanned)
    return table


def _facts_at(window: _Window, part: SegmentPart, position: int) -> BatchFacts:
    header, problem, detail = _header_at(window, part, position)
    if header is None:
        claimed = _claimed_offset(window, part, position)
        return BatchFacts(part.base_offset, position, 0, base_offset=claimed, problem=problem, detail=detail)
    local = window.local(position, header.size)
    if not window.has(position, header.size):
        return BatchFacts(part.base_offset, position, 0, header.base_offset, problem=TORN, detail="the file has shrunk")
    facts = facts_of(part, position, header)
    return facts if verify_crc(window.data, header, local) else facts._replace(problem=BAD_CRC)


def facts_of(part: SegmentPart, position: int, header: BatchHeader) -> BatchFacts:
    """A batch at a byte of a segment, as its header says."""
    return BatchFacts(
        part.base_offset,
        position,
        header.size,
        header.base_offset,
        header.last_offset,
        header.leader_epoch,
        header.crc,
        header.attributes,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )


def _header_at(window: _Window, part: SegmentPart, position: int) -> tuple[BatchHeader | None, str, str]:
    """The header, or what is wrong: (None, TORN or UNREADABLE, detail)."""
    left = part.file_size - position
    local = window.local(position, min(HEADER_SIZE, left))
    if left >= LOG_OVERHEAD:
        size = LOG_OVERHEAD + int.from_bytes(window.data[local + 8 : local + 12], "big", signed=True)
        if size < HEADER_SIZE and not _zeros_ahead(window.data, local):
            return None, UNREADABLE, f"it claims a size of {plural(size, 'byte')}"
        if size > left:
            return None, TORN, f"it claims {plural(size, 'byte')} and the file has {count(left)} more"
    if left < HEADER_SIZE or _zeros_ahead(window.data, local):
        return None, TORN, f"{plural(left, 'byte is', 'bytes are')} left"
    try:
        header = read_header(window.data, local)
    except CorruptBatch as error:
        return None, UNREADABLE, error.reason
    detail = _implausible(header)
    return (None, UNREADABLE, detail) if detail else (header, "", "")


def _implausible(header: BatchHeader) -> str:
    """What cannot be in a batch that was ever accepted; empty when all is well."""
    if header.magic != MAGIC:
        return f"its magic is {header.magic}"
    if header.size > MAX_BATCH_BYTES:
        return f"it claims {plural(header.size, 'byte')}"
    if header.base_offset < 0 or header.last_offset_delta < 0:
        return f"it claims offsets {header.base_offset} to {header.last_offset}"
    if header.last_offset > LAST_OFFSET:
        return f"it claims the offset {header.base_offset}"
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        return f"it claims {plural(header.record_count, 'record')} in {plural(header.last_offset_delta + 1, 'offset')}"
    return ""


def _zeros_ahead(data: bytes, local: int) -> bool:
    """Whether the next bytes are zeros, as in a file that grew before its bytes were written."""
    return not any(data[local : local + HEADER_SIZE])


def _claimed_offset(window: _Window, part: SegmentPart, position: int) -> int:
    if part.file_size - position < 8:
        return -1
    local = window.local(position, 8)
    claimed = int.from_bytes(window.data[local : local + 8], "big", signed=True)
    return claimed if part.base_offset <= claimed < part.base_offset + (1 << 31) else -1


def _after_bad_crc(window: _Window, part: SegmentPart, facts: BatchFacts) -> int:
    """Where to go on after a batch whose CRC is wrong.

    At a batch inside it, for then its length is wrong; else behind it, whatever stands there.
    """
    behind = facts.position + facts.size
    inside = _find_batch(window, part, facts.position + 1, min(behind, part.end))
    return inside if inside >= 0 else behind


def _find_batch(window: _Window, part: SegmentPart, position: int, end: int) -> int:
    """The first place in [position, end) where a whole batch with a right CRC begins; -1 when there is none.

    A candidate has a sane high half of the base offset and magic 2 at its place; the CRC decides.
    """
    budget = SEARCH_BYTES
    high = part.base_offset >> 32  # a segment spans less than 2^31 offsets, so one more is possible
    highs = [(high + step).to_bytes(4, "big") for step in (0, 1)]
    while position < end:
        local = window.local(position, min(CHUNK_BYTES, part.file_size - position))
        data, start = window.data, window.start
        found = _candidate(data, local, highs)
        if found < 0:
            if start + len(data) >= min(end + HEADER_SIZE, part.file_size):
                return -1
            position = start + len(data) - HEADER_SIZE
            continue
        position = start + found
        if position >= end:
            return -1
        header, _, _ = _header_at(window, part, position)
        if header is not None and header.size <= budget:
            budget -= header.size
            if _is_batch(window, part, position):
                return position
        position += 1
    return -1


def _candidate(data: bytes, start: int, highs: Sequence[bytes]) -> int:
    """The first place from `start` on where a batch may begin; -1 when there is none. Zeros are passed over fast."""
    magic = data.find(MAGIC_BYTE, start + MAGIC_OFFSET)
    while magic >= 0:
        if data[magic - MAGIC_OFFSET : magic - MAGIC_OFFSET + 4] in highs:
            return magic - MAGIC_OFFSET
        magic = data.find(MAGIC_BYTE, magic + 1)
    return -1


def _is_batch(window: _Window, part: SegmentPart, position: int) -> bool:
    facts = _facts_at(window, part, position)
    return not facts.problem and facts.base_offset >= part.base_offset


def starts_batch(disk: FileSystem, part: SegmentPart, position: int) -> bool:
    """Whether a whole batch with a right CRC begins at a byte of a segment, in this part or in another one."""
    return 0 <= position < part.file_size and _is_batch(_Window(disk, part.path, part.file_size), part, position)
