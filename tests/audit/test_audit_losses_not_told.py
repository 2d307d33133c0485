"""What may still be there, or was removed on purpose, is never said to be gone from every replica."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from odradek_audit.engine.local import audit
from odradek_audit.inputs.history import ACKS_ALL, ACKS_LEADER, History
from odradek_audit.report.headlines import verdict_sentences
from odradek_proto.formats import CLEANER_OFFSET_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, encode_offset_checkpoint
from odradek_proto.topics import TopicPartition

from tests.audit.acknowledged import VALUES, log_of, told
from tests.audit.sample import SampleLog, SamplePartition, WriteCluster


def segment_of(directory: Path, partition: str = "t-0") -> Path:
    """The only segment of a replica's partition."""
    (found,) = (directory / partition).glob("*.log")
    return found


def with_byte_changed(log: SampleLog, batch: int, byte: int) -> SampleLog:
    """A copy of a log in which one bit of one batch is another."""
    data = bytearray(log.batches[batch].data)
    data[byte] ^= 1
    batches = [*log.batches]
    batches[batch] = replace(batches[batch], data=bytes(data))
    return SampleLog(batches, log.next_offset)


@pytest.mark.parametrize("acks", [ACKS_ALL, ACKS_LEADER])
def test_nothing_is_gone_while_a_directory_cannot_be_read(
    write_cluster: WriteCluster, tmp_path: Path, acks: str | int
) -> None:
    """The replica that could not be asked may have it; neither the report nor its partitions say otherwise."""
    short = log_of(*VALUES[:2])
    replicas = {**write_cluster(short, short), "3": tmp_path / "not-there"}
    report = audit(replicas, history=History([*told(acks), *told(acks, "other")]))
    assert report.inconclusive
    assert report.losses == []
    assert all(partition["losses"] == [] for partition in report.summary()["partitions"])


def test_nothing_is_gone_when_one_replica_was_given(write_cluster: WriteCluster) -> None:
    """The others, of which nothing is known, may have it."""
    report = audit(write_cluster(log_of(*VALUES[:2])), history=History([*told(ACKS_LEADER), *told(ACKS_ALL, "other")]))
    assert report.losses == []


def test_nothing_is_gone_while_a_segment_cannot_be_read(write_cluster: WriteCluster) -> None:
    """A segment that is no readable file may hold any record of its partition; a note says how many."""
    short, whole = log_of(*VALUES[:2], epoch=1), log_of(*VALUES)
    replicas = write_cluster(short, short, SamplePartition(whole, high_watermark=2))
    segment = segment_of(replicas["3"])
    segment.unlink()
    segment.mkdir()
    report = audit(replicas, history=History(told(ACKS_LEADER)))
    assert report.losses == []
    assert ["3 acknowledged records" in note.sentence for note in report.notes if note.kind == "losses-unknown"] == [
        True
    ]


@pytest.mark.parametrize("damaged", [1, 2, 3])
@pytest.mark.parametrize("byte", [7, 11, 16, 17, 60], ids=["base offset", "length", "magic", "CRC", "records"])
def test_record_in_a_damaged_batch_is_not_gone(write_cluster: WriteCluster, damaged: int, byte: int) -> None:
    """Bytes that are no batch may hold what stood between their neighbours, on the log that counts as on others."""
    short, whole = log_of(*VALUES[:2], epoch=1), log_of(*VALUES[:3])
    samples = [SamplePartition(short), SamplePartition(short), SamplePartition(short)]
    epochs = [(0, 0)] if damaged > 1 else [(1, 0)]
    samples[damaged - 1] = SamplePartition(with_byte_changed(whole, 2, byte), high_watermark=2, epochs=epochs)
    report = audit(write_cluster(*samples), history=History(told(ACKS_LEADER)[:6]))
    assert report.losses == []


def test_records_beside_a_damaged_batch_are_gone_all_the_same(write_cluster: WriteCluster) -> None:
    """A damaged batch between two good ones hides its own offsets only."""
    damaged = with_byte_changed(log_of(*VALUES[:4]), 1, 17)
    report = audit(write_cluster(damaged, log_of(b"a", epoch=0)), history=History(told(ACKS_LEADER)))
    assert [(loss.records, loss.first_offset, loss.end_offset) for loss in report.losses] == [(1, 4, 5)]


@pytest.mark.parametrize(("tail", "lost"), [(bytes(5000), 3), (bytes(5000) + b"x", 0), (None, 0)])
def test_torn_tail_may_hold_records_unless_it_is_zeros(
    write_cluster: WriteCluster, tail: bytes | None, lost: int
) -> None:
    """A power loss leaves half a batch, of which nobody knows what it held, or zeros, which hold nothing."""
    short = log_of(*VALUES[:2])
    replicas = write_cluster(short, short)
    segment = segment_of(replicas["2"])
    half = log_of(*VALUES[:3]).batches[2].data[:-1]
    segment.write_bytes(segment.read_bytes() + (half if tail is None else tail))
    report = audit(replicas, history=History(told(ACKS_LEADER)))
    assert sum(loss.records for loss in report.losses) == lost
    assert [note.kind for note in report.notes if note.kind == "losses-unknown"] == ["losses-unknown"] * (not lost)


@pytest.mark.parametrize("cleaned", [1, 2])
def test_record_that_a_cleaner_took_is_not_gone(write_cluster: WriteCluster, cleaned: int) -> None:
    """A compacted log lacks what a later record of its key replaced, also where another replica's cleaner was."""
    compacted = log_of(*VALUES).without(2)
    replicas = write_cluster(compacted, compacted)
    checkpoint = encode_offset_checkpoint({TopicPartition("t", 0): 4})
    (replicas[str(cleaned)] / CLEANER_OFFSET_CHECKPOINT).write_bytes(checkpoint)
    history = History(told(ACKS_LEADER))
    assert audit(replicas, history=history).losses == []
    (replicas[str(cleaned)] / CLEANER_OFFSET_CHECKPOINT).unlink()
    assert [loss.records for loss in audit(replicas, history=history).losses] == [1]


def test_nothing_is_gone_from_topics_that_are_always_compacted(write_cluster: WriteCluster) -> None:
    """Their logs may lack any record, whatever a checkpoint says."""
    place = TopicPartition("__consumer_offsets", 0)
    sample = {place: SamplePartition(log_of(*VALUES[:2]))}
    assert audit(write_cluster(sample, sample), history=History(told(ACKS_LEADER, place.topic))).losses == []


@pytest.mark.parametrize("file", [CLEANER_OFFSET_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT])
def test_nothing_is_gone_while_a_checkpoint_of_deletions_cannot_be_read(write_cluster: WriteCluster, file: str) -> None:
    """Who does not know what was removed on purpose cannot say what was lost."""
    short = log_of(*VALUES[:2])
    replicas = write_cluster(short, short)
    (replicas["2"] / file).write_bytes(b"no checkpoint")
    assert audit(replicas, history=History(told(ACKS_LEADER))).losses == []


@pytest.mark.parametrize(("log_start", "lost"), [(3, 2), (5, 0), (9, 0)])
def test_record_that_was_deleted_on_any_replica_is_not_gone(
    write_cluster: WriteCluster, log_start: int, lost: int
) -> None:
    """DeleteRecords and retention raise a log start offset, and a copy whose end was lost since may lie below it."""
    short = log_of(*VALUES[:2])
    replicas = write_cluster(SamplePartition(short), SamplePartition(short, log_start=log_start))
    assert sum(loss.records for loss in audit(replicas, history=History(told(ACKS_LEADER))).losses) == lost


@pytest.mark.parametrize(("suffix", "exit_code"), [("delete", 0), ("stray", 3), ("future", 3)])
def test_partition_whose_directory_was_set_aside_is_not_gone(
    write_cluster: WriteCluster, suffix: str, exit_code: int
) -> None:
    """A topic that is being deleted is owed to nobody, and what was set aside may still have the records."""
    whole = log_of(*VALUES)
    places = {TopicPartition(topic, 0): SamplePartition(whole) for topic in ("t", "other")}
    replicas = write_cluster({TopicPartition("t", 0): SamplePartition(whole)}, places)
    (replicas["2"] / "other-0").rename(replicas["2"] / f"other-0.{'0af3' * 8}-{suffix}")
    report = audit(replicas, history=History([*told(ACKS_ALL), *told(ACKS_ALL, "other"), *told(ACKS_LEADER, "other")]))
    assert report.losses == []
    assert report.exit_code == exit_code


def test_partition_that_was_made_anew_under_the_same_name_lost_nothing(write_cluster: WriteCluster) -> None:
    """The history tells of the deleted topic of that name too, whose directory is still there."""
    fresh = log_of(*VALUES[:2])
    replicas = write_cluster(fresh, fresh)
    (replicas["1"] / f"t-0.{'0af3' * 8}-delete").mkdir()
    assert audit(replicas, history=History(told(ACKS_LEADER))).losses == []


@pytest.mark.parametrize(
    ("directory", "its"),
    [
        (f"{'n' * 240}-0"[:215] + f".{'0af3' * 8}-delete", True),
        (f"{'n' * 213}-0.{'0af3' * 8}-delete", True),
        (f"{'n' * 213}-1.{'0af3' * 8}-delete", False),
        (f"{'n' * 20}-0.{'0af3' * 8}-delete", False),
    ],
)
def test_long_name_of_a_deleted_partition_is_known_though_it_was_cut(
    write_cluster: WriteCluster, directory: str, its: bool
) -> None:
    """odradek cuts the end of the name, Kafka the topic in it; a short name was not cut."""
    whole = log_of(*VALUES)
    replicas = write_cluster(whole, whole)
    (replicas["2"] / directory).mkdir()
    report = audit(replicas, history=History([*told(ACKS_ALL), *told(ACKS_LEADER, "n" * 240)]))
    assert bool(report.losses) is not its


def test_record_without_an_offset_that_may_be_somewhere_is_not_gone(write_cluster: WriteCluster) -> None:
    """Another replica has one value, a damaged batch may have another, and below a log start offset all may lie."""
    events = History([event._replace(offset=-1) for event in told(ACKS_LEADER)])
    short, whole = SamplePartition(log_of(*VALUES[:2], epoch=1)), log_of(*VALUES[:4])
    former = SamplePartition(whole, high_watermark=2)
    assert [loss.records for loss in audit(write_cluster(short, former), history=events).losses] == [1]
    damaged = SamplePartition(with_byte_changed(whole, 2, 17), high_watermark=2)
    assert audit(write_cluster(short, damaged), history=events).losses == []
    assert audit(write_cluster(short, replace(short, log_start=1)), history=events).losses == []


@pytest.mark.parametrize("short", [2, 4])
def test_what_may_be_gone_is_told_beside_what_is(write_cluster: WriteCluster, short: int) -> None:
    """How many more, and where; they are not counted with the others, and told where nothing else is gone."""
    damaged = with_byte_changed(log_of(*VALUES[:4]), 1, 17)
    whole = log_of(VALUES[0], b"x", *VALUES[2:short])
    report = audit(write_cluster(damaged, whole), history=History(told(ACKS_LEADER)[: 10 if short < 4 else 8]))
    assert sum(loss.records for loss in report.losses) == int(short < 4)
    (note,) = [note for note in report.notes if note.kind == "losses-unknown"]
    assert (note.offset, note.end_offset) == (1, 2)
    assert "still has 1 acknowledged record (offset 1) cannot be told" in note.sentence
    more = " more" if report.losses else ""
    said = f"Whether 1{more} acknowledged record of t-0 is gone cannot be told: bytes that may hold it "
    said += "cannot be read (the notes say where)."
    assert said in verdict_sentences(report)
