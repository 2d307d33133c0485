"""Tables of elections: who leads, who is in the ISR, which epochs grow (R-130 to R-141)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from odradek_broker.core.controller.balance import MAX_ELECTIONS_PER_BATCH, balance_leaders, elect_leaders
from odradek_broker.core.controller.elections import ElectionKind, PartitionTarget, Reassignment, change_partition
from odradek_broker.core.controller.partitions import elect_leaderless, remove_broker
from odradek_broker.core.controller.registration import fence_broker
from odradek_broker.core.metadata.image import NO_LEADER, MetadataImage, PartitionRegistration
from odradek_broker.core.metadata.records import apply
from odradek_proto.errors import ErrorCode
from odradek_proto.v1 import admin_messages
from odradek_proto.values import replace

from tests.broker.controller_images import ORDERS_ID, SETTINGS, add_topic, image_of, partition_of, write

UNCLEAN = {"unclean_leader_election_enable": "true"}


def change(
    current: PartitionRegistration,
    *,
    alive: Sequence[int],
    election: ElectionKind = ElectionKind.ONLINE,
    isr: Sequence[int] | None = None,
    replicas: Sequence[int] | None = None,
    elr: bool = False,
    min_isr: int = 1,
    unclean_shutdown: Sequence[int] = (),
) -> PartitionRegistration | None:
    """The partition after the change; None when there is none."""
    target = PartitionTarget(
        acceptable=lambda broker_id: broker_id in alive,
        election=election,
        isr=None if isr is None else tuple(isr),
        replicas=None if replicas is None else tuple(replicas),
        elr_enable=elr,
        min_insync_replicas=min_isr,
        unclean_shutdown=unclean_shutdown,
    )
    record = change_partition(ORDERS_ID, 0, current, target)
    if record is None:
        return None
    image = image_of([])
    topic = add_topic(image, "orders", current)
    apply(image, record, 0, 0)
    changed = topic.partitions[0]
    assert changed.partition_epoch == current.partition_epoch + 1
    assert changed.leader == NO_LEADER or changed.leader in changed.isr
    return changed


@pytest.mark.parametrize(
    ("election", "replicas", "isr", "leader", "alive", "elected", "unclean"),
    [
        (
            ElectionKind.PREFERRED,
            [2, 1, 3],
            [1, 3],
            1,
            [1, 2, 3],
            1,
            False,
        ),  # the first is not in sync: who leads, leads
        (ElectionKind.PREFERRED, [2, 1, 3], [1, 2, 3], 1, [1, 2, 3], 2, False),
        (ElectionKind.PREFERRED, [2, 1, 3], [1, 2, 3], 1, [1, 3], 1, False),
        (ElectionKind.PREFERRED, [2, 1, 3], [3], NO_LEADER, [1, 2, 3], 3, False),
        (ElectionKind.PREFERRED, [2, 1, 3], [3], NO_LEADER, [1, 2], NO_LEADER, False),  # CO-05: never unclean
        (ElectionKind.ONLINE, [2, 1, 3], [1, 3], 1, [1, 2, 3], 1, False),
        (ElectionKind.ONLINE, [2, 1, 3], [1, 3], 1, [2, 3], 3, False),
        (ElectionKind.ONLINE, [2, 1, 3], [3, 1], NO_LEADER, [1, 2, 3], 1, False),  # list order, not ISR order
        (ElectionKind.ONLINE, [2, 1, 3], [3], 3, [1, 2], NO_LEADER, False),
        (ElectionKind.UNCLEAN, [2, 1, 3], [1, 3], 1, [1, 2, 3], 1, False),
        (ElectionKind.UNCLEAN, [2, 1, 3], [3], 3, [1, 2, 3], 3, False),  # clean comes before unclean
        (ElectionKind.UNCLEAN, [2, 1, 3], [3], 3, [1, 2], 2, True),
        (ElectionKind.UNCLEAN, [2, 1, 3], [3], 3, [1], 1, True),
        (ElectionKind.UNCLEAN, [2, 1, 3], [3], 3, [], NO_LEADER, False),
    ],
)
def test_who_is_elected(
    election: ElectionKind,
    replicas: list[int],
    isr: list[int],
    leader: int,
    alive: list[int],
    elected: int,
    unclean: bool,
) -> None:
    """CO-10, R-132 and R-133: preferred, online and unclean choices, in the order of the replica list."""
    before = partition_of(replicas, isr, leader)
    after = change(before, alive=alive, election=election)
    if elected == leader:
        assert after is None
        return
    assert after is not None
    assert (after.leader, after.leader_epoch) == (elected, before.leader_epoch + 1)
    assert after.isr == ((elected,) if unclean else tuple(isr))
    assert after.recovering is unclean


def test_the_leader_epoch_stays_when_the_isr_shrinks() -> None:
    """CO-11, R-56: only the partition epoch grows."""
    after = change(partition_of([1, 2, 3]), alive=[1, 2, 3], isr=[1, 2])
    assert after is not None
    assert (after.isr, after.leader, after.leader_epoch) == ((1, 2), 1, 5)


@pytest.mark.parametrize(
    ("replicas", "bumps"), [([1, 2, 4], True), ([1, 2], True), ([1, 2, 3, 4], False), ([3, 2, 1], False)]
)
def test_the_leader_epoch_grows_when_a_replica_is_taken_away(replicas: list[int], bumps: bool) -> None:
    """CO-12, R-56: also when the leader stays; not when one is only added, or the order changes."""
    after = change(partition_of([1, 2, 3]), alive=[1, 2, 3, 4], replicas=replicas, isr=[1, 2])
    assert after is not None
    assert after.leader == 1
    assert after.leader_epoch == 5 + bumps


def test_nothing_to_change_makes_no_record() -> None:
    """R-55: no record, no new partition epoch."""
    assert change(partition_of([1, 2, 3]), alive=[1, 2, 3], isr=[1, 2, 3]) is None


def test_the_last_member_stays_in_the_isr_without_leading() -> None:
    """R-135: without eligible leader replicas the ISR never becomes empty."""
    after = change(partition_of([1, 2], [1]), alive=[2], isr=[])
    assert after is not None
    assert (after.isr, after.leader, after.leader_epoch) == ((1,), NO_LEADER, 6)


def test_fencing_several_brokers_one_after_the_other() -> None:
    """CO-06, R-130, R-134: each fencing sees what the one before left."""
    image = image_of([0, 1, 2, 3, 4])
    topic = add_topic(image, "orders", partition_of([1, 2, 3]), partition_of([2, 3, 4]), partition_of([0, 2, 1]))
    for broker_id in (2, 3):
        write(image, fence_broker(image, SETTINGS, broker_id).records)
    assert [topic.partitions[i].isr for i in range(3)] == [(1,), (4,), (0, 1)]
    assert [topic.partitions[i].leader for i in range(3)] == [1, 4, 0]
    assert image.brokers[2].fenced
    assert image.brokers[3].fenced


def test_a_broker_that_comes_back_leads_where_nobody_does() -> None:
    """R-136: it is not put into any ISR by that."""
    image = image_of([1, 2], fenced=[1])
    topic = add_topic(image, "orders", partition_of([1, 2], [1], NO_LEADER), partition_of([1, 2], [2]))
    write(image, elect_leaderless(image, SETTINGS, unfenced=1))
    assert (topic.partitions[0].leader, topic.partitions[0].isr) == (1, (1,))
    assert (topic.partitions[1].leader, topic.partitions[1].isr) == (2, (2,))


def test_unclean_election_at_fencing_is_for_topics_that_allow_it() -> None:
    """R-137: the setting of the topic decides, and the ISR is the new leader alone."""
    image = image_of([1, 2])
    allowed = add_topic(image, "loose", partition_of([1, 2], [1]), topic_id=b"1" * 16, **UNCLEAN)
    strict = add_topic(image, "strict", partition_of([1, 2], [1]), topic_id=b"2" * 16)
    write(image, remove_broker(image, SETTINGS, 1))
    assert (allowed.partitions[0].leader, allowed.partitions[0].isr) == (2, (2,))
    assert allowed.partitions[0].recovering
    assert (strict.partitions[0].leader, strict.partitions[0].isr) == (NO_LEADER, (1,))


# --- Eligible leader replicas (KIP-966), which are on unless odradek.elr.enable says otherwise


def test_shrinking_below_min_isr_makes_the_others_eligible() -> None:
    """CO-13, R-139: replicas 1 to 4, min.insync.replicas 3, ISR {1, 2}: 3 and 4 may still lead."""
    after = change(partition_of([1, 2, 3, 4]), alive=[1, 2, 3, 4], isr=[1, 2], elr=True, min_isr=3)
    assert after is not None
    assert (after.isr, after.eligible, after.last_known_eligible) == ((1, 2), (3, 4), ())


def test_growing_to_min_isr_clears_the_eligible() -> None:
    """CO-14: nobody outside of the ISR can be needed any more."""
    before = partition_of([1, 2, 3, 4], [1, 2], eligible=[3], last_known=[4])
    after = change(before, alive=[1, 2, 3, 4], isr=[1, 2, 3], elr=True, min_isr=3)
    assert after is not None
    assert (after.isr, after.eligible, after.last_known_eligible) == ((1, 2, 3), (), ())


def test_an_eligible_replica_is_elected_when_the_isr_is_gone() -> None:
    """CO-15, R-131: ISR {1}, eligible {3}, 1 offline: 3 leads alone and 1 becomes eligible."""
    before = partition_of([1, 2, 3, 4], [1], eligible=[3], last_known=[2])
    after = change(before, alive=[2, 3, 4], isr=[], elr=True, min_isr=3)
    assert after is not None
    assert (after.leader, after.isr, after.eligible, after.last_known_eligible) == (3, (3,), (1,), ())
    assert not after.recovering


def test_with_eligible_replicas_the_isr_may_become_empty() -> None:
    """CO-16: all offline: nobody leads, and whoever returns first may."""
    before = partition_of([1, 2, 3, 4], [1, 2], eligible=[3, 4])
    after = change(before, alive=[], isr=[], elr=True, min_isr=3)
    assert after is not None
    assert (after.isr, after.eligible, after.leader) == ((), (1, 2, 3, 4), NO_LEADER)


def test_an_unclean_member_leaves_the_eligible() -> None:
    """CO-07, R-141: who came back without a clean shutdown may have lost records."""
    before = partition_of([1, 2, 3, 4], [1], eligible=[2, 3])
    after = change(before, alive=[1, 2, 3, 4], isr=[1], elr=True, min_isr=3, unclean_shutdown=[3])
    assert after is not None
    assert (after.eligible, after.last_known_eligible) == ((2,), ())


def test_who_led_last_is_remembered_when_the_isr_becomes_empty() -> None:
    """R-140: the leader itself, and not whoever is dropped after it."""
    after = change(partition_of([1, 2, 3], [2], eligible=[1]), alive=[], isr=[], elr=True, min_isr=2)
    assert after is not None
    assert (after.leader, after.eligible, after.last_known_eligible) == (NO_LEADER, (1, 2), (2,))
    for dropped, left in ((2, (1,)), (1, ())):
        after = change(after, alive=[], isr=[], elr=True, min_isr=2, unclean_shutdown=[dropped])
        assert after is not None
        assert (after.eligible, after.last_known_eligible) == (left, (2,))


@pytest.mark.parametrize(("alive", "leader"), [([1, 2, 3], 3), ([1, 2], NO_LEADER)], ids=["alive", "away"])
def test_only_the_last_known_leader_leads_when_nobody_is_eligible(alive: list[int], leader: int) -> None:
    """R-140: without being asked to, marked as unclean; nobody else, since it may have what they lack."""
    before = partition_of([1, 2, 3], [], NO_LEADER, last_known=[3])
    after = change(before, alive=alive, elr=True, min_isr=2)
    if leader == NO_LEADER:
        assert after is None
        return
    assert after is not None
    assert (after.leader, after.isr, after.last_known_eligible, after.recovering) == (3, (3,), (), True)


def test_a_preferred_election_does_not_elect_the_last_known_leader() -> None:
    """R-137: it never elects uncleanly."""
    before = partition_of([1, 2, 3], [], NO_LEADER, last_known=[3])
    assert change(before, alive=[1, 2, 3], election=ElectionKind.PREFERRED, elr=True, min_isr=2) is None


def test_the_last_known_leader_waits_for_who_is_eligible() -> None:
    """R-131, R-140: an eligible replica has everything for certain, so the partition waits for it, unless an unclean
    election is to be had at any price."""
    before = partition_of([1, 2, 3], [], NO_LEADER, eligible=[2], last_known=[3])
    assert change(before, alive=[1, 3], elr=True, min_isr=2) is None
    after = change(before, alive=[1, 3], election=ElectionKind.UNCLEAN, elr=True, min_isr=2)
    assert after is not None
    assert (after.leader, after.isr, after.eligible) == (3, (3,), ())


def test_without_a_leader_by_then_the_last_member_is_remembered() -> None:
    """R-135, R-140: it was waited for when eligible leader replicas were turned on, and came back uncleanly."""
    before = partition_of([1, 2, 3], [2], NO_LEADER)
    after = change(before, alive=[1], isr=[], elr=True, min_isr=2, unclean_shutdown=[2])
    assert after is not None
    assert (after.isr, after.eligible, after.last_known_eligible) == ((), (), (2,))


def test_one_in_sync_where_one_is_enough_leaves_nobody_eligible() -> None:
    """R-139, judged after the election: that leader may commit alone, and the others would lack it."""
    before = partition_of([1, 2, 3], [], NO_LEADER, eligible=[2, 3], last_known=[3])
    after = change(before, alive=[2], elr=True, min_isr=1)
    assert after is not None
    assert (after.leader, after.isr, after.eligible, after.last_known_eligible) == (2, (2,), (), ())


def test_an_empty_isr_is_still_filled_when_eligible_leader_replicas_are_off() -> None:
    """R-131: another controller had them on, and those whom it remembered are the only ones that may lead."""
    before = partition_of([1, 2, 3], [], NO_LEADER, eligible=[2, 3], last_known=[3])
    after = change(before, alive=[1, 2], elr=False, min_isr=2)
    assert after is not None
    assert (after.leader, after.isr, after.eligible) == (2, (2,), (3,))
    then = change(after, alive=[1, 2, 3], isr=[2, 3], elr=False, min_isr=2)
    assert then is not None
    assert (then.isr, then.eligible) == ((2, 3), ())
    lone = change(partition_of([1, 2, 3], [], NO_LEADER, last_known=[3]), alive=[3], elr=False, min_isr=2)
    assert lone is not None
    assert (lone.leader, lone.isr) == (3, (3,))


def test_the_last_known_leader_comes_before_others_in_an_unclean_election() -> None:
    """R-132, R-140: with nobody in sync and nobody eligible."""
    before = partition_of([1, 2, 3], [], NO_LEADER, last_known=[3])
    after = change(before, alive=[1, 3], election=ElectionKind.UNCLEAN, elr=True, min_isr=2)
    assert after is not None
    assert (after.leader, after.isr, after.recovering) == (3, (3,), True)
    other = change(before, alive=[1], election=ElectionKind.UNCLEAN, elr=True, min_isr=2)
    assert other is not None
    assert other.leader == 1


# --- Who is no replica any more, and what the record says of the election


@pytest.mark.parametrize(
    "before",
    [partition_of([1, 2, 3], [], NO_LEADER, last_known=[3]), partition_of([1, 2, 3], [3], 3)],
    ids=["remembered", "leads now"],
)
def test_a_broker_that_is_no_replica_any_more_is_not_the_last_known_leader(before: PartitionRegistration) -> None:
    """R-140: it is alive, and has nothing to do with the partition from here on."""
    after = change(before, alive=[3], isr=[], replicas=[1, 2], elr=True, min_isr=2)
    assert after is not None
    assert (after.leader, after.isr, after.last_known_eligible) == (NO_LEADER, (), ())


def test_the_last_member_of_an_isr_stays_only_as_a_replica() -> None:
    """R-135: who is taken off the list is not waited for either."""
    after = change(partition_of([1, 2, 3], [3], 3), alive=[], isr=[], replicas=[1, 2])
    assert after is not None
    assert (after.leader, after.isr) == (NO_LEADER, ())


def test_an_election_can_complete_a_reassignment() -> None:
    """R-145: the eligible replica that leads is all that the target wants, so the other one leaves at once."""
    before = replace(partition_of([2, 1], [], NO_LEADER, eligible=[2]), removing=(1,))
    after = change(before, alive=[2], elr=True, min_isr=2)
    assert after is not None
    assert (after.leader, after.replicas, after.isr, after.removing) == (2, (2,), (2,), ())


@pytest.mark.parametrize(
    ("current", "target", "unclean"),
    [
        (partition_of([1, 2], [1]), PartitionTarget(acceptable=lambda i: i == 2, election=ElectionKind.UNCLEAN), True),
        (
            partition_of([1, 2], [], NO_LEADER, last_known=[2]),
            PartitionTarget(acceptable=lambda i: i == 2, elr_enable=True),
            True,
        ),
        (
            partition_of([1, 2], [1]),
            PartitionTarget(lambda i: i == 2, replicas=(2,), isr=(2,), reassignment=Reassignment(), unclean=True),
            True,
        ),
        (partition_of([1, 2]), PartitionTarget(acceptable=lambda i: i == 2, election=ElectionKind.UNCLEAN), False),
    ],
    ids=["unclean", "last known leader", "reassigned to nobody in sync", "clean"],
)
def test_the_record_says_whether_the_election_was_unclean(
    current: PartitionRegistration, target: PartitionTarget, unclean: bool
) -> None:
    """R-137, R-140: an election that may have lost records is counted and told; a clean one is not."""
    record = change_partition(ORDERS_ID, 0, current, target)
    assert record is not None
    assert (record.leader, record.unclean) == (2, unclean)


# --- Elections on demand and the balance of leaders (R-137, R-138) ---------------------------------------------------


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
