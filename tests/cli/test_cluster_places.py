"""The directories of clusters: which of them may be removed, which can be used, and what is said of the others."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import pytest
from odradek.cli.clusters.current import remember
from odradek.cli.main import main
from odradek.cli.terminal.failures import NO_ROOM
from odradek.cli.terminal.screen import Screen
from odradek_broker.local.cluster import ClusterError, LocalCluster
from odradek_broker.local.ports import KAFKA_PORT_VARIABLE
from odradek_broker.local.processes import start_time
from odradek_chaos.cli.lost_disks import QUORUM_STATE, lost_disks
from odradek_chaos.cli.places import find, remove_unless_named
from odradek_chaos.cli.room import room_needed, without_room
from odradek_chaos.cli.up import LocalRun
from odradek_proto.command_line import FINE, UNREACHABLE, CommandFailed

from tests.cli.conftest import Run


def temporary(directory: Path) -> Path:
    """A cluster as `cluster up` lays it out in a temporary directory, with records."""
    cluster = LocalCluster.create(directory, brokers=3, temporary=True)
    for log_directory in cluster.replicas().values():
        log_directory.mkdir()
        (log_directory / "log").write_text("records")
    return directory


def copied(before: Path, after: Path) -> Path:
    """The copy of a temporary cluster that is gone."""
    shutil.copytree(before, after)
    shutil.rmtree(before)
    return after


def records(directory: Path) -> int:
    return len([*directory.glob("broker-*/log")])


def test_a_temporary_cluster_goes_when_it_goes_down(odradek: Run, tmp_path: Path) -> None:
    """Also when its directory is named, by whatever name."""
    for name in ("odradek-1", "link"):
        place = temporary(tmp_path / "odradek-1")
        (link := tmp_path / "link").unlink(missing_ok=True)
        link.symlink_to(place)
        outcome = odradek("cluster", "down", "--data", str(tmp_path / name), code=0)
        assert "was removed" in outcome.out
        assert not records(place)
        shutil.rmtree(place, ignore_errors=True)


def test_a_cluster_that_was_stopped_before_is_not_taken_for_the_one_that_went_down(
    odradek: Run, tmp_path: Path
) -> None:
    """It is neither removed nor asked unless somebody names it, and `cluster list` has it."""
    earlier, later = (temporary(tmp_path / name).resolve() for name in ("odradek-1", "odradek-2"))
    other = temporary(tmp_path / "odradek-0").resolve()
    for place in (other, earlier, later):
        remember(place)
    assert f"the data in {later} was removed" in odradek("cluster", "down", "--yes").out
    odradek("cluster", "stop", "--data", str(earlier), code=0)
    for words in (("cluster", "down", "--yes"), ("cluster", "stop"), ("topic", "list"), ("audit", "live")):
        outcome = odradek(*words)
        assert (outcome.code, "was named" in outcome.err) == (UNREACHABLE, True), outcome
    assert records(earlier) == 3
    assert str(earlier) in odradek("cluster", "list").out
    odradek("cluster", "down", "--data", str(earlier), "--yes", code=0)
    assert not earlier.exists()


def test_the_addresses_of_a_stopped_cluster_with_topics_are_kept_for_it(
    odradek: Run, nothing_starts: None, tmp_path: Path, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An .env file that names them stays true, whatever else is started meanwhile; without topics nobody needs them."""
    monkeypatch.delenv(KAFKA_PORT_VARIABLE)
    for module in ("ports", "cluster"):  # nothing listens, whatever else this machine does
        monkeypatch.setattr(f"odradek_broker.local.{module}.is_free", lambda address: True)
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))

    def addresses(place: Path) -> set[str]:
        odradek("cluster", "up", "-d", "--data", str(place), code=0)
        remember(place)
        cluster = LocalCluster.load(place)
        return {*cluster.bootstrap.split(","), *cluster.kafka_bootstrap.split(",")}

    of_first = addresses(first)
    (first / "broker-1" / "orders-0").mkdir(parents=True)
    of_second = addresses(second)
    assert not of_first & of_second
    assert addresses(third) == of_second
    assert addresses(first) == of_first


@pytest.mark.parametrize("way", [Path.rename, copied])
@pytest.mark.parametrize("saved", [False, True])
def test_what_was_temporary_elsewhere_stays(
    odradek: Run, tmp_path: Path, way: Callable[[Path, Path], Path], saved: bool
) -> None:
    """A directory that was moved or copied is its user's, also after a command has used and rewritten its file."""
    place = way(temporary(tmp_path / "odradek-1"), tmp_path / "keepme")
    if saved:
        find(place).save()
    outcome = odradek("cluster", "down", "--data", str(place), code=0)
    assert f"the data is in {place}" in outcome.out
    assert records(place) == 3
    removed = odradek("cluster", "down", "--data", str(place), "--remove")
    assert "was removed" in removed.out
    assert not place.exists()


@pytest.mark.parametrize("moved", [False, True])
def test_a_directory_that_was_named_to_up_stays(
    odradek: Run, nothing_starts: None, tmp_path: Path, moved: bool
) -> None:
    """Who names it wants it, also the very one that was made as a temporary one."""
    place = temporary(tmp_path / "odradek-1")
    if moved:
        place = place.rename(tmp_path / "keepme")
    odradek("cluster", "up", "-d", "--data", str(place), code=0)
    assert not LocalCluster.load(place).temporary
    assert f"the data is in {place}" in odradek("cluster", "down", "--data", str(place)).out
    assert records(place) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no JSON (line 1, column 1: Expecting value)"),
        ('{"nodes": [}', "is no JSON (line 1, column 12: Expecting value)"),
        ("[]", "is not the JSON object that `odradek cluster up` writes"),
        ("{}", "has no 'nodes', the list of its brokers"),
        ('{"nodes": {}}', "has no 'nodes', the list of its brokers"),
        ('{"nodes": []}', "has no 'nodes', the list of its brokers"),
        ('{"nodes": [1]}', "names brokers that are no JSON objects in 'nodes'"),
        ('{"nodes": [{"node_id": 1, "grpc": ""}]}', "lacks 'controller', 'log_directory' of a broker in 'nodes'"),
        (
            '{"nodes": [{"node_id": 1, "grpc": "", "controller": "", "log_directory": "", "colour": 1}]}',
            "says 'colour' of a broker in 'nodes', which odradek does not know",
        ),
        (
            '{"nodes": [{"node_id": 1, "grpc": "", "controller": "", "log_directory": ""}]}',
            "lacks 'cluster_id', 'settings'",
        ),
        (
            '{"nodes": [{"node_id": 1, "grpc": "", "controller": "", "log_directory": 5}],'
            ' "cluster_id": "x", "settings": {}}',
            "has a value of a wrong kind",
        ),
        (b"\xff", "is no UTF-8 text"),
        pytest.param(b"[" * 200_000, "is no JSON that is read: too deep", id="deep"),
        pytest.param(b'{"nodes": ' + b"1" * 5_000, "is no JSON that is read: a number is too long", id="long"),
    ],
)
def test_a_broken_cluster_file_is_explained(
    odradek: Run, nothing_starts: None, tmp_path: Path, text: str | bytes, said: str
) -> None:
    """The file, what is wrong with it, and what can be done, by whatever reads it: no words of Python's."""
    file = tmp_path / "my data" / "cluster.json"
    file.parent.mkdir()
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    for words in ("cluster up -d", "cluster down", "chaos restart") if text == "{}" else ("cluster down",):
        outcome = odradek(*words.split(), "--data", str(file.parent), code=1)
        message, remedy = outcome.err.splitlines()
        assert message == f"odradek: {file} {said}"
        assert remedy.startswith("  try: put it back from a copy")
        assert f"`odradek audit run --data '{file.parent}'`" in remedy


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
@pytest.mark.parametrize("laid_out", [False, True])
def test_a_directory_that_cannot_be_written_is_explained(
    odradek: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, laid_out: bool
) -> None:
    """On a read-only disk a new cluster cannot be laid out, and one that is there cannot be started."""
    place = temporary(tmp_path / "romnt") if laid_out else tmp_path / "romnt"

    def refuse(self: LocalCluster) -> None:
        raise OSError(number, os.strerror(number), str(self.directory / "cluster.json.1"))

    monkeypatch.setattr(LocalCluster, "save", refuse)
    outcome = odradek("cluster", "up", "-d", "--data", str(place), code=2)
    message, remedy = outcome.err.splitlines()
    assert message == f"odradek: the cluster's files in {place} cannot be written: {os.strerror(number)}"
    assert remedy.startswith("  try: ")
    assert "--data DIR" in remedy


@pytest.mark.parametrize("below", ["newsub", "broker-1/newsub", "no/such/sub"])
@pytest.mark.parametrize("by_link", [False, True])
@pytest.mark.parametrize("words", ["cluster up -d", "demo"])
def test_no_cluster_is_laid_out_inside_another_one(
    odradek: Run, nothing_starts: None, tmp_path: Path, below: str, by_link: bool, words: str
) -> None:
    """An audit of the outer one would take the inner one's brokers for replicas."""
    outer = temporary(tmp_path / "c1")
    (tmp_path / "link").symlink_to(outer)
    place = (tmp_path / "link" if by_link else outer) / below
    outcome = odradek(*words.split(), "--data", str(place), code=2)
    message, remedy = outcome.err.splitlines()
    assert message == f"odradek: {place} lies inside of the cluster in {outer.resolve()}"
    assert remedy.startswith("  try: name a directory outside of it with --data")
    assert not place.exists()


def test_no_cluster_is_laid_out_inside_a_brokers_directory(odradek: Run, nothing_starts: None, tmp_path: Path) -> None:
    """Of a broker, too, that no `cluster up` has made."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text("node.id=1\n")
    outcome = odradek("cluster", "up", "-d", "--data", str(tmp_path / "data" / "sub"), code=2)
    assert f"{tmp_path / 'data' / 'sub'} lies inside of the log directory {tmp_path / 'data'}" in outcome.err


def test_a_cluster_that_is_inside_another_one_already_can_be_used(
    odradek: Run, nothing_starts: None, tmp_path: Path
) -> None:
    """Its records are not locked up, and a directory beside another cluster's is no directory inside of it."""
    temporary(tmp_path / "c1")
    inner = temporary(tmp_path / "c1" / "sub")
    odradek("cluster", "up", "-d", "--data", str(inner), code=0)
    odradek("cluster", "up", "-d", "--data", str(tmp_path / "c2"), code=0)
    assert json.loads((inner / "cluster.json").read_text())["temporary"] is False


@pytest.mark.parametrize("hint", ["", "read it"])
def test_a_start_that_failed_leaves_the_logs_that_it_names(tmp_path: Path, hint: str) -> None:
    """Wherever the error names them; how to remove them is said then."""
    cluster = LocalCluster.load(temporary(tmp_path / "odradek 1"))
    error = ClusterError(f"broker 2 has ended; the end of {cluster.log_file(2)}: it is Monday", hint=hint)
    said = remove_unless_named(cluster, error)
    removal = f"`odradek cluster down --data '{tmp_path / 'odradek 1'}' --remove` removes what it left"
    assert isinstance(said, CommandFailed)
    assert (str(said), said.hint) == (str(error), f"{hint}; {removal}" if hint else removal)
    assert records(cluster.directory) == 3


def test_a_start_that_failed_leaves_nothing_that_nobody_knows_of(tmp_path: Path) -> None:
    """An error that sends nobody to the logs is the end of a temporary directory, and of no other one."""
    error = ClusterError("it is Monday")
    kept = LocalCluster.load(temporary(tmp_path / "kept"))
    kept.temporary = False
    assert remove_unless_named(kept, error) is error
    assert records(kept.directory) == 3
    assert remove_unless_named(LocalCluster.load(temporary(tmp_path / "odradek-1")), error) is error
    assert not (tmp_path / "odradek-1").exists()


@pytest.mark.parametrize("which", ["create", "start_all"])
def test_a_start_that_cannot_begin_leaves_no_temporary_directory(
    odradek: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """Neither before nor after it was laid out."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (places := tmp_path / "places").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(places))
    monkeypatch.setattr(LocalCluster, which, refuse)
    outcome = odradek("cluster", "up", "-d", code=1)
    assert "no room for the cluster in " in outcome.err
    assert [*places.iterdir()] == []


@pytest.mark.cluster
def test_a_port_that_somebody_takes_before_its_broker_does_is_given_up(
    home: Path, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Between the choice of a port and its use anybody may listen there: the start goes on, on other ports."""
    cluster = LocalCluster.create(place, brokers=1)
    chosen = cluster.nodes[1].replication
    host, _, port = chosen.rpartition(":")
    with socket.create_server((host, int(port))):
        assert LocalRun(cluster, Screen(), timeout_s=60).run(detach=True) == FINE
    said = capfd.readouterr().err  # names every port that was taken, and others may have taken some, too
    assert re.search(rf"another process has taken .*{chosen}.*: once more, on other ports", said)
    assert LocalCluster.load(place).running(1)
    assert LocalCluster.load(place).nodes[1].replication != chosen


@pytest.mark.parametrize("told", [1, 2])
def test_a_start_that_is_interrupted_leaves_brokers_alone_that_ran_before(
    home: Path, place: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, told: int
) -> None:
    """Once, or again while the others stop."""
    cluster = LocalCluster.create(place, brokers=2)

    def begin(node_id: int) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(["sleep", "60"])
        cluster.nodes[node_id].pid, cluster.nodes[node_id].started = child.pid, start_time(child.pid)
        return child

    def interrupt(*_: object, **__: object) -> Any:
        raise KeyboardInterrupt

    begun: list[subprocess.Popen[bytes]] = []
    monkeypatch.setattr(LocalCluster, "start_all", lambda self: begun.append(begin(2)))
    monkeypatch.setattr("odradek_chaos.harness.waiting.wait_until_ready", interrupt)
    monkeypatch.setattr(LocalCluster, "refresh", lambda self: interrupt() if told == 2 else None)
    with begin(1) as ran:
        assert LocalRun(cluster, Screen(), timeout_s=60).run(detach=False) == 130
        assert (ran.poll(), begun[0].wait() < 0) == (None, True)
        ran.kill()
    assert capfd.readouterr().err.splitlines()[-1] == "stopped; running before, and still: broker 1"


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


Lay = Callable[..., LocalCluster]


@pytest.fixture
def lay(tmp_path: Path) -> Lay:
    """A cluster that ran before, in which some brokers have nothing of it."""

    def laid(brokers: int, lost: Collection[int], ran: Callable[[int], bool] = lambda _: True) -> LocalCluster:
        cluster = LocalCluster.create(tmp_path / "c 1", brokers=brokers)
        for node_id, directory in cluster.replicas().items():
            if ran(int(node_id)):
                cluster.log_file(int(node_id)).touch()
            if int(node_id) not in lost:
                state = directory / QUORUM_STATE
                state.parent.mkdir(parents=True)
                state.touch()
        return cluster

    return laid


@pytest.mark.parametrize("brokers", [1, 2, 3])
def test_nothing_is_said_of_brokers_that_have_their_data_or_never_ran(lay: Lay, brokers: int) -> None:
    """A new cluster has no directories yet, and one that is whole has them."""
    whole = lay(brokers, lost=())
    assert lost_disks(whole, whole.nodes) == []
    shutil.rmtree(whole.directory)
    new = lay(brokers, lost=range(1, brokers + 1), ran=lambda _: False)
    assert lost_disks(new, new.nodes) == []


@pytest.mark.parametrize(("brokers", "lost"), [(2, [2]), (3, [1]), (3, [3]), (4, [1, 2]), (5, [2, 4])])
def test_fewer_than_a_majority_is_said_and_goes_on(lay: Lay, brokers: int, lost: list[int]) -> None:
    """Each is named, with its directory, what it means and what comes back."""
    cluster = lay(brokers, lost)
    said = lost_disks(cluster, cluster.nodes)
    assert len(said) == len(lost)
    for node_id, sentence in zip(lost, said, strict=True):
        directory = cluster.nodes[node_id].log_directory
        assert sentence.startswith(f"broker {node_id} has run before, but its data directory {directory} is empty: ")
        assert "it does not count towards the quorum" in sentence
        assert "records that had no other replica are lost" in sentence


def test_an_emptied_directory_and_one_without_its_metadata_count_as_lost(lay: Lay) -> None:
    """What decides is what a voter must not forget, not whether there is a directory."""
    cluster = lay(3, [2])
    (Path(cluster.nodes[2].log_directory) / "orders-0").mkdir(parents=True)
    (said,) = lost_disks(cluster, cluster.nodes)
    assert said.startswith("broker 2 ")


@pytest.mark.parametrize(
    ("brokers", "lost", "copies"),
    [
        (3, [1, 3], "a copy of one"),
        (4, [1, 2, 3], "a copy of one"),
        (5, [1, 2, 3], "a copy of one"),
        (5, [1, 2, 3, 4], "copies of 2"),
    ],
)
def test_a_majority_is_refused_while_somebody_has_data(lay: Lay, brokers: int, lost: list[int], copies: str) -> None:
    """They could elect each other with an empty log, and the others would cut theirs."""
    cluster = lay(brokers, lost)
    with pytest.raises(CommandFailed) as raised:
        lost_disks(cluster, cluster.nodes)
    left = ", ".join(node.log_directory for node_id, node in cluster.nodes.items() if node_id not in lost)
    assert str(raised.value) == (
        f"brokers {', '.join(map(str, lost))} ran before, and nothing of it is in {cluster.directory}: they are a"
        f" majority of the {brokers} voters and would begin anew, without what is in {left}"
    )
    assert raised.value.exit_code == 1
    assert f"put back {copies} of their directories" in raised.value.hint
    assert f"`odradek audit run --data '{cluster.directory}'`" in raised.value.hint


def test_where_nobody_has_anything_the_cluster_begins_anew(lay: Lay) -> None:
    """There is nothing left that could be lost, and it is said."""
    cluster = lay(3, [1, 2, 3])
    (said,) = lost_disks(cluster, cluster.nodes)
    assert said.startswith(f"no broker has anything in {cluster.directory} any more: it begins anew")


def test_only_brokers_that_are_started_are_spoken_of(lay: Lay) -> None:
    """Who restarts broker 1 is told nothing of broker 2, and those that stay down still count."""
    assert lost_disks(lay(3, [2]), [1]) == []


@pytest.mark.parametrize("words", ["cluster up -d", "chaos restart"])
def test_who_starts_brokers_is_told_before_the_first_one_starts(
    odradek: Run, nothing_starts: None, lay: Lay, words: str
) -> None:
    """One lost disk is said, and the brokers start; of two nothing is started."""
    cluster = lay(3, [3])
    told = odradek(*words.split(), "--data", str(cluster.directory), code=0)
    assert "broker 3 has run before, but its data directory " in told.err
    shutil.rmtree(cluster.nodes[2].log_directory)
    refused = odradek(*words.split(), "--data", str(cluster.directory), code=1)
    message, remedy = refused.err.splitlines()
    assert message.startswith("odradek: brokers 2, 3 ran before, and nothing of it is in ")
    assert remedy.startswith("  try: put back a copy of one of their directories")
