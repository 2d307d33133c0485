"""How the ISR changes: proposals, every answer of the controller, and metadata that overtake both (A5)."""

from __future__ import annotations

import pytest
from odradek_broker.core.partition.isr_proposal import RETRY_BACKOFF_MS
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.core.partition.messages import (
    IsrAnswer,
    IsrChanged,
    IsrMember,
    IsrProposal,
    ProposeIsr,
    Transition,
    TruncationMode,
)
from odradek_chaos.stage.metadata import Brokers
from odradek_proto.errors import ErrorCode

from tests.scripts.roles import (
    LAG_MS,
    accepted,
    append,
    fetch,
    leader,
    of_kind,
    position,
    proposals,
    registration,
    replica_log,
)

OUTSIDE = registration(isr=[0, 1])
STAYS_PENDING = [
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NEW_LEADER_ELECTED,
]
IS_SENT_AGAIN = [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT]


def proposing(brokers: Brokers | None = None) -> tuple[LeaderPartition, IsrProposal]:
    """A leader with ISR {0, 1} that has just proposed broker 2."""
    partition = leader(metadata=OUTSIDE, brokers=brokers)
    _, effects = partition.fetch_by_follower(fetch(2, 0), 0)
    (order,) = of_kind(effects, ProposeIsr)
    return partition, order.proposal


def test_proposal_counts_from_its_creation() -> None:
    """The committed ISR stays, the maximal one grows at once, and the HW waits for the new member. (PA-07, R-4)"""
    partition, _ = proposing()
    append(partition, 3)
    partition.fetch_by_follower(fetch(1, 3), 0)
    assert (partition.isr, partition.maximal_isr, partition.log.high_watermark) == ((0, 1), (0, 1, 2), 0)
    partition.fetch_by_follower(fetch(2, 3), 0)
    assert partition.log.high_watermark == 3


def test_proposed_member_counts_even_when_it_is_fenced_meanwhile() -> None:
    """The proposal may be applied before the fencing, so the high watermark waits until its fate is known (R-46)."""
    brokers = Brokers(range(3))
    partition, proposal = proposing(brokers)
    brokers.change(2, fenced=True)
    append(partition, 3)
    partition.fetch_by_follower(fetch(1, 3), 0)
    partition.on_brokers_changed(0)
    assert partition.log.high_watermark == 0
    partition.on_isr_answer(proposal, IsrAnswer(ErrorCode.INELIGIBLE_REPLICA), 0)
    assert partition.log.high_watermark == 3


def test_proposal_names_epochs_and_incarnations() -> None:
    """Leader and partition epoch, and per member the broker epoch: the own, the last fetch's, or none (R-49)."""
    partition, proposal = proposing()
    assert (proposal.leader_epoch, proposal.partition_epoch, proposal.recovering) == (0, 0, False)
    assert proposal.new_isr == (IsrMember(0, 100), IsrMember(1, -1), IsrMember(2, 102))
    assert (proposal.topic_partition, proposal.topic_id) == (partition.log.topic_partition, partition.log.topic_id)


def test_evidence_comes_before_the_act() -> None:
    """The transition that announces a proposal stands before the proposal."""
    partition = leader(metadata=OUTSIDE)
    _, effects = partition.fetch_by_follower(fetch(2, 0), 0)
    announced, act = effects
    assert isinstance(announced, Transition)
    assert (announced.event, announced.rule, announced.facts["to"]) == ("isr_proposed", "R-45", (0, 1, 2))
    assert isinstance(act, ProposeIsr)


@pytest.mark.parametrize("partition_epoch", [1, 0])
def test_success_takes_over_the_answer(partition_epoch: int) -> None:
    """ISR and partition epoch of the answer hold from now on; an equal one means that nothing was to change (R-51)."""
    partition, proposal = proposing()
    effects = partition.on_isr_answer(proposal, accepted(proposal, partition_epoch=partition_epoch), 0)
    assert (partition.isr, partition.maximal_isr) == ((0, 1, 2), (0, 1, 2))
    assert partition.partition_epoch == partition_epoch
    assert of_kind(effects, IsrChanged) == [IsrChanged((0, 1, 2))]


@pytest.mark.parametrize("epochs", [{"leader_epoch": 1}, {"partition_epoch": -1}])
def test_success_for_other_epochs_is_ignored(epochs: dict[str, int]) -> None:
    """An answer about another leader epoch, or an older partition epoch, changes nothing (R-51)."""
    partition, proposal = proposing()
    assert partition.on_isr_answer(proposal, accepted(proposal, **epochs), 0) == []
    assert (partition.isr, partition.maximal_isr) == ((0, 1), (0, 1, 2))


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_proof_takes_a_proposal_back(error: ErrorCode) -> None:
    """Errors that prove that nothing was changed lead back to the committed ISR; the next fetch tries anew. (PA-17)"""
    partition, proposal = proposing()
    partition.on_isr_answer(proposal, IsrAnswer(error), 0)
    assert partition.maximal_isr == (0, 1)
    assert proposals(partition.fetch_by_follower(fetch(2, 0), 0)[1]) == [(0, 1, 2)]


@pytest.mark.parametrize("error", STAYS_PENDING)
def test_doubt_leaves_a_proposal_pending(error: ErrorCode) -> None:
    """It may have been applied: the maximal ISR keeps the member, and nothing is sent. (PA-08, PA-15, PA-16)"""
    partition, proposal = proposing()
    partition.on_isr_answer(proposal, IsrAnswer(error), 0)
    assert (partition.isr, partition.maximal_isr) == ((0, 1), (0, 1, 2))
    assert proposals(partition.on_time(10 * LAG_MS)) == []
    assert proposals(partition.fetch_by_follower(fetch(2, 0), 10 * LAG_MS)[1]) == []
    partition.update(registration(isr=[0, 1], partition_epoch=1), 0)
    assert partition.isr == (0, 1)


@pytest.mark.parametrize("error", IS_SENT_AGAIN)
def test_other_errors_send_the_same_again(error: ErrorCode) -> None:
    """The very same proposal, after a short wait. (PA-09)"""
    partition, proposal = proposing()
    partition.on_isr_answer(proposal, IsrAnswer(error), 1_000)
    assert partition.next_deadline_ms() == 1_000 + RETRY_BACKOFF_MS
    assert partition.on_time(1_000 + RETRY_BACKOFF_MS - 1) == []
    assert partition.on_time(1_000 + RETRY_BACKOFF_MS) == [ProposeIsr(proposal)]
    assert partition.on_time(1_000 + 2 * RETRY_BACKOFF_MS) == []
    assert partition.maximal_isr == (0, 1, 2)


def test_one_change_at_a_time() -> None:
    """While a proposal is out, neither a fetch nor the clock makes another. (PA-13)"""
    partition = leader(metadata=registration(replicas=[0, 1, 2, 3], isr=[0, 1]))
    assert proposals(partition.fetch_by_follower(fetch(2, 0), 0)[1]) == [(0, 1, 2)]
    assert proposals(partition.fetch_by_follower(fetch(3, 0), 0)[1]) == []
    append(partition)
    assert proposals(partition.on_time(3 * LAG_MS)) == []


def test_next_waiting_replica_follows_a_confirmed_one() -> None:
    """A replica whose fetch waits at the end is proposed as soon as the change before it is confirmed (R-45)."""
    partition = leader(metadata=registration(replicas=[0, 1, 2, 3], isr=[0, 1]))
    _, effects = partition.fetch_by_follower(fetch(2, 0), 0)
    partition.fetch_by_follower(fetch(3, 0), 0)
    (order,) = of_kind(effects, ProposeIsr)
    assert proposals(partition.on_isr_answer(order.proposal, accepted(order.proposal), 0)) == [(0, 1, 2, 3)]


def test_next_waiting_replica_follows_a_change_that_metadata_told_first() -> None:
    """The metadata may come before the answer: whoever waited for the change is proposed with the latter (R-45).

    At the end of a log that nobody writes to, its fetch waits and is not repeated.
    """
    partition = leader(metadata=registration(replicas=[0, 1, 2, 3], isr=[0, 1]))
    _, effects = partition.fetch_by_follower(fetch(2, 0), 0)
    partition.fetch_by_follower(fetch(3, 0), 0)
    (order,) = of_kind(effects, ProposeIsr)
    told_first = partition.update(registration(replicas=[0, 1, 2, 3], isr=[0, 1, 2], partition_epoch=1), 0)
    assert proposals(told_first) == []
    assert proposals(partition.on_isr_answer(order.proposal, accepted(order.proposal), 0)) == [(0, 1, 2, 3)]


def test_metadata_overtake_a_proposal() -> None:
    """Metadata end a pending change; a new one waits for the old answer, which itself changes nothing. (PA-14)"""
    partition, proposal = proposing()
    partition.update(registration(isr=[0, 1], partition_epoch=1), 0)
    assert partition.maximal_isr == (0, 1)
    assert proposals(partition.fetch_by_follower(fetch(2, 0), 0)[1]) == []
    assert proposals(partition.on_isr_answer(proposal, accepted(proposal), 0)) == [(0, 1, 2)]
    assert partition.isr == (0, 1)


def test_same_metadata_again_do_not_end_a_proposal() -> None:
    """The proposal may still be applied; forgetting its new member would commit what that one lacks (R-53)."""
    partition, proposal = proposing()
    partition.update(OUTSIDE, 0)
    append(partition, 2)
    partition.fetch_by_follower(fetch(1, 2), 0)
    assert (partition.maximal_isr, partition.log.high_watermark) == ((0, 1, 2), 0)
    partition.on_isr_answer(proposal, accepted(proposal), 0)
    assert partition.isr == (0, 1, 2)


def test_late_check_keeps_its_rhythm() -> None:
    """A late check does not push the next ones back, so a timer with the same period meets each (R-43)."""
    partition = leader()
    half = LAG_MS // 2
    partition.on_time(half + 3)
    assert partition.next_deadline_ms() == 2 * half
    partition.on_time(5 * half + 1)
    assert partition.next_deadline_ms() == 6 * half


def test_shrink_takes_all_laggards_at_once_and_never_the_leader() -> None:
    """One proposal without every member that fell behind; the leader stays. (PA-10)"""
    partition = leader()
    append(partition)
    assert proposals(partition.on_time(LAG_MS // 2)) == []
    assert partition.next_deadline_ms() == LAG_MS // 2 * 2
    assert proposals(partition.on_time(LAG_MS + 1)) == [(0,)]


def test_a_member_that_is_no_replica_is_proposed_to_leave() -> None:
    """Of whom nothing can be known nobody knows that it is in sync (R-43)."""
    partition = leader(metadata=registration(replicas=[0, 1], isr=[0, 1, 2]))
    partition.fetch_by_follower(fetch(1, 0), 0)
    assert proposals(partition.on_time(LAG_MS // 2)) == [(0, 1)]


def test_follower_must_reach_the_epoch_start() -> None:
    """At or above the high watermark is not enough; it takes the start of the leader's epoch. (PA-04)"""
    partition = leader(replica_log(10, high_watermark=4), metadata=OUTSIDE)
    assert proposals(partition.fetch_by_follower(fetch(2, 9), 0)[1]) == []
    assert proposals(partition.fetch_by_follower(fetch(2, 10), 0)[1]) == [(0, 1, 2)]


def test_oldest_protocol_expands_at_the_high_watermark() -> None:
    """L-6: the epoch start is not looked at."""
    log = replica_log(10, high_watermark=4)
    partition = leader(log, metadata=OUTSIDE, mode=TruncationMode.HIGH_WATERMARK)
    assert proposals(partition.fetch_by_follower(fetch(2, 4, epoch=-1), 0)[1]) == [(0, 1, 2)]


@pytest.mark.parametrize(
    ("fenced", "stopping", "epoch", "joins"),
    [
        (True, False, 102, False),
        (False, True, 102, False),
        (False, False, 101, False),  # the fetch is of a later incarnation than our metadata know
        (False, False, 102, True),
    ],
)
def test_only_eligible_replicas_are_proposed(fenced: bool, stopping: bool, epoch: int, joins: bool) -> None:
    """Fenced, stopping, or of another incarnation: no proposal. (PA-17, PA-18, R-143, KAFKA-13916, KAFKA-14140)"""
    brokers = Brokers(range(3))
    brokers.change(2, fenced=fenced, stopping=stopping, epoch=epoch)
    partition = leader(metadata=OUTSIDE, brokers=brokers)
    assert proposals(partition.fetch_by_follower(fetch(2, 0), 0)[1]) == ([(0, 1, 2)] if joins else [])


def test_unknown_broker_epoch_may_join() -> None:
    """A fetch without a broker epoch passes, as from old brokers. (PA-18)"""
    partition = leader(metadata=OUTSIDE)
    assert proposals(partition.fetch_by_follower(fetch(2, 0, broker_epoch=-1), 0)[1]) == [(0, 1, 2)]


def test_silent_replica_is_not_proposed_without_a_fetch() -> None:
    """Who was removed for its silence and is behind must fetch before it is proposed."""
    partition = leader()
    append(partition)
    (order,) = of_kind(partition.on_time(3 * LAG_MS), ProposeIsr)
    effects = partition.on_isr_answer(order.proposal, accepted(order.proposal), 3 * LAG_MS)
    assert proposals(effects) == []
    assert proposals(partition.on_time(6 * LAG_MS)) == []


def test_replica_of_an_old_incarnation_is_not_proposed_again() -> None:
    """A position that a process told before its restart is no ticket for the one after it (KAFKA-14139)."""
    brokers = Brokers(range(3))
    partition = leader(metadata=OUTSIDE, brokers=brokers)
    brokers.change(2, fenced=True)
    partition.fetch_by_follower(fetch(2, 0), 0)
    brokers.change(2, epoch=300, fenced=False)
    assert proposals(partition.on_brokers_changed(0)) == []
    assert proposals(partition.fetch_by_follower(fetch(2, 0, broker_epoch=300), 0)[1]) == [(0, 1, 2)]


def test_a_waiting_replica_is_proposed_again_when_metadata_end_a_doubt() -> None:
    """Its fetch waits at the end of the log and is not repeated: the metadata themselves are the occasion (R-45)."""
    partition, proposal = proposing()
    partition.on_isr_answer(proposal, IsrAnswer(ErrorCode.INVALID_UPDATE_VERSION), 0)
    assert proposals(partition.update(registration(isr=[0, 1], partition_epoch=1), 0)) == [(0, 1, 2)]


def test_a_waiting_replica_that_was_refused_is_proposed_again_in_time() -> None:
    """The controller may have thought it fenced; with the next look at the ISR it is tried anew (R-45)."""
    partition, proposal = proposing()
    partition.on_isr_answer(proposal, IsrAnswer(ErrorCode.INELIGIBLE_REPLICA), 0)
    assert proposals(partition.on_time(LAG_MS // 2 - 1)) == []
    assert proposals(partition.on_time(LAG_MS // 2)) == [(0, 1, 2)]


def test_a_proposal_that_was_sent_again_waits_for_its_answer_again() -> None:
    """The second sending is on its way like the first one: no other change before its answer (R-48)."""
    partition, proposal = proposing()
    partition.on_isr_answer(proposal, IsrAnswer(ErrorCode.REQUEST_TIMED_OUT), 0)
    assert partition.on_time(RETRY_BACKOFF_MS) == [ProposeIsr(proposal)]
    assert proposals(partition.update(registration(isr=[0, 1], partition_epoch=1), 60)) == []
    assert proposals(partition.fetch_by_follower(fetch(2, 0), 60)[1]) == []
    answer = IsrAnswer(ErrorCode.INVALID_UPDATE_VERSION)
    assert proposals(partition.on_isr_answer(proposal, answer, 70)) == [(0, 1, 2)]


def test_the_repetition_of_an_overtaken_proposal_is_not_that_of_the_next_one() -> None:
    """Metadata end a proposal that waits to be sent again, and its timer with it (R-50)."""
    partition, proposal = proposing()
    partition.on_isr_answer(proposal, IsrAnswer(ErrorCode.REQUEST_TIMED_OUT), 0)
    assert proposals(partition.update(registration(isr=[0, 1], partition_epoch=1), 10)) == [(0, 1, 2)]
    assert partition.next_deadline_ms() == LAG_MS // 2
    assert partition.on_time(RETRY_BACKOFF_MS) == []


def test_a_late_answer_does_not_answer_the_next_proposal() -> None:
    """What speaks of a proposal that is over changes nothing, also while another one is pending (R-51)."""
    partition, first = proposing()
    partition.update(registration(isr=[0, 1], partition_epoch=1), 0)
    assert proposals(partition.on_isr_answer(first, accepted(first), 0)) == [(0, 1, 2)]
    assert partition.on_isr_answer(first, accepted(first), 0) == []
    assert (partition.isr, partition.maximal_isr) == ((0, 1), (0, 1, 2))


def test_metadata_with_the_epoch_of_the_answer_still_say_who_the_replicas_are() -> None:
    """An answer names the ISR alone; what else that change did comes with its metadata (R-53, R-102)."""
    partition, proposal = proposing()
    partition.on_isr_answer(proposal, accepted(proposal), 0)
    partition.update(registration(replicas=[0, 2], isr=[0, 2], partition_epoch=1), 0)
    assert (partition.isr, partition.maximal_isr) == ((0, 2), (0, 2))
    assert partition.replicas.by_id.get(1) is None


def test_a_replica_that_is_not_registered_is_not_proposed() -> None:
    """Nobody can say that it is alive (R-47); its position counts all the same (R-38)."""
    partition = leader(metadata=OUTSIDE, brokers=Brokers(range(2)))
    decision, effects = partition.fetch_by_follower(fetch(2, 0), 0)
    assert (decision.error, effects, position(partition, 2)) == (ErrorCode.NONE, [], 0)
