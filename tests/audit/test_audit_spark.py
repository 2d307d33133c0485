"""The Spark engine, in one session for the whole module: the same findings as the local engine, and the data
source's views."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from odradek_audit.engine import local
from odradek_audit.engine.parts import part_tasks
from odradek_audit.inputs.disk import LocalDisk
from odradek_audit.inputs.history import ACK, SEND, Event, History
from odradek_audit.inputs.layout import read_layout
from odradek_audit.spark.rows import CorruptLog
from odradek_proto.compression import Codec
from odradek_proto.topics import TopicPartition

from tests.audit.corruption import plant
from tests.audit.sample import SampleLog, SamplePartition, write_log_directory
from tests.interop.planted import Plantings, plant_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

GOLDEN = Path(__file__).parent.parent / "golden" / "kafka-4.1.1"


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Plantings:
    """Copies of what three brokers of Kafka wrote, with a topic for each kind of damage and one for each near miss."""
    sources = {str(node): GOLDEN / f"broker-{node}" for node in (1, 2, 3)}
    partitions = [TopicPartition("golden", 0), TopicPartition("ledger", 0)]
    return plant_all(sources, partitions, tmp_path_factory.mktemp("cluster") / "copies", seed=7)


@pytest.mark.slow  # nearly all of it is the start of a JVM
def test_all_damage_is_found_in_one_run(session: SparkSession, damaged: Plantings) -> None:
    """Every kind is named with replica, offset and epoch, near misses are silent, and the local engine says the
    same."""
    from odradek_audit.spark import engine as spark

    report = spark.audit(session, damaged.replicas, split_bytes=4096)
    assert damaged.wrong(report.findings) == {}
    assert report.exit_code == 3
    expected = local.audit_disk(LocalDisk(), {name: str(path) for name, path in damaged.replicas.items()})
    assert report.findings == expected.findings
    assert report.partitions == expected.partitions
    assert sorted(report.notes, key=str) == sorted(expected.notes, key=str)


@pytest.mark.slow
def test_history_and_empty_partitions(session: SparkSession, tmp_path: Path) -> None:
    """The history travels to the workers; a partition without a byte is one all the same."""
    from odradek_audit.spark import engine as spark

    log = SampleLog().fill(15)
    partitions = {
        TopicPartition("t", 0): SamplePartition(log),
        TopicPartition("empty", 0): SamplePartition(SampleLog()),
    }
    replicas = {str(node): write_log_directory(tmp_path / str(node), node, partitions) for node in (1, 2, 3)}
    history = History([Event(SEND, "t", -1, b"never written"), Event(ACK, "t", 0, b"never written", 60, client="w")])
    report = spark.audit(session, replicas, history=history)
    assert {(finding.check, finding.offset) for finding in report.findings} >= {("acknowledged-lost", 60)}
    expected = local.audit(replicas, history=history)
    assert report.findings == expected.findings
    assert report.partitions == expected.partitions
    assert [partition.topic for partition in report.partitions] == ["empty", "t"]


@pytest.mark.slow
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


@pytest.fixture
def damaged_replica(tmp_path: Path) -> Path:
    """A replica in whose log one byte is not as it was written."""
    partitions = {TopicPartition("t", 0): SamplePartition(SampleLog().fill(10))}
    replica = write_log_directory(tmp_path / "1", 1, partitions)
    plant("flip-byte", replica, TopicPartition("t", 0), random.Random(1))
    return replica


def test_corrupt_log_fails_unless_told_otherwise(damaged_replica: Path) -> None:
    """By default a reader of records is not given half of them in silence."""
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyspark")
    from odradek_audit.spark.datasource import KafkaLogReader

    def read(**options: str) -> Any:
        reader = KafkaLogReader({"replicas": f"1={damaged_replica}", **options})
        return pyarrow.Table.from_batches([rows for part in reader.partitions() for rows in reader.read(part)])

    with pytest.raises(CorruptLog):
        read()
    assert read(view="batches", onCorrupt="record")["crc_ok"].to_pylist().count(False) == 1
    assert read(view="batches", onCorrupt="stop").num_rows < 10


@pytest.mark.slow
def test_corrupt_log_fails_a_job_of_spark_unless_told_otherwise(session: SparkSession, damaged_replica: Path) -> None:
    """The same, with its way through Spark: the options arrive, and so does the error."""
    reader = session.read.format("kafka-log").option("replicas", f"1={damaged_replica}")
    with pytest.raises(Exception, match="CorruptLog"):
        reader.load().count()
    reader = reader.option("view", "batches")
    assert reader.option("onCorrupt", "record").load().where("not crc_ok").count() == 1
    assert reader.option("onCorrupt", "stop").load().count() < 10


def test_a_log_without_a_sound_batch_is_no_empty_one(tmp_path: Path) -> None:
    """The table that a worker gets has nothing but damage, and the local engine says the same of it."""
    from odradek_audit.spark import engine as spark

    sample = {TopicPartition("t", 0): SamplePartition(SampleLog().fill(15))}
    replicas = {
        str(node): str(write_log_directory(tmp_path / str(node), node, sample, clean_shutdown=True)) for node in (1, 2)
    }
    (tmp_path / "2/t-0" / f"{0:020d}.log").write_bytes(b"nonsense" * 30)
    (inputs,) = read_layout(LocalDisk(), replicas).partitions
    packed = [piece for task in part_tasks(LocalDisk(), [inputs]) for _, piece in spark.pack_part(LocalDisk(), task)]
    result = local.Closely(inputs, None, False, False).check(spark.unpacked(packed), LocalDisk())
    expected = local.audit_disk(LocalDisk(), replicas)
    assert (result.findings, [result.summary]) == (expected.findings, expected.partitions)
    assert "torn-tail" in {finding.check for finding in result.findings}
