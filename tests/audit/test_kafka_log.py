"""The data source `kafka-log`: what is asked for is what comes, and no other segment is opened for it."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from odradek_audit.inputs.disk import LocalDisk
from odradek_proto.topics import TopicPartition

from tests.audit.sample import FIRST_TIMESTAMP, SampleLog, SamplePartition, write_log_directory

pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")
from odradek_audit.spark.datasource import KafkaLogReader  # noqa: E402
from odradek_audit.spark.rows import SCHEMAS  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden/kafka-4.1.1"


@dataclass(frozen=True)
class Watched(LocalDisk):
    """Knows which files were read."""

    read_files: dict[str, int] = field(default_factory=dict)

    def read(self, path: str, position: int, length: int) -> bytes:
        name = path.rpartition("/")[2]
        data = LocalDisk.read(self, path, position, length)
        self.read_files[name] = self.read_files.get(name, 0) + len(data)
        return data


@pytest.fixture
def broker(tmp_path: Path, log: SampleLog) -> Path:
    """260 records of t-0 in segments of some 70, and of t-1."""
    partitions = {TopicPartition("t", number): SamplePartition(log, segment_bytes=9000) for number in (0, 1)}
    return write_log_directory(tmp_path / "1", 1, partitions, clean_shutdown=True)


def asked(broker: Path, **options: str) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The rows, and how many bytes were read of which file."""
    reader = KafkaLogReader({"replicas": f"1={broker}", **options})
    reader.disk = Watched()
    names = [column.split()[0] for column in SCHEMAS[reader.view].split(", ")]
    rows: list[dict[str, Any]] = []
    for part in reader.partitions():
        for each in reader.read(part):
            rows += each.to_pylist() if hasattr(each, "to_pylist") else [dict(zip(names, each, strict=True))]
    return rows, reader.disk.read_files


def segments(broker: Path) -> list[int]:
    return sorted(int(path.stem) for path in (broker / "t-0").glob("*.log"))


def test_offsets_open_their_segments_alone(broker: Path) -> None:
    """Records to the offset, batches as far as they touch the range; a part of the segment is read, by its index."""
    bases = segments(broker)
    assert len(bases) > 3
    first, end = bases[1] + 50, bases[1] + 58
    options = {
        "startingOffsets": json.dumps({"t": {"0": first, "1": -1}}),
        "endingOffsets": json.dumps({"t": {"0": end, "1": 0}}),
    }
    rows, files = asked(broker, **options)
    assert [row["offset"] for row in rows] == list(range(first, end))
    assert {name for name in files if name.endswith(".log")} == {f"{bases[1]:020d}.log"}
    rows, files = asked(broker, **options, view="batches")
    assert rows[0]["base_offset"] <= first <= rows[0]["last_offset"]
    assert rows[-1]["base_offset"] < end <= rows[-1]["last_offset"] + 1
    rows, _ = asked(broker, **options, view="segments")
    assert [row["base_offset"] for row in rows] == [bases[1]]
    whole, _ = asked(broker, topics="t")
    assert len(whole) == 2 * 260
    assert len(asked(broker, startingOffsets='{"t": {"0": 250}}')[0]) == 260 + 10


@pytest.mark.parametrize(("field", "by"), [(slice(4, 8), 3), (slice(0, 4), -30), (slice(0, 4), 30)])
def test_an_index_that_lies_changes_no_row(broker: Path, field: slice, by: int) -> None:
    """Its entries are looked at before they are believed: where a batch begins, and which."""
    base = segments(broker)[1]
    options = {"startingOffsets": json.dumps({"t": {"0": base + 50}}), "endingOffsets": json.dumps({"t": {"1": 0}})}
    rows, _ = asked(broker, **options)
    index = broker / "t-0" / f"{base:020d}.index"
    data = bytearray(index.read_bytes())
    for at in range(0, len(data), 8):
        entry = data[at : at + 8]
        entry[field] = max(0, int.from_bytes(entry[field], "big") + by).to_bytes(4, "big")
        data[at : at + 8] = entry
    index.write_bytes(data)
    assert asked(broker, **options)[0] == rows


@pytest.mark.parametrize(("begin", "end"), [(0, 260), (1, 2), (71, 201), (130, 130), (259, 400)])
def test_times_are_the_first_records_that_are_not_older(broker: Path, begin: int, end: int) -> None:
    """As Kafka looks up offsets by time: each record of the sample is a millisecond younger."""
    times = {"startingTimestamp": str(FIRST_TIMESTAMP + begin), "endingTimestamp": str(FIRST_TIMESTAMP + end)}
    rows, _ = asked(broker, **times)
    assert [row["offset"] for row in rows if row["partition"] == 1] == list(range(begin, min(end, 260)))


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("topic", "t", "option topic: kafka-log knows path, replicas, view"),
        ("subscribe", "t", "option subscribe"),
        ("startingOffsets", "latest", "must be earliest, or JSON"),
        ("endingOffsets", '{"t": {"0": -3}}', "must be latest, or JSON"),
        ("endingOffsets", "[1]", "must be latest, or JSON"),
        ("startingTimestamp", "yesterday", "must be a number of milliseconds"),
        ("isolationLevel", "committed", "must be one of read_uncommitted, read_committed"),
        ("view", "record", "must be one of records, batches, segments, indexes"),
    ],
)
def test_options_that_are_none_are_refused(broker: Path, option: str, value: str, said: str) -> None:
    """By name, with what is known: a reader who mistypes one would read everything."""
    with pytest.raises(ValueError, match=re.escape(said)):
        KafkaLogReader({"replicas": f"1={broker}", option: value})


def test_a_time_and_an_offset_are_not_both_taken(broker: Path) -> None:
    """Nobody knows which of them was meant."""
    with pytest.raises(ValueError, match="give it or a timestamp, not both"):
        KafkaLogReader({"replicas": f"1={broker}", "startingOffsets": "earliest", "startingTimestamp": "1"})


def test_entries_of_indexes_are_rows(broker: Path) -> None:
    """As they stand in the files, with the offset that they mean."""
    rows, _ = asked(broker, view="indexes", topics="t")
    offsets = [row for row in rows if row["partition"] == 0 and row["kind"] == "offset"]
    times = [row for row in rows if row["partition"] == 0 and row["kind"] == "time"]
    assert len(offsets) == len(times) > 3
    assert all(time["timestamp"] == FIRST_TIMESTAMP + time["offset"] for time in times)
    assert [row["offset"] for row in offsets] == sorted(row["offset"] for row in offsets)


def test_what_kafka_aborted_is_hidden_from_readers_of_committed_records(tmp_path: Path) -> None:
    """Its transaction index says which; markers are hidden, too. Where nobody knows what is open, it is refused."""
    clean = next(path.parent for path in sorted(GOLDEN.glob("broker-*/.kafka_cleanshutdown")))
    everything, _ = asked(clean, topics="ledger")
    assert sum(row["is_control"] for row in everything) == 5
    committed, _ = asked(clean, topics="ledger", isolationLevel="read_committed")
    records = [row for row in everything if not row["is_control"]]
    assert {bytes(row["value"]).split()[0] for row in records} == {b"commit", b"abort"}
    assert committed == [row for row in records if bytes(row["value"]).startswith(b"commit")]
    assert len(committed) == 15
    killed = tmp_path / "killed"
    shutil.copytree(clean, killed)
    (killed / ".kafka_cleanshutdown").unlink()
    with pytest.raises(ValueError, match="did not stop cleanly"):
        asked(killed, topics="ledger", isolationLevel="read_committed")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_examples_of_the_page(session: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of docs/kafka-log.md, as one program, over a directory with three brokers' copies. It gets the session that
    there is."""
    log = SampleLog().fill(15, epoch=0).fill(30, epoch=2)
    for node in (1, 2, 3):
        sample = {TopicPartition("orders", 0): SamplePartition(log, segment_bytes=9000)}
        write_log_directory(tmp_path / "copies" / f"b{node}", node, sample, clean_shutdown=True)
    page = (ROOT / "docs/kafka-log.md").read_text()
    program = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    exec(program.replace("copies", str(tmp_path / "copies")), {})  # Spark's own processes are in another directory
    assert capsys.readouterr().out.count("+---") >= 10
