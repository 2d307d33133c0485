"""The two sparse indexes of a segment: offset to position, and timestamp to offset (R-227).

Rules of this module. The memory has all entries, the file may lack the newest: indexes of segments above the recovery
point are rebuilt after a crash, so writing each entry at once would buy nothing. `save` writes what is missing, and is
called before a segment becomes inactive, before a clean end, and now and then.

Readers in other threads see a consistent index: the first column is filled before the second, and a cut makes new
arrays.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress

from odradek_proto.formats import (
    decode_offset_index,
    decode_time_index,
    encode_offset_index,
    encode_time_index,
)
from odradek_proto.transport.ports import File, Files

UNSAVED_ENTRIES = 256  # so many entries may wait in memory: 2 KiB of index, at least 1 MiB of log


class _IndexFile:
    """The file of an index, opened when it is needed. It holds the first `saved` entries."""

    __slots__ = ("_file", "_files", "entry_size", "path", "saved")

    def __init__(self, files: Files, path: str, entry_size: int) -> None:
        self._files = files
        self.path = path
        self.entry_size = entry_size
        self.saved = 0
        self._file: File | None = None

    def open(self) -> File:
        if self._file is None:
            self._file = self._files.open(self.path, create=True)
        return self._file

    def read(self) -> bytes:
        """All of it. By a handle of its own: readers in several threads may come at once, and leave nothing open."""
        file = self._files.open(self.path, create=True)
        try:
            return file.pread(0, file.size())
        finally:
            file.close()

    def settle(self, count: int, size: int) -> None:
        """Say how many entries were read from so many bytes. Kafka pads an active segment's index with zeros.

        By a handle of its own, as `read`: the index may be one of many complete segments that somebody only looks at.
        """
        self.saved = count
        if size != count * self.entry_size:
            file = self._files.open(self.path, create=True)
            try:
                file.truncate(count * self.entry_size)
            finally:
                file.close()

    def add(self, content: bytes, count: int) -> None:
        """Raises `OSError`: a disk that became full in the middle keeps no part of an entry."""
        if not content:
            return
        end = self.saved * self.entry_size
        try:
            self.open().pwritev([content], end)
        except OSError:
            with suppress(OSError):
                self.open().truncate(end)
            raise
        self.saved += count

    def cut(self, count: int) -> None:
        """Keep the first `count` entries, whatever the file holds behind them."""
        self.saved = min(self.saved, count)
        self.open().truncate(self.saved * self.entry_size)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class _SparseIndex:
    """Two columns of numbers, in memory and in a file. What an entry means, and how it is written, a subclass says.

    The types of the columns are those of `array`; a number has as many bytes in the file.
    """

    __slots__ = ("_file", "_firsts", "_seconds", "base_offset")

    def __init__(self, files: Files, path: str, base_offset: int, first: str, second: str) -> None:
        self.base_offset = base_offset
        self._firsts, self._seconds = array(first), array(second)
        self._file = _IndexFile(files, path, self._firsts.itemsize + self._seconds.itemsize)

    def __len__(self) -> int:
        return len(self._seconds)

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._firsts, self._seconds, strict=False))  # a reader may come between the two appends

    def load(self) -> None:
        """Read the file. Raises `CorruptFile` when it is no index (R-236)."""
        content = self._file.read()
        entries = self._decode(content)
        self._fill(entries)
        self._file.settle(len(entries), len(content))

    def reset(self) -> None:
        """Forget all entries, in the file too."""
        self._fill([])
        self._file.cut(0)

    def save(self) -> None:
        """Write what the file lacks. Raises `OSError`."""
        saved = self._file.saved
        pending = list(zip(self._firsts[saved:], self._seconds[saved:], strict=True))
        self._file.add(self._encode(pending), len(pending))

    def create(self) -> None:
        self._file.cut(0)

    def fsync(self) -> None:
        self._file.open().fsync()

    def moved(self, path: str) -> None:
        """The file has another name now."""
        self._file.path = path

    def close(self) -> None:
        self._file.close()

    def _decode(self, content: bytes) -> Sequence[tuple[int, int]]:
        raise NotImplementedError

    def _encode(self, entries: Sequence[tuple[int, int]]) -> bytes:
        raise NotImplementedError

    def _fill(self, entries: Sequence[tuple[int, int]]) -> None:
        firsts = array(self._firsts.typecode, [entry[0] for entry in entries])
        seconds = array(self._seconds.typecode, [entry[1] for entry in entries])
        self._firsts, self._seconds = firsts, seconds

    def _add(self, first: int, second: int) -> None:
        self._firsts.append(first)
        self._seconds.append(second)
        if len(self._seconds) - self._file.saved >= UNSAVED_ENTRIES:
            self.save()

    def _keep(self, count: int) -> None:
        self._firsts, self._seconds = self._firsts[:count], self._seconds[:count]
        self._file.cut(count)


class OffsetIndex(_SparseIndex):
    """Pairs of (last offset of a batch, position where this batch starts), both counted from the segment's start."""

    __slots__ = ()

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        super().__init__(files, path, base_offset, "i", "i")

    def append(self, offset: int, position: int) -> None:
        self._add(offset - self.base_offset, position)

    def at_or_below(self, offset: int) -> Iterator[tuple[int, int]]:
        """(last offset, position) of the indexed batches that end at or below `offset`, the last one first."""
        offsets, positions = self._firsts, self._seconds
        place = bisect_right(offsets, offset - self.base_offset, 0, len(positions))
        while place:
            place -= 1
            yield self.base_offset + offsets[place], positions[place]

    def stretch_before(self, offset: int, size: int, end: int) -> tuple[int, int]:
        """Positions from which and up to which `size` bytes or more stand, most of them in front of `offset`.

        Nothing in front of `offset` stands behind the second one; `end` is where the segment ends. From 0 on when there
        are not so many.
        """
        offsets, positions = self._firsts, self._seconds
        place = bisect_left(offsets, offset - self.base_offset, 0, len(positions))
        if place < len(positions):
            end = positions[place]
        place = bisect_right(positions, end - size, 0, place)
        return (positions[place - 1] if place else 0), end

    @property
    def last_offset(self) -> int:
        """The last offset of the last indexed batch; there has to be one."""
        return self.base_offset + self._firsts[-1]

    @property
    def last_position(self) -> int:
        return self._seconds[-1] if self._seconds else 0

    def cut(self, offset: int) -> None:
        """Drop the entries of batches that end at `offset` or later."""
        self._keep(bisect_left(self._firsts, offset - self.base_offset))

    def _decode(self, content: bytes) -> Sequence[tuple[int, int]]:
        return decode_offset_index(content)

    def _encode(self, entries: Sequence[tuple[int, int]]) -> bytes:
        return encode_offset_index(entries)


class TimeIndex(_SparseIndex):
    """Pairs of (largest timestamp so far, last offset of the batch that has it), strictly rising timestamps."""

    __slots__ = ()

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        super().__init__(files, path, base_offset, "q", "i")

    def append(self, timestamp: int, offset: int) -> None:
        """Enter the largest timestamp so far, unless the last entry has it already."""
        if timestamp < 0 or (self._firsts and timestamp <= self._firsts[-1]):
            return
        self._add(timestamp, offset - self.base_offset)

    def below(self, timestamp: int) -> Iterator[tuple[int, int]]:
        """The entries (timestamp, offset) with timestamps below `timestamp`, the last one first."""
        timestamps, offsets = self._firsts, self._seconds
        place = bisect_left(timestamps, timestamp, 0, len(offsets))
        while place:
            place -= 1
            yield timestamps[place], self.base_offset + offsets[place]

    @property
    def last(self) -> tuple[int, int] | None:
        """The largest timestamp that is indexed, with its offset."""
        if not self._seconds:
            return None
        return self._firsts[-1], self.base_offset + self._seconds[-1]

    def cut(self, offset: int) -> None:
        """Drop the entries whose batch ends at `offset` or later."""
        self._keep(bisect_left(self._seconds, offset - self.base_offset))

    def _decode(self, content: bytes) -> Sequence[tuple[int, int]]:
        return decode_time_index(content)

    def _encode(self, entries: Sequence[tuple[int, int]]) -> bytes:
        return encode_time_index(entries)
