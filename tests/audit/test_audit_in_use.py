"""An audit of log directories that brokers are using: it says so, and touches nothing."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from odradek_audit.cli.commands import app
from odradek_audit.inputs.brokers import IN_USE
from odradek_proto.transport.files import OsFiles
from odradek_proto.transport.lock_holders import LOCK, LOCKS, holder_of
from typer.testing import CliRunner

from tests.audit.sample import SampleLog, WriteCluster

Holder = Callable[[Path], None]
WARNED = "running brokers use what is audited"


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Holder]:
    """Locks a log directory as a broker does, until the end of the test."""
    files = OsFiles()
    with ExitStack() as stack:
        stack.callback(files.close)

        def hold(directory: Path) -> None:
            stack.callback(files.lock(f"{directory}/{LOCK}").close)

        hold(tmp_path)
        if not Path(LOCKS).exists() or f" {os.getpid()} " not in Path(LOCKS).read_text(encoding="ascii"):
            pytest.skip("this system does not tell who holds which lock")
        yield hold


def state_of(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Everything in a directory, with the times at which it was written."""
    return {
        str(each): (each.stat().st_mtime_ns, b"" if each.is_dir() else each.read_bytes())
        for each in sorted(directory.rglob("*"))
    }


def test_brokers_at_work_are_named_and_nothing_is_touched(
    write_cluster: WriteCluster, log: SampleLog, tmp_path: Path, held: Holder
) -> None:
    """On standard error before the audit, as a note in the result; who is not running is not named."""
    made = write_cluster(log, log, log)
    (made["3"] / LOCK).touch()  # left by a broker that was stopped
    for name in ("1", "2"):
        held(made[name])
    before = state_of(tmp_path)
    result = CliRunner().invoke(app, ["run", "--data", str(tmp_path), "--json"])
    assert state_of(tmp_path) == before
    assert result.exit_code == 0, result.output
    (line,) = result.stderr.splitlines()
    assert f"{WARNED} (replicas 1, 2): " in line
    assert "stop the brokers first, or audit copies" in line
    notes = [note for note in json.loads(result.stdout)["notes"] if note["kind"] == IN_USE]
    assert [note["replica"] for note in notes] == ["1", "2"]
    assert f"(process {os.getpid()}) uses {made['1']}" in notes[0]["sentence"]


def test_a_copy_of_a_directory_in_use_is_not_in_use(
    write_cluster: WriteCluster, log: SampleLog, tmp_path: Path, held: Holder
) -> None:
    """Also when the lock file was copied with it."""
    made = write_cluster(log, log)
    held(made["1"])
    shutil.copytree(made["1"], tmp_path / "copy")
    words = ["run", "--replica", f"1={tmp_path / 'copy'}", "--replica", f"2={made['2']}"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "running broker" not in result.output + result.stderr


def test_the_lock_of_kafkas_brokers_is_seen(tmp_path: Path, held: Holder) -> None:
    """Java takes it by `fcntl`; while it is free, and when the file is a link, nobody uses the directory."""
    (directory := tmp_path / "kafka").mkdir()
    assert holder_of(directory) is None
    with (directory / LOCK).open("w") as lock:
        assert holder_of(directory) is None
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert holder_of(directory) == os.getpid()
        (linked := tmp_path / "linked").mkdir()
        (linked / LOCK).symlink_to(directory / LOCK)
        assert holder_of(linked) is None
    assert holder_of(directory) is None


def test_a_lock_without_a_file_is_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's table may have such a line; it keeps no audit from beginning."""
    (tmp_path / LOCK).touch()
    (table := tmp_path / "locks").write_text("1: POSIX  ADVISORY  WRITE 7 <none>:0 0 EOF\n")
    monkeypatch.setattr("odradek_proto.transport.lock_holders.LOCKS", str(table))
    assert holder_of(tmp_path) is None


WATCHED = """
import sys
from pathlib import Path
from odradek_proto.transport.lock_holders import LOCK, holder_of

seen = []
sys.addaudithook(lambda event, words: seen.append((event, str(words))))
assert holder_of(Path(sys.argv[1])) is None
locks = [event for event, _ in seen if event.startswith("fcntl.")]
opened = [words for event, words in seen if event == "open" and LOCK in words.replace("/proc/locks", "")]
print(len(locks), len(opened), any(event == "open" for event, _ in seen))
"""


def test_a_broker_that_starts_meanwhile_gets_its_lock(tmp_path: Path) -> None:
    """To look takes no lock, not even for a moment, and the file is not opened; the table of locks is."""
    (tmp_path / LOCK).touch()
    done = subprocess.run([sys.executable, "-c", WATCHED, tmp_path], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["0", "0", "True"], done.stderr
