"""Facts about processes and ports of this machine, for a cluster of local processes.

Rule of this module: a process is known by its pid and its start time together, since the kernel gives a pid to
somebody else when its owner is gone.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from odradek_proto.transport.lock_holders import take_lock

HOST = "127.0.0.1"
# Below the ports that systems give to outgoing connections: one of these would take ours between the moment in which
# we look and that in which a broker listens.
# And above the rows of ports.py, which are chosen by others at the same moment.
LISTENING_PORTS = range(22_000, 32_768)
IN_PROCESS_PORTS = range(10_000, 19_000)  # of clusters inside of a process: they hold ports on which nobody listens yet


LOCKS = Path("/tmp")  # wherever TMPDIR is: each user has one set of locks for the ports of a machine
BLOCK = 16  # ports that are claimed together: those of a cluster of four
_claims: dict[int, IO[bytes] | None] = {}  # by the first port of a block; None where there is no place for a lock
_unused: deque[int] = deque()  # ports of these blocks that no cluster has
_given: set[int] = set()  # the others


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, all different, and that no outgoing connection is given. Raises `OSError`.

    No cluster of this user gets them here before this process has ended or released them, whether a broker listens
    there yet, or is down meanwhile. A `LocalCluster` releases them when it is removed, or nobody has it any more.
    """
    found: list[int] = []
    taken: list[int] = []
    while len(found) < count and (_unused or _claim_block()):
        port = _unused.popleft()
        (found if is_free(f"{HOST}:{port}") else taken).append(port)
    _unused.extend(taken)
    if len(found) < count:
        _unused.extend(found)
        raise OSError(f"too few free ports from {LISTENING_PORTS.start} to {LISTENING_PORTS.stop - 1} on {HOST}")
    _given.update(found)
    return found


def release_ports(ports: Iterable[int]) -> None:
    """Ports that no cluster needs any more: those of them that `free_ports` gave may be given again."""
    released = sorted(_given.intersection(ports))
    _given.difference_update(released)
    _unused.extend(released)


def lock_of_ports(name: str) -> IO[bytes] | None:
    """Locked while it is open; None while others have it. Raises `OSError`."""
    return take_lock(LOCKS / f"odradek-ports-{os.getuid()}-{name}.lock")


def _claim_block() -> bool:
    """Make a block of ports this process's; False when none is left."""
    blocks = [first for first in LISTENING_PORTS[::BLOCK] if first not in _claims]
    random.Random().shuffle(blocks)
    for first in blocks:
        lock, lockable = None, True
        try:
            lock = lock_of_ports(f"from-{first}")
        except OSError:  # no place for a lock
            lockable = False
        if lock is not None or not lockable:
            _claims[first] = lock
            _unused.extend(range(first, min(first + BLOCK, LISTENING_PORTS.stop)))
            return True
    return False


def is_free(address: str) -> bool:
    """Whether nobody listens on `host:port` now."""
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a socket in TIME_WAIT is nobody
        try:
            probe.bind((host, int(port)))
        except OSError:
            return False
        return True


def _stat(pid: int) -> list[str]:
    """The fields of Linux's /proc/<pid>/stat from the third, the state, on; empty when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rsplit(b")", 1)[1].decode().split()
    except (OSError, IndexError):
        return []


def _ps(pid: int, column: str) -> str:
    """The same for systems without /proc."""
    if sys.platform.startswith("linux"):
        return ""
    result = subprocess.run(["ps", "-o", f"{column}=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return result.stdout.strip()


def process_state(pid: int) -> str:
    """R, S, T (stopped by a signal), Z, ...; empty when there is no such process."""
    fields = _stat(pid)
    return fields[0] if fields else _ps(pid, "state")[:1]


def start_time(pid: int) -> str:
    """When the kernel started a process, as text that no later process with this pid has; empty when it is gone."""
    fields = _stat(pid)
    if fields:
        return "" if fields[0] in ("Z", "X") else fields[19]
    return _ps(pid, "lstart")
