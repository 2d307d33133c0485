"""The files port of one simulated process on its machine's disk.

When the process is killed its `SimFiles` is detached: whatever its remains still write goes into private copies that
nobody sees, and its locks are free.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from odradek_proto.transport.ports import Buffer, File

from odradek_chaos.worlds.simulated.disk.disk import SimDisk, error
from odradek_chaos.worlds.simulated.disk.inodes import Directory, Inode
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop

T = TypeVar("T")

PLENTY = 1 << 40
OFFLOAD_MS = (0.05, 2.0)  # an fsync of a good disk


class SimFile:
    """`File` of one process. Its inode stays with it when the path is renamed or removed, as a descriptor does."""

    __slots__ = ("_disk", "_files", "_inode", "_is_open", "_path")

    def __init__(self, files: SimFiles, path: str, inode: Inode) -> None:
        self._files = files
        self._disk = files.disk
        self._path = path
        self._inode = inode
        self._is_open = True

    @property
    def path(self) -> str:
        return self._path

    def pread(self, offset: int, length: int) -> bytes:
        if not self._is_open:
            raise error(errno.EBADF, self._path)
        if self._disk.injections:
            self._disk.check("read", self._path)
        return bytes(memoryview(self._inode.data)[offset : offset + length])

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        if not self._is_open or self._files.detached:
            self._make_private()
        disk, inode = self._disk, self._inode
        if disk.injections:
            disk.check("write", self._path)
        data = inode.data
        before = len(data)
        piece = b"".join(buffers)
        end = offset + len(piece)
        if end > before and not self._files.detached:
            if disk.quota is not None and disk.used + end - before > disk.quota:
                self._write_what_fits(piece, offset)
            disk.used += end - before
        if offset == before >= inode.durable_size and not inode.forgotten:
            data += piece
        else:
            inode.write(offset, piece)
        if disk.recorder is not None and not self._files.detached:
            disk.recorder.write(inode, offset, piece)
        return len(piece)

    def size(self) -> int:
        if not self._is_open:
            raise error(errno.EBADF, self._path)
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        if not self._is_open or self._files.detached:
            self._make_private()
        if not self._files.detached:
            self._disk.used += size - len(self._inode.data)
            if self._disk.recorder is not None:
                self._disk.recorder.truncate(self._inode, size)
        self._inode.truncate(size)

    def fsync(self) -> None:
        if not self._is_open:
            raise error(errno.EBADF, self._path)
        if self._files.detached:
            return
        self._disk.fsyncs += 1
        if self._disk.injections:
            try:
                self._disk.check("fsync", self._path)
            except OSError:
                self._inode.fail_fsync()
                raise
        if not self._disk.lying:
            self._inode.fsync()
            if self._disk.recorder is not None and not self._inode.forgotten:
                self._disk.recorder.fsync(self._inode)

    def close(self) -> None:
        self._is_open = False
        if self._disk.locks.get(self._path) is self:
            del self._disk.locks[self._path]

    def _write_what_fits(self, piece: bytes, offset: int) -> None:
        """The disk is full: a part of the write may have happened."""
        disk, inode = self._disk, self._inode
        assert disk.quota is not None
        room = max(0, min(disk.quota - disk.used + len(inode.data) - offset, len(piece)))
        kept = piece[: disk.rng.randint(0, room)]
        disk.used += max(0, offset + len(kept) - len(inode.data)) if kept else 0
        if kept:
            inode.write(offset, kept)
            if disk.recorder is not None:
                disk.recorder.write(inode, offset, kept)
        raise error(errno.ENOSPC, self._path)

    def _make_private(self) -> None:
        """The process is dead (or the file closed): from now on this handle writes into a copy of its own."""
        if not self._is_open:
            raise error(errno.EBADF, self._path)
        if self._inode not in self._files.private:
            self._inode = self._inode.clone()
            self._files.private.append(self._inode)


class SimFiles:
    """`Files` of one incarnation of a node."""

    def __init__(
        self, disk: SimDisk, loop: SimLoop, rng: random.Random, offload_ms: tuple[float, float] = OFFLOAD_MS
    ) -> None:
        self.disk = disk
        self.offload_ms = offload_ms
        self.detached = False
        self.private: list[Inode] = []
        self._loop = loop
        self._rng = rng
        self._locks: list[SimFile] = []

    def detach(self) -> None:
        """The process is dead. Its locks are free, and nothing that it still does reaches the disk."""
        self.detached = True
        for lock in self._locks:
            lock.close()

    def open(self, path: str, *, create: bool = False) -> File:
        entry = self.disk.find(path)
        if entry is None and create:
            directory, name = self.disk.parent(path)
            entry = Inode()
            if not self.detached:
                self.disk.change(directory, (name, entry))
        return SimFile(self, path, self.disk.file(path) if entry is None or isinstance(entry, Directory) else entry)

    def exists(self, path: str) -> bool:
        return self.disk.find(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self.disk.find(path), Directory)

    def list(self, path: str) -> list[str]:
        return sorted(self.disk.directory(path).entries)

    def size(self, path: str) -> int:
        return len(self.disk.file(path).data)

    def makedirs(self, path: str) -> None:
        directory = self.disk.root
        for name in path.split("/"):
            if not name:
                continue
            entry = directory.entries.get(name)
            if isinstance(entry, Inode):
                raise error(errno.EEXIST, path)
            if entry is None:
                entry = Directory()
                if not self.detached:
                    self.disk.change(directory, (name, entry))
            directory = entry

    def rename(self, source: str, target: str) -> None:
        moved = self.disk.find(source)
        if moved is None:
            raise error(errno.ENOENT, source)
        old_parent, old_name = self.disk.parent(source)
        new_parent, new_name = self.disk.parent(target)
        replaced = new_parent.entries.get(new_name)
        _check_rename(source, target, moved, replaced)
        if self.detached or moved is replaced:
            return
        if isinstance(replaced, Inode):
            self.disk.used -= len(replaced.data)
        if old_parent is new_parent:
            self.disk.change(old_parent, (old_name, None), (new_name, moved))
        else:
            self.disk.change(new_parent, (new_name, moved))
            self.disk.change(old_parent, (old_name, None))

    def remove(self, path: str) -> None:
        inode = self.disk.file(path)
        directory, name = self.disk.parent(path)
        if not self.detached:
            self.disk.change(directory, (name, None))
            self.disk.used -= len(inode.data)

    def remove_tree(self, path: str) -> None:
        self.disk.directory(path)
        directory, name = self.disk.parent(path)
        if not self.detached:
            self.disk.used -= sum(len(inode.data) for _, inode in self.disk.walk(path))
            self.disk.change(directory, (name, None))

    def fsync_dir(self, path: str) -> None:
        directory = self.disk.directory(path)
        if self.detached:
            return
        if self.disk.injections:
            self.disk.check("fsync", path)
        if not self.disk.lying:
            directory.fsync()
            if self.disk.recorder is not None:
                self.disk.recorder.fsync_dir(directory)

    def free_bytes(self, path: str) -> int:
        return PLENTY if self.disk.quota is None else max(0, self.disk.quota - self.disk.used)

    def lock(self, path: str) -> File:
        if not self.detached and path in self.disk.locks:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        opened = self.open(path, create=True)
        assert isinstance(opened, SimFile)
        if not self.detached:
            self.disk.locks[path] = opened
            self._locks.append(opened)
        return opened

    async def offload(self, function: Callable[[], T]) -> T:
        """Half of a sampled delay, the work, and the other half: a kill may come before it, or before anybody knows."""
        half_us = round((self._rng.uniform(*self.offload_ms) + self.disk.slow_ms) * 500)
        await self._loop.sleep_us(half_us)
        result = function()
        await self._loop.sleep_us(half_us)
        return result

    async def compute(self, function: Callable[[], T]) -> T:
        """Computing costs no virtual time."""
        await self._loop.sleep_us(0)
        return function()


def _check_rename(source: str, target: str, moved: Inode | Directory, replaced: Inode | Directory | None) -> None:
    """Refuse what rename(2) refuses."""
    if target.startswith(source.rstrip("/") + "/"):
        raise error(errno.EINVAL, source)
    if isinstance(replaced, Directory):
        if isinstance(moved, Inode):
            raise error(errno.EISDIR, target)
        if replaced.entries and moved is not replaced:
            raise error(errno.ENOTEMPTY, target)
    elif isinstance(replaced, Inode) and isinstance(moved, Directory):
        raise error(errno.ENOTDIR, target)
