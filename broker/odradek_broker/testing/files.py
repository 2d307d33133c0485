"""The files of one broker in a process that outlives it.

When a process is killed the kernel closes its files, and nothing that it would still have done happens. Here the
process lives on: so a killed broker's files are detached first. From then on its writes, flushes, renames and removals
go nowhere and say that all went well.

Nothing is flushed to the medium, since nobody outlives this machine's loss of power: a flush is noted (`unflushed`),
so that a broker can lose its own. What is offloaded is done at once: no thread has to wait for a disk.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from odradek_proto.transport.files import CLOSED, FILE_MODE, OPEN_FLAGS, OsFile, OsFiles
from odradek_proto.transport.ports import Buffer, File

from odradek_broker.testing.unflushed import Unflushed

T = TypeVar("T")


class BrokerFile(OsFile):
    """An open file that its broker's death makes deaf."""

    __slots__ = ("_files", "_inode")

    def __init__(self, files: BrokerFiles, path: str, fd: int) -> None:
        super().__init__(path, fd)
        self._files = files
        self._inode = os.fstat(fd).st_ino  # nobody else has it while this is open

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        if self._files.detached:
            return sum(memoryview(buffer).nbytes for buffer in buffers)
        self._files.unflushed.write(self._fd, self._inode, offset, buffers)
        return super().pwritev(buffers, offset)

    def truncate(self, size: int) -> None:
        if not self._files.detached:
            self._files.unflushed.cut(self._fd, self._inode, size)
            super().truncate(size)

    def fsync(self) -> None:
        if self._fd == CLOSED:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        if not self._files.detached:
            self._files.unflushed.flushed(self._inode)

    def close(self) -> None:
        self._files.opened.discard(self)
        super().close()


class BrokerFiles(OsFiles):
    """`Files` of one life of one broker; `detach` when it is killed, `close` at its end, however it ended."""

    def __init__(self, unflushed: Unflushed) -> None:
        super().__init__(threads=1)
        self.unflushed = unflushed
        self.detached = False
        self.opened: set[File] = set()

    def detach(self) -> None:
        """Let nothing reach the disk any more."""
        self.detached = True

    def close(self) -> None:
        """Close what was left open."""
        super().close()
        for file in tuple(self.opened):
            file.close()

    async def offload(self, function: Callable[[], T]) -> T:
        await asyncio.sleep(0)  # others have their turn, as while a thread works
        return function()

    # --- What changes the disk --------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> File:
        if self.detached and create and not os.path.lexists(path):
            path = os.devnull  # what a dead broker makes is nothing, and empty
        file = BrokerFile(self, path, self._open(path, create=create and not self.detached))
        self.opened.add(file)
        return file

    def _open(self, path: str, *, create: bool) -> int:
        if create:
            try:
                made = os.open(path, OPEN_FLAGS | os.O_CREAT | os.O_EXCL, FILE_MODE)
            except FileExistsError:
                pass
            else:
                self.unflushed.create(path)
                return made
        return os.open(path, OPEN_FLAGS)

    def lock(self, path: str) -> File:
        if self.detached:
            raise BlockingIOError(path)
        file = super().lock(path)
        self.opened.add(file)
        return file

    def rename(self, source: str, target: str) -> None:
        if not self.detached:
            self.unflushed.replace(source, target)
            super().rename(source, target)

    def remove(self, path: str) -> None:
        if not self.detached:
            self.unflushed.remove(path)

    def remove_tree(self, path: str) -> None:
        if not self.detached:
            self.unflushed.remove(path)

    def makedirs(self, path: str) -> None:
        if not self.detached:
            if not os.path.lexists(path):
                self.unflushed.create(path)
            super().makedirs(path)

    def fsync_dir(self, path: str) -> None:
        if not self.detached:
            self.unflushed.flushed_names(path)
