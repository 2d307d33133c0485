"""Compacted logs are compared by the newest record of each key, between replicas and with a history (K-89)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from odradek_audit.engine.local import audit
from odradek_audit.inputs.history import ACK, SEND, Event, History
from odradek_proto.formats import encode_offset_checkpoint
from odradek_proto.records import ControlType, encode_batch
from odradek_proto.topics import TopicPartition

from tests.audit.sample import FIRST_TIMESTAMP, SampleLog, SamplePartition, WriteCluster

CLEANED_TO = 6


class Written(NamedTuple):
    """A record of a compacted topic; without a value it is a tombstone."""

    offset: int
    key: bytes
    value: bytes | None


WRITTEN = (
    Written(0, b"a", b"a0"),
    Written(1, b"b", b"b1"),
    Written(2, b"a", b"a2"),
    Written(3, b"c", b"c3"),
    Written(4, b"b", None),
    Written(5, b"d", b"d5"),
    Written(6, b"c", b"c6"),
    Written(7, b"e", b"e7"),
)


def log_of(records: Sequence[Written]) -> SamplePartition:
    """One batch for each record."""
    log = SampleLog()
    for offset, key, value in records:
        log.add(encode_batch([(FIRST_TIMESTAMP + offset, key, value, ())], base_offset=offset, leader_epoch=0))
    return SamplePartition(log, epochs=[(0, 0)])


def but(*offsets: int, changed: Written | None = None) -> SamplePartition:
    """The records without some, one of them changed."""
    kept = [record for record in WRITTEN if record.offset not in offsets]
    return log_of([changed if changed is not None and each.offset == changed.offset else each for each in kept])


WHOLE, CLEANED, LATER = but(), but(0, 1), but(0, 1, 4)
"""A replica whose cleaner has not been there; one that it has cleaned; one where the tombstone's time was over."""


@pytest.fixture
def compacted(write_cluster: WriteCluster) -> WriteCluster:
    """Replicas whose cleaners have been below `CLEANED_TO`, but on those that have all records."""

    def write(*samples: SamplePartition) -> dict[str, Path]:
        replicas = write_cluster(*samples)
        for sample, path in zip(samples, replicas.values(), strict=True):
            if sample is not WHOLE:
                cleaned = encode_offset_checkpoint({TopicPartition("t", 0): CLEANED_TO})
                (path / "cleaner-offset-checkpoint").write_bytes(cleaned)
                first = next((path / "t-0").glob("*.log"))
                for each in (path / "t-0").glob(f"{first.stem}.*"):
                    each.rename(each.with_name(f"{0:020d}{each.suffix}"))
        return replicas

    return write


def found(replicas: dict[str, Path], events: Sequence[Event] = ()) -> list[tuple[str, str, int]]:
    report = audit(replicas, history=History(events) if events else None)
    return [(finding.check, finding.replica, finding.offset) for finding in report.findings]


@pytest.mark.parametrize(
    ("samples", "copies"),
    [
        ((WHOLE, CLEANED, CLEANED), 12),
        ((WHOLE, CLEANED, LATER), 11),
        ((WHOLE, LATER, WHOLE), 13),
        ((WHOLE, LATER, LATER), 10),
        ((CLEANED, CLEANED, CLEANED), 12),
    ],
)
def test_replicas_that_were_cleaned_apart_agree(
    compacted: WriteCluster, samples: tuple[SamplePartition, ...], copies: int
) -> None:
    """Superseded records, and tombstones whose time is over, may be on some replicas only. What is on several was
    compared, and is counted."""
    report = audit(compacted(*samples))
    assert (report.findings, report.compared_records) == ([], copies)


DAMAGED = [
    (but(0, 1, changed=Written(5, b"d", b"D5")), 5, "holds another record"),
    (but(0, 1, 5), 5, "lacks the newest record of its key"),
    (but(0, 4), 1, "holds a value that was deleted"),
    (but(2), 2, "lacks the newest record of its key"),
]


@pytest.mark.parametrize(("damaged", "offset", "said"), DAMAGED)
def test_what_the_cleaner_must_keep_is_missed(
    compacted: WriteCluster, damaged: SamplePartition, offset: int, said: str
) -> None:
    """Below the cleaner's point bytes differ anyway; the newest record of a key may not."""
    (finding,) = audit(compacted(WHOLE, CLEANED, damaged)).findings
    assert (finding.check, finding.replica, finding.offset) == ("compaction-mismatch", "3", offset)
    assert said in finding.sentence


def test_a_key_that_came_back_is_told_at_the_replica_that_has_it(compacted: WriteCluster) -> None:
    """The others have cleaned the value and its tombstone away; with its tombstone it is one that waits for the
    cleaner (`test_replicas_that_were_cleaned_apart_agree`)."""
    (finding,) = audit(compacted(LATER, LATER, but(0, 4))).findings
    assert (finding.check, finding.replica, finding.offset) == ("compaction-mismatch", "3", 1)
    assert "holds a record of a key that most replicas have no record of" in finding.sentence


def test_a_replica_that_ends_earlier_may_have_what_was_superseded_later(compacted: WriteCluster) -> None:
    """Near miss: its newest record of a key is one that another replica has cleaned away for a newer one."""
    short = log_of(WRITTEN[:5])
    assert found(compacted(but(0, 1, 3), short)) == []


# --- Against a history ------------------------------------------------------------------------------------------------


def told(*, keys: bool = True, tombstones: bool = True, topic: str = "t") -> list[Event]:
    """Every record was sent and acknowledged with acks=all."""
    events = []
    for offset, key, value in WRITTEN:
        if value is None and not tombstones:
            continue
        named, gone = key if keys else None, value is None
        events.append(Event(SEND, topic, 0, value or b"", key=named, tombstone=gone))
        events.append(Event(ACK, topic, 0, value or b"", offset, key=named, tombstone=gone))
    return events


@pytest.mark.parametrize("log", [WHOLE, CLEANED, LATER])
def test_healthy_compacted_data_give_no_finding_with_a_history(compacted: WriteCluster, log: SamplePartition) -> None:
    """A record is there, or a newer one of its key, or its tombstone was."""
    assert found(compacted(log, log), told()) == []


@pytest.mark.parametrize("log", [WHOLE, CLEANED, LATER])
def test_a_history_without_keys_says_nothing_about_what_was_cleaned(
    compacted: WriteCluster, log: SamplePartition
) -> None:
    """Nor about tombstones, which its writer could not write down. How many records that concerns is a note."""
    report = audit(compacted(log, log), history=History(told(keys=False, tombstones=False)))
    assert report.findings == []
    notes = [note.sentence for note in report.notes if note.kind == "compacted-without-keys"]
    assert [note[5:8] for note in notes] == ([] if log is WHOLE else ["2 a"])


@pytest.mark.parametrize(
    ("gone", "lost"), [((0, 1, 5), [5]), ((0, 1, 2), [0, 2]), ((0, 1, 7), [7]), ((0, 1, 3), []), ((0, 1, 4), [])]
)
def test_the_newest_acknowledged_record_of_a_key_is_missed(
    compacted: WriteCluster, gone: tuple[int, ...], lost: list[int]
) -> None:
    """Also above the cleaner's point, where nothing may be missing; not what a newer one of its key stands for."""
    log = log_of([*(each for each in WRITTEN if each.offset not in gone), Written(8, b"f", b"f8")])
    events = [*told(), Event(SEND, "t", 0, b"f8", key=b"f"), Event(ACK, "t", 0, b"f8", 8, key=b"f")]
    found_lost = {offset for check, _, offset in found(compacted(log, log), events) if check == "acknowledged-lost"}
    assert found_lost == set(lost)


def test_another_record_in_the_place_of_an_acknowledged_one_is_found(compacted: WriteCluster) -> None:
    """The cleaner takes records away; it changes none."""
    log = but(0, 1, changed=Written(5, b"d", b"e7"))
    assert ("acknowledged-lost", "1", 5) in found(compacted(log, log), told())


def test_a_transaction_that_has_no_end_on_one_replica_decides_nothing(write_cluster: WriteCluster) -> None:
    """A follower that died before it had the marker still has the value of before as the newest one."""
    log = SampleLog().append([b"old"]).append([b"new"], producer_id=7, transactional=True)
    dead = log.up_to(2)
    log.end(ControlType.COMMIT, 7)
    replicas = write_cluster(SamplePartition(log), SamplePartition(dead))
    cleaned = encode_offset_checkpoint({TopicPartition("t", 0): 2})
    (replicas["1"] / "cleaner-offset-checkpoint").write_bytes(cleaned)
    assert found(replicas) == []
