"""Records that one replica alone still has are told before all else: who rebuilds that one loses them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from odradek_audit.engine.local import audit
from odradek_audit.inputs.events import EVENTS_FILE
from odradek_audit.report.headlines import verdict_sentences
from odradek_audit.report.last_copies import last_copies
from odradek_audit.report.page import page
from odradek_proto.topics import TopicPartition

from tests.audit.corruption.places import flip_bit
from tests.audit.sample import SampleLog, SamplePartition, WriteCluster, write_lines


def log_without(*batches: int) -> SampleLog:
    """Eight batches of two records, but for some."""
    log = SampleLog().fill(8, records=2)
    for number in sorted(batches, reverse=True):
        del log.batches[number]
    return log


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
