"""Files that Apache Kafka wrote (README.md here says how): read, written again, recovered and audited.

No Java, no cluster: what must hold of Kafka's bytes is checked in every test run.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from odradek_audit.engine.local import audit
from odradek_broker.commands.log_checks import verify_directory
from odradek_broker.storage.log import Log
from odradek_broker.storage.segment import Segment
from odradek_broker.storage.settings import LogSettings
from odradek_proto import formats
from odradek_proto.records import (
    Codec,
    ControlType,
    Record,
    check_batch,
    control_type,
    coordinator_epoch,
    decode_records,
    encode_batch,
    encode_control_batch,
    end_transaction_value,
    iter_batches,
)
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.files import OsFiles

from tests.interop.kafka.opening import differences
from tests.interop.our_logs import served
from tests.interop.planted import WHOLE_DIRECTORY, plant_directory

GOLDEN = Path(__file__).parent / "kafka-4.1.1"
CLEAN, KILLED = GOLDEN / "broker-1", GOLDEN / "broker-3"
SETTINGS = LogSettings(segment_bytes=4096, index_interval_bytes=300)
PARTITIONS = (TopicPartition("golden", 0), TopicPartition("ledger", 0))


def golden_files(pattern: str) -> list[Path]:
    """Kafka's files of one kind, at least one."""
    found = sorted(GOLDEN.rglob(pattern))
    assert found, pattern
    return found


def replicas() -> dict[str, Path]:
    return {str(node): GOLDEN / f"broker-{node}" for node in (1, 2, 3)}


def batches(path: Path) -> Iterator[bytes]:
    """The batches of a segment, one by one."""
    data = path.read_bytes()
    for position, header in iter_batches(data):
        yield data[position : position + header.size]


def open_copy(source: Path, partition: TopicPartition, copied: Path, *, clean: bool) -> Log:
    """Open a copy of a partition's directory by our storage; recovered from its start unless clean."""
    shutil.copytree(source / str(partition), copied)
    wall_ms = max(each.timestamp for each in acknowledged())
    return Log.open(OsFiles(), str(copied), partition, settings=SETTINGS, clean=clean, wall_ms=wall_ms)


def acknowledged() -> list[Record]:
    """What the producers of the topic `golden` were told: every record with its offset."""

    def unpacked(text: str | None) -> bytes | None:
        return None if text is None else base64.b64decode(text)

    lines = [json.loads(line) for line in (GOLDEN / "acknowledged.jsonl").read_text().splitlines()]
    return [
        Record(
            line["offset"],
            line["timestamp"],
            unpacked(line["key"]),
            unpacked(line["value"]),
            tuple((name, unpacked(value)) for name, value in line["headers"]),
        )
        for line in lines
    ]


# --- Formats ----------------------------------------------------------------------------------------------------------

BINARY: tuple[tuple[str, Callable[[bytes], bytes]], ...] = (
    ("*.index", lambda data: formats.encode_offset_index(formats.decode_offset_index(data))),
    ("*.timeindex", lambda data: formats.encode_time_index(formats.decode_time_index(data))),
    ("*.txnindex", lambda data: formats.encode_transaction_index(formats.decode_transaction_index(data))),
    ("*.snapshot", lambda data: formats.encode_producer_snapshot(formats.decode_producer_snapshot(data))),
    ("leader-epoch-checkpoint", lambda data: formats.encode_leader_epochs(formats.decode_leader_epochs(data))),
    ("partition.metadata", lambda data: formats.encode_partition_metadata(formats.decode_partition_metadata(data))),
    (".kafka_cleanshutdown", lambda data: formats.encode_clean_shutdown(formats.decode_clean_shutdown(data))),
)


@pytest.mark.parametrize(("pattern", "again"), BINARY, ids=[pattern for pattern, _ in BINARY])
def test_decoded_and_encoded_files_are_the_same(pattern: str, again: Callable[[bytes], bytes]) -> None:
    """Byte for byte, but for the room at the end of the killed broker's active indexes."""
    for path in golden_files(pattern):
        data = path.read_bytes()
        if pattern.endswith("index") and path.is_relative_to(KILLED):
            data = data[: len(again(data))] + bytes(len(data) - len(again(data)))
            assert data == path.read_bytes()
            data = data[: len(again(data))]
        assert again(data) == data, path


@pytest.mark.parametrize("name", ["replication-offset", "recovery-point-offset", "log-start-offset"])
def test_offset_checkpoints_have_the_same_lines(name: str) -> None:
    """Kafka writes them in the order of a hash table, we sort; an empty file has no entries."""
    for path in golden_files(f"{name}-checkpoint"):
        data = path.read_bytes()
        again = formats.encode_offset_checkpoint(formats.decode_offset_checkpoint(data))
        if data:
            assert sorted(again.splitlines(keepends=True)) == sorted(data.splitlines(keepends=True)), path


def test_meta_properties_have_the_same_lines() -> None:
    """But for Kafka's comment with the time."""
    for node, path in enumerate(golden_files("meta.properties"), start=1):
        properties = formats.decode_meta_properties(path.read_bytes())
        assert properties.node_id == node
        again = formats.encode_meta_properties(properties).decode().splitlines()
        assert {line for line in again if line != "#"} == {
            line for line in path.read_text().splitlines() if not line.startswith("#")
        }


# --- Records ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("node", replicas())
def test_every_acknowledged_record_is_decoded(node: str) -> None:
    """Offsets, times, keys, values and headers, through every codec, on every replica."""
    found: list[Record] = []
    codecs = set()
    for path in sorted((replicas()[node] / "golden-0").glob("*.log")):
        for batch in batches(path):
            header = check_batch(batch)
            codecs.add(header.codec)
            found += decode_records(batch, header)
    assert found == acknowledged()
    assert codecs == set(Codec)


def test_uncompressed_batches_are_encoded_to_the_same_bytes() -> None:
    """From the decoded records and the header's fields."""
    again = 0
    for path in golden_files("golden-0/*.log"):
        for batch in batches(path):
            header = check_batch(batch)
            if header.codec is not Codec.NONE:
                continue
            records = [(each.timestamp, each.key, each.value, each.headers) for each in decode_records(batch, header)]
            again += 1
            assert batch == encode_batch(
                records,
                base_offset=header.base_offset,
                leader_epoch=header.leader_epoch,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
            )
    assert again > 10


def test_transaction_markers_are_encoded_to_the_same_bytes() -> None:
    """Kafka's commit and abort markers, with the coordinator's epoch."""
    ends = []
    for path in golden_files("broker-1/ledger-0/*.log"):
        for batch in batches(path):
            header = check_batch(batch)
            if not header.is_control:
                continue
            (record,) = decode_records(batch, header)
            ends.append(ControlType(control_type(record)))
            assert batch == encode_control_batch(
                ends[-1],
                end_transaction_value(coordinator_epoch(record)),
                timestamp=record.timestamp,
                base_offset=header.base_offset,
                leader_epoch=header.leader_epoch,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
            )
    assert ends == [ControlType[end.upper()] for end in ("commit", "abort", "commit", "abort", "commit")]


# --- Storage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_a_clean_directory_is_left_as_it_is(partition: TopicPartition, tmp_path: Path) -> None:
    """Opened and closed by our storage, every file is what Kafka wrote."""
    copied = tmp_path / str(partition)
    log = open_copy(CLEAN, partition, copied, clean=True)
    assert log.recovery.batches == 0
    log.close(clean=True)
    assert differences(copied, CLEAN / str(partition)) == []


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_kafkas_time_indexes_are_believed(
    partition: TopicPartition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batches agree with every entry: nothing is rebuilt, and the entries lead to where the records are."""
    rebuilt: list[str] = []
    monkeypatch.setattr(Segment, "rebuild_indexes", lambda segment, *_: rebuilt.append(segment.path))
    log = open_copy(CLEAN, partition, tmp_path / str(partition), clean=True)
    for segment in log.segments:
        assert segment.largest_timestamp > 0
        for timestamp, offset in segment.time_index.below(1 << 62):
            assert segment._has_timestamp(timestamp, offset), (segment.path, timestamp, offset)
    assert sum(len(segment.time_index) for segment in log.segments) > 3
    assert rebuilt == []
    log.close(clean=True)


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_our_recovery_makes_what_kafkas_recovery_makes(partition: TopicPartition, tmp_path: Path) -> None:
    """Of a killed broker's directory: segments, indexes, snapshots, leader epochs."""
    copied = tmp_path / str(partition)
    log = open_copy(KILLED, partition, copied, clean=False)
    assert log.recovery.batches > 5
    log.close(clean=True)
    assert differences(copied, GOLDEN / "recovered" / str(partition)) == []


@pytest.mark.parametrize(("node", "clean"), [("1", True), ("2", True), ("1", False), ("2", False), ("3", False)])
def test_our_storage_serves_kafkas_batches(node: str, clean: bool, tmp_path: Path) -> None:
    """Believed or recovered, the bytes are those of the segments."""
    for partition in PARTITIONS:
        log = open_copy(replicas()[node], partition, tmp_path / str(partition), clean=clean)
        segments = sorted((replicas()[node] / str(partition)).glob("*.log"))
        assert served(log) == b"".join(path.read_bytes() for path in segments)
        log.close(clean=True)


# --- Audit ------------------------------------------------------------------------------------------------------------


def test_the_audit_finds_nothing() -> None:
    """In three replicas of Kafka, two of them closed cleanly and one killed."""
    report = audit(replicas(), topics=["golden", "ledger"])  # the others' directories were left out
    assert [finding.sentence for finding in report.findings] == []
    assert (report.exit_code, report.inconclusive) == (0, [])
    assert report.compared_records > 600


def test_the_quick_checks_find_nothing() -> None:
    """`odradek log verify` over each partition."""
    for path in golden_files("partition.metadata"):
        assert verify_directory(path.parent).problems == []


@pytest.mark.parametrize("kind", WHOLE_DIRECTORY)
def test_directory_in_the_wrong_place_is_found(kind: str, tmp_path: Path) -> None:
    """Once, and not for each partition in it; a `meta.properties` that is only written otherwise is fine."""
    made = plant_directory(kind, replicas(), PARTITIONS[0], tmp_path)
    report = audit(made.replicas, topics=["golden", "ledger"])
    assert made.wrong(report.findings) == {}
    assert len(report.findings) == 1
