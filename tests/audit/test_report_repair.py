"""What the page says about repairing copies: nothing that it orders may spread a wrong record."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

import pytest
from odradek_audit.catalogue import CHECKS
from odradek_audit.checks.references import AgreeingReplicas, choose_reference
from odradek_audit.engine.local import audit
from odradek_audit.findings import Finding
from odradek_audit.inputs.events import EVENTS_FILE
from odradek_audit.inputs.history import ACKS_LEADER, History
from odradek_audit.report.headlines import verdict_sentences
from odradek_audit.report.last_copies import last_copies
from odradek_audit.report.page import page
from odradek_audit.report.repair import repair
from odradek_audit.results import PartitionSummary, ReplicaSummary
from odradek_proto.topics import TopicPartition

from tests.audit.acknowledged import VALUES, log_of, told
from tests.audit.corruption import plant
from tests.audit.corruption.places import flip_bit
from tests.audit.sample import SampleLog, SamplePartition, WriteCluster, write_lines
from tests.audit.test_report_page import text_of

PARTITION = TopicPartition("t", 0)
REPLACED = "Replace the copy of broker {}: stop it, move t-0 out of its log directory"


def text_about(findings: list[Finding], replicas: list[ReplicaSummary]) -> str:
    """The advice about a partition whose replicas are these, as a reader sees it."""
    summary = PartitionSummary("t", 0, 100, 0, 100, 0, 0, "1", replicas)
    return " ".join(re.sub("<[^>]+>", "", repair(findings, summary)).split())


def replica(name: str, start: int = 0, end: int = 100) -> ReplicaSummary:
    return ReplicaSummary(name, start, end, end, end, 0, 1, 1, 1, 1)


def wrong(name: str, first: int, last: int, check: str = "crc-mismatch", **others: object) -> Finding:
    severity = CHECKS[check].severity
    return Finding(check, severity, "t", 0, name, "t-0: wrong", offset=first, end_offset=last + 1, **others)  # type: ignore[arg-type]


def test_two_findings_of_one_partition_name_the_one_replica_that_is_right(write_cluster: WriteCluster) -> None:
    """Another record on replica 2 and a damaged batch on replica 3: replica 1 leads before either is replaced."""
    log = SampleLog().fill(20).fill(20, epoch=1)
    replicas = write_cluster(*[SamplePartition(log)] * 3)
    plant("change-record", replicas["2"], PARTITION, random.Random(3))
    plant("flip-byte", replicas["3"], PARTITION, random.Random(5))
    said = text_of(audit(replicas))
    assert "Only replica 1 is right at both places" in said
    steps = [
        "Unclean elections off: odradek topic alter t --config unclean.leader.election.enable=false",
        "odradek topic reassign --topic t-0 --to 1,2,3 --wait",
        "odradek topic elect t-0",
        "Check that broker 1 leads, and that all are in the ISR: odradek topic describe t",
        REPLACED.format(2),
        REPLACED.format(3),
        "Audit again.",
        "kafka-leader-election.sh --bootstrap-server HOST:PORT --election-type preferred --topic t --partition 0",
    ]
    places = [said.index(step) for step in steps]
    assert places == sorted(places)
    assert said.count("move t-0 out of its log directory") == 2
    assert said.count("shows it in the ISR, and broker 1 as the leader still") == 2


def test_nothing_is_replaced_where_each_replica_is_wrong_somewhere() -> None:
    """Which replica is right where is said, and what to read out."""
    said = text_about([wrong("1", 10, 19), wrong("2", 30, 39), wrong("3", 31, 50)], [replica(each) for each in "123"])
    assert "No replica is right at all places: replace none yet." in said
    assert "offsets 10 to 19 (not 1): right on replicas 2, 3" in said
    assert "offsets 30 to 39 (not 2): right on replica 1" in said
    assert "odradek log dump --segments --records --json /var/tmp/odradek-kept-2/t-0" in said
    assert "move t-0" not in said
    assert "topic elect" not in said


@pytest.mark.parametrize("which", ["shorter", "begins later"])
def test_a_replica_that_lacks_the_place_is_not_right_there(which: str) -> None:
    """A log that ends before the place of a finding, or begins behind it, is no copy of it."""
    lacking = replica("2", end=15) if which == "shorter" else replica("2", start=15)
    said = text_about([wrong("1", 10, 19)], [replica("1"), lacking])
    assert "no replica is known to be right" in said
    assert "move t-0" not in said
    assert "Only replica 3 is right" in text_about([wrong("1", 10, 19)], [replica("1"), lacking, replica("3")])


def test_what_the_longer_log_alone_has_is_read_out_first() -> None:
    """The replica that is replaced may have records behind the new leader's end."""
    said = text_about([wrong("1", 10, 19)], [replica("1", end=120), replica("2", end=100)])
    alone = said.index("Replica 1 has at offsets 100 to 119 what replica 2 does not")
    assert alone < said.index(REPLACED.format(1))


def test_what_all_lack_alike_does_not_keep_another_copy_from_being_replaced() -> None:
    """The records that nobody has come from the clients; the replica that is wrong elsewhere is replaced."""
    alike = wrong("1", 5, 9, "offset-gap", replicas=("1", "2", "3"), evidence={"on_all": 3})
    replicas = [replica(each) for each in "123"]
    assert "move t-0" not in text_about([alike], replicas)
    said = text_about([alike, wrong("2", 30, 39)], replicas)
    assert "No replica that was read is right at offsets 5 to 9: no copy mends another there." in said
    assert "Replicas 1, 3 are right at the place of the finding" in said
    assert REPLACED.format(2) in said


def test_a_lost_record_that_one_replica_still_has_stops_all_replacing() -> None:
    """Its log is not the one that counts, so it cannot be elected; following the leader it would cut the record off."""
    lost = wrong("1", 30, 39, "acknowledged-lost", evidence={"held_by": ["3"]})
    said = text_about([lost], [replica(each) for each in "123"])
    assert "offsets 30 to 39 (not 1): right on replica 3" in said
    assert "move t-0" not in said


def test_every_directory_is_copied_once_at_the_top(write_cluster: WriteCluster) -> None:
    """Whole, with a destination of its own outside of it, that a second run does not write into."""
    log = SampleLog().fill(20)
    replicas = write_cluster(*[SamplePartition(log)] * 3)
    plant("change-record", replicas["2"], PARTITION, random.Random(3))
    report = audit(replicas)
    said = text_of(report)
    assert said.count("cp -a ") == 3
    for name in "123":
        kept = f"/var/tmp/odradek-kept-{name}"
        assert f"mkdir {kept} && cp -a {report.replicas[name]}/. {kept}" in said
    assert said.index("mkdir /var/tmp/odradek-kept-2") < said.index("mkdir /var/tmp/odradek-kept-1")
    assert said.index("cp -a ") < said.index("What was compared")
    assert "cp -a" not in page(audit(write_cluster(*[SamplePartition(log)] * 3)))


@pytest.mark.parametrize("in_sync", ["2", ""])
def test_lost_records_are_sent_again_after_the_copies_are_right(write_cluster: WriteCluster, in_sync: str) -> None:
    """And after producers wait for acks=all; nobody is told to set what is set, and the history has a path."""
    short = log_of(*VALUES[:2])
    replicas = write_cluster(short, short, short)
    (segment,) = (replicas["2"] / "t-0").glob("*.log")
    data = segment.read_bytes()
    segment.write_bytes(data[:30] + bytes([data[30] ^ 1]) + data[31:])  # in the first batch's header, under its CRC
    report = audit(replicas, history=History(told(ACKS_LEADER)))
    report.history_file = "/runs/7/history.jsonl"
    report.configuration = {"acks": "1"} | ({"min.insync.replicas": in_sync} if in_sync else {})
    said = text_of(report)
    steps = ["Keep copies", "Set acks=all", "Repair the copies", "Audit again.", "send again from its source"]
    places = [said.index(step) for step in steps]
    assert places == sorted(places)
    assert ("min.insync.replicas is 2 already" in said) is bool(in_sync)
    assert ("odradek topic alter t --config min.insync.replicas=2" in said) is not bool(in_sync)
    assert "the values are in /runs/7/history.jsonl" in said


# --- What one replica alone has ---------------------------------------------------------------------------------------


def log_without(*batches: int) -> SampleLog:
    """Eight batches of two records, but for some."""
    return SampleLog().fill(8, records=2).without(*batches)


@pytest.mark.parametrize(
    ("lacks", "told"),
    [
        (([2], [2], []), ["2 records of t-0 (offsets 4 to 5) are left on replica 3 only"]),
        (([2, 3], [2, 3], []), ["4 records of t-0 (offsets 4 to 7) are left on replica 3 only"]),
        (([2, 3], [3, 4], []), ["2 records of t-0 (offsets 6 to 7) are left on replica 3 only"]),
        (
            ([2, 5], [2, 5], []),
            [
                "2 records of t-0 (offsets 4 to 5) are left on replica 3 only",
                "2 records of t-0 (offsets 10 to 11) are left on replica 3 only",
            ],
        ),
        (([2], [5], []), []),  # two others have each
        (([2], [2], [2]), []),  # nobody has them
        (([2], []), ["2 records of t-0 (offsets 4 to 5) are left on replica 2 only"]),
    ],
)
def test_what_one_replica_alone_has_is_told_first(
    write_cluster: WriteCluster, lacks: Sequence[Sequence[int]], told: list[str]
) -> None:
    """Of several stretches each; not what two replicas have, or none."""
    report = audit(write_cluster(*(log_without(*each) for each in lacks)))
    said = last_copies(report)
    assert [each.split(":")[0] for each in said] == told
    assert verdict_sentences(report)[: len(said)] == said


def test_an_end_that_other_logs_lack_is_a_last_copy_too(write_cluster: WriteCluster) -> None:
    """Below the high watermark, when the cluster has come to rest."""
    short = SamplePartition(SampleLog().fill(3, records=2))
    report = audit(write_cluster(short, short, log_without()), settled=True)
    assert [each.split(":")[0] for each in last_copies(report)] == [
        "10 records of t-0 (offsets 6 to 15) are left on replica 3 only"
    ]


@pytest.mark.parametrize(("leader", "told"), [(2, True), (3, False), (4, False)])
def test_a_leader_that_lacks_them_is_named(write_cluster: WriteCluster, leader: int, told: bool) -> None:
    """The last one that is known, by whoever followed it; not one that was not read."""
    replicas = write_cluster(log_without(2), log_without(2), log_without())
    followed = {"event": "truncated", "partition": "t-0", "from": 9, "to": 9, "leader": leader, "leader_epoch": 3}
    before = {"event": "leader_elected", "partition": "t-0", "broker": 1, "leader_epoch": 2}
    lines = [before, followed]
    write_lines(replicas["1"] / EVENTS_FILE, lines)
    (said,) = last_copies(audit(replicas))
    assert ("The last leader known, broker" in said) is told
    assert said.startswith(
        "2 records of t-0 (offsets 4 to 5) are left on replica 3 only: do not remove or replace the copy of t-0 on "
        "replica 3."
    )


def test_the_partition_of_a_last_copy_is_repaired_first(write_cluster: WriteCluster) -> None:
    """Each other step stops brokers, and may cost the only copy."""
    whole, lacking = SamplePartition(log_without()), SamplePartition(log_without(2))
    replicas = write_cluster(
        *({TopicPartition("t", 0): whole, TopicPartition("t", 1): each} for each in (lacking, lacking, whole))
    )
    (segment,) = (replicas["1"] / "t-0").glob("*.log")
    flip_bit(segment, -1)
    html = page(audit(replicas))
    assert html.index("What to do about t-1") < html.index("What to do about t-0")
    assert "first what is left on one replica only" in html


# --- Who is damaged ---------------------------------------------------------------------------------------------------


IN_THE_LOG = ("flip-byte", "overwrite-header", "remove-batch", "move-batch", "repeat-batch", "lower-epoch",
              "change-record", "cut-segment", "cut-log")  # fmt: skip


@pytest.mark.parametrize("kind", IN_THE_LOG)
@pytest.mark.parametrize("replica", ["1", "3"])  # the second one: test_audit_damage
def test_damaged_replica_alone_is_named(write_cluster: WriteCluster, log: SampleLog, kind: str, replica: str) -> None:
    """Three equal replicas, one damaged: no finding names another, wherever the damaged one stands."""
    replicas = write_cluster(*[SamplePartition(log, segment_bytes=9000)] * 3)
    plant(kind, replicas[replica], TopicPartition("t", 0), random.Random(kind))
    findings = audit(replicas).findings
    assert {finding.replica for finding in findings} == {replica}, [finding.sentence for finding in findings]


def test_longest_log_is_outvoted_where_it_is_damaged(write_cluster: WriteCluster, log: SampleLog) -> None:
    """The reference replica has records that nobody else has, and a changed one below: two of three copies say
    which."""
    longer = log.copy().fill(2, epoch=3)
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
    longer = log.copy().fill(2, epoch=3)
    replicas = write_cluster(longer, log)
    planted = plant("lower-epoch", replicas["1"], TopicPartition("t", 0), random.Random(2))
    findings = audit(replicas).findings
    assert {(finding.replica, finding.offset) for finding in findings} == {("1", planted.offset)}
    assert "is itself damaged" in next(finding.reference for finding in findings if finding.reference)


def test_majority_of_an_older_epoch_does_not_outvote_an_election(write_cluster: WriteCluster) -> None:
    """Two replicas hold what the third, elected since, does not: they are the ones that must be cut."""
    prefix = SampleLog().fill(3, epoch=0)
    old, new = prefix.copy().append([b"old"], epoch=0), prefix.copy().append([b"new"], epoch=1)
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
    chosen = choose_reference("1", [AgreeingReplicas(*each) for each in copies], scores)
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
