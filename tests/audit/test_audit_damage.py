"""Every kind of damage is found by name, replica, offset and epoch, and its near miss stays silent."""

from __future__ import annotations

import random

import pytest
from odradek_audit.engine.local import audit
from odradek_proto.formats import decode_offset_index, decode_time_index, encode_time_index
from odradek_proto.records import encode_batch
from odradek_proto.topics import TopicPartition

from tests.audit.corruption import EVERYWHERE, KINDS, NEAR_MISSES, NEEDS_CLEAN_STOP, NEEDS_PRODUCERS, plant
from tests.audit.corruption.places import change_value, places_of
from tests.audit.sample import SampleLog, SamplePartition, WriteCluster
from tests.seeds import seeds

PARTITION = TopicPartition("t", 0)
INDEXES = ((decode_offset_index, ".index"), (decode_time_index, ".timeindex"))
SAMPLED = [kind for kind in KINDS if kind not in NEEDS_PRODUCERS]
"""The others are tested on what Kafka wrote."""


@pytest.mark.parametrize("seed", seeds(2, every_day=1))
@pytest.mark.parametrize("kind", SAMPLED)
def test_planted_damage_is_found(write_cluster: WriteCluster, log: SampleLog, kind: str, seed: int) -> None:
    """Wherever chance put it, one finding names what was planted."""
    stopped = kind in NEEDS_CLEAN_STOP
    replicas = write_cluster(*[SamplePartition(log, segment_bytes=9000)] * 3, clean_shutdown=stopped)
    planted = plant(kind, replicas["2"], PARTITION, random.Random(f"{kind}-{seed}"))
    report = audit(replicas)
    (finding,) = report.findings
    assert (finding.check, finding.replica) == (planted.check, "2")
    assert (planted.offset, planted.epoch, planted.file) == (finding.offset, finding.epoch, finding.file)
    assert report.exit_code == 3


def test_consequences_stand_in_the_evidence(write_cluster: WriteCluster, log: SampleLog) -> None:
    """The changed epoch is the finding; that the batch differs from the other replicas' is told with it."""
    replicas = write_cluster(log, log, log)
    planted = plant("lower-epoch", replicas["2"], PARTITION, random.Random(1))
    (finding,) = audit(replicas).findings
    assert finding.evidence["consequences"] == [{"check": "log-matching", "replica": "2", "offset": planted.offset}]


def test_wrong_entries_of_one_file_are_told_once(write_cluster: WriteCluster, log: SampleLog) -> None:
    """Indexes of a log that was emptied are wrong in every entry, and the leader epoch file in two epochs: each of
    these files is one finding, with its first entry and the number of the others."""
    replicas = write_cluster(*[SamplePartition(log, high_watermark=0)] * 2, clean_shutdown=True)
    (path,) = (replicas["2"] / "t-0").glob("*.log")
    path.write_bytes(b"")
    index, times = (decode(path.with_suffix(suffix).read_bytes()) for decode, suffix in INDEXES)
    told = {
        finding.file: (finding.position, finding.evidence["more_entries"], finding.sentence.rpartition("; ")[2])
        for finding in audit(replicas).findings
        if finding.check in ("index-unsound", "epoch-cache-mismatch")
    }
    assert len(index) > 2
    assert told == {
        f"{0:020d}.index": (0, len(index) - 1, f"and {len(index) - 1} more entries of this file"),
        f"{0:020d}.timeindex": (0, len(times) - 1, f"and {len(times) - 1} more entries of this file"),
        "leader-epoch-checkpoint": (-1, 1, "and 1 more entry of this file"),
    }


def test_a_lost_end_that_checkpoints_have_counted_is_told_once(write_cluster: WriteCluster, log: SampleLog) -> None:
    """Both checkpoints and both indexes speak of the end that is gone: the indexes stand in the evidence."""
    sample = SamplePartition(log, recovery_point=260)
    replicas = write_cluster(sample, sample, clean_shutdown=True)
    place = places_of(replicas["2"] / "t-0")[-20]
    place.segment.write_bytes(place.segment.read_bytes()[: place.position])
    (finding,) = audit(replicas).findings
    assert (finding.check, finding.replica, finding.offset) == ("checkpoint-order", "2", place.header.base_offset)
    assert "the recovery point 260 and the high watermark 260" in finding.sentence
    assert {each["check"] for each in finding.evidence["consequences"]} == {"index-unsound"}


def test_entries_of_another_file_are_another_finding(write_cluster: WriteCluster, log: SampleLog) -> None:
    """Near miss: one wrong entry in the indexes of two segments is two findings, and neither speaks of more."""
    replicas = write_cluster(*[SamplePartition(log, segment_bytes=9000)] * 2)
    paths = sorted((replicas["2"] / "t-0").glob("*.index"))[:2]
    for path in paths:
        data = bytearray(path.read_bytes())
        data[4:8] = (int.from_bytes(data[4:8], "big") + 1).to_bytes(4, "big")
        path.write_bytes(data)
    found = audit(replicas).findings
    assert [(finding.check, finding.file) for finding in found] == [("index-unsound", path.name) for path in paths]
    assert not any("more entr" in finding.sentence for finding in found)


def test_times_are_judged_by_the_youngest_record_before_them(write_cluster: WriteCluster) -> None:
    """A time index whose second entry holds against the records since the first, and not against the one before
    both: two wrong entries."""
    log = SampleLog()
    for offset, time in enumerate((5000, 3000, 3500, 6000)):
        log.add(encode_batch([(time, b"key", b"value", ())], base_offset=offset, leader_epoch=0))
    replicas = write_cluster(log, log, clean_shutdown=True)
    index = replicas["2"] / "t-0" / f"{0:020d}.timeindex"
    index.write_bytes(encode_time_index([(3000, 1), (4000, 2)]))
    (finding,) = audit(replicas).findings
    assert (finding.check, finding.file, finding.position) == ("index-unsound", index.name, 0)
    assert finding.evidence["more_entries"] == 1


def test_difference_beyond_the_damage_is_reported(write_cluster: WriteCluster, log: SampleLog) -> None:
    """A second damage in the next batch is no consequence of the first."""
    replicas = write_cluster(log, log, log)
    directory = replicas["2"] / "t-0"
    first = plant("lower-epoch", replicas["2"], PARTITION, random.Random(1))
    place = next(place for place in places_of(directory) if place.header.base_offset == first.offset + 8)
    change_value(place)
    found = {(finding.check, finding.offset) for finding in audit(replicas).findings}
    assert found == {("epoch-not-monotonic", first.offset), ("log-matching", place.header.last_offset)}


NEAR_WITHOUT_PRODUCERS = {NEAR_MISSES[kind].__name__: NEAR_MISSES[kind] for kind in (*SAMPLED, "garble-payload")}


@pytest.mark.parametrize("name", NEAR_WITHOUT_PRODUCERS)
def test_near_miss_stays_silent(write_cluster: WriteCluster, log: SampleLog, name: str) -> None:
    """What a healthy broker may leave behind is no finding."""
    near = NEAR_WITHOUT_PRODUCERS[name]
    replicas = write_cluster(*[SamplePartition(log, segment_bytes=9000)] * 3)
    for replica in replicas if near in EVERYWHERE else ["2"]:
        near(replicas[replica] / "t-0")
    report = audit(replicas)
    assert [finding.sentence for finding in report.findings] == []
    assert report.exit_code == 0


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize(("segment", "clean"), [(-1, False), (-1, True), (0, False)], ids=["crash", "stop", "complete"])
def test_a_part_of_an_index_entry_is_found_where_no_start_builds_the_index_anew(
    write_cluster: WriteCluster, log: SampleLog, suffix: str, segment: int, clean: bool
) -> None:
    """A kill may interrupt a write to the index of the last segment; a start after a crash does not believe it."""
    replicas = write_cluster(*[SamplePartition(log, segment_bytes=9000)] * 2, clean_shutdown=clean)
    path = sorted((replicas["2"] / "t-0").glob("*" + suffix))[segment]
    sound = path.read_bytes()
    path.write_bytes(sound + b"\0\1")
    found = [(each.check, each.file, each.position) for each in audit(replicas).findings]
    assert found == ([] if (segment, clean) == (-1, False) else [("index-unsound", path.name, len(sound))])


def test_torn_tail_below_recovery_point_is_found(write_cluster: WriteCluster, log: SampleLog) -> None:
    """What was flushed cannot be torn."""
    sample = SamplePartition(log, recovery_point=260)
    replicas = write_cluster(sample, sample)
    path = replicas["1"] / "t-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-30])
    found = {(finding.check, finding.offset) for finding in audit(replicas).findings}
    assert ("torn-tail", 256) in found
