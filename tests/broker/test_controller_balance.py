"""Elections on demand and the balance of leaders (R-137, R-138)."""

from __future__ import annotations

import pytest
from odradek_broker.core.controller.balance import MAX_ELECTIONS_PER_BATCH, balance_leaders, elect_leaders
from odradek_broker.core.metadata.image import NO_LEADER, MetadataImage
from odradek_proto.errors import ErrorCode
from odradek_proto.v1 import admin_messages

from tests.broker.controller_images import SETTINGS, add_topic, image_of, partition_of, write


def cluster() -> MetadataImage:
    """Broker 3 is fenced. 0 is as it should be, 1 is led by its second, 2 and 3 by nobody, 4 lacks its first."""
    image = image_of([1, 2, 3], fenced=[3])
    add_topic(
        image,
        "orders",
        partition_of([1, 2, 3], [1, 2]),
        partition_of([1, 2, 3], [2, 1]),
        partition_of([1, 2, 3], [3], NO_LEADER),
        partition_of([3], [3], NO_LEADER),
        partition_of([3, 2, 1], [2, 1]),
    )
    return image


def elect(image: MetadataImage, kind: str, *partitions: int, topic: str = "orders") -> dict[int, ErrorCode]:
    request = admin_messages.ElectLeadersRequest(
        election_type=kind, partitions=[admin_messages.ElectPartition(topic=topic, partition=p) for p in partitions]
    )
    decision = elect_leaders(image, SETTINGS, request)
    write(image, decision.records)
    return {result.partition: ErrorCode(result.error_code) for result in decision.answer.partitions}


@pytest.mark.parametrize(
    ("partition", "preferred", "unclean"),
    [
        (0, ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.ELECTION_NOT_NEEDED),
        (1, ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED),
        (2, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, ErrorCode.NONE),
        (3, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
        (4, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, ErrorCode.ELECTION_NOT_NEEDED),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_elections_on_demand_answer_partition_by_partition(
    partition: int, preferred: ErrorCode, unclean: ErrorCode
) -> None:
    """R-137's four answers; CO-05: a preferred election never elects uncleanly."""
    image = cluster()
    assert elect(image, "preferred", partition) == {partition: preferred}
    if partition == 2:
        assert image.topics["orders"].partitions[2].leader == NO_LEADER
    assert elect(cluster(), "unclean", partition) == {partition: unclean}


def test_an_unclean_election_on_demand_ignores_the_setting_of_the_topic() -> None:
    """The operator has decided: the ISR is the new leader, to recover."""
    image = cluster()
    elect(image, "unclean", 2)
    partition = image.topics["orders"].partitions[2]
    assert (partition.leader, partition.isr, partition.recovering) == (1, (1,), True)


def test_naming_no_partition_means_all_that_need_it() -> None:
    """Those that need no election are left out of the answer."""
    assert elect(cluster(), "preferred") == {
        1: ErrorCode.NONE,
        2: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        3: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        4: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    }


@pytest.mark.parametrize("kind", ["online", "", "both"])
def test_other_kinds_of_elections_cannot_be_asked_for(kind: str) -> None:
    """INVALID_REQUEST for the request as a whole."""
    decision = elect_leaders(cluster(), SETTINGS, admin_messages.ElectLeadersRequest(election_type=kind))
    assert decision.answer.error_code == ErrorCode.INVALID_REQUEST


def test_the_balance_moves_only_what_can_move() -> None:
    """R-138: the first replica is in sync and active; everything else stays."""
    image = cluster()
    before = dict(image.topics["orders"].partitions)
    decision = balance_leaders(image, SETTINGS)
    write(image, decision.records)
    after = image.topics["orders"].partitions
    assert decision.answer == 1
    assert after[1].leader == 1
    assert [after[i] for i in (0, 2, 3, 4)] == [before[i] for i in (0, 2, 3, 4)]


def test_the_balance_takes_a_bounded_number_at_once() -> None:
    """The next batch takes the rest."""
    image = image_of([1, 2])
    add_topic(image, "orders", *(partition_of([1, 2], [2, 1]) for _ in range(MAX_ELECTIONS_PER_BATCH + 5)))
    for expected in (MAX_ELECTIONS_PER_BATCH, 5, 0):
        decision = balance_leaders(image, SETTINGS)
        write(image, decision.records)
        assert decision.answer == expected
