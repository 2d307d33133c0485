"""Where commands write what their user names: never over a broker's data, and never into what fails at the end."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from odradek_audit.spark.job import main as spark_job
from odradek_proto.command_line import USAGE

from tests.cli.conftest import Run
from tests.commands_of_odradek import tree

FILES = {
    "audit live --metrics": "-b 127.0.0.1:1",
    "audit live --digests": "-b 127.0.0.1:1",
    "chaos run --shrink": "--seeds 1",
    "chaos trace --shrink": "1",
    "chaos crash-states --save": "1",
    "chaos write --history": "orders -b 127.0.0.1:1 --overwrite",
}
"""Each option that names a file to be written, and what else its command is given."""
DIRECTORIES = {
    "audit run --out": "--replica 1={copy} --overwrite",
    "audit live --out": "-b 127.0.0.1:1 --overwrite",
    "audit package --out": "",
    "certs node --dir": "1",
    "certs client --dir": "alice",
}
NEW_CLUSTERS = ("cluster up", "chaos rounds", "demo", "demo lost-write")
READ = {
    "audit run --history", "audit run --replica", "audit run --data", "audit live --command-config",
    "chaos crash-states --load", "chaos trace --script", "doctor --config", "produce --file", "server config --config",
    "server run --config", "topic reassign --file", "user set --password-file",
}  # fmt: skip
"""Options whose place is only read."""
OF_A_CLUSTER = (
    "chaos kill", "chaos restart", "chaos slow", "chaos pause", "chaos resume", "chaos cut", "chaos heal",
    "cluster down", "cluster stop",
)  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A cluster's directory with a broker's log directory in it."""
    broker = tmp_path / "cluster" / "broker-1"
    (broker / "orders-0").mkdir(parents=True)
    (broker / "meta.properties").write_text("node.id=1\n")
    (broker / "orders-0" / f"{0:020}.log").write_bytes(b"records")
    (broker.parent / "cluster.json").write_text("{}")
    return broker.parent


@pytest.fixture
def given(tmp_path: Path) -> dict[str, str]:
    """What commands want beside: a log directory to read."""
    (tmp_path / "copy" / "orders-0").mkdir(parents=True)
    return {"copy": str(tmp_path / "copy")}


def contents(place: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() if each.is_file() else b"" for each in sorted(place.rglob("*"))}


def words_of(option: str, place: Path, given: dict[str, str]) -> list[str]:
    return [*option.split(), str(place), *shlex.split((FILES | DIRECTORIES)[option].format(**given))]


PLACES = [
    *[(option, f"broker-1/orders-0/{0:020}.log") for option in FILES],
    *[(option, "broker-1/new") for option in FILES],
    *[(option, "cluster.json") for option in FILES],
    *[
        (option, below)
        for option in DIRECTORIES
        for below in (".", "broker-1", "broker-1/orders-0", "broker-1/new/one")
    ],
]


@pytest.mark.parametrize(("option", "below"), PLACES)
def test_nothing_is_written_over_a_brokers_data(
    odradek: Run, data: Path, given: dict[str, str], option: str, below: str
) -> None:
    """Before any work is done and in one form, also with --overwrite. That of a cluster's state is one, too."""
    place, before = data / below, contents(data)
    outcome = odradek(*words_of(option, place, given), code=USAGE)
    message, remedy = outcome.err.splitlines()
    assert message.startswith(
        f"odradek: {option.split()[-1]} {place} is no place to write to: brokers keep their data "
    )
    assert remedy == "  try: name another place, outside of brokers' directories"
    assert contents(data) == before


@pytest.mark.parametrize("command", NEW_CLUSTERS)
def test_no_cluster_is_laid_out_over_a_brokers_data(odradek: Run, data: Path, command: str) -> None:
    """Its directory would be taken for a partition's, or its brokers for replicas of the other cluster."""
    before = contents(data)
    outcome = odradek(*command.split(), "--data", str(data / "broker-1" / "new"), code=USAGE)
    assert "lies inside of the cluster in" in outcome.err
    assert contents(data) == before


def test_the_job_of_spark_refuses_it_too(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before a session is made."""
    with pytest.raises(SystemExit, match=str(USAGE)):
        spark_job(["--replica", f"1={data / 'broker-1'}", "--out", str(data), "--overwrite"])
    assert "brokers keep their data there" in capsys.readouterr().err


def test_the_job_of_spark_refuses_no_name(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be the directory that one is in."""
    monkeypatch.chdir(data.parent)
    for name in ("", "file:"):
        with pytest.raises(SystemExit, match=str(USAGE)):
            spark_job(["--replica", f"1={data / 'broker-1'}", "--out", name])
        assert "--out: the name is empty" in capsys.readouterr().err


@pytest.mark.parametrize("option", [*FILES, *DIRECTORIES])
def test_what_cannot_be_written_is_refused_at_once(
    odradek: Run, tmp_path: Path, given: dict[str, str], option: str
) -> None:
    """A verdict, a recording or a shrunk seed would be lost at the end."""
    (tmp_path / "file").touch()
    (loop := tmp_path / "loop").symlink_to(loop)
    if option in FILES:
        looping = odradek(*words_of(option, loop, given), code=USAGE)
        assert looping.err.startswith(f"odradek: {option.split()[-1]} {loop}: Too many levels of symbolic links\n")
    place = tmp_path / "file" / "below"
    outcome = odradek(*words_of(option, place, given), code=USAGE)
    reason, remedy = (
        ("Not a directory", "give a file that can be written")
        if option in FILES
        else (f"{tmp_path / 'file'} is no directory", "name a directory")
    )
    assert outcome.err == f"odradek: {option.split()[-1]} {place}: {reason}\n  try: {remedy}\n"


def test_a_place_beside_brokers_directories_is_fine(odradek: Run, data: Path) -> None:
    """The demo and `chaos rounds` keep their histories and results there."""
    odradek("certs", "node", "1", "--dir", str(data / "certificates"), code=0)
    assert (data / "certificates" / "ca.pem").exists()


def test_every_option_that_names_a_place_is_in_a_table() -> None:
    """So that a new one is refused where it has to be."""
    lessons = (" ".join(words[1:]) for words in tree() if words[1:2] == ("demo",))
    clusters = {f"{words} --data" for words in (*NEW_CLUSTERS, *OF_A_CLUSTER, *lessons)}
    found = {f"{' '.join(words[1:])} {name}".strip() for words, command in tree().items() for name in places(command)}
    assert found - {"--command-config"} == {*FILES, *DIRECTORIES, *READ, *clusters}


def places(command: Any) -> list[str]:
    """The options of a command that name a file or a directory."""
    metavars = ("FILE", "DIR", "PLAN", "NAME=DIR")
    return [max(each.opts, key=len) for each in command.params if each.metavar in metavars]
