"""The files port over the operating system: what it refuses to open."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from odradek_proto.transport.files import OsFiles


def test_a_pipe_is_not_opened_as_a_file(tmp_path: Path) -> None:
    """A pipe under a segment's name is refused at once with its path, and is never written to."""
    files = OsFiles(threads=1)
    pipe = tmp_path / "00000000000000000009.log"
    os.mkfifo(pipe)
    for create in (False, True):
        with pytest.raises(OSError, match="it is no regular file") as raised:
            files.open(str(pipe), create=create)
        assert raised.value.filename == str(pipe)
    files.close()


def test_what_was_closed_is_refused_by_every_call_in_the_same_way(tmp_path: Path) -> None:
    """Whoever flushes in a thread may come late: EBADF is known to him, another exception is a broken program's."""
    files = OsFiles(threads=1)
    file = files.open(str(tmp_path / "a"), create=True)
    file.close()
    for act in (
        file.fsync,
        file.size,
        lambda: file.pread(0, 1),
        lambda: file.pwritev([b"x"], 0),
        lambda: file.truncate(0),
    ):
        with pytest.raises(OSError) as raised:
            act()
        assert raised.value.errno == errno.EBADF
    files.close()
