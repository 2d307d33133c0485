"""One round over one compacted log: the keys of its dirty part, then its segments anew, without what is superseded.

Rules of this module. It reads closed segments, writes files that no start believes in (`.cleaned`), and changes nothing
of the log: whoever drives it puts each new segment into its place, and drops what it does not take. Everything blocks,
in slices of some milliseconds, and may run in a thread while the loop goes on. What cannot be decoded stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from odradek_proto.records import (
    BatchHeader,
    CodecUnavailable,
    CorruptBatch,
    OpenBatch,
    check_batch,
    open_batch,
    read_header,
    with_records,
    without_records,
)
from odradek_proto.transport.chance import reached
from odradek_proto.transport.ports import File, Files
from odradek_proto.values import Value

from odradek_broker.core.cleaning import Revision, SegmentFacts, groups, is_left_alone, revise
from odradek_broker.storage.errors import LogCorrupted
from odradek_broker.storage.log import Log
from odradek_broker.storage.segment import Segment
from odradek_broker.storage.segments import CLEANED_SUFFIX

# --- Where the newest record of each key stands, for the dirty range of a log ----------------------------------------
# A cleaner's memory, which has a limit.


LONGEST_KEY = 40  # bytes; of a longer key the digest, one byte longer, so that no key is taken for another one's
ENTRY_BYTES = 180  # what Python takes for a key, its offset and their place in a dictionary, on top of the key's bytes


class OffsetMap:
    """From keys to offsets. It may be asked for more than it was meant to hold: look at `is_full` between batches."""

    __slots__ = ("_bytes_left", "_offsets")

    def __init__(self, max_bytes: int) -> None:
        self._bytes_left = max_bytes
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        return self._bytes_left <= 0

    def put(self, key: bytes, offset: int) -> None:
        """A record of this key stands at `offset`, behind all that were told before."""
        if len(key) > LONGEST_KEY:
            key = _digest(key)
        if key not in self._offsets:
            self._bytes_left -= ENTRY_BYTES + len(key)
        self._offsets[key] = offset

    def get(self, key: bytes) -> int | None:
        return self._offsets.get(_digest(key) if len(key) > LONGEST_KEY else key)


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=LONGEST_KEY + 1).digest()


SLICE_BYTES = 128 << 10  # of what is read, between two looks at whether to go on
CHUNK_BYTES = 1 << 20
WRITE_BYTES = 1 << 20
MOST_RECORDS = 1 << 19  # of a batch, each an object of 200 bytes: a stranger may have written one with millions


class CleanedSegment(Value, frozen=True):
    """A new segment stands ready on the disk, in place of `old`."""

    old: Sequence[Segment]
    new: Segment


@dataclass(slots=True)
class RoundStats:
    """What a round has read, kept and let go."""

    bytes_read: int = 0
    bytes_before: int = 0  # of the segments that were replaced
    bytes_after: int = 0
    records_dropped: int = 0
    undecodable_batches: int = 0


def facts_of(segment: Segment, end_offset: int) -> SegmentFacts:
    """What the core is told of a closed segment. Blocking the first time."""
    largest = segment.largest_timestamp
    return SegmentFacts(segment.base_offset, end_offset, segment.size, segment.first_timestamp, largest)


def closed_segments(log: Log) -> list[tuple[Segment, int]]:
    """All but the active one, each with its end."""
    every = log.segments
    return [(each, every[place + 1].base_offset) for place, each in enumerate(every[:-1])]


class CleaningRound:
    """Made on the loop, with the producers that are known then; `steps` runs elsewhere."""

    def __init__(
        self,
        files: Files,
        log: Log,
        *,
        first_dirty_offset: int,
        end_offset: int,
        wall_ms: int,
        map_bytes: int,
    ) -> None:
        assert log.settings.compaction is not None, log.topic_partition
        self.generation = log.generation
        self.end_offset = end_offset  # falls, once the map is full, to where it says nothing more
        self.stats = RoundStats()
        self._files = files
        self._directory = log.directory
        self._settings = log.settings
        self._delete_retention_ms = log.settings.compaction.delete_retention_ms
        self._segments = [each for each in closed_segments(log) if each[1] <= end_offset]
        self._first_dirty_offset = first_dirty_offset
        self._wall_ms = wall_ms
        self._newest = OffsetMap(map_bytes)
        self._last_batches = {
            entry.producer_id: entry.batches[-1].last_offset for entry in log.state.producers if entry.batches
        }
        self._writing: Segment | None = None

    def steps(self) -> Iterator[CleanedSegment | None]:
        """None after each slice, and what is to be put into the log. Raises `LogCorrupted` and `OSError`."""
        yield from self._fill_map()
        segments = [each for each in self._segments if each[0].base_offset < self.end_offset]
        facts = [SegmentFacts(each.base_offset, end, each.size) for each, end in segments]
        place = 0
        for count in groups(facts, self._settings.segment_bytes):
            group = [segment for segment, _ in segments[place : place + count]]
            place += count
            for segment in group:  # readers must not look for indexes by names that are another segment's soon
                segment.know_indexes()
            yield from self._rewrite(group, segments[place - 1][1])

    def drop_unfinished(self) -> None:
        """Remove what was written and is not in the log. Raises `OSError`."""
        if self._writing is not None:
            self.drop(self._writing)

    def drop(self, segment: Segment) -> None:
        """Remove a segment that nobody takes. Raises `OSError`."""
        self._writing = None
        segment.close()
        for path in segment.paths:
            if self._files.exists(path):
                self._files.remove(path)

    # --- Keys ------------------------------------------------------------------------------------------------------

    def _fill_map(self) -> Iterator[None]:
        read, newest = 0, self._newest
        for segment, end in self._segments:
            if end <= self._first_dirty_offset:
                continue
            for header, batch, _ in self._batches(segment):
                read += header.size
                if header.next_offset <= self._first_dirty_offset:
                    continue
                opened = self._open(header, batch)
                if opened is not None:
                    base_offset = header.base_offset
                    for record in opened.records:
                        if record.key is not None:
                            newest.put(record.key, base_offset + record.offset_delta)
                if newest.is_full:
                    reached("cleaner-map-full")
                    self.end_offset = header.next_offset
                    return
                if read >= SLICE_BYTES:
                    read = 0
                    yield None

    # --- Segments --------------------------------------------------------------------------------------------------

    def _rewrite(self, group: Sequence[Segment], end_offset: int) -> Iterator[CleanedSegment | None]:
        output = _Output(self._files, self._directory, group, self._settings.index_interval_bytes)
        self._writing = output.segment
        read, changed = 0, len(group) > 1
        for segment in group:
            for header, batch, position in self._batches(segment):
                last = segment is group[-1] and position + header.size == segment.size
                revised = self._revise(header, batch, keeps_place=last or self._ends_producer(header))
                changed = changed or revised is not batch
                if len(revised):
                    output.add(revised)
                read += header.size
                if read >= SLICE_BYTES:
                    read = 0
                    yield None
        if not changed:
            self.drop_unfinished()
            return
        new = output.complete(end_offset)
        self.stats.bytes_before += sum(segment.size for segment in group)
        self.stats.bytes_after += new.size
        self._writing = None  # whoever takes it sees to it
        yield CleanedSegment(group, new)

    def _ends_producer(self, header: BatchHeader) -> bool:
        return header.producer_id >= 0 and self._last_batches.get(header.producer_id) == header.last_offset

    def _revise(self, header: BatchHeader, batch: memoryview, *, keeps_place: bool) -> memoryview | bytes:
        """The batch as it is, another one in its place, or nothing."""
        opened = self._open(header, batch)
        if opened is None:
            return batch
        revision: Revision = revise(
            opened,
            self._newest.get,
            self.end_offset,
            self._wall_ms,
            self._delete_retention_ms,
            keeps_place=keeps_place,
        )
        if revision.kept is None:
            return batch
        self.stats.records_dropped += len(opened.records) - len(revision.kept)
        if revision.kept:
            return with_records(opened, revision.kept, revision.delete_horizon_ms)
        return without_records(header) if revision.keeps_place else b""

    def _open(self, header: BatchHeader, batch: memoryview) -> OpenBatch | None:
        if is_left_alone(header) or header.record_count > MOST_RECORDS:
            return None
        try:
            return open_batch(batch, header)
        except (CorruptBatch, CodecUnavailable):  # its CRC is right: a client wrote it so
            self.stats.undecodable_batches += 1
            return None

    def _batches(self, segment: Segment) -> Iterator[tuple[BatchHeader, memoryview, int]]:
        """Header, bytes and position of each batch, after its CRC was checked."""
        try:
            for header, batch, position in _walk(segment.file, segment.size):
                self.stats.bytes_read += header.size
                yield header, batch, position
        except CorruptBatch as error:
            raise LogCorrupted(segment.path, error.position, segment.base_offset, error.reason) from None


def _walk(file: File, end: int) -> Iterator[tuple[BatchHeader, memoryview, int]]:
    position = 0
    while position < end:
        chunk = memoryview(file.pread(position, min(CHUNK_BYTES, end - position)))
        size = read_header(chunk).size
        if size > len(chunk):
            chunk = memoryview(file.pread(position, size))
        at = 0
        try:
            while at < len(chunk) and (header := _whole(chunk, at)) is not None:
                yield header, chunk[at : at + header.size], position + at
                at += header.size
        except CorruptBatch as error:
            raise CorruptBatch(error.reason, position + at) from None
        position += at


def _whole(chunk: memoryview, at: int) -> BatchHeader | None:
    """The checked header of the batch there; None when the chunk ends inside of it, and is not the batch's own."""
    if at and (len(chunk) - at < 61 or read_header(chunk, at).size > len(chunk) - at):
        return None
    return check_batch(chunk, at, compacted=True)


class _Output:
    """The new segment, written in large pieces."""

    def __init__(self, files: Files, directory: str, group: Sequence[Segment], interval: int) -> None:
        self.segment = Segment(
            files,
            directory,
            group[0].base_offset,
            interval=interval,
            created_ms=group[0].created_ms,
            create=True,
            contiguous=False,
            suffix=CLEANED_SUFFIX,
        )
        self._headers: list[BatchHeader] = []
        self._pieces: list[memoryview | bytes] = []
        self._size = 0

    def add(self, batch: memoryview | bytes) -> None:
        self._headers.append(read_header(batch))
        self._pieces.append(batch)
        self._size += len(batch)
        if self._size >= WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        self.segment.append(self._headers, [b"".join(self._pieces)], self._size)
        self._headers, self._pieces, self._size = [], [], 0

    def complete(self, end_offset: int) -> Segment:
        """All of it is on the disk then, but for the names."""
        if self._headers:
            self._write()
        segment = self.segment
        segment.next_offset = end_offset
        segment.seal()
        segment.fsync()
        segment.fsync_indexes()
        segment.index.close()
        segment.time_index.close()
        segment.dirty = False
        return segment
