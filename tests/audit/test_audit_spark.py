"""The Spark engine, in one session for the whole module: the same findings as the local engine, and the data
source's views."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from odradek_audit import local
from odradek_audit.history import ACK, SEND, Event, History
from odradek_audit.planting import KINDS, Planted, plant
from odradek_audit.sample import SampleLog, SamplePartition, write_log_directory
from odradek_proto.compression import Codec
from odradek_proto.topics import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    """One quiet Spark session on two threads."""
    from odradek_audit.launch import spark_session

    with spark_session("local[2]") as spark:
        yield spark


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], dict[str, Planted]]:
    """Three replicas with a partition for each kind of damage, planted on replica 2 or 3, and a near miss beside
    each."""
    root = tmp_path_factory.mktemp("cluster")
    log = SampleLog().fill(15, epoch=0).fill(20, epoch=1).fill(30, epoch=3)
    sample = SamplePartition(log, segment_bytes=9000)
    names = [name for kind in KINDS for name in (kind, f"near-{kind}")] + ["empty"]
    partitions = {TopicPartition(name, 0): sample for name in names}
    partitions[TopicPartition("empty", 0)] = SamplePartition(SampleLog())
    replicas = {str(node): write_log_directory(root / f"broker-{node}", node, partitions) for node in (1, 2, 3)}
    planted = {}
    for number, kind in enumerate(KINDS):
        copy = replicas["2" if number % 2 else "3"]
        planted[kind] = plant(kind, copy, TopicPartition(kind, 0), random.Random(kind))
        near_miss(copy / f"near-{kind}-0", number)
    return replicas, planted


def near_miss(directory: Path, number: int) -> None:
    """What looks like damage and is none: a torn tail, room at the end, no indexes, files on their way out."""
    last = sorted(directory.glob("*.log"))[-1]
    if number % 4 == 0:
        last.write_bytes(last.read_bytes() + last.read_bytes()[:200])
    elif number % 4 == 1:
        last.write_bytes(last.read_bytes() + bytes(5000))
    elif number % 4 == 2:
        for path in directory.glob("*index"):
            path.unlink()
    else:
        (directory / f"{3:020d}.log.deleted").write_bytes(b"\xff" * 300)


def test_all_damage_is_found_in_one_run(
    session: SparkSession, damaged: tuple[dict[str, Path], dict[str, Planted]]
) -> None:
    """Every kind is named with replica, offset and epoch, near misses are silent, and the local engine says the
    same."""
    from odradek_audit import spark

    replicas, planted = damaged
    history = History(
        [
            Event(SEND, "flip-byte", -1, b"never written"),
            Event(ACK, "flip-byte", 0, b"never written", 260, client="w"),
        ]
    )
    report = spark.audit(session, replicas, history=history, split_bytes=4096)
    for number, (kind, plan) in enumerate(planted.items()):
        replica = "2" if number % 2 else "3"
        assert any(
            (finding.check, finding.topic, finding.replica, finding.offset, finding.epoch)
            == (plan.check, kind, replica, plan.offset, plan.epoch)
            for finding in report.findings
        ), plan
    assert {finding.topic for finding in report.findings} == set(planted)
    assert report.exit_code == 3
    expected = local.audit(replicas, history=history)
    assert report.findings == expected.findings
    assert report.partitions == expected.partitions
    assert sorted(report.notes, key=str) == sorted(expected.notes, key=str)
    assert "acknowledged-lost" in {finding.check for finding in report.findings}


def test_views_of_the_data_source(session: SparkSession, tmp_path: Path) -> None:
    """Found by Spark without an import; records come back with keys, values, headers' column and times."""
    log = SampleLog().append([b"one", b"two"], epoch=1, producer_id=7).append([b"three"], epoch=2, codec=Codec.GZIP)
    sample = {TopicPartition("orders", 4): SamplePartition(log)}
    for node in (1, 2):
        write_log_directory(tmp_path / str(node), node, sample)
    records: list[Any] = (
        session.read.format("kafka-log").load(str(tmp_path)).where("replica = '1'").orderBy("offset").collect()
    )
    seen = [(bytes(row.value), row.offset, row.leader_epoch, row.sequence, row.codec, row.crc_ok) for row in records]
    assert seen == [
        (b"one", 0, 1, 0, "none", True),
        (b"two", 1, 1, 1, "none", True),
        (b"three", 2, 2, -1, "gzip", True),
    ]
    assert {(row.topic, row.partition, row.timestampType) for row in records} == {("orders", 4, 0)}
    counts = {
        view: session.read.format("kafka-log").option("view", view).load(str(tmp_path)).count()
        for view in ("batches", "segments", "epochs", "checkpoints")
    }
    assert counts == {"batches": 4, "segments": 2, "epochs": 4, "checkpoints": 2}


def test_corrupt_log_fails_unless_told_otherwise(session: SparkSession, tmp_path: Path) -> None:
    """By default a reader of records is not given half of them in silence."""
    log = SampleLog().fill(10)
    replica = write_log_directory(tmp_path / "1", 1, {TopicPartition("t", 0): SamplePartition(log)})
    plant("flip-byte", replica, TopicPartition("t", 0), random.Random(1))
    reader = session.read.format("kafka-log").option("replicas", f"1={replica}")
    with pytest.raises(Exception, match="CorruptLog"):
        reader.load().count()
    reader = reader.option("view", "batches")
    assert reader.option("onCorrupt", "record").load().where("not crc_ok").count() == 1
    assert reader.option("onCorrupt", "stop").load().count() < 10
