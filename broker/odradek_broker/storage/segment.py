"""One segment of a log: a file of batches, one behind the other, and its two indexes (R-225 to R-228).

Rules of this module. `size` is where the batches end, not the file's size: a failed write may leave bytes behind it,
which the next cut or append removes. A segment does not judge offsets, its log does; but where it is `contiguous`, each
batch that is found by a walk has to follow the one before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from odradek_proto.formats import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    CorruptFile,
    segment_file_name,
)
from odradek_proto.records import HEADER_SIZE, BatchHeader, Buffer, CorruptBatch, read_header
from odradek_proto.transport.chance import chance
from odradek_proto.transport.ports import Files

from odradek_broker.storage.errors import LogCorrupted, log_rebuilt
from odradek_broker.storage.index import OffsetIndex, TimeIndex
from odradek_broker.storage.settings import LogSettings
from odradek_broker.storage.walk import contiguous, walk_headers

UNKNOWN = -1
LARGEST_RELATIVE_OFFSET = (1 << 31) - 1  # offsets in an index are int32
PIECE_BYTES = 1 << 20  # of what is written again


class Segment:
    """Batches from `base_offset` on. `next_offset` is the end of the last batch, the base offset when there is none."""

    __slots__ = (
        "_files",
        "_indexes_known",
        "_pwritev",
        "_times_known",
        "base_offset",
        "contiguous",
        "created_ms",
        "dirty",
        "file",
        "first_timestamp",
        "index",
        "interval",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "path",
        "size",
        "suffix",
        "time_index",
        "unindexed_bytes",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        *,
        interval: int,
        created_ms: int,
        create: bool,
        contiguous: bool,
        suffix: str = "",
    ) -> None:
        """Open the files; nothing is read.

        `interval` is index.interval.bytes; `created_ms` counts for segments whose records have no timestamp. Files of
        one that is not in the log yet have a `suffix`.
        """
        self._files = files
        self.base_offset = base_offset
        self.contiguous = contiguous
        self.path = f"{directory}/{segment_file_name(base_offset)}{suffix}"
        self.suffix = suffix
        index_path, time_index_path, _ = self.paths
        self.index = OffsetIndex(files, index_path, base_offset)
        self.time_index = TimeIndex(files, time_index_path, base_offset)
        self.file = files.open(self.path, create=create)
        self._pwritev = self.file.pwritev
        self.size = 0 if create else self.file.size()
        self.next_offset = base_offset
        self.interval = interval
        self.created_ms = created_ms
        self.first_timestamp = UNKNOWN
        self.max_timestamp = UNKNOWN
        self.max_timestamp_offset = UNKNOWN
        self._times_known = create
        self._indexes_known = create
        self.unindexed_bytes = 0  # written since the last index entry
        self.dirty = create
        if create:
            try:
                self.file.truncate(0)
                self.index.reset()
                self.time_index.reset()
            except OSError:
                self.close()
                raise

    # --- Writing ---------------------------------------------------------------------------------------------------

    def is_full_for(
        self, headers: Sequence[BatchHeader], size: int, settings: LogSettings, wall_ms: int, jitter_ms: int
    ) -> bool:
        """Whether these batches of `size` bytes in all, for the end of the log, do not all belong here (R-225)."""
        if self.size + size > settings.segment_bytes and (self.size or len(headers) > 1):
            return True
        if headers[-1].last_offset - self.base_offset > LARGEST_RELATIVE_OFFSET:
            return True
        if not self.size:
            return False
        if chance("segment-rolls-early", 0.01):
            return True
        if (len(self.index) + len(headers)) * 12 > settings.segment_index_bytes:
            return True  # 12: an entry of the time index, the larger one
        timestamp = headers[-1].max_timestamp
        if self.first_timestamp >= 0 and timestamp >= 0:
            waited = timestamp - self.first_timestamp
        else:
            waited = wall_ms - self.created_ms
        return waited > settings.segment_ms - jitter_ms % settings.segment_ms

    def append(self, headers: Sequence[BatchHeader], buffers: Sequence[Buffer], size: int) -> None:
        """Write batches of `size` bytes in all with one call. Raises `OSError`; only the file has then changed."""
        position = self.size
        written = self._pwritev(buffers, position)
        if written != size:
            raise ValueError(f"{self.path}: {written} bytes for batches of {size} bytes")
        self.dirty = True
        self.size = position + size
        for header in headers:
            self.enter(header, position)
            position += header.length + 12

    def enter(self, header: BatchHeader, position: int) -> None:
        """Take note of a batch that stands at `position`, behind all others; index it when it is time (R-227)."""
        last_offset = header.base_offset + header.last_offset_delta
        timestamp = header.max_timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = last_offset
        if not position:
            self.first_timestamp = timestamp
        if self.unindexed_bytes > self.interval or (position and chance("index-entry-early", 0.05)):
            self.index.append(last_offset, position)
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
            self.unindexed_bytes = 0
        self.unindexed_bytes += header.length + 12
        self.next_offset = last_offset + 1

    def batches(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of the batches from a position that `lookup` gave. Blocking. Raises `CorruptBatch`."""
        found = walk_headers(self.file, position, self.size)
        return contiguous(found, None if position else self.base_offset) if self.contiguous else found

    def check_span(self, header: BatchHeader, position: int) -> None:
        """Raise `CorruptBatch` for a batch that was read here and that no index can speak of."""
        if not 0 <= header.last_offset - self.base_offset <= LARGEST_RELATIVE_OFFSET:
            raise CorruptBatch(f"offset {header.last_offset} in a segment from {self.base_offset}", position)

    def seal(self) -> None:
        """Complete the indexes: no more batches will come. The last time index entry is the largest timestamp.

        They are to be flushed, even if all batches are durable already: whoever calls this sees to it.
        """
        self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
        self.index.save()
        self.time_index.save()

    def cut(self, position: int, next_offset: int) -> None:
        """Drop the batches from `position` on, where `next_offset` is the end of the batch before it; durably."""
        self.size = position
        self.drop_garbage()
        self.dirty = True
        self.index.cut(next_offset)
        self.time_index.cut(next_offset)
        self.next_offset = self._know_times()

    def drop_garbage(self) -> None:
        """Cut the file to `size`, if there is anything behind it. Raises `OSError`.

        Flushed at once: otherwise a power loss could bring back old batches below newer ones that did reach the disk,
        with offsets and epochs that fit, and nobody could tell.
        """
        if self.file.size() != self.size:
            self.file.truncate(self.size)
            self.file.fsync()

    def fsync(self) -> None:
        """Make batches durable. Raises `OSError`."""
        self.file.fsync()

    def write_again(self, position: int) -> None:
        """Write the bytes from `position` on once more as they are, for the next flush. Raises `OSError`.

        When an fsync fails the kernel takes what was dirty for clean: it can be read, and no later fsync writes it.
        """
        while piece := self.file.pread(position, min(PIECE_BYTES, self.size - position)):
            position += self._pwritev([piece], position)

    def fsync_indexes(self) -> None:
        self.index.fsync()
        self.time_index.fsync()

    # --- Loading ---------------------------------------------------------------------------------------------------

    def load_indexes(self) -> None:
        """Read both indexes. Raises `CorruptFile` when one is none, or points behind the log (R-236)."""
        self.index.load()
        self.time_index.load()
        self._indexes_known = True
        if len(self.index) and self.index.last_position >= self.size:
            raise CorruptFile(f"{self.path}: the index points to byte {self.index.last_position} of {self.size}")

    def load_tail(self) -> None:
        """Find out what the indexes do not tell: where the last batch ends, and the largest timestamp.

        Raises `CorruptBatch` when the end of the file is no whole batch, and `CorruptFile` when no batch has the time
        index's largest timestamp: retention would believe it (R-163, R-236).
        """
        self.next_offset = self._walk_tail()

    def _walk_tail(self) -> int:
        """Take note of the largest timestamp; returns where the last batch ends. Errors as `load_tail`.

        What stands before the last entries of both indexes is in them; the rest is walked. From the last entry of the
        time index on, which should be the largest timestamp: one that has lost its end looks like any other.
        """
        start = self.index.last_position
        if len(self.index) and self.lookup(self.index.last_offset) != start:
            raise CorruptFile(f"{self.path}: the index says offset {self.index.last_offset} at byte {start}")
        indexed = self.time_index.last
        if indexed is None:
            start = 0  # timestamps that fall or are missing leave no entry
        elif self._has_timestamp(*indexed):
            start = min(start, self.lookup(indexed[1]))
        else:
            raise CorruptFile(f"{self.path}: the time index says {indexed[0]} at offset {indexed[1]}")
        max_timestamp, max_timestamp_offset = indexed or (UNKNOWN, UNKNOWN)
        next_offset = self.base_offset
        for _, header in self.batches(start):
            if header.base_offset < next_offset:
                raise CorruptBatch(f"offset {header.base_offset} below {next_offset}", start)
            next_offset = header.next_offset
            if header.max_timestamp > max_timestamp:
                max_timestamp, max_timestamp_offset = header.max_timestamp, header.last_offset
        # Only now, since another thread that looks for the same may have told already that they are known.
        self.max_timestamp, self.max_timestamp_offset = max_timestamp, max_timestamp_offset
        self.unindexed_bytes = self.size - self.index.last_position
        self.first_timestamp = self._read_first_timestamp()
        self._times_known = True
        return next_offset

    def _read_first_timestamp(self) -> int:
        return read_header(self.file.pread(0, HEADER_SIZE)).max_timestamp if self.size else UNKNOWN

    def lookup(self, offset: int) -> int:
        """The position of a batch that begins at or below `offset`, from which to look for it. Blocking.

        An index has no checksum: who believed a damaged entry would blame the log for what he finds there, or pass
        over records. So the batch is asked, and if it is none or too far, the entry before (R-227, R-236).
        """
        if not self._indexes_known:
            self.know_indexes()
        for last_offset, position in self.index.at_or_below(offset):
            header = self._header_at(position)
            if header is not None and header.last_offset == last_offset and header.base_offset >= self.base_offset:
                return position
        return 0

    def _header_at(self, position: int) -> BatchHeader | None:
        """The header of what may be a batch there."""
        if not 0 <= position < self.size:
            return None
        try:
            header = read_header(self.file.pread(position, HEADER_SIZE))
        except CorruptBatch:
            return None
        return header if position + header.size <= self.size else None

    def stretch_before(self, offset: int, size: int) -> tuple[int, int]:
        """From where to where to walk for some `size` bytes of batches in front of an offset above the base. Blocking.

        The last batches may lie behind it. A damaged index makes it longer, or so that the walk finds damage.
        """
        self.know_indexes()
        start, end = self.index.stretch_before(offset, size, self.size)
        header = self._header_at(start)
        return start if header is not None and self.base_offset <= header.base_offset < offset else 0, end

    def lookup_timestamp(self, timestamp: int) -> int:
        """An offset below which every timestamp is below `timestamp`. Blocking.

        The time index has no checksum either: an entry counts if the batch there has its timestamp. One that is wrong
        may name another batch with the same timestamp, too far: so the last but one of those that count is taken. Since
        offsets in an index do not fall, it is right when it is right itself, or the one behind it.
        """
        if not self._indexes_known:
            self.know_indexes()
        agreed = 0
        for indexed, offset in self.time_index.below(timestamp):
            agreed += self._has_timestamp(indexed, offset)
            if agreed == 2:
                return offset
        return self.base_offset

    def _has_timestamp(self, timestamp: int, offset: int) -> bool:
        """Whether the batch that contains an offset has this largest timestamp."""
        try:
            for _, header in self.batches(self.lookup(offset)):
                if header.next_offset > offset:
                    return header.base_offset <= offset and header.max_timestamp == timestamp
        except CorruptBatch:
            pass
        return False

    def know_indexes(self) -> None:
        """Read the indexes, or rebuild them when they are bad (R-236), up to the first batch that is damaged.

        As far as they go they are right, and whoever reads on from there finds the damage, or not even that.
        """
        if self._indexes_known:
            return
        try:
            self.load_indexes()
        except CorruptFile as error:
            log_rebuilt(f"an index of {self.path}", error)
            with suppress(LogCorrupted):
                self.rebuild_indexes()

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of its records, -1 when none has one. Blocking when the segment was not read yet."""
        if not self._times_known:
            self.know_indexes()
            self._know_times()
        return self.max_timestamp

    def _know_times(self) -> int:
        """Find out the largest timestamp, with other indexes when these are bad; returns where the last batch ends.

        Raises `LogCorrupted`, and again whenever it is asked: what is true of a part is not told of the segment.
        """
        try:
            return self._walk_tail()
        except (CorruptBatch, CorruptFile):
            return self.rebuild_indexes()  # a walk begins at an index entry, which may be what is damaged

    def forget(self) -> None:
        """Forget all indexes and notes, to walk the segment anew."""
        self.index.reset()
        self.time_index.reset()
        self.next_offset = self.base_offset
        self.max_timestamp = self.max_timestamp_offset = self.first_timestamp = UNKNOWN
        self.unindexed_bytes = 0
        self._times_known = self._indexes_known = True
        self.dirty = True

    def rebuild_indexes(self, end_offset: int | None = None) -> int:
        """Write both indexes anew from the batches, which are trusted, for good: whoever has them believes them.

        Returns where the last batch ends. What stands at `end_offset` and above goes: it was cut once, and the next
        segment began there, but the cut never reached the disk: whoever cut was killed before the flush, and then the
        power went. Raises `LogCorrupted`.
        """
        next_offset = self.next_offset
        self.forget()
        self._times_known = False
        try:
            for position, header in self.batches():
                if end_offset is not None and header.base_offset >= end_offset:
                    self.size = position
                    break
                self.check_span(header, position)
                self.enter(header, position)
                if header.next_offset == end_offset:  # what comes now may not even be whole
                    self.size = position + header.size
                    break
        except CorruptBatch as error:
            raise LogCorrupted(self.path, error.position, self.next_offset, error.reason) from None
        finally:
            walked, self.next_offset = self.next_offset, next_offset
        self.drop_garbage()
        self.seal()
        self.fsync_indexes()
        self._times_known = True
        return walked

    # --- Going away ------------------------------------------------------------------------------------------------

    @property
    def paths(self) -> tuple[str, str, str]:
        """Indexes first: a log without an index is repaired, an index without a log is only litter (R-236)."""
        stem = self.path.removesuffix(LOG_SUFFIX + self.suffix)
        return stem + OFFSET_INDEX_SUFFIX + self.suffix, stem + TIME_INDEX_SUFFIX + self.suffix, self.path

    def rename(self, suffix: str) -> None:
        """Give all files another suffix, the log file last. Raises `OSError`."""
        before = self.paths
        self.path = self.path.removesuffix(self.suffix) + suffix
        self.suffix = suffix
        for old, new in zip(before, self.paths, strict=True):
            if self._files.exists(old):
                self._files.rename(old, new)
        self.index.moved(self.paths[0])
        self.time_index.moved(self.paths[1])

    def remove(self) -> None:
        """Remove the files. Whoever is still reading the log file may go on until `close`."""
        self._files.remove(self.path)
        for path in self.paths[:2]:
            if self._files.exists(path):
                self._files.remove(path)

    def close(self) -> None:
        self.index.close()
        self.time_index.close()
        self.file.close()
