"""Running the command in this process and as a process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from odradek.cli.main import main
from odradek_broker.local.cluster import LocalCluster
from odradek_chaos.cli.up import LocalRun

PATIENCE_S = 600  # for one command on a busy machine; the demo is the longest


class Outcome(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]
"""Runs the words of a command, or for `shell` a line; `code` says how it has to end."""


def ended(outcome: Outcome, code: int | None) -> Outcome:
    assert code in (None, outcome.code), outcome
    return outcome


def process(command: list[str], home: Path, text: str | None = None) -> Outcome:
    """With this home of odradek, and a text on its standard input or that of the tests."""
    environment = {**os.environ, "ODRADEK_HOME": str(home)}
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=PATIENCE_S, env=environment, check=False
        )
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"`{' '.join(command)}` was not done: out {error.stdout!r}, err {error.stderr!r}")
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of odradek in which no cluster is remembered."""
    place = tmp_path / "home"
    monkeypatch.setenv("ODRADEK_HOME", str(place))
    monkeypatch.delenv("ODRADEK_BOOTSTRAP", raising=False)
    monkeypatch.delenv("ODRADEK_DEBUG", raising=False)
    monkeypatch.setenv("ODRADEK_COMMAND_CONFIG", "")  # a command line sets it for its process
    return place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Where a cluster may be; whatever runs there at the end is killed."""
    directory = tmp_path / "cluster"
    yield directory
    if LocalCluster.exists(directory):
        LocalCluster.load(directory).kill_all()


@pytest.fixture
def odradek(home: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command line in this process."""

    def run(*words: str, code: int | None = None) -> Outcome:
        capfd.readouterr()
        found = main(list(words))
        return ended(Outcome(found, *capfd.readouterr()), code)

    return run


@pytest.fixture
def bootstrap(odradek_bootstrap: str, monkeypatch: pytest.MonkeyPatch, home: Path) -> str:
    """The cluster that commands talk to."""
    monkeypatch.setenv("ODRADEK_BOOTSTRAP", odradek_bootstrap)
    return odradek_bootstrap


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary directories are made."""
    (directory := tmp_path / "places").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address that is taken, and where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def deaf() -> Iterator[str]:
    """An address where somebody listens and nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """`cluster up` and `chaos restart` end when everything is written down, before the first broker."""

    def end(self: LocalRun, *, detach: bool) -> int:
        return 0

    monkeypatch.setattr(LocalRun, "run", end)
    monkeypatch.setattr(LocalCluster, "start", lambda self, node_id: self.nodes[node_id])


@pytest.fixture
def odradek_process(home: Path) -> Run:
    """Run a command line as a process of its own, with a text on its standard input."""

    def run(*words: str, text: str = "", code: int | None = None) -> Outcome:
        return ended(process([sys.executable, "-m", "odradek.cli.main", *words], home, text), code)

    return run


@pytest.fixture
def shell(home: Path) -> Run:
    """Run a line of bash in which `odradek` is this one; the code is that of the first command of a pipe."""
    odradek = f'odradek() {{ {sys.executable} -m odradek.cli.main "$@"; }}\n'

    def run(line: str, code: int | None = None) -> Outcome:
        return ended(process(["bash", "-c", f"{odradek}{line}\nexit ${{PIPESTATUS[0]}}"], home), code)

    return run
