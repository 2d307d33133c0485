"""The files port over the operating system.

Reads and writes are whole: short ones are carried on with until they are done, so a `pwritev` that returns has written
everything, and one that raises may have written a part. Nothing here follows a symbolic link in a file's own name,
and no pipe or device is opened: what stands in a log directory is ours or it is refused.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from odradek_proto.transport.ports import Buffer, File

T = TypeVar("T")

IOV_MAX = os.sysconf("SC_IOV_MAX")
OPEN_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
FILE_MODE = 0o644
CLOSED = -1  # the kernel answers EBADF to this descriptor, so every use after `close` fails


class OsFile:
    """`File` over one descriptor. Not opened in append mode: positions are always said."""

    __slots__ = ("_fd", "_path")

    def __init__(self, path: str, fd: int) -> None:
        self._path = path
        self._fd = fd

    @property
    def path(self) -> str:
        return self._path

    def pread(self, offset: int, length: int) -> bytes:
        data = os.pread(self._fd, length, offset)
        if not data or len(data) == length:
            return data
        parts = [data]
        done = len(data)
        while done < length and (data := os.pread(self._fd, length - done, offset + done)):
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        total = 0
        for buffer in buffers:  # after each append: `sum` of a `map` takes twice as long
            total += buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)
        if len(buffers) <= IOV_MAX:
            written = os.pwritev(self._fd, buffers, offset)
            if written == total:
                return total
        else:
            written = 0
        pending = _after(buffers, written)
        while pending:
            step = os.pwritev(self._fd, pending[:IOV_MAX], offset + written)
            written += step
            pending = _after(pending, step)
        return total

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def fsync(self) -> None:
        if self._fd == CLOSED:  # for which fdatasync has a ValueError
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        os.fdatasync(self._fd)  # also writes the size, which is all the metadata that reading back needs

    def close(self) -> None:
        fd, self._fd = self._fd, CLOSED
        if fd != CLOSED:
            os.close(fd)


def _byte_length(buffer: Buffer) -> int:
    return buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)


def _after(buffers: Sequence[Buffer], done: int) -> list[Buffer]:
    """What is left of `buffers` when their first `done` bytes are written; empty ones are left out."""
    rest: list[Buffer] = []
    for buffer in buffers:
        length = _byte_length(buffer)
        if done >= length:
            done -= length
            continue
        rest.append(memoryview(buffer).cast("B")[done:] if done else buffer)
        done = 0
    return rest


class OsFiles:
    """`Files` of a real process. `threads` bounds what `offload` runs at once: flushes, recovery, cold reads."""

    def __init__(self, threads: int = 4) -> None:
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="odradek-files")
        self._computing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="odradek-computing")

    def open(self, path: str, *, create: bool = False) -> File:
        fd = os.open(path, OPEN_FLAGS | os.O_NONBLOCK | (os.O_CREAT if create else 0), FILE_MODE)
        if not stat.S_ISREG(os.fstat(fd).st_mode):  # a pipe would take what is written and never give it back
            os.close(fd)
            raise OSError(errno.EINVAL, "it is no regular file", path)
        return OsFile(path, fd)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def size(self, path: str) -> int:
        return os.stat(path, follow_symlinks=False).st_size

    def makedirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: str) -> int:
        room = os.statvfs(path)
        return room.f_bavail * room.f_frsize

    def lock(self, path: str) -> File:
        """Hold `flock` on `path`. The kernel lets go of it when the process ends, however it ends."""
        file = OsFile(path, fd := os.open(path, OPEN_FLAGS | os.O_CREAT, FILE_MODE))
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise
        return file

    async def offload(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function)

    async def compute(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._computing, function)

    def close(self) -> None:
        """Let the threads end once what they run is done. Nothing can be offloaded or computed afterwards."""
        self._pool.shutdown(wait=False)
        self._computing.shutdown(wait=False, cancel_futures=True)
