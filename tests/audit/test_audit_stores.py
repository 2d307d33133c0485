"""Log directories in object stores and other file systems: the same result as over a copy on this machine."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from odradek_audit.cli.commands import app
from odradek_audit.engine import local
from odradek_audit.inputs.disk import LocalDisk
from odradek_audit.inputs.stores import StoreDisk, expanded, located
from odradek_audit.report import RESULT_FILES
from odradek_proto.topics import TopicPartition
from typer.testing import CliRunner

from tests.audit.corruption import plant
from tests.audit.s3 import Bucket, s3_server
from tests.audit.sample import SampleLog, WriteCluster

pytest.importorskip("pyarrow")

runner = CliRunner()


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with s3_server("copies") as made:
        yield made


@pytest.fixture
def damaged(write_cluster: WriteCluster, log: SampleLog) -> dict[str, Path]:
    """Three replicas, one with a changed record."""
    replicas = write_cluster(log, log, log, clean_shutdown=True)
    plant("change-record", replicas["2"], TopicPartition("t", 0), random.Random(3))
    return replicas


@pytest.mark.slow
def test_a_bucket_is_audited_like_the_directories_that_it_was_filled_from(
    bucket: Bucket, damaged: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers are found by wildcard, one of three lies on this machine; results go into the bucket, too."""
    bucket.credentials(monkeypatch)
    for name in ("1", "2"):
        bucket.put(damaged[name], f"monday/b{name}")
    here = local.audit(damaged)
    mixed: dict[str, Path | str] = {**{name: bucket.uri(f"monday/b{name}") for name in ("1", "2")}, "3": damaged["3"]}
    there = local.audit(mixed, jobs=4)
    assert [finding.check for finding in here.findings] == ["log-matching"]
    assert (there.findings, there.partitions, there.notes) == (here.findings, here.partitions, here.notes)

    out = bucket.uri("results/monday")
    arguments = ["run", "--data", bucket.uri("monday/b*"), "--out", out]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 3, result.output
    assert bucket.names("results/monday/") == {f"results/monday/{name}" for name in RESULT_FILES}
    summary = json.loads(bucket.get("results/monday/summary.json"))
    assert {replica["replica"] for replica in summary["partitions"][0]["replicas"]} == {"1", "2"}
    refused = runner.invoke(app, arguments)
    assert refused.exit_code == 2
    assert "--overwrite" in refused.output
    assert runner.invoke(app, [*arguments, "--overwrite"]).exit_code == 3
    missing = runner.invoke(app, ["run", "--replica", f"1={bucket.uri('nowhere')}"])
    assert (missing.exit_code, "is no directory" in missing.output.replace("\n", " ")) == (2, True), missing.output


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("s3://key:secret@copies/b1", "credentials belong into the environment"),
        ("s3://copies/x?no_such_option=1", "no_such_option"),
        ("nosuchscheme://host/b1", "nosuchscheme"),
    ],
)
def test_a_place_that_cannot_be_is_wrong_usage(place: str, said: str) -> None:
    """As a directory that is not there; a secret in a place is refused, and not repeated."""
    result = runner.invoke(app, ["run", "--replica", f"1={place}"])
    assert result.exit_code == 2, result.output
    assert said in result.output.replace("\n", " ")
    assert "key:secret" not in result.output


def test_a_bucket_that_may_not_be_read_is_no_damage() -> None:
    """The store's refusal is told like one of a disk: nothing is concluded from it."""
    from odradek_audit.inputs import stores

    with pytest.raises(PermissionError, match="ACCESS_DENIED"), stores._as_os_errors("s3://copies/b1"):
        raise OSError("When listing objects: AWS Error ACCESS_DENIED during ListObjectsV2 operation")


def test_other_file_systems_are_read_through_fsspec(damaged: dict[str, Path]) -> None:
    """What pyarrow does not know is asked of fsspec; here its memory."""
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for name, path in damaged.items():
        memory.put(str(path), f"/copies/b{name}", recursive=True)
    try:
        there = local.audit({name: f"memory://copies/b{name}" for name in damaged})
    finally:
        memory.rm("/copies", recursive=True)
    assert there.findings == local.audit(damaged).findings != []


def test_wildcards_mean_directories(tmp_path: Path) -> None:
    """Each within one name, in any part of a path; files are passed over."""
    for name in ("mon/b1", "mon/b2", "tue/b1"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "mon/b3").write_text("a file")
    found = [path.removeprefix(str(tmp_path)) for path in expanded(LocalDisk(), f"{tmp_path}/*/b[1-3]")]
    assert found == ["/mon/b1", "/mon/b2", "/tue/b1"]


def test_places_keep_their_options_apart() -> None:
    """Options belong to a store and not to the paths in it; the same store cannot have two sets of them."""
    disk, paths = located({"1": "s3://a/b1/?region=x", "2": "s3://a/b2", "3": "file:///c/b3", "4": Path("d")})
    assert paths == {"1": "s3://a/b1", "2": "s3://a/b2", "3": "/c/b3", "4": "d"}
    assert isinstance(disk, StoreDisk)
    assert disk.options == (("s3://a", (("region", "x"),)),)
    with pytest.raises(ValueError, match="different options"):
        located({"1": "s3://a/b1?region=x", "2": "s3://a/b2?region=y"})
    assert located({"1": "/c"})[0] == LocalDisk()
