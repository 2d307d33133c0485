"""A disk that stops in the middle of what it is told, for tests of what a crash leaves (R-239)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from odradek_broker.core.quorum.messages import Snapshot, SnapshotId
from odradek_broker.storage.metadata_snapshots import MetadataSnapshots, SnapshotWriter
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_proto.transport.lock_holders import LOCK
from odradek_proto.transport.ports import Buffer, File, Files


class PowerLost(Exception):
    """The machine stopped."""


class CrashingFiles(SimFiles):
    """A disk that stops before the change number `steps`, and counts changes."""

    def __init__(self, disk: SimDisk, steps: int) -> None:
        super().__init__(disk, SimLoop(), random.Random(0))
        self.left = steps
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        if self.left <= 0:
            raise PowerLost
        self.left -= 1

    def open(self, path: str, *, create: bool = False) -> File:
        if create and not self.exists(path):
            self.step()
        opened = super().open(path, create=create)
        return opened if path.endswith(LOCK) else CrashingFile(self, opened)

    def rename(self, source: str, target: str) -> None:
        self.step()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self.step()
        super().remove(path)

    def fsync_dir(self, path: str) -> None:
        self.step()
        super().fsync_dir(path)


class CrashingFile:
    """One file of it."""

    def __init__(self, files: CrashingFiles, file: File) -> None:
        self._files = files
        self._file = file
        self.pread = file.pread
        self.size = file.size
        self.close = file.close

    @property
    def path(self) -> str:
        return self._file.path

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        self._files.step()
        return self._file.pwritev(buffers, offset)

    def truncate(self, size: int) -> None:
        self._files.step()
        self._file.truncate(size)

    def fsync(self) -> None:
        self._files.step()
        self._file.fsync()


def write_snapshot(
    files: Files, snapshots: MetadataSnapshots, snapshot: SnapshotId, records: Iterator[bytes], timestamp_ms: int
) -> Snapshot:
    """A snapshot of the metadata, written as a node does it."""
    writer = SnapshotWriter(files, snapshots, snapshot, records, timestamp_ms)
    writer.begin()
    while writer.write_some():
        pass
    return writer.finish()
