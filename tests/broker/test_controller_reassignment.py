"""Reassignments at the controller: what is refused, what a target comes to, when it is complete (KIP-455, R-145)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from odradek_broker.core.controller import reassignment
from odradek_broker.core.controller.decision import batch_bytes
from odradek_broker.core.controller.reassignment import alter_partition_reassignments, list_partition_reassignments
from odradek_broker.core.controller.registration import fence_broker
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.metadata.image import NO_LEADER, MetadataImage, PartitionRegistration
from odradek_proto.errors import ErrorCode
from odradek_proto.v1 import admin_messages
from odradek_proto.values import replace

from tests.broker.controller_images import SETTINGS, add_topic, image_of, partition_of, write

WITH_ELR = replace(SETTINGS, elr_enable=True)


def reassign(
    image: MetadataImage,
    replicas: Sequence[int],
    *,
    topic: str = "orders",
    partition: int = 0,
    keep_factor: bool = False,
    settings: ControllerSettings = SETTINGS,
) -> ErrorCode:
    """Order a target (none: cancel) and write what came of it."""
    item = admin_messages.ReassignedPartition(topic=topic, partition=partition, replicas=replicas)
    request = admin_messages.AlterPartitionReassignmentsRequest(partitions=[item], keep_replication_factor=keep_factor)
    decision = alter_partition_reassignments(image, settings, request)
    write(image, decision.records)
    (result,) = decision.answer.partitions
    assert (result.topic, result.partition) == (topic, partition)
    assert bool(result.error_message) == bool(result.error_code)
    return ErrorCode(result.error_code)


def orders(image: MetadataImage) -> PartitionRegistration:
    return image.topics["orders"].partitions[0]


def cluster(
    partition: PartitionRegistration,
    fenced: Sequence[int] = (),
    min_insync_replicas: str = "1",
    unclean_leader_election_enable: str = "false",
) -> MetadataImage:
    image = image_of([1, 2, 3, 4, 5], fenced)
    add_topic(
        image,
        "orders",
        partition,
        min_insync_replicas=min_insync_replicas,
        unclean_leader_election_enable=unclean_leader_election_enable,
    )
    return image


@pytest.mark.parametrize(
    ("replicas", "topic", "partition", "error"),
    [
        ([4], "absent", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([4], "orders", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([4, 4], "orders", 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([4, 9], "orders", 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([-1, 2], "orders", 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 2], "orders", 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        ([], "orders", 0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    replicas: list[int], topic: str, partition: int, error: ErrorCode
) -> None:
    """Each refusal has Kafka's code and a sentence; another factor is refused only where it is to stay (KIP-860)."""
    image = cluster(partition_of([1, 2, 3]))
    before = orders(image)
    assert reassign(image, replicas, topic=topic, partition=partition, keep_factor=True) is error
    assert orders(image) == before


@pytest.mark.parametrize(
    ("replicas", "isr", "target", "listed", "adding", "removing"),
    [
        ([1, 2, 3], [1, 2, 3], [4, 5, 1], [4, 5, 1, 2, 3], [4, 5], [2, 3]),
        ([1, 2, 3], [1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4], [4], []),
        ([1, 2, 3], [1], [1, 2], [1, 2, 3], [], [3]),  # 2 stays and is not in sync: wait for it
    ],
)
def test_replicas_come_and_go_in_the_replica_list(
    replicas: list[int], isr: list[int], target: list[int], listed: list[int], adding: list[int], removing: list[int]
) -> None:
    """R-145: target first, then the removing ones; ISR, leader and leader epoch stay meanwhile."""
    image = cluster(partition_of(replicas, isr))
    assert reassign(image, target) is ErrorCode.NONE
    after = orders(image)
    assert (list(after.replicas), list(after.adding), list(after.removing)) == (listed, adding, removing)
    assert (list(after.isr), after.leader, after.leader_epoch, after.partition_epoch) == (isr, 1, 5, 11)


@pytest.mark.parametrize(
    ("target", "leader", "leader_epoch"),
    [([2, 1, 3], 1, 5), ([1, 3], 1, 6), ([3], 3, 6), ([1, 2, 3], 1, 5)],
)
def test_a_target_that_is_in_sync_already_is_reached_at_once(target: list[int], leader: int, leader_epoch: int) -> None:
    """CO-12, R-56: the leader epoch grows with the loss of a replica, not with another order."""
    image = cluster(partition_of([1, 2, 3]))
    assert reassign(image, target) is ErrorCode.NONE
    after = orders(image)
    assert (list(after.replicas), set(after.isr), after.leader) == (target, set(target), leader)
    assert (after.leader_epoch, after.reassigning) == (leader_epoch, False)


def test_fenced_brokers_may_be_targets() -> None:
    """As in Kafka: they get their replicas when they come back."""
    image = cluster(partition_of([1, 2]), fenced=[4])
    assert reassign(image, [1, 4]) is ErrorCode.NONE
    assert orders(image).adding == (4,)


def test_the_death_of_an_old_replica_can_complete_a_reassignment() -> None:
    """Every change looks whether the target is reached, a fencing as well: all that stay are in sync."""
    image = cluster(partition_of([1, 2], [1, 2]))
    assert reassign(image, [2]) is ErrorCode.NONE
    assert orders(image).replicas == (2,)
    image = cluster(replace(partition_of([2, 1], [1], 1), removing=(1,)))
    write(image, fence_broker(image, SETTINGS, 1).records)
    assert (orders(image).isr, orders(image).leader, orders(image).removing) == ((1,), NO_LEADER, (1,))


@pytest.mark.parametrize(
    ("isr", "min_isr", "error"),
    [
        ([1, 2, 4], 2, ErrorCode.NONE),
        ([1, 4], 1, ErrorCode.NONE),
        ([1, 4], 2, ErrorCode.INVALID_REPLICA_ASSIGNMENT),  # two are in sync, one would be
        ([1, 4], 3, ErrorCode.NONE),  # too few already
        ([4], 1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_cancellation_leaves_as_many_in_sync_as_writers_were_promised(
    isr: list[int], min_isr: int, error: ErrorCode
) -> None:
    """Dropping the replicas that were coming must not take the ISR below min.insync.replicas."""
    partition = replace(partition_of([1, 4, 2, 3], isr), adding=(4,), removing=(2, 3))
    image = cluster(partition, min_insync_replicas=str(min_isr))
    assert reassign(image, []) is error
    if error is ErrorCode.NONE:
        assert (orders(image).replicas, orders(image).reassigning) == ((1, 2, 3), False)
        assert 4 not in orders(image).isr
    else:
        assert orders(image) == partition


def test_another_target_in_flight_keeps_what_both_want() -> None:
    """Replacing a reassignment: 4 is still coming, 5 goes at once, 3 comes; the replicas of old are what they were."""
    image = cluster(replace(partition_of([4, 5, 1, 2], [1, 2]), adding=(4, 5), removing=(1, 2)))
    assert reassign(image, [4, 3]) is ErrorCode.NONE
    after = orders(image)
    assert (after.replicas, after.adding, after.removing) == ((4, 3, 1, 2), (3, 4), (1, 2))
    assert after.leader_epoch == 6
    assert reassign(image, []) is ErrorCode.NONE
    assert orders(image).replicas == (1, 2)


def test_eligible_leader_replicas_leave_with_the_replica() -> None:
    """KIP-966: who is no replica any more must not be elected, whatever it had."""
    current = replace(partition_of([4, 1, 2, 3], [1], eligible=[2, 3], last_known=[4]), adding=(4,), removing=(2, 3))
    image = cluster(current, min_insync_replicas="3")
    assert reassign(image, [1], settings=WITH_ELR) is ErrorCode.NONE
    after = orders(image)
    assert (after.replicas, after.isr, after.eligible, after.last_known_eligible) == ((1,), (1,), (), ())


def test_a_cancellation_may_leave_an_empty_isr_to_the_eligible_replicas() -> None:
    """KIP-966: they have everything that was committed, so going back to them is no unclean election."""
    current = replace(partition_of([4, 1, 2], [4], eligible=[1, 2]), adding=(4,), removing=(1, 2))
    image = cluster(current, min_insync_replicas="2")
    assert reassign(image, [], settings=WITH_ELR) is ErrorCode.NONE
    after = orders(image)
    assert (after.replicas, after.isr, after.leader, after.eligible, after.recovering) == ((1, 2), (1,), 1, (2,), False)


@pytest.mark.parametrize(
    "current",
    [
        replace(partition_of([3, 1, 2], [], NO_LEADER, eligible=[3]), adding=(3,), removing=(1, 2)),
        replace(partition_of([3, 1, 2], [], NO_LEADER, last_known=[3]), adding=(3,)),
    ],
    ids=["eligible", "last known leader"],
)
def test_the_last_one_that_may_lead_is_not_sent_away(current: PartitionRegistration) -> None:
    """With an empty ISR it alone has what was acknowledged, and nobody else would ever lead: refused, unless unclean
    elections are allowed (R-139, KIP-966; Kafka refuses to go back where that takes an unclean election)."""
    image = cluster(current, fenced=[3])
    assert reassign(image, [], settings=WITH_ELR) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(image, [1, 2], settings=WITH_ELR) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert orders(image) == current
    loose = cluster(current, fenced=[3], unclean_leader_election_enable="true")
    assert reassign(loose, [], settings=WITH_ELR) is ErrorCode.NONE
    assert (orders(loose).replicas, orders(loose).isr, orders(loose).recovering) == ((1, 2), (1,), True)


@pytest.mark.parametrize(
    "current",
    [
        replace(partition_of([3, 2, 1], [], NO_LEADER, eligible=[1], last_known=[3]), adding=(3,)),
        replace(partition_of([3, 2, 1], [], NO_LEADER, eligible=[3], last_known=[1]), adding=(3,)),
        replace(partition_of([3, 2, 1], [3], NO_LEADER, eligible=[1]), adding=(3,)),
        replace(partition_of([3, 2, 1], [3], 3, eligible=[1]), adding=(3,)),
    ],
    ids=["last known leader", "eligible", "last member", "leader"],
)
def test_nobody_is_sent_away_while_those_who_stay_are_dead(current: PartitionRegistration) -> None:
    """Who is eligible is not any more when it comes back from an unclean stop, and then nobody would be left to wait
    for: the partition would be without a leader for ever."""
    image = cluster(current, fenced=[1], min_insync_replicas="2")
    assert reassign(image, [], settings=WITH_ELR) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(image, [2, 1], settings=WITH_ELR) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert orders(image) == current


def test_a_cancellation_may_leave_an_empty_isr_to_the_last_known_leader() -> None:
    """It stays, and leads as soon as it is back (R-140)."""
    current = replace(partition_of([3, 1, 2], [], NO_LEADER, last_known=[1]), adding=(3,))
    image = cluster(current, fenced=[1])
    assert reassign(image, [], settings=WITH_ELR) is ErrorCode.NONE
    after = orders(image)
    assert (after.replicas, after.isr, after.leader, after.last_known_eligible) == ((1, 2), (), NO_LEADER, (1,))


def test_a_cancellation_to_fewer_replicas_than_the_minimum_needs_them_all() -> None:
    """R-145: min.insync.replicas asks for no more replicas than there are."""
    current = replace(partition_of([1, 2, 3], [1, 2, 3]), adding=(3,))
    image = cluster(current, min_insync_replicas="3")
    assert reassign(image, []) is ErrorCode.NONE
    assert (orders(image).replicas, orders(image).isr) == ((1, 2), (1, 2))


def test_an_unclean_cancellation_recovers() -> None:
    """R-133: where the topic allows it, an old replica becomes the whole ISR and has to recover."""
    current = replace(partition_of([4, 1, 2], [4]), adding=(4,), removing=(1, 2))
    image = cluster(current, fenced=[1], unclean_leader_election_enable="true")
    assert reassign(image, []) is ErrorCode.NONE
    after = orders(image)
    assert (after.replicas, after.isr, after.leader, after.recovering) == ((1, 2), (2,), 2, True)


@pytest.mark.parametrize("settings", [SETTINGS, WITH_ELR], ids=["without eligible replicas", "with them"])
@pytest.mark.parametrize("target", [[], [1, 2]], ids=["cancelled", "another target"])
def test_no_dead_replica_becomes_the_isr_without_an_election(target: list[int], settings: ControllerSettings) -> None:
    """R-133: it would lead as a clean leader when it comes back, without what 4 committed. Once one of those that stay
    is active the same request elects it, uncleanly."""
    isr, last_known = ([4], []) if settings is SETTINGS else ([], [4])
    current = replace(partition_of([4, 1, 2], isr, NO_LEADER, last_known=last_known), adding=(4,), removing=(1, 2))
    image = cluster(current, fenced=[1, 2, 4], unclean_leader_election_enable="true")
    assert reassign(image, target, settings=settings) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert orders(image) == current
    image.brokers[2] = replace(image.brokers[2], fenced=False)
    assert reassign(image, target, settings=settings) is ErrorCode.NONE
    assert (orders(image).leader, orders(image).isr, orders(image).recovering) == (2, (2,), True)


def test_each_partition_is_judged_by_itself() -> None:
    """One partition's refusal does not keep another from its new replicas; one that is named twice gets neither."""
    image = image_of([1, 2, 3])
    add_topic(image, "orders", partition_of([1]), partition_of([1]), partition_of([1]))
    items = [
        admin_messages.ReassignedPartition(topic="orders", partition=partition, replicas=replicas)
        for partition, replicas in ((0, [2]), (1, [9]), (2, [2]), (2, [3]))
    ]
    request = admin_messages.AlterPartitionReassignmentsRequest(partitions=items)
    decision = alter_partition_reassignments(image, SETTINGS, request)
    write(image, decision.records)
    codes = [ErrorCode(result.error_code) for result in decision.answer.partitions]
    invalid = ErrorCode.INVALID_REQUEST
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REPLICA_ASSIGNMENT, invalid, invalid]
    assert [image.topics["orders"].partitions[i].reassigning for i in range(3)] == [True, False, False]


def test_reassignments_of_one_request_fit_into_a_batch_that_followers_can_fetch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those beyond it are refused one by one; the list of all replicas is written with who comes and who goes."""
    most_bytes = 200_000
    monkeypatch.setattr(reassignment, "MAX_BATCH_BYTES", most_bytes)
    brokers, count = range(2_000_000_000, 2_000_000_100), 250  # ids of five bytes each
    image = image_of([1])
    image.brokers = {broker_id: replace(image.brokers[1], broker_id=broker_id) for broker_id in brokers}
    add_topic(image, "orders", *[partition_of([1])] * count)
    items = [
        admin_messages.ReassignedPartition(topic="orders", partition=partition, replicas=brokers)
        for partition in range(count)
    ]
    request = admin_messages.AlterPartitionReassignmentsRequest(partitions=items)
    decision = alter_partition_reassignments(image, SETTINGS, request)
    codes = [result.error_code for result in decision.answer.partitions]
    written = len(decision.records)
    assert codes == [ErrorCode.NONE] * written + [ErrorCode.POLICY_VIOLATION] * (count - written)
    assert 0.9 * most_bytes < batch_bytes(decision.records) <= most_bytes


def test_the_list_has_what_is_on_its_way() -> None:
    """All of it, or of the partitions that are named; what is not moving is not in it."""
    image = image_of([1, 2, 3])
    moving = replace(partition_of([2, 1], [1]), adding=(2,), removing=(1,))
    add_topic(image, "orders", partition_of([1]), moving, moving)
    everything = list_partition_reassignments(image, admin_messages.ListPartitionReassignmentsRequest())
    assert [found.partition for found in everything.partitions] == [1, 2]
    found = everything.partitions[0]
    assert (found.topic, list(found.replicas)) == ("orders", [2, 1])
    assert (list(found.adding_replicas), list(found.removing_replicas)) == ([2], [1])
    named = [admin_messages.ElectPartition(topic="orders", partition=partition) for partition in (0, 2, 9)]
    request = admin_messages.ListPartitionReassignmentsRequest(partitions=named)
    assert [found.partition for found in list_partition_reassignments(image, request).partitions] == [2]
