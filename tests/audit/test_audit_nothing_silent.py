"""Damage that once passed in silence, or was told many times: each is one finding at its place, beside a near miss."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from odradek_audit.engine.local import audit
from odradek_audit.findings import Finding
from odradek_audit.inputs.disk import LocalDisk
from odradek_audit.inputs.scan import SegmentPart, scan_part
from odradek_audit.report.headlines import headline
from odradek_audit.report.page import page as page_of
from odradek_proto.compression import Codec
from odradek_proto.formats import LEADER_EPOCH_CHECKPOINT, decode_leader_epochs, encode_leader_epochs
from odradek_proto.records import ControlType
from odradek_proto.topics import TopicPartition

from tests.audit.corruption import plant
from tests.audit.corruption.places import (
    CRC_FIELD,
    EPOCH_FIELD,
    MAX_TIMESTAMP_FIELD,
    Place,
    flip_bit,
    places_of,
    recompress,
    remove_segment_files,
    set_field,
    splice,
    with_crc,
)
from tests.audit.sample import SampleBatch, SampleLog, SamplePartition, WriteCluster, commits_of, committed

OFFSETS = TopicPartition("__consumer_offsets", 0)


def told(findings: list[Finding]) -> list[tuple[str, str, int, int]]:
    return [(finding.check, finding.replica, finding.offset, finding.end_offset) for finding in findings]


def segments(replica: Path) -> list[Path]:
    return sorted((replica / "t-0").glob("*.log"))


@pytest.fixture
def replicas(write_cluster: WriteCluster, log: SampleLog) -> dict[str, Path]:
    """Three brokers that stopped cleanly, several segments each."""
    return write_cluster(*[SamplePartition(log, segment_bytes=9000)] * 3, clean_shutdown=True)


# --- The leader epoch of a batch --------------------------------------------------------------------------------------


@pytest.mark.parametrize("everywhere", [False, True])
def test_a_raised_epoch_is_told_at_its_batch(replicas: dict[str, Path], everywhere: bool) -> None:
    """One bit of one header, and not the forty batches behind it; what changed is named."""
    for name in replicas if everywhere else ["2"]:
        raise_epoch(places_of(replicas[name] / "t-0")[20], 1 << 24 | 1)
    findings = audit(replicas).findings
    names = tuple(replicas) if everywhere else ("2",)
    assert [(each.check, each.replicas, each.offset, each.epoch) for each in findings] == [
        ("epoch-not-monotonic", names, 80, 1 | 1 << 24)
    ]
    assert "one bit of the epoch" in findings[0].cause


def test_a_damaged_epoch_makes_no_reference(replicas: dict[str, Path]) -> None:
    """The copy with the raised epoch is not the one that the others are compared with."""
    raise_epoch(places_of(replicas["1"] / "t-0")[20], 1 << 24)
    report = audit({"1": replicas["1"], "2": replicas["2"]})
    assert report.partitions[0].reference_replica == "2"


def test_records_of_a_deposed_leader_are_told_once(write_cluster: WriteCluster) -> None:
    """The epoch file says whose turn it was: the older epoch's batches are the wrong ones, though they are more."""
    log = SampleLog().fill(3, epoch=0).fill(2, epoch=1)
    late = log.copy().fill(6, epoch=0)
    entries = [(0, 0), (1, 12)]
    made = write_cluster(*[SamplePartition(late, epochs=entries)] * 2)
    assert [(f.check, f.replicas, f.offset, f.end_offset, f.evidence["batches"]) for f in audit(made).findings] == [
        ("epoch-not-monotonic", ("1", "2"), 20, 44, 6)
    ]


def raise_epoch(place: Place, epoch: int) -> None:
    start, stop = place.position + EPOCH_FIELD.start, place.position + EPOCH_FIELD.stop
    splice(place.segment, start, stop, epoch.to_bytes(4, "big"))


# --- Segments ---------------------------------------------------------------------------------------------------------


def test_segments_that_changed_names_say_where_they_belong(replicas: dict[str, Path]) -> None:
    """Two files of one log, each with the other's bytes."""
    names = [path.name for path in segments(replicas["2"])]
    planted = plant("swap-segments", replicas["2"], TopicPartition("t", 0), random.Random(3))
    (finding,) = audit(replicas).findings
    assert f"which belong into {names[names.index(planted.file) + 1]}" in finding.sentence


def test_a_first_segment_that_went_without_retention_is_found(replicas: dict[str, Path]) -> None:
    """Its epochs are still in the leader epoch file, which retention would have cut, alike on all replicas."""
    for name in replicas:
        remove_segment_files(segments(replicas[name])[0])
    start = int(segments(replicas["2"])[0].stem)
    (finding,) = audit(replicas).findings
    assert (finding.check, finding.replicas, finding.offset, finding.end_offset) == (
        "offset-gap",
        tuple(replicas),
        0,
        start,
    )


@pytest.mark.parametrize("alike", [True, False])
def test_a_damage_that_replicas_share_is_one_finding(replicas: dict[str, Path], alike: bool) -> None:
    """All are named, in the sentence, in the files and on the page; another bit of the same batch is another damage."""
    for name, path in replicas.items():
        place = places_of(path / "t-0")[20]
        flip_bit(place.segment, place.position + CRC_FIELD.start, 0 if alike else int(name))
    report = audit(replicas)
    assert [each.replicas for each in report.findings] == ([("1", "2", "3")] if alike else [("1",), ("2",), ("3",)])
    assert [each.check for each in report.findings] == ["crc-mismatch"] * (1 if alike else 3)
    for finding in report.findings:
        assert Finding.from_json(finding.to_json()) == finding
        assert ("replicas 2, 3 have the same" in finding.sentence) is alike
    page = page_of(report)
    assert ("Replicas 2, 3 have the same." in page) is alike
    assert ("no copy mends another there" in page) is alike


def test_retention_is_a_note_where_replicas_begin_elsewhere(replicas: dict[str, Path]) -> None:
    """Near miss: the leader epoch file was cut with the log; what is on fewer replicas is said."""
    first, second, *_ = segments(replicas["2"])
    remove_segment_files(first)
    start = int(second.stem)
    path = first.parent / LEADER_EPOCH_CHECKPOINT
    path.write_bytes(encode_leader_epochs([(1, start), *decode_leader_epochs(path.read_bytes())[2:]]))
    report = audit(replicas)
    assert (report.findings, [(note.kind, note.replica, note.end_offset) for note in report.notes]) == (
        [],
        [("log-start-differs", "2", start)],
    )


@pytest.mark.parametrize("stopped_cleanly", [False, True])
def test_records_that_were_deleted_just_before_are_a_note(
    write_cluster: WriteCluster, log: SampleLog, stopped_cleanly: bool
) -> None:
    """DeleteRecords cuts the leader epoch file at once; the log start comes later, with a clean stop at last."""
    replicas = write_cluster(*[SamplePartition(log, segment_bytes=9000)] * 3, clean_shutdown=stopped_cleanly)
    path = replicas["2"] / "t-0" / LEADER_EPOCH_CHECKPOINT
    (first, _), (second, begins), *others = decode_leader_epochs(path.read_bytes())
    path.write_bytes(encode_leader_epochs([(second, begins + 1), *others]))
    report = audit(replicas)
    if stopped_cleanly:
        assert {finding.check for finding in report.findings} == {"epoch-cache-mismatch"}, first
    else:
        notes = [(note.kind, note.replica, note.end_offset) for note in report.notes]
        assert (report.findings, notes) == ([], [("log-start", "2", begins + 1)])


# --- Replicas that lag ------------------------------------------------------------------------------------------------


def test_a_replica_far_behind_is_a_note_and_when_settled_a_finding(write_cluster: WriteCluster, log: SampleLog) -> None:
    """Nobody would otherwise see that one of three copies is empty."""
    made = write_cluster(log, log, SamplePartition(SampleLog(), high_watermark=0, epochs=[]))
    report = audit(made)
    assert (report.findings, [(note.kind, note.replica) for note in report.notes]) == ([], [("behind", "3")])
    assert told(audit(made, settled=True).findings) == [("replica-behind", "3", 0, 260)]


# --- Records that cannot be decoded -----------------------------------------------------------------------------------


def garbled(batch: bytes) -> bytes:
    """The first record says that it is longer than the batch."""
    data = bytearray(batch)
    data[61] = 0x7E
    return with_crc(data)


def of_unknown_codec(batch: bytes) -> bytes:
    data = bytearray(batch)
    data[22] |= 6
    return with_crc(data)


def of_other_count(batch: bytes) -> bytes:
    """33 offsets and records by its header, and four inside."""
    data = bytearray(batch)
    data[23:27], data[57:61] = (32).to_bytes(4, "big"), (33).to_bytes(4, "big")
    return with_crc(data)


@pytest.mark.parametrize("change", [garbled, of_unknown_codec, of_other_count])
def test_records_that_cannot_be_decoded_are_found_though_all_replicas_are_alike(
    write_cluster: WriteCluster, log: SampleLog, change: Callable[[bytes], bytes]
) -> None:
    """Its CRC is right, and every consumer stops there."""
    last = log.batches[-1]
    log.batches[-1] = SampleBatch.of(change(last.data))
    made = write_cluster(log, log, log, clean_shutdown=True)
    (finding,) = audit(made).findings
    assert (finding.check, finding.offset) == ("batch-unreadable", last.base_offset)


def test_every_codec_is_decoded_and_silent(write_cluster: WriteCluster) -> None:
    """Near miss: batches of all codecs; what was looked into is said."""
    log = SampleLog()
    for codec in Codec:
        log.append([b"value" * 20] * 5, codec=codec)
    made = write_cluster(log, log)
    assert (audit(made).findings, audit(made).deep, audit(made, deep=False).deep) == ([], True, False)


# --- Transactions, groups, zeros --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ended", "open_from"), [(7, []), (8, [0])])
def test_a_transaction_without_an_end_is_named(write_cluster: WriteCluster, ended: int, open_from: list[int]) -> None:
    """A marker of another producer ends nothing; near miss: its own one."""
    log = SampleLog()
    log.append([b"a"], producer_id=7, transactional=True).end(ControlType.COMMIT, ended)
    report = audit(write_cluster(log, log))
    assert report.findings == []
    assert [
        note.offset for note in report.notes if note.kind == "open-transaction" and note.replica == "1"
    ] == open_from


@pytest.mark.parametrize(("offset", "found"), [(260, []), (999, [("group-offset-beyond-log", "1", 260, 999)])])
def test_a_group_that_is_ahead_of_the_log_is_found(
    write_cluster: WriteCluster, log: SampleLog, offset: int, found: list[tuple[str, str, int, int]]
) -> None:
    """As Kafka's coordinator writes it; near miss: the log's end itself."""
    sample = {TopicPartition("t", 0): SamplePartition(log), OFFSETS: SamplePartition(commits_of(committed(offset)))}
    assert told(audit(write_cluster(sample, sample)).findings) == found


@pytest.mark.parametrize("cut", [0, 9, 10])
def test_a_commit_that_no_coordinator_can_load_is_found(write_cluster: WriteCluster, log: SampleLog, cut: int) -> None:
    """It has no offset, on all replicas alike; one without a value takes a commit back, and is none of these."""
    commits = commits_of(*(committed(7)[:size] for size in (30, cut, cut)), None)
    sample = {TopicPartition("t", 0): SamplePartition(log), OFFSETS: SamplePartition(commits)}
    found = told(audit(write_cluster(sample, sample)).findings)
    assert found == ([("batch-unreadable", "1", 1, 2)] if cut < 10 else [])


def test_a_batch_in_another_place_is_not_said_to_be_there_twice(replicas: dict[str, Path]) -> None:
    """It is missing where it was."""
    planted = plant("displace-batch", replicas["2"], TopicPartition("t", 0), random.Random(3))
    (finding,) = audit(replicas).findings
    said = f"Replica 2 holds offsets {planted.offset} to {planted.offset + 3} in the wrong order in t-0."
    assert (headline(finding), finding.cause) == (said, "batches changed their places in the file")


def test_two_batches_that_say_each_others_offset_are_one_finding(replicas: dict[str, Path]) -> None:
    """They stand in each other's place; told at the first."""
    first, _, last = places_of(replicas["2"] / "t-0")[2:5]
    data = first.segment.read_bytes()
    whole = data[: first.position] + last.data + data[first.end : last.position] + first.data + data[last.end :]
    first.segment.write_bytes(whole)
    base, end = first.header.base_offset, first.header.next_offset
    (finding,) = audit(replicas).findings
    assert told([finding]) == [("offset-gap", "2", base, end)]
    assert finding.cause == "two batches changed places in the file"


def test_a_changed_record_of_another_size_and_a_wrong_index_before_it_are_two_findings(
    replicas: dict[str, Path], log: SampleLog
) -> None:
    """What the indexes say of batches behind it follows from it; what they say before does not."""
    place = next(each for each in reversed(places_of(replicas["2"] / "t-0")[:-1]) if each.segment.name[-6] != "0")
    recompress(place)
    assert [each.check for each in audit(replicas).findings] == ["log-matching"]
    index = place.segment.with_suffix(".index")
    flip_bit(index, 7)
    assert sorted(each.check for each in audit(replicas).findings) == ["index-unsound", "log-matching"]


def test_zeros_behind_a_batch_are_one_stretch(tmp_path: Path, log: SampleLog) -> None:
    """Room that a broker had reserved, with a batch behind it: the search passes over zeros and finds it."""
    before, behind = log.batches[0].data, log.batches[1].data
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(before + bytes(9_000_000) + behind)
    size = path.stat().st_size
    found = list(scan_part(LocalDisk(), SegmentPart(str(path), 0, size, 0, size)))
    assert [(facts.position, facts.size, facts.problem) for facts in found] == [
        (0, len(before), ""),
        (len(before), 9_000_000, "unreadable"),
        (len(before) + 9_000_000, len(behind), ""),
    ]


def test_a_changed_header_around_equal_records_is_said_so(replicas: dict[str, Path]) -> None:
    """The page speaks of another header, not of another record."""
    place = places_of(replicas["2"] / "t-0")[10]
    set_field(place, MAX_TIMESTAMP_FIELD, 1_700_000_009_999)
    headlines = [headline(each) for each in audit(replicas).findings if each.check == "log-matching"]
    assert any("another batch header" in each for each in headlines), headlines
