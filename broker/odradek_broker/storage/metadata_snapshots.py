"""The snapshots of a metadata log, in its directory (KIP-630).

Rules of this module. A snapshot has its name only when it is complete and on the disk: it is written, or received, as a
`.part`, flushed, renamed, and the directory is flushed. What is damaged all the same is found out by whoever reads it
to the end, and set aside under another name, so that people can look at it and nobody is sent it. Everything is
blocking.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from odradek_proto.metadata_snapshots import (
    PART_SUFFIX,
    CorruptSnapshot,
    encode_snapshot_footer,
    encode_snapshot_header,
    encode_snapshot_records,
    parse_snapshot_file_name,
    snapshot_file_name,
    snapshot_records,
    snapshot_timestamp,
)
from odradek_proto.transport.ports import File, Files

from odradek_broker.core.quorum.messages import Snapshot, SnapshotId

RECORDS_PER_BATCH = 500  # also the work that is done at once: a few milliseconds
DAMAGED_SUFFIX = ".damaged"


class MetadataSnapshots:
    """The snapshot files of one directory. Which of them are kept is not decided here."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self.directory = directory

    def path(self, snapshot: SnapshotId) -> str:
        return f"{self.directory}/{snapshot_file_name(snapshot.end_offset, snapshot.epoch)}"

    def tidy(self) -> None:
        """Remove what an earlier life began to write and did not finish."""
        for name in self._files.list(self.directory):
            if name.endswith(PART_SUFFIX):
                self._files.remove(f"{self.directory}/{name}")

    def found(self) -> list[SnapshotId]:
        """What lies there, the oldest first; unread."""
        names = (parse_snapshot_file_name(name) for name in self._files.list(self.directory))
        return sorted((SnapshotId(*name) for name in names if name is not None), key=lambda each: each.end_offset)

    def describe(self, snapshot: SnapshotId, *, part: bool = False) -> Snapshot:
        """Its size and timestamp. Raises `CorruptSnapshot` when the header cannot be read, and `OSError`."""
        file = self._files.open(self.path(snapshot) + (PART_SUFFIX if part else ""))
        try:
            return Snapshot(snapshot, file.size(), snapshot_timestamp(file.pread))
        finally:
            file.close()

    def records(self, snapshot: SnapshotId, *, part: bool = False) -> Iterator[bytes]:
        """The values of its records. Raises `CorruptSnapshot`, at the latest at the end, and `OSError`."""
        file = self._files.open(self.path(snapshot) + (PART_SUFFIX if part else ""))
        try:
            yield from snapshot_records(file.pread, file.size(), snapshot.epoch)
        finally:
            file.close()

    def read(self, snapshot: SnapshotId, position: int, max_bytes: int) -> bytes:
        """A piece of the file. Raises `OSError`."""
        file = self._files.open(self.path(snapshot))
        try:
            return file.pread(position, max_bytes)
        finally:
            file.close()

    def receive(self, snapshot: SnapshotId, position: int, data: bytes) -> None:
        """Write a piece of what another node sends; the one at 0 begins anew. Raises `OSError`."""
        file = self._files.open(self.path(snapshot) + PART_SUFFIX, create=True)
        try:
            file.truncate(position)
            file.pwritev([data], position)
        finally:
            file.close()

    def complete(self, snapshot: SnapshotId) -> None:
        """Give a part that is whole its name, for good. Raises `OSError`."""
        path = self.path(snapshot)
        file = self._files.open(path + PART_SUFFIX)
        try:
            file.fsync()
        finally:
            file.close()
        self._files.rename(path + PART_SUFFIX, path)
        self._files.fsync_dir(self.directory)

    def drop_below(self, end_offset: int) -> None:
        """Remove the snapshots that end below an offset, the oldest first. Raises `OSError`.

        A power loss may bring them back: they are as good as they were.
        """
        for snapshot in self.found():
            if snapshot.end_offset < end_offset:
                self._files.remove(self.path(snapshot))

    def discard_part(self, snapshot: SnapshotId) -> None:
        """Give up what was received of a snapshot."""
        path = self.path(snapshot) + PART_SUFFIX
        if self._files.exists(path):
            self._files.remove(path)

    def set_aside(self, snapshot: SnapshotId) -> None:
        """Keep a damaged one for people to look at, under a name that nobody reads."""
        self._files.rename(self.path(snapshot), self.path(snapshot) + DAMAGED_SUFFIX)


class SnapshotWriter:
    """Writes one snapshot, a batch at a time, so that whoever has to wait for it never waits for long."""

    def __init__(
        self,
        files: Files,
        snapshots: MetadataSnapshots,
        snapshot: SnapshotId,
        values: Iterator[bytes],
        last_timestamp: int,
    ) -> None:
        """`last_timestamp` is that of the last record below the snapshot's end, in ms. Nothing is written before
        `begin`.
        """
        self._files = files
        self.snapshot = snapshot
        self._snapshots = snapshots
        self._values = values
        self._timestamp = last_timestamp
        self._file: File | None = None
        self._position = 0
        self._next_offset = 1

    def begin(self) -> None:
        """The header. Raises `OSError`."""
        self._file = self._files.open(self._snapshots.path(self.snapshot) + PART_SUFFIX, create=True)
        self._file.truncate(0)
        self._write(encode_snapshot_header(self.snapshot.epoch, self._timestamp))

    def write_some(self) -> bool:
        """Write the next batch of records; false when there are none left. Raises `OSError`."""
        values = list(islice(self._values, RECORDS_PER_BATCH))
        if not values:
            return False
        self._write(encode_snapshot_records(values, self._next_offset, self.snapshot.epoch, self._timestamp))
        self._next_offset += len(values)
        return True

    def finish(self) -> Snapshot:
        """The footer, and the name. Raises `OSError`."""
        self._write(encode_snapshot_footer(self._next_offset, self.snapshot.epoch, self._timestamp))
        self._close()
        self._snapshots.complete(self.snapshot)
        return Snapshot(self.snapshot, self._position, self._timestamp)

    def abandon(self) -> None:
        """Leave the rest unwritten."""
        self._close()
        self._snapshots.discard_part(self.snapshot)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, batch: bytes) -> None:
        assert self._file is not None, "begin comes first"
        self._position += self._file.pwritev([batch], self._position)


__all__ = ["CorruptSnapshot", "MetadataSnapshots", "SnapshotWriter"]
