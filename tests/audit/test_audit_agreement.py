"""Log matching: what must be equal, what may differ, and where the difference begins."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from odradek_audit.checks import producers
from odradek_audit.engine.local import audit
from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.storage.directory import LogDirectory
from odradek_broker.storage.log import Log
from odradek_broker.storage.settings import LogSettings
from odradek_proto.records import encode_batch, read_header
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.files import OsFiles

from tests.audit.sample import SampleLog, SamplePartition, WriteCluster


def prefix() -> SampleLog:
    """Ten records that everybody has."""
    return SampleLog().append([b"a%d" % number for number in range(10)], epoch=0)


def test_divergence_names_both_replicas_and_the_first_offset(write_cluster: WriteCluster) -> None:
    """Two values under one offset below the bound; the third replica decides nothing, the newest epoch does."""
    good = prefix().append([b"b", b"c", b"d"], epoch=2)
    bad = prefix().append([b"b", b"X", b"d"], epoch=2)
    findings = audit(write_cluster(good, bad, good)).findings
    assert [(f.check, f.replica, f.other_replica, f.offset, f.end_offset, f.epoch) for f in findings] == [
        ("log-matching", "2", "1", 11, 13, 2)
    ]
    assert "b'X' against b'c'" in findings[0].sentence


def test_tail_of_an_older_epoch_waits_for_truncation(write_cluster: WriteCluster) -> None:
    """A former leader that has not come back yet holds records that nobody owes."""
    leader = prefix().append([b"new"], epoch=2).append([b"newer"], epoch=2)
    former = SamplePartition(prefix().append([b"unacknowledged"], epoch=0), high_watermark=10)
    replicas = write_cluster(leader, former)
    report = audit(replicas)
    assert report.findings == []
    assert [(note.kind, note.replica, note.offset, note.end_offset) for note in report.notes] == [
        ("truncation-pending", "2", 10, 11)
    ]
    settled = audit(replicas, settled=True)
    assert [(finding.check, finding.offset) for finding in settled.findings] == [("log-matching", 10)]


def test_tail_below_the_own_high_watermark_is_found(write_cluster: WriteCluster) -> None:
    """The same tail is a violation once its replica has counted it: a record was lost by an election."""
    leader = prefix().append([b"new"], epoch=2)
    former = SamplePartition(prefix().append([b"committed"], epoch=0), high_watermark=11)
    findings = audit(write_cluster(leader, former)).findings
    assert [(finding.check, finding.replica, finding.offset, finding.epoch) for finding in findings] == [
        ("log-matching", "2", 10, 0)
    ]


def test_logs_that_agree_again_are_found_above_the_bound(write_cluster: WriteCluster) -> None:
    """KIP-101's second failure: one offset differs, both go on with the same epoch, and no checkpoint tells."""
    one = SamplePartition(prefix().append([b"m2"], epoch=0).append([b"m4"], epoch=1), high_watermark=0)
    other = SamplePartition(prefix().append([b"m3"], epoch=1).append([b"m4"], epoch=1), high_watermark=0)
    findings = audit(write_cluster(one, other)).findings
    assert [(f.check, f.offset, f.end_offset, f.evidence["agree_again"]) for f in findings] == [
        ("log-matching", 10, 11, True)
    ]


def test_two_leaders_in_one_epoch_are_found_above_the_bound(write_cluster: WriteCluster) -> None:
    """Same offset, same epoch, other bytes: nobody may ever see that (S-8)."""
    one = SamplePartition(prefix().append([b"x"], epoch=1), high_watermark=10)
    other = SamplePartition(prefix().append([b"y"], epoch=1), high_watermark=10)
    findings = audit(write_cluster(one, other)).findings
    assert [(finding.check, finding.offset, finding.epoch) for finding in findings] == [("epoch-fork", 10, 1)]


def test_tails_of_different_epochs_above_the_bound_are_no_finding(write_cluster: WriteCluster) -> None:
    """Near miss of the fork: the same offset in two epochs, above every high watermark."""
    one = SamplePartition(prefix().append([b"x"], epoch=1), high_watermark=10)
    other = SamplePartition(prefix().append([b"y"], epoch=2), high_watermark=10)
    assert audit(write_cluster(one, other)).findings == []


def test_other_batch_boundaries_are_found(write_cluster: WriteCluster) -> None:
    """A follower copies batches as they are; the same records in other batches did not come from this leader."""
    one = prefix().append([b"x", b"y"], epoch=1)
    other = prefix().append([b"x"], epoch=1).append([b"y"], epoch=1)
    findings = audit(write_cluster(one, other)).findings
    assert [(finding.check, finding.offset) for finding in findings] == [("log-matching", 10)]


@pytest.mark.parametrize(
    ("epochs", "expiry_ms", "offsets"),
    [
        ((0, 1, 1), 10, []),
        ((0, 1, 0), 10, [2]),
        ((1, 0, 0, 1, 0), 10, [1, 4]),  # each fenced run once, and no gap where the newer epoch goes on
        ((0, 1, 0), 1, []),  # the state of a producer that is silent for so long is forgotten
    ],
)
def test_a_fenced_producer_that_writes_on_is_found(
    write_cluster: WriteCluster,
    monkeypatch: pytest.MonkeyPatch,
    epochs: tuple[int, ...],
    expiry_ms: int,
    offsets: list[int],
) -> None:
    """Once for each run of its batches, while its state lives. Records are a millisecond apart."""
    monkeypatch.setattr(producers, "PRODUCER_EXPIRY_MS", expiry_ms)
    log = SampleLog()
    for epoch in epochs:
        log.append([b"v"], producer_id=9, producer_epoch=epoch)
    findings = audit(write_cluster(log, log)).findings
    assert [(each.check, each.offset) for each in findings if each.replica == "1"] == [
        ("producer-epoch-not-monotonic", offset) for offset in offsets
    ]


@pytest.mark.parametrize("count", [0, 1])
def test_too_little_is_inconclusive(write_cluster: WriteCluster, count: int, tmp_path: Path) -> None:
    """One replica alone, or none that can be read, says nothing."""
    replicas = write_cluster(*[prefix()] * count) | {"9": tmp_path / "absent"}
    report = audit(replicas)
    assert (report.exit_code, report.verdict) == (1, "inconclusive")
    assert any("absent" in reason for reason in report.inconclusive)


def test_empty_logs_are_inconclusive(write_cluster: WriteCluster) -> None:
    """Nothing to compare is not the same as agreement."""
    report = audit(write_cluster(SampleLog(), SampleLog()))
    assert (report.findings, report.exit_code) == ([], 1)


# --- What a broker wrote ----------------------------------------------------------------------------------------------


PARTITION = TopicPartition("orders", 3)
TOPIC_ID = bytes(range(16))
NOW_MS = 1_700_000_000_000
SETTINGS = LogSettings(segment_bytes=6000, index_interval_bytes=300)


def append(log: Log, offset: int, epoch: int, chance: random.Random) -> int:
    """One batch with times that go back and forth; returns the next offset."""
    values = [(NOW_MS + chance.randint(-5000, 5000), b"k", chance.randbytes(40), ()) for _ in range(3)]
    data = encode_batch(
        values, base_offset=offset, leader_epoch=epoch, producer_id=4, producer_epoch=0, base_sequence=offset
    )
    header = read_header(data)
    log.append([header], [data], NOW_MS)
    log.state.producers.update(header)
    return offset + 3


def write_replica(path: Path, node: int, *, detour: bool, clean: bool) -> None:
    """A log of three epochs; with a detour, one that appended a tail of its own and cut it off again."""
    directory = LogDirectory.open(
        OsFiles(), str(path), node_id=node, cluster_id="c" * 22, wall_ms=NOW_MS, rng=random.Random(node)
    )
    log = directory.open_log(PARTITION, TOPIC_ID, SETTINGS, wall_ms=NOW_MS)
    chance = random.Random(7)
    offset = 0
    starts: list[EpochEntry] = []
    for epoch in (0, 2, 5):
        if detour and epoch == 5:
            tail = offset
            for _ in range(40):
                tail = append(log, tail, 2, random.Random(tail))
            assert log.truncate(offset) == offset
        starts.append(EpochEntry(epoch, offset))
        log.write_epochs(starts)
        for _ in range(50):
            offset = append(log, offset, epoch, chance)
    log.flush()
    directory.write_recovery_points()
    directory.write_high_watermarks({PARTITION: offset})
    directory.close(clean=clean)


@pytest.mark.parametrize("clean", [True, False])
def test_logs_of_the_broker_agree(tmp_path: Path, clean: bool) -> None:
    """Rolled, truncated and flushed logs of two replicas, one of which took a detour, are equal to the audit."""
    replicas = {str(node): tmp_path / str(node) for node in (1, 2)}
    for node in (1, 2):
        write_replica(replicas[str(node)], node, detour=node == 2, clean=clean)
    report = audit(replicas)
    assert [finding.sentence for finding in report.findings] == []
    assert (report.exit_code, report.compared_records) == (0, 450)
    assert report.partitions[0].replicas[0].segments > 3
