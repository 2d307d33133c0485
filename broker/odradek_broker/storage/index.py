"""The two sparse indexes of a segment: offset to position, and timestamp to offset (R-227).

Rules of this module. The memory has all entries, the file may lack the newest: indexes of segments above the recovery
point are rebuilt after a crash, so writing each entry at once would buy nothing. `save` writes what is missing, and is
called before a segment becomes inactive, before a clean end, and now and then.

Readers in other threads see a consistent index: offsets are entered before positions, and a cut makes new arrays.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from odradek_proto.formats import (
    OFFSET_INDEX_ENTRY_SIZE,
    TIME_INDEX_ENTRY_SIZE,
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
        file = self.open()
        return file.pread(0, file.size())

    def settle(self, count: int) -> None:
        """Say how many entries were read. Kafka pads the index of an active segment with zeros: they go."""
        self.saved = count
        if self.open().size() != count * self.entry_size:
            self.cut(count)

    def add(self, content: bytes, count: int) -> None:
        if content:
            self.open().pwritev([content], self.saved * self.entry_size)
            self.saved += count

    def cut(self, count: int) -> None:
        """Keep the first `count` entries, whatever the file holds behind them."""
        self.saved = min(self.saved, count)
        self.open().truncate(self.saved * self.entry_size)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class OffsetIndex:
    """Pairs of (last offset of a batch, position where this batch starts), both counted from the segment's start."""

    __slots__ = ("_file", "_offsets", "_positions", "base_offset")

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        self.base_offset = base_offset
        self._file = _IndexFile(files, path, OFFSET_INDEX_ENTRY_SIZE)
        self._offsets = array("i")
        self._positions = array("i")

    def __len__(self) -> int:
        return len(self._positions)

    def load(self) -> None:
        """Read the file. Raises `CorruptFile` when it is no index (R-236)."""
        entries = decode_offset_index(self._file.read())
        self._offsets = array("i", [entry.relative_offset for entry in entries])
        self._positions = array("i", [entry.position for entry in entries])
        self._file.settle(len(entries))

    def reset(self) -> None:
        """Forget all entries, in the file too."""
        self._offsets, self._positions = array("i"), array("i")
        self._file.cut(0)

    def append(self, offset: int, position: int) -> None:
        self._offsets.append(offset - self.base_offset)
        self._positions.append(position)
        if len(self._positions) - self._file.saved >= UNSAVED_ENTRIES:
            self.save()

    def lookup(self, offset: int) -> int:
        """The position of the last indexed batch that ends at or below `offset`; 0, the start, when there is none."""
        offsets, positions = self._offsets, self._positions
        place = bisect_right(offsets, offset - self.base_offset, 0, len(positions))
        return positions[place - 1] if place else 0

    @property
    def last_position(self) -> int:
        return self._positions[-1] if self._positions else 0

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._offsets, self._positions, strict=False))

    def cut(self, offset: int) -> None:
        """Drop the entries of batches that end at `offset` or later."""
        place = bisect_left(self._offsets, offset - self.base_offset)
        self._offsets, self._positions = self._offsets[:place], self._positions[:place]
        self._file.cut(place)

    def save(self) -> None:
        """Write what the file lacks. Raises `OSError`."""
        saved = self._file.saved
        pending = list(zip(self._offsets[saved:], self._positions[saved:], strict=True))
        self._file.add(encode_offset_index(pending), len(pending))

    def create(self) -> None:
        self._file.cut(0)

    def fsync(self) -> None:
        self._file.open().fsync()

    def close(self) -> None:
        self._file.close()


class TimeIndex:
    """Pairs of (largest timestamp so far, last offset of the batch that has it), strictly rising timestamps."""

    __slots__ = ("_file", "_offsets", "_timestamps", "base_offset")

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        self.base_offset = base_offset
        self._file = _IndexFile(files, path, TIME_INDEX_ENTRY_SIZE)
        self._timestamps = array("q")
        self._offsets = array("i")

    def __len__(self) -> int:
        return len(self._offsets)

    def load(self) -> None:
        """Read the file. Raises `CorruptFile` when it is no index (R-236)."""
        entries = decode_time_index(self._file.read())
        self._timestamps = array("q", [entry.timestamp for entry in entries])
        self._offsets = array("i", [entry.relative_offset for entry in entries])
        self._file.settle(len(entries))

    def reset(self) -> None:
        self._timestamps, self._offsets = array("q"), array("i")
        self._file.cut(0)

    def append(self, timestamp: int, offset: int) -> None:
        """Enter the largest timestamp so far, unless the last entry has it already."""
        timestamps = self._timestamps
        if timestamp < 0 or (timestamps and timestamp <= timestamps[-1]):
            return
        timestamps.append(timestamp)
        self._offsets.append(offset - self.base_offset)
        if len(self._offsets) - self._file.saved >= UNSAVED_ENTRIES:
            self.save()

    def lookup(self, timestamp: int) -> int | None:
        """An offset below which every timestamp is below `timestamp`; None when the index cannot tell."""
        timestamps, offsets = self._timestamps, self._offsets
        place = bisect_left(timestamps, timestamp, 0, len(offsets))
        return self.base_offset + offsets[place - 1] if place else None

    @property
    def last(self) -> tuple[int, int] | None:
        """The largest timestamp that is indexed, with its offset."""
        if not self._offsets:
            return None
        return self._timestamps[-1], self.base_offset + self._offsets[-1]

    @property
    def entries(self) -> Sequence[tuple[int, int]]:
        return list(zip(self._timestamps, self._offsets, strict=False))

    def cut(self, offset: int) -> None:
        """Drop the entries whose batch ends at `offset` or later."""
        place = bisect_left(self._offsets, offset - self.base_offset)
        self._timestamps, self._offsets = self._timestamps[:place], self._offsets[:place]
        self._file.cut(place)

    def save(self) -> None:
        saved = self._file.saved
        pending = list(zip(self._timestamps[saved:], self._offsets[saved:], strict=True))
        self._file.add(encode_time_index(pending), len(pending))

    def create(self) -> None:
        self._file.cut(0)

    def fsync(self) -> None:
        self._file.open().fsync()

    def close(self) -> None:
        self._file.close()
