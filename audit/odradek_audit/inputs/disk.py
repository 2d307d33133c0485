"""How the audit reads files: read-only, positional, from a real disk or from a simulated one.

Nothing here writes. Symbolic links, pipes and devices inside a log directory are not followed: a hostile directory
must not make the auditor wait or read elsewhere.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Protocol


class FileSystem(Protocol):
    """What the audit needs of a file system. Paths are strings; failures are `OSError`."""

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        ...

    def is_dir(self, path: str) -> bool: ...

    def is_file(self, path: str) -> bool:
        """Raises `PermissionError` where nobody may know."""
        ...

    def size(self, path: str) -> int: ...

    def read(self, path: str, position: int, length: int) -> bytes:
        """Up to `length` bytes from `position`; fewer only at the end of the file."""
        ...


@dataclass(frozen=True)
class LocalDisk:
    """This machine's file system. Holds no state, so it can be sent to Spark's workers."""

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path) and not os.path.islink(path)

    def is_file(self, path: str) -> bool:
        try:
            return stat.S_ISREG(os.lstat(path).st_mode)
        except PermissionError:
            raise  # it is not known
        except OSError:
            return False

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def read(self, path: str, position: int, length: int) -> bytes:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
        try:
            return _read_fully(descriptor, position, length)
        finally:
            os.close(descriptor)


def _read_fully(descriptor: int, position: int, length: int) -> bytes:
    data = os.pread(descriptor, length, position)
    if len(data) == length or not data:
        return data
    pieces = [data]
    done = len(data)
    while done < length:
        piece = os.pread(descriptor, length - done, position + done)
        if not piece:
            break
        pieces.append(piece)
        done += len(piece)
    return b"".join(pieces)


def join(directory: str, name: str) -> str:
    """A path below a directory; the separator is `/` in both worlds."""
    return f"{directory.rstrip('/')}/{name}"
