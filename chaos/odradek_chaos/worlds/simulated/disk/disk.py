"""The disk of a simulated machine.

What a kill leaves: everything written, since the page cache survives it. What a power loss leaves: what was flushed,
and of the rest some part (see inodes.py).

Faults: `quota` (ENOSPC), `inject` (EIO and the like), `flip` (a bit), `lying` (fsync that does nothing). A failed
fsync leaves the file as Linux does: later fsyncs succeed, and what was dirty then never reaches the disk.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from odradek_chaos.worlds.simulated.disk.inodes import SECTOR, Directory, Entry, Inode
from odradek_chaos.worlds.simulated.disk.recording import Recorder

Operation = Literal["read", "write", "fsync"]


@lru_cache(maxsize=1024)  # looked up at every step of a broker
def _names_in(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name)


def _files_of(path: str, entry: Entry) -> Iterator[tuple[str, Inode]]:
    if isinstance(entry, Inode):
        yield path, entry
        return
    for name, below in sorted(entry.entries.items()):  # of equal names there is one: entries are never compared
        yield from _files_of(f"{path.rstrip('/')}/{name}", below)


def error(code: int, path: str) -> OSError:
    """The `OSError` subclass that the system would raise."""
    return OSError(code, os.strerror(code), path)


@dataclass
class InjectedError:
    """An error of the next `times` operations of a kind, on paths that contain `path`. The first one is told of."""

    operation: Operation
    path: str
    times: int
    code: int
    on_first: Callable[[], None] | None = None


class SimDisk:
    """The state of one machine's disk. It outlives the processes that use it."""

    def __init__(self, rng: random.Random, quota: int | None = None) -> None:
        self.rng = rng
        self.quota = quota  # bytes of all files together; may be changed at any time
        self.lying = False
        self.slow_ms = 0.0  # added to all that is offloaded
        self.used = 0
        self.fsyncs = 0
        self.injections: list[InjectedError] = []
        self.locks: dict[str, object] = {}  # path to the open file that holds the lock
        self.root = Directory()
        self.recorder: Recorder | None = None  # told of all that processes do; faults that change bytes are not

    def inject(
        self,
        operation: Operation,
        path: str = "",
        times: int = 1,
        code: int = errno.EIO,
        on_first: Callable[[], None] | None = None,
    ) -> None:
        self.injections.append(InjectedError(operation, path, times, code, on_first))

    def heal(self) -> None:
        """It has room, is fast, tells the truth and fails no operation. What it has forgotten stays forgotten."""
        self.quota, self.slow_ms, self.lying = None, 0.0, False
        self.injections.clear()

    def flip(self, path: str, offset: int, bit: int = 0) -> None:
        """Turn one bit over, in the page cache and on the medium."""
        inode = self.file(path)
        inode.data[offset] ^= 1 << bit
        sector, place = divmod(offset, SECTOR)
        if (old := inode.saved.get(sector)) is not None and place < len(old):
            inode.saved[sector] = old[:place] + bytes((old[place] ^ 1 << bit,)) + old[place + 1 :]

    def power_loss(self, rng: random.Random | None = None) -> None:
        """Forget what was not made durable, wholly or in part. Call it after the processes' files are detached."""
        self.root.lose_power(rng or self.rng)
        self.used = sum(len(inode.data) for _, inode in self.walk())
        if self.recorder is not None:
            self.recorder.begin(self.root)

    def change(self, directory: Directory, *steps: tuple[str, Entry | None]) -> None:
        """Change entries of a directory as one."""
        directory.change(*steps)
        if self.recorder is not None:
            self.recorder.change(directory, steps)

    def walk(self, path: str = "/") -> Iterator[tuple[str, Inode]]:
        """Every file below a directory with its path, in the order of names."""
        entry = self.find(path)
        if entry is not None:
            yield from _files_of(path, entry)

    def read(self, path: str) -> bytes:
        """A file's current bytes, for checkers: no fault is injected."""
        return bytes(self.file(path).data)

    def find(self, path: str) -> Inode | Directory | None:
        entry: Inode | Directory | None = self.root
        for name in _names_in(path):
            if type(entry) is not Directory:
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
                if injection.on_first is not None:
                    injection.on_first()
                    injection.on_first = None
                injection.times -= 1
                if injection.times <= 0:
                    self.injections.remove(injection)
                raise error(injection.code, path)
