"""What the metadata log says of topics, beside their logs: settings that they had, and partitions that there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from odradek_audit.report import Report
from odradek_proto.formats import (
    CLEANER_OFFSET_CHECKPOINT,
    ProducerSnapshotEntry,
    encode_offset_checkpoint,
    encode_producer_snapshot,
)
from odradek_proto.headers import LOG_APPEND_TIME
from odradek_proto.records import ControlType
from odradek_proto.topics import TopicPartition

from tests.audit.corruption.places import with_crc
from tests.audit.sample import FIRST_TIMESTAMP, SampleLog, SamplePartition, WriteCluster
from tests.audit.test_audit_metadata import METADATA, ORDERS, TOPIC, Records, beginning, log_of, records, told
from tests.audit.test_audit_two_passes import same_without

__all__ = ["records"]  # a fixture
POLICY, TYPE = "cleanup.policy", "message.timestamp.type"
Change = Callable[[Records], list[list[bytes]]]


def created(records: Records, settings: Mapping[str, str]) -> list[list[bytes]]:
    """The beginning of a cluster whose topic orders was made with these settings."""
    *before, (topic, partition) = beginning(records)
    return [*before, [topic, *(records.config("topic", "orders", *each) for each in settings.items()), partition]]


def audited(
    write_cluster: WriteCluster, batches: Sequence[Sequence[bytes]], orders: SampleLog, cleaned: int = 0, since: int = 0
) -> Report:
    """Three brokers that stopped cleanly, alike."""
    metadata = SamplePartition(log_of(batches, since), log_start=since or None)
    cluster = {METADATA: metadata, ORDERS: SamplePartition(orders, topic_id=TOPIC)}
    replicas = write_cluster(*[cluster] * 3, clean_shutdown=True)
    if cleaned:
        for path in replicas.values():
            (path / CLEANER_OFFSET_CHECKPOINT).write_bytes(encode_offset_checkpoint({ORDERS: cleaned}))
    return same_without(replicas)


# --- Gaps that a cleaner's checkpoint excuses -------------------------------------------------------------------------


WITH_A_GAP = SampleLog().fill(6, epoch=4).without(2)


def nothing(records: Records) -> list[list[bytes]]:
    return []


def compacted_for_a_while(records: Records) -> list[list[bytes]]:
    values = ("compact", "delete")
    return [[records.config("topic", "orders", POLICY, value)] for value in values]


def compacted_by_default(records: Records) -> list[list[bytes]]:
    """A setting of the topic that goes leaves it to the brokers."""
    return [
        [records.config("broker", "", f"log.{POLICY}", "compact")],
        [records.config("topic", "orders", POLICY, None)],
        [records.config("topic", "orders", POLICY, "delete")],
    ]


@pytest.mark.parametrize(
    ("settings", "later", "expected", "notes"),
    [
        ({POLICY: "delete"}, nothing, [("offset-gap", 8)], ["was never compacted"]),
        ({POLICY: "compact,delete"}, nothing, [], []),
        ({POLICY: "delete"}, compacted_for_a_while, [], []),
        ({POLICY: "delete"}, compacted_by_default, [], []),
        ({}, nothing, [], ["is compacted only if the brokers' own log.cleanup.policy says so"]),
    ],
)
def test_a_gap_in_a_topic_that_was_never_compacted(
    write_cluster: WriteCluster,
    records: Records,
    settings: Mapping[str, str],
    later: Change,
    expected: list[tuple[str, int]],
    notes: list[str],
) -> None:
    """The cleaner's checkpoint excuses it on all replicas alike, and nobody can have cleaned there. One that was ever
    compacted keeps its gaps."""
    report = audited(write_cluster, [*created(records, settings), *later(records)], WITH_A_GAP, cleaned=20)
    assert told(report) == expected
    assert len(report.notes) == len(notes)
    assert all(said in note.sentence for said, note in zip(notes, report.notes, strict=True))


def test_a_topic_that_was_made_anew_has_settings_of_its_own(write_cluster: WriteCluster, records: Records) -> None:
    """What the one before it under the name was does not count."""
    first = created(records, {POLICY: "compact"})
    again = [created(records, {POLICY: "delete"})[2]]
    assert told(audited(write_cluster, [*first, [records.remove()], *again], WITH_A_GAP, 20)) == [("offset-gap", 8)]


def test_a_topic_older_than_the_metadata_log_may_have_been_compacted(
    write_cluster: WriteCluster, records: Records
) -> None:
    """Near miss: nobody knows what it was before, and a setting of now says nothing about it."""
    batches = [*created(records, {POLICY: "delete"}), [records.config("topic", "orders", POLICY, "delete")]]
    assert told(audited(write_cluster, batches, WITH_A_GAP, 20, since=9)) == []


# --- Timestamp types --------------------------------------------------------------------------------------------------


def stamped(log: SampleLog, *rows: int) -> SampleLog:
    """With the other timestamp type in some batches, under a right CRC."""
    for row in rows:
        data = bytearray(log.batches[row].data)
        data[22] ^= LOG_APPEND_TIME
        log.batches[row] = replace(log.batches[row], data=with_crc(data))
    return log


def other_type(records: Records) -> list[list[bytes]]:
    return [[records.config("topic", "orders", TYPE, "LogAppendTime")]]


def other_default(records: Records) -> list[list[bytes]]:
    return [[records.config("broker", "2", f"log.{TYPE}", "LogAppendTime")]]


@pytest.mark.parametrize(
    ("settings", "later", "rows", "found"),
    [
        ({TYPE: "CreateTime"}, nothing, [], []),
        ({TYPE: "CreateTime"}, nothing, [2, 3], [(8, 16)]),
        ({TYPE: "CreateTime"}, nothing, [0, 1, 2, 3, 4, 5, 6], [(0, 28)]),
        ({TYPE: "CreateTime"}, other_type, [2, 3], []),
        ({TYPE: "CreateTime"}, other_default, [2], [(8, 12)]),
        ({TYPE: "LogAppendTime"}, nothing, [0, 1, 2, 4, 5, 6], [(12, 16)]),
        ({TYPE: "LogAppendTime"}, nothing, range(7), []),
        ({}, nothing, [2], [(8, 12)]),
        ({}, nothing, [0, 1, 3], [(8, 12)]),
        ({}, nothing, [4, 5, 6], []),
        ({}, nothing, range(7), []),
        ({}, other_default, [2], []),
    ],
)
def test_batches_with_another_timestamp_type_than_the_topics(
    write_cluster: WriteCluster,
    records: Records,
    settings: Mapping[str, str],
    later: Change,
    rows: Sequence[int],
    found: list[tuple[int, int]],
) -> None:
    """On all replicas alike, so only the setting contradicts it. Near misses: a setting that was ever another one, and
    brokers' own defaults, which another leader may have otherwise (batches 4 to 6 are of leader epoch 5)."""
    later_epoch = [[records.change(leader=2)]]
    log = stamped(SampleLog().fill(4, epoch=4).fill(3, epoch=5), *rows)
    report = audited(write_cluster, [*created(records, settings), *later_epoch, *later(records)], log)
    assert [(each.check, each.offset, each.end_offset) for each in report.findings] == [
        ("header-mismatch", *place) for place in found
    ]
    assert all(each.replicas == ("1", "2", "3") for each in report.findings)


def test_markers_of_transactions_have_whatever_type(write_cluster: WriteCluster, records: Records) -> None:
    """Near miss: no client sent them, and readers do not look at their times."""
    log = SampleLog()
    log.append([b"a"], epoch=4, producer_id=7, transactional=True).end(ControlType.COMMIT, 7, epoch=4)
    assert told(audited(write_cluster, created(records, {TYPE: "CreateTime"}), stamped(log, 1))) == []


# --- Partitions that there are ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("stray", "said"),
    [
        (TopicPartition("other", 0), "other-0: replica 2 has a directory, and the metadata log has no such topic"),
        (
            TopicPartition("orders", 7),
            "orders-7: replica 2 has a directory, and the metadata log has no such partition",
        ),
    ],
)
def test_a_partition_that_the_metadata_log_does_not_know(
    write_cluster: WriteCluster, records: Records, clean: bool, stray: TopicPartition, said: str
) -> None:
    """Its broker has seen every decision and will remove it. After a kill it may be newer than the copied log: a
    note."""
    orders = SamplePartition(SampleLog().fill(2, epoch=4), topic_id=TOPIC)
    cluster = {METADATA: SamplePartition(log_of(beginning(records))), ORDERS: orders}
    topic_id = TOPIC if stray.topic == "orders" else bytes([9]) * 16
    more = cluster | {stray: SamplePartition(SampleLog().fill(2, epoch=4), topic_id=topic_id)}
    report = same_without(write_cluster(cluster, more, cluster, clean_shutdown=clean))
    assert [(each.check, each.replica) for each in report.findings] == [("identity-mismatch", "2")] * clean
    sentences = [each.sentence for each in report.findings if clean] + [
        note.sentence for note in report.notes if note.kind == "metadata"
    ]
    assert [sentence[: len(said)] for sentence in sentences] == [said]


def test_partitions_that_were_removed_or_moved_or_are_nowhere_are_notes(
    write_cluster: WriteCluster, records: Records
) -> None:
    """Near misses: a broker that was down then has them still; no broker made one yet, or it is gone."""
    orders = SamplePartition(SampleLog().fill(2, epoch=4), topic_id=TOPIC)

    def notes(batches: Sequence[Sequence[bytes]], *clusters: Mapping[TopicPartition, SamplePartition]) -> list[str]:
        metadata = {METADATA: SamplePartition(log_of(batches))}
        report = same_without(write_cluster(*[metadata | {**each} for each in clusters], clean_shutdown=True))
        assert told(report) == []
        return [
            note.sentence for note in report.notes if note.kind == "metadata" or "metadata log knows" in note.sentence
        ]

    moved = [*beginning(records), [records.change(replicas=[1, 2], isr=[1, 2])]]
    assert notes(moved, *[{ORDERS: orders}] * 3) == [
        "orders-0: replica 3 has a directory, and the metadata log names the replicas [1, 2]: a broker that starts "
        "removes it"
    ]
    gone = [*beginning(records), [records.remove()]]
    assert notes(gone, *[{ORDERS: orders}] * 3) == [
        "orders-0: replicas 1, 2, 3 have a directory, and the metadata log says that the topic was removed: a broker "
        "that starts removes it"
    ]
    assert notes(beginning(records), *[{ORDERS: orders}] * 3) == []
    partitions = [records.partition([1, 2, 3], [1, 2, 3], 1, number=1)]
    assert notes([*beginning(records), partitions], *[{ORDERS: orders}] * 3) == [
        "no replica has a directory of 1 partition that the metadata log knows: orders-1"
    ]


# --- Producers that a snapshot lacks ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lacks", "expected"),
    [
        ([], []),
        ([7], []),  # the oldest: it has expired
        ([7, 8, 9], []),
        ([8], [("producer-snapshot-mismatch", 5)]),
        ([8, 9], [("producer-snapshot-mismatch", 8)]),
        ([9], [("producer-snapshot-mismatch", 8)]),
    ],
)
@pytest.mark.parametrize("witness", ["plain", "transactional", "later"])
def test_a_producer_that_cannot_have_expired(
    write_cluster: WriteCluster, lacks: Sequence[int], expected: list[tuple[str, int]], witness: str
) -> None:
    """Producers expire by the time of their last batch. Near misses: who is there has been in a transaction, which
    keeps it, or says of itself a later time, as of who copies old records."""
    log = SampleLog()
    for producer in (7, 8, 9):
        log.append([b"a", b"b", b"c"], producer_id=producer)
    replicas = write_cluster(log, log, log, clean_shutdown=True)
    entries = [
        ProducerSnapshotEntry(
            producer,
            0,
            2,
            last,
            2,
            FIRST_TIMESTAMP + last + (10 if witness == "later" else 0),
            3 if witness == "transactional" else -1,
            -1,
        )
        for producer, last in ((7, 2), (8, 5), (9, 8))
        if producer not in lacks
    ]
    for path in replicas.values():
        (path / "t-0" / f"{9:020d}.snapshot").write_bytes(encode_producer_snapshot(entries))
    assert told(same_without(replicas)) == (expected if witness == "plain" else [])
