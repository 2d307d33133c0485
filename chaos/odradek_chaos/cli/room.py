"""A disk without room for a cluster, or one that cannot be written, said as such: which directory, how much is free
there, and what to do.

Neither who starts a cluster nor a broker says it by itself. An `OSError` of a write names no file, and a broker whose
words go to the same disk may not even get them out.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from odradek.cli.terminal.failures import NO_ROOM
from odradek.cli.terminal.screen import human_bytes
from odradek_broker.local.cluster import ClusterError, LocalCluster
from odradek_proto.command_line import STATE_FILE, USAGE, CommandFailed

LITTLE_BYTES = 64 * 1024  # less than a broker's first files take
REMEDY = "make room there, or put the cluster on another disk with --data DIR (temporary data: TMPDIR)"
NOT_OURS = (errno.EROFS, errno.EACCES, errno.EPERM)
NAME_ANOTHER = "name a directory that you may write to with --data DIR (temporary data: TMPDIR)"


@contextlib.contextmanager
def room_needed(directory: Path) -> Iterator[None]:
    """Inside, a cluster's files are written there. Raises `CommandFailed` when there is no room for them, or
    when nothing can be written there."""
    try:
        yield
    except OSError as error:
        if error.errno in NOT_OURS:
            what = f"the cluster's files in {directory} cannot be written: {os.strerror(error.errno)}"
            raise CommandFailed(what, hint=NAME_ANOTHER, exit_code=USAGE) from error
        if error.errno not in NO_ROOM:
            raise
        half_written = directory / f"{STATE_FILE}.{os.getpid()}"
        half_written.unlink(missing_ok=True)  # or the directory could not be laid out the next time
        raise _no_room(directory, error.strerror or str(error)) from error


def without_room(cluster: LocalCluster, error: ClusterError) -> CommandFailed | ClusterError:
    """What to say of brokers that did not start: that there is no room for them, or the same as before."""
    reasons = [os.strerror(number) for number in NO_ROOM]
    for node_id in cluster.nodes:
        last = (cluster.last_lines(node_id, 1) or [""])[0]
        if any(reason in last for reason in reasons) and not cluster.running(node_id):
            return _no_room(cluster.directory, str(error))
    if shutil.disk_usage(cluster.directory).free < LITTLE_BYTES:
        return _no_room(cluster.directory, str(error))
    return error


def _no_room(directory: Path, what: str) -> CommandFailed:
    disk = shutil.disk_usage(directory)
    free = f"{human_bytes(disk.free)} of {human_bytes(disk.total)} are free"
    return CommandFailed(f"no room for the cluster in {directory} ({free}): {what}", hint=REMEDY)
