"""findings.parquet: one schema for both engines, and the one that docs/audit.md describes."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from odradek_audit.columns import arrow_schema
from odradek_audit.engine import local
from odradek_audit.report import RESULT_FILES
from odradek_audit.report.files import write_report
from odradek_audit.report.parquet import COLUMNS
from odradek_audit.spark import job
from odradek_proto.topics import TopicPartition

from tests.audit.corruption import plant
from tests.audit.sample import SampleLog, SamplePartition, WriteCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

DOCS = Path(__file__).parents[2] / "docs" / "audit.md"


def damaged(write_cluster: WriteCluster, log: SampleLog) -> dict[str, Path]:
    """A changed record on replica 2, a flipped bit on replica 3."""
    replicas = write_cluster(*[SamplePartition(log, segment_bytes=9000)] * 3)
    plant("change-record", replicas["2"], TopicPartition("t", 0), random.Random(3))
    plant("flip-byte", replicas["3"], TopicPartition("t", 0), random.Random(4))
    return replicas


def test_rows_are_the_findings(write_cluster: WriteCluster, log: SampleLog, tmp_path: Path) -> None:
    """Places are numbers or null, and the bytes of each copy are there."""
    report = local.audit(damaged(write_cluster, log))
    write_report(report, tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "findings.parquet")
    assert table.schema.equals(arrow_schema(COLUMNS))
    rows: list[dict[str, Any]] = table.to_pylist()
    assert [(row["check"], row["replica"], row["first_offset"], row["sentence"]) for row in rows] == [
        (each.check, each.replica, each.offset, each.sentence) for each in report.findings
    ]
    changed = next(row for row in rows if row["check"] == "log-matching")
    assert [copy["role"] for copy in changed["copies"]] == ["accused", "reference", "other"]
    accused, reference = changed["copies"][:2]
    assert accused["crc"] == accused["computed_crc"] != reference["crc"]
    place = changed["first_differing_byte"]
    found = [
        window["data"][place - window["start"]]
        for copy in (accused, reference)
        for window in copy["bytes"]
        if window["start"] <= place < window["start"] + len(window["data"])
    ]
    assert found[0] ^ found[1] == 1
    assert changed["rules"] == ["I-1", "I-3", "B1", "B5"]


def test_no_finding_is_a_table_without_rows(write_cluster: WriteCluster, log: SampleLog, tmp_path: Path) -> None:
    """The file is there with its schema, so that a query over many runs does not fail."""
    write_report(local.audit(write_cluster(log, log)), tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "findings.parquet")
    assert table.num_rows == 0
    assert table.schema.equals(arrow_schema(COLUMNS))


def test_every_column_is_documented() -> None:
    """docs/audit.md has a row for each column, in order, with its type."""
    section = DOCS.read_text(encoding="utf-8").split("## findings.parquet", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| `([a-z_]+)` \| ([a-z0-9<>: ,]+) \|", section, re.MULTILINE)
    assert [name for name, _ in rows] == arrow_schema(COLUMNS).names
    assert [(name, kind) for name, kind in rows if kind != "array of structs"] == [
        (field.name, _documented(field.type)) for field in arrow_schema(COLUMNS) if field.name != "copies"
    ]


def _documented(kind: Any) -> str:
    names = {pa.string(): "string", pa.int32(): "int", pa.int64(): "bigint", pa.list_(pa.string()): "array of strings"}
    return names[kind]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_both_engines_write_the_same(
    session: SparkSession, write_cluster: WriteCluster, log: SampleLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job for spark-submit leaves the four files; rows, schema and page are the local engine's."""
    replicas = damaged(write_cluster, log)
    report = local.audit(replicas)
    write_report(report, tmp_path / "local")
    monkeypatch.setattr(type(session), "stop", lambda self: None)  # the job ends its session; here it is everybody's
    given = [f"--replica={name}={path}" for name, path in replicas.items()]
    for extra in ([], ["--overwrite"]):
        assert job.main([*given, "--out", str(tmp_path / "spark"), *extra]) == report.exit_code
    assert {path.name for path in (tmp_path / "spark").iterdir()} == set(RESULT_FILES)
    ours, theirs = (pq.read_table(tmp_path / engine / "findings.parquet") for engine in ("local", "spark"))
    assert theirs.to_pylist() == ours.to_pylist()
    read = session.read.parquet(str(tmp_path / "spark" / "findings.parquet"))
    assert (read.count(), read.columns) == (len(report.findings), arrow_schema(COLUMNS).names)
    local_page, spark_page = ((tmp_path / engine / "report.html").read_text() for engine in ("local", "spark"))
    assert _without_run(spark_page) == _without_run(local_page)


def _without_run(page: str) -> str:
    """A page without engine, time and duration."""
    page = re.sub(r"<footer>.*?</footer>", "", page, flags=re.DOTALL)
    return re.sub(r"<span>of logs( read in [0-9.]+\xa0s)?</span>", "", page)
