"""What a power loss would take from one broker's directory: everything that was not flushed.

A process's death leaves what it wrote, since the kernel has it; a machine's does not. So each change keeps what undoes
it until it is flushed: a file's bytes by `fsync` of the file, names by `fsync_dir` of their directory. Of all that a
disk may do this is the harshest: nothing is there that it had not promised.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from odradek_proto.transport.ports import Buffer


class _Bytes:
    """One file: the size that was flushed, and what stood in it where it was written over or cut since."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.before: list[tuple[int, bytes]] = []

    def restore(self, path: str) -> None:
        with open(path, "r+b") as file:
            file.truncate(self.size)
            for offset, data in reversed(self.before):
                file.seek(offset)
                file.write(data)


class _Name:
    """One change of a directory's entries: `undo` takes it back, `aside` is what it has taken away."""

    def __init__(self, directory: str, undo: Callable[[], None], aside: str | None = None) -> None:
        self.directory = directory
        self.undo = undo
        self.aside = aside


class Unflushed:
    """The changes of one broker's directory since they were last flushed; it outlives the broker's processes."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._aside = f"{root}.removed"  # for what may have to come back
        self._numbers = itertools.count()
        self._files: dict[int, _Bytes] = {}  # by inode
        self._names: list[_Name] = []  # in the order of their changes

    # --- Before a change --------------------------------------------------------------------------------------------

    def write(self, fd: int, inode: int, offset: int, buffers: Sequence[Buffer]) -> None:
        """Bytes are about to be written."""
        known = self._known(fd, inode)
        if offset < known.size:
            length = sum(memoryview(buffer).nbytes for buffer in buffers)
            self._keep(known, fd, offset, min(offset + length, known.size))

    def cut(self, fd: int, inode: int, size: int) -> None:
        """A file is about to be truncated."""
        known = self._known(fd, inode)
        if size < known.size:
            self._keep(known, fd, size, known.size)

    def _known(self, fd: int, inode: int) -> _Bytes:
        known = self._files.get(inode)
        if known is None:
            known = self._files[inode] = _Bytes(os.fstat(fd).st_size)
        return known

    @staticmethod
    def _keep(known: _Bytes, fd: int, start: int, end: int) -> None:
        known.before.append((start, os.pread(fd, end - start, start)))

    def create(self, path: str) -> None:
        """A file or a directory is being made."""
        self._note(path, lambda: _take_away(path))

    def replace(self, source: str, target: str) -> None:
        """A rename is about to happen."""
        place = self._place()
        kept: str | None = place
        try:
            os.link(target, place)
        except FileNotFoundError:
            kept = None  # nothing has the name yet

        def undo() -> None:
            os.replace(target, source)
            if kept is not None:
                os.replace(kept, target)

        self._note(target, undo, kept)

    def remove(self, path: str) -> None:
        """Remove a file or a directory with all that is below."""
        kept = self._place()
        os.replace(path, kept)
        self._note(path, lambda: os.replace(kept, path), kept)

    def _note(self, path: str, undo: Callable[[], None], aside: str | None = None) -> None:
        self._names.append(_Name(path.rpartition("/")[0], undo, aside))

    def _place(self) -> str:
        number = next(self._numbers)
        if not number:
            os.makedirs(self._aside, exist_ok=True)
        return f"{self._aside}/{number}"

    # --- Flushes and the loss of power ------------------------------------------------------------------------------

    def flushed(self, inode: int) -> None:
        """A file's bytes and size are durable."""
        self._files.pop(inode, None)

    def flushed_names(self, directory: str) -> None:
        """A directory's entries are durable."""
        for name in self._names:
            if name.directory == directory and name.aside is not None:
                self._forget(name.aside)
        self._names = [name for name in self._names if name.directory != directory]

    def lose(self) -> None:
        """Take back whatever is not durable. Call it while no process uses the directory."""
        for name in reversed(self._names):
            with contextlib.suppress(FileNotFoundError):  # its directory has another name by now, which is durable
                name.undo()
        for folder, _, files in os.walk(self._root):
            for file in files:
                path = os.path.join(folder, file)
                known = self._files.get(os.stat(path).st_ino)
                if known is not None:
                    known.restore(path)
        self._names.clear()
        self._files.clear()

    def _forget(self, kept: str) -> None:
        """What was removed will not come back; another file may get its inode."""
        if os.path.isdir(kept):
            for folder, _, files in os.walk(kept):
                for file in files:
                    self._files.pop(os.stat(os.path.join(folder, file)).st_ino, None)
        with contextlib.suppress(FileNotFoundError):
            self._files.pop(os.stat(kept).st_ino, None)
        _take_away(kept)


def _take_away(path: str) -> None:
    try:
        os.remove(path)
    except IsADirectoryError:
        shutil.rmtree(path)
