"""Whoever is damaged is named, also when it is the replica that the others would be compared with."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from odradek_audit.checks.references import Copies, choose_reference
from odradek_audit.engine.local import audit
from odradek_proto.topics import TopicPartition

from tests.audit.corruption import plant
from tests.audit.sample import SampleLog, SamplePartition, WriteCluster

IN_THE_LOG = ("flip-byte", "overwrite-header", "remove-batch", "move-batch", "repeat-batch", "lower-epoch",
              "change-record", "cut-segment", "cut-log")  # fmt: skip


@pytest.mark.parametrize("kind", IN_THE_LOG)
@pytest.mark.parametrize("replica", ["1", "2", "3"])
def test_damaged_replica_alone_is_named(write_cluster: WriteCluster, log: SampleLog, kind: str, replica: str) -> None:
    """Three equal replicas, one damaged: no finding names another, wherever the damaged one stands."""
    replicas = write_cluster(*[SamplePartition(log, segment_bytes=9000)] * 3)
    plant(kind, replicas[replica], TopicPartition("t", 0), random.Random(kind))
    findings = audit(replicas).findings
    assert {finding.replica for finding in findings} == {replica}, [finding.sentence for finding in findings]


def test_longest_log_is_outvoted_where_it_is_damaged(write_cluster: WriteCluster, log: SampleLog) -> None:
    """The reference replica has records that nobody else has, and a changed one below: two of three copies say
    which."""
    longer = SampleLog(list(log.batches), log.next_offset).fill(2, epoch=3)
    replicas = write_cluster(longer, log, log)
    planted = plant("change-record", replicas["1"], TopicPartition("t", 0), random.Random(1))
    report = audit(replicas)
    assert report.partitions[0].reference_replica == "1"
    assert [(finding.check, finding.replica, finding.offset) for finding in report.findings] == [
        ("log-matching", "1", planted.offset)
    ]
    finding = report.findings[0]
    assert finding.reference == "compared with replica 2, because 2 of 3 replicas hold the same bytes"
    assert finding.excerpt is not None
    assert finding.excerpt.agreeing == ("2", "3")


def test_of_two_replicas_the_undamaged_is_the_reference(write_cluster: WriteCluster, log: SampleLog) -> None:
    """No majority, but one copy shows its damage by itself: an epoch that falls."""
    longer = SampleLog(list(log.batches), log.next_offset).fill(2, epoch=3)
    replicas = write_cluster(longer, log)
    planted = plant("lower-epoch", replicas["1"], TopicPartition("t", 0), random.Random(2))
    findings = audit(replicas).findings
    assert {(finding.replica, finding.offset) for finding in findings} == {("1", planted.offset)}
    assert "is itself damaged" in next(finding.reference for finding in findings if finding.reference)


def test_majority_of_an_older_epoch_does_not_outvote_an_election(write_cluster: WriteCluster) -> None:
    """Two replicas hold what the third, elected since, does not: they are the ones that must be cut."""
    prefix = SampleLog().fill(3, epoch=0)
    old = SampleLog(list(prefix.batches), prefix.next_offset).append([b"old"], epoch=0)
    new = SampleLog(list(prefix.batches), prefix.next_offset).append([b"new"], epoch=1)
    findings = audit(write_cluster(old, old, new)).findings
    assert [(finding.check, finding.replica) for finding in findings] == [("log-matching", "1"), ("log-matching", "2")]
    assert findings[0].reference.endswith("because it has the newest leader epoch")


@pytest.mark.parametrize(
    ("copies", "damage", "expected", "reason"),
    [
        ([(("1",), 2), (("2", "3"), 2)], {}, "2", "2 of 3"),
        ([(("1", "3"), 2), (("2",), 2)], {}, "1", "2 of 3"),
        ([(("1",), 2), (("2",), 2)], {}, "1", "no majority"),
        ([(("1",), 2), (("2",), 2), (("3",), 2)], {}, "1", "no majority"),
        ([(("1",), 3), (("2", "3"), 2)], {}, "1", "newest leader epoch"),
        ([(("1",), 3), (("2", "3"), 2)], {"1": 2}, "2", "damaged"),
        ([(("1",), 3), (("2", "3"), 2)], {"1": 1}, "2", "damaged"),
        ([(("1", "2"), 2), (("3", "4"), 2)], {"1": 2, "2": 2}, "3", "damaged"),
        ([(("1",), 2), (("2",), 2), (("3", "4"), 2)], {"2": 2}, "3", "2 of 4"),
        ([(("1",), 2), (("2",), 2)], {"2": 2}, "1", "undamaged"),
        ([(("1", "3"), 1), (("2",), 2)], {}, "1", "newest leader epoch at the end of its log"),
    ],
)
def test_reference_is_chosen_by_damage_then_votes_then_epoch(
    copies: list[tuple[tuple[str, ...], int]], damage: Mapping[str, int], expected: str, reason: str
) -> None:
    """Replica 1 is the reference replica throughout."""
    scores = {name: damage.get(name, 0) for names, _ in copies for name in names}
    chosen = choose_reference("1", [Copies(*each) for each in copies], scores)
    assert chosen.replica == expected
    assert reason in chosen.reason


def test_leader_of_the_newer_epoch_is_right_where_logs_agree_again(write_cluster: WriteCluster) -> None:
    """KIP-101's second failure: the old record stayed on the replica that was not cut, and everybody went on."""
    stale = SampleLog().fill(3, epoch=0).append([b"m2"], epoch=0).append([b"m4"], epoch=1)
    leader = SampleLog().fill(3, epoch=0).append([b"m3"], epoch=1).append([b"m4"], epoch=1)
    findings = audit(write_cluster(stale, leader, stale)).findings
    assert [(finding.check, finding.replica, finding.offset, finding.epoch) for finding in findings] == [
        ("log-matching", "1", 12, 0),
        ("log-matching", "3", 12, 0),
    ]
    assert "the leader of epoch 1 wrote it" in findings[0].reference
