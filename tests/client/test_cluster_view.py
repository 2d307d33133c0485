"""What a client believes of the cluster: newer leader epochs win, from metadata and from hints (R-267)."""

from __future__ import annotations

import pytest
from odradek.core.cluster_view import ClusterView, LeaderAndEpoch
from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.v1 import broker_pb2 as pb

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
ONE, TWO = b"1" * 16, b"2" * 16


def metadata(
    *leaders: tuple[int, int], topic_id: bytes = ONE, error: ErrorCode = ErrorCode.NONE
) -> pb.MetadataResponse:
    """A broker's answer about the topic: leader and leader epoch of each partition."""
    answer = pb.MetadataResponse()
    for broker in (1, 2, 3):
        answer.brokers.add(broker_id=broker, endpoints={"GRPC": f"b{broker}:1"})
    topic = answer.topics.add(topic="orders", topic_id=topic_id, error_code=int(error))
    for number, (leader, epoch) in enumerate(leaders):
        topic.partitions.add(partition=number, leader_id=leader, leader_epoch=epoch)
    return answer


def view_of(*answers: pb.MetadataResponse) -> ClusterView:
    """What a client knows that got these answers, one after the other."""
    view = ClusterView(("b1:1",))
    for answer in answers:
        view.update(answer, "b1:1")
    return view


@pytest.mark.parametrize(
    ("said", "expected"),
    [((2, 4), (1, 5)), ((2, 5), (2, 5)), ((-1, 5), (-1, 5)), ((2, 6), (2, 6))],
    ids=["older", "same", "same without a leader", "newer"],
)
def test_metadata_with_a_smaller_leader_epoch_are_ignored(said: tuple[int, int], expected: tuple[int, int]) -> None:
    """A broker that lags names the leader of before; whoever believed it would go back and forth (R-267)."""
    view = view_of(metadata((1, 5)), metadata(said))
    assert view.leader_of(FIRST) == LeaderAndEpoch(*expected)


def test_each_partition_is_judged_by_its_own_epoch() -> None:
    """Of one answer, what is old is ignored and what is new is taken; so are partitions that were added (R-267)."""
    view = view_of(metadata((1, 5)), metadata((2, 4), (3, 0)), metadata((2, 4), (1, 1)))
    assert view.leader_of(FIRST) == LeaderAndEpoch(1, 5)
    assert view.leader_of(SECOND) == LeaderAndEpoch(1, 1)


def test_a_topic_that_was_created_again_begins_with_its_own_epochs() -> None:
    """Another topic id is another topic: its small epochs are no old news, and nothing of the old one stays."""
    view = view_of(metadata((1, 5), (1, 5)), metadata((2, 0), topic_id=TWO))
    assert view.leader_of(FIRST) == LeaderAndEpoch(2, 0)
    assert view.partitions_of("orders") == [0]


def test_an_error_that_passes_does_not_forget_who_leads() -> None:
    """Old news that come after it are still old (R-267)."""
    failed = metadata(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    view = view_of(metadata((1, 5)), failed)
    assert view.partitions_of("orders") is None
    view.update(metadata((2, 4)), "b1:1")
    assert view.leader_of(FIRST) == LeaderAndEpoch(1, 5)


@pytest.mark.parametrize(
    ("leader", "epoch", "news"),
    [(2, 4, False), (2, 5, False), (9, 6, False), (2, 6, True)],
    ids=["older", "same epoch", "unknown broker", "newer"],
)
def test_a_hint_counts_only_with_a_newer_epoch(leader: int, epoch: int, news: bool) -> None:
    """Who does not lead any more may know even less than we do (KIP-951)."""
    view = view_of(metadata((1, 5)))
    assert view.hint_leader(FIRST, leader, epoch) is news
    assert view.leader_of(FIRST) == (LeaderAndEpoch(leader, epoch) if news else LeaderAndEpoch(1, 5))


def test_metadata_older_than_a_hint_are_ignored() -> None:
    """The leader's own word stays until metadata catch up with it (R-267)."""
    view = view_of(metadata((1, 5)))
    view.hint_leader(FIRST, 2, 6)
    view.update(metadata((1, 5)), "b1:1")
    assert view.leader_of(FIRST) == LeaderAndEpoch(2, 6)
    view.update(metadata((3, 7)), "b1:1")
    assert view.leader_of(FIRST) == LeaderAndEpoch(3, 7)
