"""The Spark engine, in one session for the whole module: the same findings as the local engine, and the data
source's views."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from odradek_audit.engine import local
from odradek_audit.engine.parts import part_tasks
from odradek_audit.inputs import line_parts
from odradek_audit.inputs.disk import LocalDisk
from odradek_audit.inputs.history import ACK, SEND, CorruptHistory, Event, History, encode_event
from odradek_audit.inputs.layout import read_layout
from odradek_audit.spark.rows import CorruptLog
from odradek_proto.compression import Codec
from odradek_proto.topics import TopicPartition

from tests.audit.corruption import plant
from tests.audit.corruption.places import flip_bit, places_of
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
def test_a_history_is_read_by_the_workers(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In parts of 500 bytes, or out of memory: the local engine says the same, of sends without a partition, of one
    without a byte, of one that nobody has, and of a line that was cut short. A wrong line is told by its number."""
    from odradek_audit.spark import engine as spark

    monkeypatch.setattr(line_parts.line_parts, "__defaults__", (500,))
    log = SampleLog().fill(15)
    partitions = {
        TopicPartition("t", 0): SamplePartition(log),
        TopicPartition("t", 1): SamplePartition(log),
        TopicPartition("empty", 0): SamplePartition(SampleLog()),
        TopicPartition("silent", 0): SamplePartition(log),
    }
    replicas = {str(node): write_log_directory(tmp_path / str(node), node, partitions) for node in (1, 2, 3)}
    told = [Event(SEND, "t", -1, b"never written"), Event(ACK, "t", 0, b"never written", 60, client="w")]
    for topic, partition in (("t", 1), ("empty", 0), ("gone", 3)):
        for offset in range(20):
            value, time_ms = f"{topic}-{offset}".encode(), 1_795_262_400_000 + offset * (1 + 500 * (topic == "gone"))
            told.append(Event(SEND, topic, partition, value, client="w", time_ms=time_ms))
            acks: str | int = "all" if offset % 2 else 1
            told.append(Event(ACK, topic, partition, value, offset, acks, client="w", time_ms=time_ms + 300))
    path = tmp_path / "history.jsonl"
    path.write_text("".join(encode_event(event) + "\n" for event in told) + '{"type": "send", "to')
    expected = local.audit(replicas, history=path)
    assert {finding.check for finding in expected.findings} == {"acknowledged-lost", "phantom"}
    for history in (str(path), History.read(path)):  # a `Path`: test_audit_both_engines
        report = spark.audit(session, replicas, history=history)
        for name in ("findings", "partitions", "losses", "run", "history_events", "notes"):
            assert getattr(report, name) == getattr(expected, name), name
    path.write_text(path.read_text().replace('"acks": 1', '"acks": 7', 1) + "\n")
    with pytest.raises(CorruptHistory) as here:
        local.audit(replicas, history=path)
    with pytest.raises(CorruptHistory) as there:
        spark.audit(session, replicas, history=path)
    assert (there.value.line, there.value.reason) == (here.value.line, here.value.reason)


@given(st.lists(st.sampled_from([b"", b"a", b"bc" * 9, b"\xff" * 30])), st.booleans(), st.integers(1, 40))
def test_lines_belong_to_the_part_in_which_they_begin(lines: list[bytes], ended: bool, size: int) -> None:
    """Each once, in order, wherever a file is cut, and however much one read gives."""
    data = b"\n".join(lines) + b"\n" * ended

    class Memory(LocalDisk):
        def size(self, path: str) -> int:
            return len(data)

        def read(self, path: str, position: int, length: int) -> bytes:
            return data[position : position + min(length, 7)]

    parts = line_parts.line_parts(Memory(), "x", size)
    read = [line for part in parts for line in line_parts.lines_of(Memory(), part)]
    assert read == data.splitlines(keepends=True)


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
    place, _ = places_of(tmp_path / "1" / "orders-4")
    flip_bit(place.segment, place.end - 1)
    damaged = session.read.format("kafka-log")
    with pytest.raises(Exception, match="CorruptLog"):  # raised in a worker, it fails the job
        damaged.load(str(tmp_path)).count()
    damaged = damaged.option("view", "batches")
    assert damaged.option("onCorrupt", "record").load(str(tmp_path)).where("not crc_ok").count() == 1
    assert damaged.option("onCorrupt", "stop").load(str(tmp_path)).count() < 4


def test_corrupt_log_fails_unless_told_otherwise(tmp_path: Path) -> None:
    """By default a reader of records is not given half of them in silence."""
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyspark")
    partitions = {TopicPartition("t", 0): SamplePartition(SampleLog().fill(10))}
    replica = write_log_directory(tmp_path / "1", 1, partitions)
    plant("flip-byte", replica, TopicPartition("t", 0), random.Random(1))
    from odradek_audit.spark.datasource import KafkaLogReader

    def read(**options: str) -> Any:
        reader = KafkaLogReader({"replicas": f"1={replica}", **options})
        return pyarrow.Table.from_batches([rows for part in reader.partitions() for rows in reader.read(part)])

    with pytest.raises(CorruptLog):
        read()
    assert read(view="batches", onCorrupt="record")["crc_ok"].to_pylist().count(False) == 1
    assert read(view="batches", onCorrupt="stop").num_rows < 10


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
    result = local.BatchCheckInputs(inputs, None, False, False).check(spark.unpacked(packed), LocalDisk())
    expected = local.audit_disk(LocalDisk(), replicas)
    assert (result.findings, [result.summary]) == (expected.findings, expected.partitions)
    assert "torn-tail" in {finding.check for finding in result.findings}
