"""A simulated disk, and the files port of one process on it.

What a kill leaves: everything written, since the page cache survives it. What a power loss leaves: what was flushed,
and of the rest some part (see inodes.py). A killed process's `SimFiles` is detached: whatever its remains still
write goes into private copies that nobody sees.

Faults: `quota` (ENOSPC), `inject` (EIO and the like), `flip` (a bit), `lying` (fsync that does nothing). A failed
fsync leaves the file as Linux does: later fsyncs succeed, and what was dirty then never reaches the disk.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from odradek_proto.transport.ports import Buffer, File

from odradek_chaos.worlds.simulated.inodes import Directory, Inode
from odradek_chaos.worlds.simulated.loop import SimLoop

T = TypeVar("T")
Operation = Literal["read", "write", "fsync"]

PLENTY = 1 << 40
OFFLOAD_MS = (0.05, 2.0)  # an fsync of a good disk


def error(code: int, path: str) -> OSError:
    """The `OSError` subclass that the system would raise."""
    return OSError(code, os.strerror(code), path)


@dataclass
class Injection:
    """An error that the next `times` operations of a kind get, on paths that contain `path`."""

    operation: Operation
    path: str
    times: int
    code: int


class SimDisk:
    """The state of one machine's disk. It outlives the processes that use it."""

    def __init__(self, rng: random.Random, quota: int | None = None) -> None:
        self.rng = rng
        self.quota = quota  # bytes of all files together; may be changed at any time
        self.lying = False
        self.used = 0
        self.fsyncs = 0
        self.injections: list[Injection] = []
        self.locks: dict[str, SimFile] = {}
        self.root = Directory()

    def inject(self, operation: Operation, path: str = "", times: int = 1, code: int = errno.EIO) -> None:
        self.injections.append(Injection(operation, path, times, code))

    def flip(self, path: str, offset: int, bit: int = 0) -> None:
        """Turn one bit over, in the page cache and on the medium."""
        inode = self.file(path)
        inode.data[offset] ^= 1 << bit
        sector, place = divmod(offset, 512)
        if (old := inode.saved.get(sector)) is not None and place < len(old):
            inode.saved[sector] = old[:place] + bytes((old[place] ^ 1 << bit,)) + old[place + 1 :]

    def power_loss(self, rng: random.Random | None = None) -> None:
        """Forget what was not made durable, wholly or in part. Call it after the processes' files are detached."""
        self.root.lose_power(rng or self.rng)
        self.used = sum(len(inode.data) for _, inode in self.walk())

    def walk(self, path: str = "/") -> Iterator[tuple[str, Inode]]:
        """Every file below a directory with its path, in the order of names."""
        entry = self.find(path)
        if isinstance(entry, Inode):
            yield path, entry
        elif entry is not None:
            for name in sorted(entry.entries):
                yield from self.walk(path.rstrip("/") + "/" + name)

    def read(self, path: str) -> bytes:
        """A file's current bytes, for checkers: no fault is injected."""
        return bytes(self.file(path).data)

    def find(self, path: str) -> Inode | Directory | None:
        entry: Inode | Directory | None = self.root
        for name in path.split("/"):
            if name:
                if not isinstance(entry, Directory):
                    return None
                entry = entry.entries.get(name)
        return entry

    def file(self, path: str) -> Inode:
        entry = self.find(path)
        if entry is None:
            raise error(errno.ENOENT, path)
        if isinstance(entry, Directory):
            raise error(errno.EISDIR, path)
        return entry

    def directory(self, path: str) -> Directory:
        entry = self.find(path)
        if entry is None:
            raise error(errno.ENOENT, path)
        if isinstance(entry, Inode):
            raise error(errno.ENOTDIR, path)
        return entry

    def parent(self, path: str) -> tuple[Directory, str]:
        """The directory that holds `path`, and its name there."""
        head, _, name = path.rstrip("/").rpartition("/")
        return self.directory(head), name

    def check(self, operation: Operation, path: str) -> None:
        """Raise the error that was injected for this operation, if any."""
        for injection in self.injections:
            if injection.operation == operation and injection.path in path:
                injection.times -= 1
                if injection.times <= 0:
                    self.injections.remove(injection)
                raise error(injection.code, path)


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
        if offset == before >= inode.durable_size:
            data += piece
        else:
            inode.write(offset, piece)
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
                self._inode.poisoned = True
                raise
        if not self._disk.lying:
            self._inode.fsync()

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
                directory.change((name, entry))
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
                    directory.change((name, entry))
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
            old_parent.change((old_name, None), (new_name, moved))
        else:
            new_parent.change((new_name, moved))
            old_parent.change((old_name, None))

    def remove(self, path: str) -> None:
        inode = self.disk.file(path)
        directory, name = self.disk.parent(path)
        if not self.detached:
            directory.change((name, None))
            self.disk.used -= len(inode.data)

    def remove_tree(self, path: str) -> None:
        self.disk.directory(path)
        directory, name = self.disk.parent(path)
        if not self.detached:
            self.disk.used -= sum(len(inode.data) for _, inode in self.disk.walk(path))
            directory.change((name, None))

    def fsync_dir(self, path: str) -> None:
        directory = self.disk.directory(path)
        if self.detached:
            return
        if self.disk.injections:
            self.disk.check("fsync", path)
        if not self.disk.lying:
            directory.fsync()

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
        half_s = self._rng.uniform(*self.offload_ms) / 2000
        await asyncio.sleep(half_s)
        result = function()
        await asyncio.sleep(half_s)
        return result


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
