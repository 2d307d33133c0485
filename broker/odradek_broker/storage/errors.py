"""What can go wrong between the broker and its disk. Each error says what the caller may still do.

`OSError` never leaves storage's public methods as such, but for reads that the operating system refuses while a log is
opened: the broker then does not start, and says why.
"""

from __future__ import annotations

import errno
import logging

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
ROOM_BYTES = 1 << 20  # with less than that free a disk counts as full: it is more than the next appends need
logger = logging.getLogger("odradek.storage")


class StorageError(Exception):
    """Everything that storage raises on purpose."""


class LogDirectoryFailed(StorageError):
    """A write, a flush or a cut failed: nothing in this log directory may be trusted to reach the disk any more.

    It goes offline and the failed call is never repeated: after a failed fsync the kernel may have dropped the pages
    and would answer the next one with success (R-238).
    """


class DiskFull(StorageError):
    """There was no room for an append, or for a checkpoint. All is as it was before, and may succeed later."""


class LogCorrupted(StorageError):
    """Bytes of a log are not what was written: they are not served (R-234), and the replica has to be repaired."""

    def __init__(self, path: str, position: int, offset: int, reason: str) -> None:
        super().__init__(f"{path}: {reason} at byte {position} (offset {offset})")
        self.path = path
        self.position = position
        self.offset = offset
        self.reason = reason


class CannotDecompress(StorageError):
    """A batch had to be looked into, and the library of its codec is not installed."""


class AppendOutOfOrder(StorageError):
    """A batch that starts below the end of the log, or of the batch before it (R-85, R-221)."""


class InconsistentTopicId(StorageError):
    """The directory belongs to another topic of the same name."""


class LogDirectoryLocked(StorageError):
    """Another process uses the log directory."""


class LogDirectoryUnusable(StorageError):
    """The log directory cannot be made, or nothing may be written there."""


class WrongLogDirectory(StorageError):
    """The log directory belongs to another node or another cluster."""


def is_no_room(error: BaseException) -> bool:
    """Whether the disk had no room, and nothing else was wrong."""
    return isinstance(error, DiskFull) or (isinstance(error, OSError) and error.errno in NO_ROOM)


def log_ignored(path: str, reason: object) -> None:
    """A bad file is not used; what depends on it is found out again. Called from threads, too."""
    logger.info("%s is bad and ignored: %s", path, reason)


def log_rebuilt(path: str, reason: object) -> None:
    """A bad file is written again from the log. Called from threads, too."""
    logger.info("%s is bad and rebuilt from the log: %s", path, reason)
