"""What logs, files, the metadata log and a history contradict in each other: all of it at once, through both engines.

The kinds that are planted into what Kafka wrote run in `test_audit_spark`; these need a cluster of their own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from odradek_audit.engine import local
from odradek_audit.inputs.history import DELIVER, READ_COMMITTED, SEND, Event
from odradek_proto.compression import Codec
from odradek_proto.formats import (
    CLEANER_OFFSET_CHECKPOINT,
    ProducerSnapshotEntry,
    encode_offset_checkpoint,
    encode_producer_snapshot,
)
from odradek_proto.records import ControlType
from odradek_proto.topics import TopicPartition

from tests.audit.acknowledged import write_history
from tests.audit.sample import FIRST_TIMESTAMP, SampleLog, SamplePartition, commits_of, committed, write_log_directory
from tests.audit.test_audit_headers import ATTRIBUTES, MAX_TIMESTAMP, change_field, log_of_codec, marked_as
from tests.audit.test_audit_metadata import METADATA, log_of, pb
from tests.audit.test_audit_topics import stamped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.slow]

OFFSETS = TopicPartition("__consumer_offsets", 0)
BROKERS = (1, 2, 3)
VOTE = '{"leaderId": 1, "leaderEpoch": %d, "votedId": -1, "data_version": 0}'


@dataclass(frozen=True)
class Damaged:
    """A cluster with one topic for each kind of damage, and beside it a topic that is the near miss."""

    replicas: dict[str, Path]
    history: Path
    expected: set[tuple[str, str]]
    """Topic and check."""


def transaction(kind: ControlType, *, epoch: int = 3, marker_epoch: int = 3) -> SampleLog:
    """A transaction that ends so, and another one of a newer producer epoch."""
    log = SampleLog().append([b"v0"], producer_id=7, producer_epoch=epoch, transactional=True)
    log.end(kind, 7, producer_epoch=marker_epoch).append([b"v2"], producer_id=7, producer_epoch=4, transactional=True)
    return log.end(ControlType.COMMIT, 7, producer_epoch=4)


def producers() -> SampleLog:
    log = SampleLog()
    for producer in (7, 8):
        log.append([b"a", b"b"], producer_id=producer)
    return log


LOGS: dict[str, SampleLog] = {
    "t": SampleLog().fill(15),
    "reserved-bit": SampleLog().fill(5),
    "timestamp": log_of_codec(Codec.GZIP),
    "marker-kind": marked_as(77),
    "marker-epoch": transaction(ControlType.COMMIT, marker_epoch=2),
    "marker-right": transaction(ControlType.COMMIT),
    "no-index": transaction(ControlType.ABORT),
    "aborted": transaction(ControlType.ABORT),
    "stamped": stamped(SampleLog().fill(6), 3),
    "stamped-all": stamped(SampleLog().fill(6), *range(6)),
    "never-compacted": SampleLog().fill(6).without(2),
    "compacted": SampleLog().fill(6).without(2),
    "expired": producers(),
    "not-expired": producers(),
    "unknown": SampleLog().fill(3),
}
SETTINGS = {"never-compacted": "delete", "compacted": "compact"}
EXPECTED = {
    ("reserved-bit", "header-mismatch"),
    ("timestamp", "header-mismatch"),
    ("marker-kind", "header-mismatch"),
    ("marker-epoch", "producer-epoch-not-monotonic"),
    ("no-index", "transaction-mismatch"),
    ("aborted", "aborted-delivered"),
    ("stamped", "header-mismatch"),
    ("never-compacted", "offset-gap"),
    ("not-expired", "producer-snapshot-mismatch"),
    ("unknown", "identity-mismatch"),
    ("t", "group-offset-beyond-log"),
    (METADATA.topic, "metadata-leader-epoch"),
}


def topic_id(topic: str) -> bytes:
    return topic.encode().ljust(16, b".")[:16]


def metadata() -> SampleLog:
    """Three brokers, and all topics but one."""
    brokers = [pb.RegisterBrokerRecord(broker_id=each, incarnation_id=bytes([each]) * 16) for each in BROKERS]
    batches = [[pb.MetadataRecord(register_broker=each) for each in brokers]]
    for topic in (*LOGS, OFFSETS.topic):
        if topic == "unknown":
            continue
        policy = SETTINGS.get(topic, "compact" if topic == OFFSETS.topic else None)
        config = pb.ConfigRecord(resource_type="topic", resource_name=topic, name="cleanup.policy", value=policy)
        partition = pb.PartitionRecord(topic_id=topic_id(topic), replicas=BROKERS, isr=BROKERS, leader=1)
        batches.append([
            pb.MetadataRecord(topic=pb.TopicRecord(name=topic, topic_id=topic_id(topic))),
            *([pb.MetadataRecord(config=config)] if policy is not None else []),
            pb.MetadataRecord(partition=partition),
        ])  # fmt: skip
    return log_of([[record.SerializeToString(deterministic=True) for record in batch] for batch in batches])


def damage(root: Path, node: int) -> None:
    """What a log alone cannot show: headers, and files beside the logs."""
    change_field(root / "reserved-bit-0", 2, ATTRIBUTES, lambda attributes: attributes | 1 << 11)
    change_field(root / "timestamp-0", 0, MAX_TIMESTAMP, lambda time: time - 1)
    for path in (root / "no-index-0").glob("*.txnindex"):
        path.unlink()
    cleaned = {TopicPartition(topic, 0): 20 for topic in SETTINGS}
    (root / CLEANER_OFFSET_CHECKPOINT).write_bytes(encode_offset_checkpoint(cleaned))
    entries = [
        ProducerSnapshotEntry(7 + place, 0, 1, 1 + 2 * place, 1, FIRST_TIMESTAMP + 1 + 2 * place, -1, -1)
        for place in (0, 1)
    ]
    for topic, kept in (("expired", entries[1:]), ("not-expired", entries[:1])):
        (root / f"{topic}-0" / f"{4:020d}.snapshot").write_bytes(encode_producer_snapshot(kept))
    epoch = {1: 2, 2: 1 << 20, 3: 1}[node]  # as the log, far ahead of it (a note), behind it
    (root / "__cluster_metadata-0" / "quorum-state").write_text(VOTE % epoch)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    root = tmp_path_factory.mktemp("damaged")
    partitions = {
        TopicPartition(topic, 0): SamplePartition(log, topic_id=topic_id(topic)) for topic, log in LOGS.items()
    }
    partitions[OFFSETS] = SamplePartition(commits_of(committed(-1)), topic_id=topic_id(OFFSETS.topic))
    partitions[METADATA] = SamplePartition(metadata())
    replicas = {}
    for node in BROKERS:
        replicas[str(node)] = write_log_directory(root / str(node), node, partitions, clean_shutdown=True)
        damage(replicas[str(node)], node)
    events = [
        *(Event(SEND, "aborted", 0, value, client="w") for value in (b"v0", b"v2")),
        *(Event(DELIVER, "aborted", 0, b"v%d" % at, at, client="r", isolation=READ_COMMITTED) for at in (0, 2)),
    ]
    return Damaged(replicas, write_history(root / "history.jsonl", events), EXPECTED)


def test_both_engines_find_each_contradiction_once(session: SparkSession, damaged: Damaged) -> None:
    """One finding for each kind, none for the near misses, and the same notes, in small parts, too."""
    from odradek_audit.spark import engine as spark

    report = spark.audit(session, damaged.replicas, history=damaged.history, split_bytes=4096)
    assert sorted((each.topic, each.check) for each in report.findings) == sorted(damaged.expected)
    notes = {(note.topic, note.kind) for note in report.notes}
    assert {(METADATA.topic, "metadata"), ("never-compacted", "metadata")} <= notes, notes
    expected = local.audit(damaged.replicas, history=damaged.history)
    assert report.findings == expected.findings
    assert report.partitions == expected.partitions
    assert sorted(report.notes, key=str) == sorted(expected.notes, key=str)
