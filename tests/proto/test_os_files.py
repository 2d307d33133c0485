"""The files port over the operating system: what it refuses to open."""

from __future__ import annotations

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
