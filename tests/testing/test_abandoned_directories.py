"""Directories of clusters whose process was killed: the next process removes them, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from odradek_broker.testing.layout import IDENTITY_FILE, IN_USE_FILE

MAKE = "from odradek_broker.testing.layout import Layout; layout = Layout(1, None); print(layout.path, flush=True); "


def start(place: Path, then: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", MAKE + then],
        env=os.environ | {"TMPDIR": str(place)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def said(process: subprocess.Popen[str]) -> Path:
    assert process.stdout is not None
    return Path(process.stdout.readline().strip())


def test_only_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    """Not what another process uses, nor a directory of the user's own, whatever its name; and no pipe is opened."""
    with start(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)") as killed:
        abandoned = said(killed)
    assert killed.returncode == -signal.SIGKILL
    assert abandoned.is_dir()
    own = tmp_path / "odradek-own"
    own.mkdir()
    (own / IDENTITY_FILE).write_text("{}")
    os.mkfifo(own / IN_USE_FILE)
    with start(tmp_path, "input()") as living:
        used = said(living)
        with start(tmp_path, "layout.remove_temporary()") as after:
            gone = said(after)
        assert after.returncode == 0
        assert sorted(tmp_path.iterdir()) == sorted([own, used])
        assert not abandoned.exists()
        assert not gone.exists()
        living.communicate("\n")
    assert [each.name for each in tmp_path.iterdir()] == [own.name]


@pytest.mark.skipif(os.geteuid() != 0, reason="who is not root can neither make nor remove another user's directory")
def test_what_another_user_has_left_is_not_removed(tmp_path: Path) -> None:
    """Root could."""
    others = tmp_path / "odradek-others"
    others.mkdir()
    (others / IN_USE_FILE).touch()
    os.chown(others, 65_534, 65_534)
    with start(tmp_path, "layout.remove_temporary()") as process:
        said(process)
    assert [each.name for each in tmp_path.iterdir()] == [others.name]
