"""The files of one broker in a process that outlives it.

When a process is killed the kernel closes its files, and nothing that it would still have done happens. Here the
process lives on: so a killed broker's files are detached first. From then on its writes, flushes, renames and removals
go nowhere and say that all went well, and when its last thread is at rest its descriptors are closed, locks with them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from odradek_proto.transport.files import FILE_MODE, OPEN_FLAGS, OsFile, OsFiles
from odradek_proto.transport.ports import Buffer, File

T = TypeVar("T")

THREADS = 4  # as many as a broker in a process of its own has


class BrokerFile(OsFile):
    """An open file that its broker's death makes deaf."""

    __slots__ = ("_files",)

    def __init__(self, files: BrokerFiles, path: str, fd: int) -> None:
        super().__init__(path, fd)
        self._files = files

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        if self._files.detached:
            return sum(memoryview(buffer).nbytes for buffer in buffers)
        return super().pwritev(buffers, offset)

    def truncate(self, size: int) -> None:
        if not self._files.detached:
            super().truncate(size)

    def fsync(self) -> None:
        if not self._files.detached:
            super().fsync()

    def close(self) -> None:
        self._files.opened.discard(self)
        super().close()


class BrokerFiles(OsFiles):
    """`Files` of one life of one broker; `detach` when it is killed, `finish` at its end, however it ended."""

    def __init__(self) -> None:
        super().__init__(threads=1)
        self.detached = False
        self.opened: set[File] = set()
        self._threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="odradek-files")
        self._running: set[Future[Any]] = set()

    def detach(self) -> None:
        """Let nothing reach the disk any more."""
        self.detached = True

    async def finish(self) -> None:
        """Wait for what runs in threads, end them, and close what was left open."""
        if self._running:
            await asyncio.wait([asyncio.wrap_future(future) for future in self._running])
        self._threads.shutdown()  # they are idle: this takes no time
        self.close()
        for file in tuple(self.opened):
            file.close()

    async def offload(self, function: Callable[[], T]) -> T:
        future = self._threads.submit(function)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return await asyncio.wrap_future(future)

    # --- What changes the disk --------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> File:
        if self.detached and create and not os.path.lexists(path):
            path = os.devnull  # what a dead broker makes is nothing, and empty
        flags = OPEN_FLAGS | (os.O_CREAT if create and not self.detached else 0)
        file = BrokerFile(self, path, os.open(path, flags, FILE_MODE))
        self.opened.add(file)
        return file

    def lock(self, path: str) -> File:
        if self.detached:
            raise BlockingIOError(path)
        file = super().lock(path)
        self.opened.add(file)
        return file

    def rename(self, source: str, target: str) -> None:
        if not self.detached:
            super().rename(source, target)

    def remove(self, path: str) -> None:
        if not self.detached:
            super().remove(path)

    def remove_tree(self, path: str) -> None:
        if not self.detached:
            super().remove_tree(path)

    def makedirs(self, path: str) -> None:
        if not self.detached:
            super().makedirs(path)

    def fsync_dir(self, path: str) -> None:
        if not self.detached:
            super().fsync_dir(path)
