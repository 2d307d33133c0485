"""`odradek log dump --cluster-metadata`: the records of the metadata log and of its snapshots, field by field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from odradek_proto.control import ControlType, encode_control_batch, leader_change_value
from odradek_proto.metadata_snapshots import (
    encode_snapshot_footer,
    encode_snapshot_header,
    encode_snapshot_records,
    snapshot_file_name,
)
from odradek_proto.records import encode_batch
from odradek_proto.v1.metadata_messages import (
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

from tests.cli.conftest import Run

TOPIC_ID = bytes(range(16))
RECORDS = [
    MetadataRecord(topic=TopicRecord(name="orders", topic_id=TOPIC_ID)),
    MetadataRecord(
        partition_change=PartitionChangeRecord(topic_id=TOPIC_ID, partition=2, isr=[1, 3], isr_changed=True)
    ),
    MetadataRecord(config=ConfigRecord(resource_type="topic", resource_name="orders", name="retention.ms")),
    MetadataRecord(register_broker=RegisterBrokerRecord(broker_id=3, endpoints={"GRPC": "host:1"}, fenced=True)),
]
VALUES = [record.SerializeToString() for record in RECORDS]


def snapshot(directory: Path) -> Path:
    path = directory / snapshot_file_name(813, 4)
    parts = [encode_snapshot_header(4, 7_000), encode_snapshot_records(VALUES, 1, 4, 7_000)]
    path.write_bytes(b"".join([*parts, encode_snapshot_footer(5, 4, 7_000)]))
    return path


def record_rows(odradek: Run, path: Path, *options: str) -> list[dict[str, Any]]:
    outcome = odradek("log", "dump", str(path), "--output", "jsonl", *options, code=0)
    return [row for line in outcome.out.splitlines() if "valueSize" in (row := json.loads(line))]


def test_a_snapshot_is_dumped_field_by_field(odradek: Run, tmp_path: Path) -> None:
    """Header, records, footer; what is not set is left out, an id is in Kafka's text form."""
    rows = record_rows(odradek, snapshot(tmp_path), "--cluster-metadata")
    assert (rows[0]["controlType"], rows[0]["lastContainedLogTimestamp"]) == ("SNAPSHOT_HEADER", 7_000)
    assert rows[-1]["controlType"] == "SNAPSHOT_FOOTER"
    shown = [json.loads(row["payload"]) for row in rows[1:-1]]
    assert shown[0] == {"type": "TOPIC_RECORD", "data": {"name": "orders", "topic_id": "AAECAwQFBgcICQoLDA0ODw"}}
    assert shown[1]["type"] == "PARTITION_CHANGE_RECORD"
    assert {"partition": 2, "isr": [1, 3], "isr_changed": True}.items() <= shown[1]["data"].items()
    assert "leader" not in shown[1]["data"], "the record does not speak of the leader"
    assert "value" not in shown[2]["data"], "no value: it was taken back"
    assert shown[3]["data"]["endpoints"] == {"GRPC": "host:1"}


def test_the_metadata_log_is_dumped_field_by_field(odradek: Run, tmp_path: Path) -> None:
    """Kafka's name of the option works as well; control records have their type."""
    change = leader_change_value(1, (1, 2, 3), (1, 2))
    control = encode_control_batch(ControlType.LEADER_CHANGE, change, timestamp=1, base_offset=0, leader_epoch=1)
    records = encode_batch([(1, None, value, ()) for value in VALUES], base_offset=1, leader_epoch=1)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(control + records)
    rows = record_rows(odradek, path, "--cluster-metadata-decoder")
    assert rows[0]["controlType"] == "LEADER_CHANGE"
    types = [json.loads(row["payload"])["type"] for row in rows[1:]]
    assert types == ["TOPIC_RECORD", "PARTITION_CHANGE_RECORD", "CONFIG_RECORD", "REGISTER_BROKER_RECORD"]


def test_a_damaged_snapshot_is_a_finding(odradek: Run, tmp_path: Path) -> None:
    """Also under the name that a node gives it when it sets it aside."""
    path = snapshot(tmp_path)
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    aside = path.with_name(path.name + ".damaged")
    aside.write_bytes(data)
    outcome = odradek("log", "dump", str(aside), "--output", "jsonl", code=3)
    assert "CRC" in outcome.out


def test_a_record_of_the_future_is_a_finding(odradek: Run, tmp_path: Path) -> None:
    """It is shown where it stands, and the rest is shown, too."""
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(encode_batch([(1, None, b"\xfa\x01\x00", ()), (1, None, VALUES[0], ())], leader_epoch=1))
    outcome = odradek("log", "dump", str(path), "--cluster-metadata", "--output", "jsonl", code=3)
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    assert [row["isvalid"] for row in rows if "error" in row] == [False]
    assert "TOPIC_RECORD" in outcome.out
