"""Locks of files that end with their process, and which process holds that of a log directory.

A running broker holds a lock on `.lock` in its log directory, and its files change while they are read: odradek's by
`flock`, Kafka's by `fcntl`. The lock is not tried: a process that holds it for a moment keeps a broker from starting,
and opening nothing writes nothing. The kernel's table of locks is read instead. It has the locks of processes that can
be seen from here: not those of another machine, nor of another container. Without it no holder is reported.
"""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import IO

LOCK = ".lock"
LOCKS = "/proc/locks"


def take_lock(path: Path) -> IO[bytes] | None:
    """The file, locked while it is open; None while another process has the lock. Raises `OSError`."""
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def holder_of(directory: Path) -> int | None:
    """The process that holds a log directory's lock; None when nobody does, or when it cannot be told."""
    try:
        lock = os.lstat(directory / LOCK)
        table = Path(LOCKS).read_text(encoding="ascii")
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(lock.st_mode):
        return None
    for line in table.splitlines():
        match line.split():  # "3: FLOCK ADVISORY WRITE 1899 fe:00:9988371 0 EOF"; "->" in the second place waits for it
            case [_, "FLOCK" | "POSIX", _, "WRITE", process, place, *_] if process.isdecimal():
                device, _, inode = place.rpartition(":")  # "<none>:0" for a lock without a file
                is_device = device == f"{os.major(lock.st_dev):02x}:{os.minor(lock.st_dev):02x}"
                if inode == str(lock.st_ino) and (is_device or _has_open(int(process), lock)):
                    return int(process)
    return None


def _has_open(process: int, file: os.stat_result) -> bool:
    """Some file systems (btrfs, overlays) tell the kernel's table another device than they tell everybody."""
    with suppress(OSError):  # somebody else's process, or it has ended
        for each in Path(f"/proc/{process}/fd").iterdir():
            with suppress(OSError):
                if os.path.samestat(each.stat(), file):
                    return True
    return False
