"""`odradek cluster up` where there is no room: it names the place and what to do, and leaves nothing half-written.

A limit on the size of files stands for the full disk: the kernel refuses a write at the same places.
"""

from __future__ import annotations

import io
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

import pytest
from odradek.cli.main import main
from odradek.cli.terminal.failures import NO_ROOM
from odradek_broker.local.cluster import ClusterError, LocalCluster
from odradek_chaos.cli.room import room_needed, without_room
from odradek_proto.command_line import CommandFailed

ENDED = ClusterError("broker 1 ended with exit code 1", hint="read what it said")


@contextmanager
def files_of_at_most(size: int) -> Iterator[io.StringIO]:
    """What goes to standard error meanwhile, which is no file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        with redirect_stderr(io.StringIO()) as said:
            yield said
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("home")
def test_a_cluster_that_cannot_be_laid_out_names_its_directory(tmp_path: Path) -> None:
    """`cluster.json` of nine brokers is larger than 1 KiB; afterwards the directory can be used as before."""
    place = tmp_path / "cluster"
    with files_of_at_most(1024) as said:
        code = main(["cluster", "up", "-d", "-n", "9", "--data", str(place)])
    message, remedy = said.getvalue().splitlines()
    assert code == 1
    assert message.startswith(f"odradek: no room for the cluster in {place} (")
    assert message.endswith(" are free): File too large")
    assert "--data DIR" in remedy
    assert [*place.iterdir()] == []


def test_a_home_without_room_is_named_before_a_broker_starts(home: Path, tmp_path: Path) -> None:
    """It is not the cluster's directory that is full, nor the output."""
    with files_of_at_most(0) as said:
        assert main(["cluster", "up", "-d", "--data", str(tmp_path / "cluster")]) == 1
    assert said.getvalue().startswith(f"odradek: cannot write to ODRADEK_HOME, {home}: File too large\n  try: set ")
    assert not (tmp_path / "cluster").exists()


@pytest.mark.parametrize("number", NO_ROOM)
def test_a_broker_that_died_for_want_of_room_says_so(tmp_path: Path, number: int) -> None:
    """The last word of its log does; what it said at a former start counts no longer."""
    cluster = LocalCluster.create(tmp_path / "cluster", brokers=1)
    assert without_room(cluster, ENDED) is ENDED
    last = f"odradek: node 1 failed: {OSError(number, os.strerror(number))!r}\n"
    cluster.log_file(1).write_text(last)
    said = without_room(cluster, ENDED)
    assert isinstance(said, CommandFailed)
    assert str(said).startswith(f"no room for the cluster in {cluster.directory} (")
    assert str(said).endswith(f" are free): {ENDED}")
    cluster.log_file(1).write_text(f"{last}odradek: node 1 cannot start: it is Monday\n")
    assert without_room(cluster, ENDED) is ENDED


def test_other_errors_stay_what_they_are(tmp_path: Path) -> None:
    """A directory that is gone is not a full one."""
    with pytest.raises(FileNotFoundError), room_needed(tmp_path):
        (tmp_path / "gone" / "file").write_text("x")
