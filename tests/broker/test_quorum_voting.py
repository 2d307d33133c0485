"""Votes: who gets one, what is written down first, and what a node is after a restart (R-202, R-203, R-213, R-215)."""

from __future__ import annotations

import random

import pytest
from odradek_broker.core.quorum.core import QuorumCore
from odradek_broker.core.quorum.leader import Leader
from odradek_broker.core.quorum.messages import (
    BeginEpoch,
    Dial,
    EndEpoch,
    EpochAnswer,
    Fail,
    Fetch,
    LeaderChanged,
    PersistState,
    QuorumFetchAnswer,
    QuorumReply,
    QuorumState,
    SendRequest,
    Unanswered,
    Vote,
    VoteAnswer,
)
from odradek_broker.core.quorum.roles import Ballot, Candidate, Follower, Prospective, Resigned, Unattached
from odradek_proto.errors import ErrorCode

from tests.broker.quorum_core import NOW, core_with, leader_with, of, vote


def with_log(state: QuorumState) -> QuorumCore:
    """A core whose log ends at 9, in epoch 3."""
    return core_with(state, epochs=[(1, 0), (3, 5)], log_end_offset=9)


def following(leader: int = 2, epoch: int = 4) -> QuorumCore:
    """A follower that has just heard from its leader."""
    core = with_log(QuorumState(epoch))
    core.on_request(BeginEpoch(leader, epoch), "begin", NOW)
    assert isinstance(core.role, Follower)
    return core


@pytest.mark.parametrize(
    ("state", "role"),
    [
        (QuorumState(), Unattached),
        (QuorumState(2, leader_id=2), Unattached),  # the log knows epoch 3
        (QuorumState(4, leader_id=1), Resigned),
        (QuorumState(4, voted_id=1), Candidate),
        (QuorumState(4, voted_id=2), Unattached),
        (QuorumState(4, leader_id=2), Follower),
    ],
)
def test_the_role_after_a_restart_follows_from_what_is_on_the_disk(state: QuorumState, role: type) -> None:
    """R-202, row by row; the epoch is the newer one of state and log."""
    core = with_log(state)
    core.start(NOW)
    assert type(core.role) is role
    assert core.state.epoch == max(state.epoch, 3)


def test_a_leader_that_restarts_grants_no_vote_in_its_epoch() -> None:
    """RA-01: an offset of an epoch means one record for ever, so its leader neither leads nor elects in it again."""
    core = with_log(QuorumState(4, leader_id=1, voted_id=1))
    resignations = of(core.start(NOW), SendRequest)
    assert [(send.peer_id, send.request) for send in resignations] == [(2, EndEpoch(1, 4, ())), (3, EndEpoch(1, 4, ()))]
    refused = vote(core, 4, 2, last=(3, 9))
    assert (refused.error, refused.granted) == (ErrorCode.NONE, False)
    assert vote(core, 5, 2, last=(3, 9)).granted


def test_one_vote_per_epoch_and_the_same_candidate_gets_it_again() -> None:
    """RA-02."""
    core = with_log(QuorumState(3))
    assert vote(core, 4, 2, last=(3, 9)).granted
    assert not vote(core, 4, 3, last=(3, 9)).granted
    assert vote(core, 4, 2, last=(3, 9)).granted
    assert core.state == QuorumState(4, voted_id=2)


def test_the_same_candidate_with_less_than_before_is_refused() -> None:
    """Its restart lost a part of its log, which may hold the only other copy of something committed."""
    core = with_log(QuorumState(3))
    assert vote(core, 4, 2, last=(3, 10)).granted
    assert not vote(core, 4, 2, last=(3, 8)).granted


def test_a_vote_is_on_the_disk_before_it_is_said() -> None:
    """R-201: a voter that forgets its vote can vote twice."""
    core = with_log(QuorumState(3))
    effects = core.on_request(Vote(4, 2, 3, 9, pre_vote=False), "vote", NOW)
    kinds = [type(effect) for effect in effects if isinstance(effect, PersistState | QuorumReply)]
    assert kinds == [PersistState, QuorumReply]


@pytest.mark.parametrize(
    ("epoch", "candidate", "last", "pre", "error"),
    [
        (5, 2, (5, 9), False, ErrorCode.INVALID_REQUEST),  # no log holds records of an epoch before its election
        (5, 2, (6, 9), True, ErrorCode.INVALID_REQUEST),
        (4, 2, (4, 9), True, ErrorCode.NONE),  # but it can hold those of the current one
        (5, 2, (-1, 9), False, ErrorCode.INVALID_REQUEST),
        (5, 2, (3, -1), False, ErrorCode.INVALID_REQUEST),
        (-1, 2, (3, 9), False, ErrorCode.INVALID_REQUEST),
        (3, 2, (2, 9), False, ErrorCode.FENCED_LEADER_EPOCH),
        (5, 9, (3, 9), False, ErrorCode.INCONSISTENT_VOTER_SET),
    ],
)
def test_votes_that_cannot_be_are_refused_and_change_nothing(
    epoch: int, candidate: int, last: tuple[int, int], pre: bool, error: ErrorCode
) -> None:
    """RA-03."""
    core = with_log(QuorumState(4))
    assert vote(core, epoch, candidate, last=last, pre=pre).error is error
    assert core.state == QuorumState(4)


@pytest.mark.parametrize(
    ("last", "granted"), [((3, 9), True), ((3, 10), True), ((4, 1), True), ((3, 8), False), ((2, 99), False)]
)
def test_logs_are_compared_by_epoch_and_then_by_offset(last: tuple[int, int], granted: bool) -> None:
    """R-203: whoever has less could lack what is committed."""
    assert vote(with_log(QuorumState(4)), 5, 2, last=last).granted is granted


def test_a_larger_epoch_counts_even_when_its_candidate_is_refused() -> None:
    """R-203: the epoch is real, and its candidate may have been granted votes elsewhere."""
    core = following()
    assert not vote(core, 6, 3, last=(1, 2)).granted
    assert core.state == QuorumState(6)
    assert isinstance(core.role, Unattached)


def test_a_pre_vote_changes_no_epoch_and_no_vote() -> None:
    """R-215."""
    core = with_log(QuorumState(4))
    assert vote(core, 4, 2, last=(3, 9), pre=True).granted
    assert vote(core, 4, 3, last=(3, 9), pre=True).granted
    assert core.state == QuorumState(4)


def test_a_follower_that_hears_its_leader_refuses_a_pre_vote() -> None:
    """R-215: a voter that was cut off does not disturb those that were not."""
    core = following()
    refused = vote(core, 4, 3, last=(3, 9), pre=True)
    assert (refused.granted, refused.leader_id) == (False, 2)
    assert vote(core, 4, 2, last=(3, 9), pre=True).granted, "its leader itself asks, so it does not lead any more"


def test_a_follower_that_never_heard_its_leader_grants_a_pre_vote() -> None:
    """Otherwise voters that restart with a dead leader on their disks refuse each other for ever."""
    core = with_log(QuorumState(4, leader_id=2))
    core.start(NOW)
    assert vote(core, 4, 3, last=(3, 9), pre=True).granted


def test_a_leader_refuses_votes_of_its_epoch() -> None:
    """R-203, R-215."""
    core = leader_with(epoch=4)
    assert not vote(core, 4, 2, last=(3, 99), pre=True).granted
    assert not vote(core, 4, 2, last=(3, 99)).granted


def test_two_leaders_that_prove_it_in_one_epoch_are_fatal() -> None:
    """R-213: nothing that a node could do then would be right."""
    core = following(leader=2, epoch=4)
    core.on_answer(_in_flight(core), QuorumFetchAnswer(ErrorCode.NONE, 2, 4, 9), NOW)
    core.on_unanswered(_in_flight(core), Unanswered.REFUSED, NOW)
    asked = {send.peer_id: send for send in of(core.on_time(NOW + 150), SendRequest)}
    assert of(core.on_answer(asked[3], VoteAnswer(ErrorCode.NONE, 3, 4), NOW + 150), Fail)


def test_a_leader_is_not_replaced_by_the_mere_word_of_somebody() -> None:
    """Nor does the node stop: whoever says that an epoch which has a leader begins may be anybody (R-205)."""
    core = following(leader=2, epoch=4)
    effects = core.on_request(BeginEpoch(3, 4), "begin", NOW)
    (reply,) = of(effects, QuorumReply)
    assert isinstance(reply.answer, EpochAnswer)
    assert (reply.answer.error, reply.answer.leader_id) == (ErrorCode.INVALID_REQUEST, 2)
    assert not of(effects, Fail)
    assert core.leader_id == 2


def test_a_leader_that_never_led_gives_way_to_the_one_that_it_names() -> None:
    """Somebody said in its name that it leads. It is asked for records, and knows better."""
    core = following(leader=2, epoch=4)
    effects = core.on_answer(_in_flight(core), QuorumFetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3, 4), NOW)
    assert not of(effects, Fail)
    assert core.leader_id == 3
    assert core.state == QuorumState(4, leader_id=3)


def test_what_a_third_one_says_of_a_leader_changes_nothing() -> None:
    """It may be deceived itself."""
    core = leader_with(voters=5, epoch=4)
    begin = next(send for send in of(core.on_time(NOW + 1_000), SendRequest) if send.peer_id == 2)
    assert not of(core.on_answer(begin, EpochAnswer(ErrorCode.NONE, 3, 4), NOW + 1_000), Fail)
    assert core.leader_id == 1


def test_a_refused_connection_ends_the_wait_for_a_leader() -> None:
    """R-215: the voter asks for an election within 150 ms instead of a fetch timeout."""
    core = following()
    core.on_unanswered(_in_flight(core), Unanswered.REFUSED, NOW)
    assert isinstance(core.role, Unattached)
    deadline_ms = core.next_deadline_ms()
    assert deadline_ms is not None
    assert deadline_ms <= NOW + 150
    asked = of(core.on_time(NOW + 150), SendRequest)
    assert isinstance(core.role, Prospective)
    assert [send.request for send in asked] == [Vote(4, 1, 3, 9, pre_vote=True)] * 2


def test_a_broken_connection_is_a_reason_to_look_and_no_proof() -> None:
    """The leader's machine may have dropped one connection of many."""
    core = following()
    core.on_unanswered(_in_flight(core), Unanswered.BROKEN, NOW)
    assert isinstance(core.role, Follower)
    core.on_dialled(2, False, NOW)
    assert isinstance(core.role, Follower)
    (again,) = of(core.on_time(NOW + 20), SendRequest)
    core.on_unanswered(again, Unanswered.BROKEN, NOW + 20)
    core.on_dialled(2, True, NOW + 21)
    assert isinstance(core.role, Unattached)


def test_a_leader_that_says_it_does_not_lead_is_believed() -> None:
    """A restarted leader has resigned from its epoch, and its followers hear that with their next fetch."""
    core = following()
    core.on_answer(_in_flight(core), QuorumFetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, 4), NOW)
    assert isinstance(core.role, Unattached)
    assert core.leader_id == -1


def test_proof_is_worth_more_than_the_word_of_another_voter() -> None:
    """Whoever has not noticed that the leader is gone is asked again, and not believed; the leader itself is."""
    core = following()
    core.on_unanswered(_in_flight(core), Unanswered.REFUSED, NOW)
    (to_leader, to_other) = of(core.on_time(NOW + 150), SendRequest)
    refused = VoteAnswer(ErrorCode.NONE, 2, 4, granted=False)
    assert not of(core.on_answer(to_other, refused, NOW + 151), LeaderChanged)
    assert [send.peer_id for send in of(core.on_time(NOW + 171), SendRequest)] == [3]
    core.on_answer(to_leader, refused, NOW + 172)
    assert isinstance(core.role, Follower)
    assert core.leader_id == 2


def test_a_leader_that_has_resigned_is_not_followed_again_in_its_epoch() -> None:
    """R-212: it will never lead this epoch again, whatever a voter says that has not heard of it."""
    core = following()
    core.on_request(EndEpoch(2, 4, (3, 1)), "end", NOW)
    (_, to_other) = of(core.on_time(NOW + 2 * 150), SendRequest)
    core.on_answer(to_other, VoteAnswer(ErrorCode.NONE, 2, 4, granted=False), NOW + 301)
    assert isinstance(core.role, Prospective)


def test_a_pre_vote_makes_a_follower_look_once_beside_its_fetch() -> None:
    """R-215: it refuses, but its leader may be gone without its having noticed; a fetch can wait for long."""
    core = following()
    asked = Vote(4, 3, 3, 9, pre_vote=True)
    assert of(core.on_request(asked, "first", NOW), Dial) == [Dial(2)]
    assert not of(core.on_request(asked, "second", NOW + 1), Dial)
    core.on_dialled(2, False, NOW + 2)
    assert isinstance(core.role, Follower)
    assert core.role.failures == 0
    assert of(core.on_request(asked, "third", NOW + 3), Dial) == [Dial(2)]
    core.on_dialled(2, True, NOW + 4)
    assert isinstance(core.role, Unattached)
    assert vote(core, 4, 3, last=(3, 9), pre=True).granted


def test_a_fetch_timeout_starts_a_pre_vote_and_not_an_election() -> None:
    """R-210, R-215: a voter that was cut off comes back with the epoch that it had."""
    core = following()
    core.on_time(NOW + 2_000)
    assert isinstance(core.role, Prospective)
    assert core.state == QuorumState(4, leader_id=2)


def test_an_epoch_opens_with_a_vote_for_oneself_on_the_disk() -> None:
    """R-204: a majority of pre-votes makes a candidate, a majority of votes a leader."""
    core = with_log(QuorumState(4))
    core.start(NOW)
    asked = of(core.on_time(NOW + 150), SendRequest)
    effects = core.on_answer(asked[0], VoteAnswer(ErrorCode.NONE, -1, 4, granted=True), NOW + 151)
    assert of(effects, PersistState) == [PersistState(QuorumState(5, voted_id=1))]
    asked = of(effects, SendRequest)
    assert [send.request for send in asked] == [Vote(5, 1, 3, 9, pre_vote=False)] * 2
    effects = core.on_answer(asked[1], VoteAnswer(ErrorCode.NONE, -1, 5, granted=True), NOW + 152)
    assert of(effects, PersistState) == [PersistState(QuorumState(5, leader_id=1, voted_id=1))]
    assert [send.request for send in of(effects, SendRequest)] == [BeginEpoch(1, 5)] * 2
    assert isinstance(core.role, Leader)


def test_a_lost_election_is_followed_by_a_random_pause() -> None:
    """R-204: two voters that stood at once must not stand at once for ever; a dead third one is not waited for."""
    core = with_log(QuorumState(4, voted_id=1))
    asked = of(core.start(NOW), SendRequest)
    core.on_answer(asked[0], VoteAnswer(ErrorCode.NONE, -1, 4), NOW)
    core.on_unanswered(asked[1], Unanswered.REFUSED, NOW)
    assert isinstance(core.role, Candidate)
    deadline_ms = core.next_deadline_ms()
    assert deadline_ms is not None
    assert deadline_ms <= NOW + 150
    core.on_time(deadline_ms)
    assert isinstance(core.role, Prospective)


def test_a_voter_that_is_not_there_yet_is_asked_again() -> None:
    """Its process answers, and its quorum does not take part: like one whom nobody reaches (R-204)."""
    core = with_log(QuorumState(4, voted_id=1))
    asked = of(core.start(NOW), SendRequest)
    core.on_answer(asked[0], VoteAnswer(ErrorCode.BROKER_NOT_AVAILABLE, -1, 4), NOW)
    deadline_ms = core.next_deadline_ms()
    assert deadline_ms is not None
    assert of(core.on_time(deadline_ms), SendRequest) == [asked[0]]
    assert isinstance(core.role, Candidate)


def test_a_single_voter_leads_at_once() -> None:
    """R-204: nobody else can be asked."""
    core = core_with(voters=1)
    core.start(NOW)
    assert isinstance(core.role, Leader)
    assert core.state == QuorumState(1, leader_id=1, voted_id=1)


def test_an_observer_neither_votes_nor_stands() -> None:
    """R-214: it asks one voter after the other who leads."""
    core = core_with(node_id=9)
    (first,) = of(core.start(NOW), SendRequest)
    assert vote(core, 5, 2, last=(0, 0)).error is ErrorCode.INCONSISTENT_VOTER_SET
    core.on_unanswered(first, Unanswered.REFUSED, NOW)
    (second,) = of(core.on_time(NOW + 20), SendRequest)
    assert second.peer_id != first.peer_id
    effects = core.on_answer(second, QuorumFetchAnswer(ErrorCode.FENCED_LEADER_EPOCH, 3, 6), NOW + 20)
    assert core.leader_id == 3
    assert [send.peer_id for send in of(effects, SendRequest)] == [3]
    core.on_time(NOW + 5_000)
    assert isinstance(core.role, Unattached)


@pytest.mark.parametrize(
    ("successors", "role", "longest_ms"),
    [((1, 3), Candidate, 0), ((3, 1), Unattached, 300), ((3,), Unattached, 150), ((), Unattached, 150)],
)
def test_the_first_successor_stands_at_once_and_the_others_wait(
    successors: tuple[int, ...], role: type, longest_ms: int
) -> None:
    """R-212."""
    core = following()
    core.on_request(EndEpoch(2, 4, successors), "end", NOW)
    assert type(core.role) is role
    if longest_ms:
        core.on_time(NOW + longest_ms)
        assert isinstance(core.role, Prospective)


@pytest.mark.parametrize("successors", [(9, 1), (1, 9)])
def test_an_observer_does_not_succeed_a_leader_that_names_it(successors: tuple[int, ...]) -> None:
    """R-214: whatever place it is given, it looks for the next leader."""
    core = core_with(node_id=9)
    core.start(NOW)
    core.on_request(BeginEpoch(2, 4), "begin", NOW)
    (*_, asked) = of(core.on_request(EndEpoch(2, 4, successors), "end", NOW), SendRequest)
    assert isinstance(core.role, Unattached)
    assert isinstance(asked.request, Fetch)


def _in_flight(core: QuorumCore) -> SendRequest:
    assert isinstance(core.role, Follower)
    assert core.role.in_flight is not None
    return core.role.in_flight


def test_votes_from_before_a_provisional_one_are_asked_for_again() -> None:
    """R-217: their voters may have elected another one since, with the vote that is forgotten."""
    core = core_with(QuorumState(4, voted_id=1), voters=5, epochs=[(1, 0)], log_end_offset=9)
    asked = {send.peer_id: send for send in of(core.start(NOW), SendRequest)}
    yes = VoteAnswer(ErrorCode.NONE, -1, 4, granted=True)
    core.on_answer(asked[2], yes, NOW)
    effects = core.on_answer(asked[3], VoteAnswer(ErrorCode.NONE, -1, 4, granted=True, provisional=True), NOW)
    again = {send.peer_id: send for send in of(effects, SendRequest)}
    assert sorted(again) == [2, 4, 5]
    for voter in (4, 5):
        core.on_answer(asked[voter], yes, NOW)
    assert isinstance(core.role, Candidate), "these answers may be older than the loss"
    for voter in (4, 5):
        core.on_answer(again[voter], yes, NOW)
    assert core.leader_id == 1


# --- what is forgotten with an epoch, and what is not


def test_a_vote_of_an_older_epoch_is_not_taken_into_the_next() -> None:
    """R-201, R-203: what is on the disk says of the new epoch only what happened in it."""
    core = with_log(QuorumState(3))
    assert vote(core, 4, 2, last=(3, 9)).granted
    core.on_request(BeginEpoch(3, 5), "begin", NOW)
    assert core.state == QuorumState(5, leader_id=3)


@pytest.mark.parametrize(
    ("leader", "epoch", "error"),
    [
        (2, -1, ErrorCode.INVALID_REQUEST),
        (3, 3, ErrorCode.FENCED_LEADER_EPOCH),
        (9, 5, ErrorCode.INCONSISTENT_VOTER_SET),
        (1, 5, ErrorCode.INCONSISTENT_VOTER_SET),
    ],
    ids=["no epoch", "older", "no voter", "the node itself"],
)
@pytest.mark.parametrize("kind", ["begins", "ends"])
def test_leaderships_that_cannot_be_neither_begin_nor_end(kind: str, leader: int, epoch: int, error: ErrorCode) -> None:
    """R-205, R-212, R-213: only a voter leads, and nobody tells a node that it leads itself."""
    core = following()
    said = BeginEpoch(leader, epoch) if kind == "begins" else EndEpoch(leader, epoch, (1,))
    (reply,) = of(core.on_request(said, "said", NOW), QuorumReply)
    assert isinstance(reply.answer, EpochAnswer)
    assert (reply.answer.error, reply.answer.leader_id, reply.answer.epoch) == (error, 2, 4)
    assert core.state == QuorumState(4, leader_id=2)


@pytest.mark.parametrize(
    "state",
    [QuorumState(4, leader_id=9), QuorumState(4, voted_id=9), QuorumState(4, leader_id=7)],
    ids=["led", "stood", "followed one that votes no more"],
)
def test_who_is_no_voter_any_more_searches_for_the_leader(state: QuorumState) -> None:
    """R-202, R-214: what it was among other voters says nothing; the epoch holds."""
    core = core_with(state, node_id=9)
    asked = of(core.start(NOW), SendRequest)
    assert isinstance(core.role, Unattached)
    assert core.state.epoch == 4
    assert [type(send.request) for send in asked] == [Fetch]


def test_a_single_voter_that_resigned_leads_again() -> None:
    """R-204: in another epoch, and still without asking anybody."""
    core = core_with(voters=1)
    core.start(NOW)
    core.resign(NOW)
    assert isinstance(core.role, Resigned)
    core.on_time(core.role.election_at_ms)
    assert isinstance(core.role, Leader)
    assert core.state == QuorumState(2, leader_id=1, voted_id=1)


# --- the pause after a lost election


class LongestPauses(random.Random):
    """Whatever is drawn from a range is its end."""

    def randint(self, a: int, b: int) -> int:
        return b


class Loser:
    """A voter that stands again and again. The others let it stand, and vote for nobody."""

    def __init__(self) -> None:
        self.core = with_log(QuorumState(4, voted_id=1))
        self.core._member.rng = LongestPauses(7)
        self.now = NOW
        self.votes = of(self.core.start(NOW), SendRequest)

    def lose(self) -> int:
        """Returns how long it waits then."""
        for send in self.votes:
            self.core.on_answer(send, VoteAnswer(ErrorCode.NONE, -1, self.core.state.epoch), self.now)
        deadline_ms = self.core.next_deadline_ms()
        assert deadline_ms is not None
        return deadline_ms - self.now

    def stand(self, wait_ms: int) -> None:
        self.now += wait_ms
        (asked, *_) = of(self.core.on_time(self.now), SendRequest)
        granted = VoteAnswer(ErrorCode.NONE, -1, self.core.state.epoch, granted=True)
        self.votes = of(self.core.on_answer(asked, granted, self.now), SendRequest)
        assert isinstance(self.core.role, Candidate)


def test_the_pause_grows_with_each_election_that_is_lost() -> None:
    """R-204: twice as long at the most each time, up to controller.quorum.election.backoff.max.ms."""
    loser, pauses = Loser(), []
    for _ in range(6):
        pauses.append(loser.lose())
        loser.stand(pauses[-1])
    assert pauses == [150, 300, 600, 1_000, 1_000, 1_000]


@pytest.mark.parametrize("by", ["following", "leading"])
def test_a_leader_that_was_found_makes_the_pauses_short_again(by: str) -> None:
    """R-204: the elections before that were another story."""
    loser = Loser()
    for _ in range(3):
        loser.stand(loser.lose())
    core = loser.core
    if by == "following":
        core.on_request(BeginEpoch(2, core.state.epoch + 1), "begin", loser.now)
        core.on_unanswered(_in_flight(core), Unanswered.REFUSED, loser.now)
    else:
        core.on_answer(loser.votes[0], VoteAnswer(ErrorCode.NONE, -1, core.state.epoch, granted=True), loser.now)
        assert isinstance(core.role, Leader)
        core.resign(loser.now)
    loser.stand(300)
    assert loser.lose() == 150


# --- The votes of one election: when it is won, and when it is lost (R-204, R-217) -----------------------------------


def test_an_election_is_lost_when_too_few_votes_may_still_come() -> None:
    """Of five voters three elect: two that say no leave enough, a third one does not."""
    ballot = Ballot(1, (1, 2, 3, 4, 5), 0)
    for voter, lost in ((2, False), (3, False), (4, True)):
        ballot.refuse(voter)
        assert ballot.lost is lost


def test_a_provisional_vote_does_not_replace_one_that_was_refused() -> None:
    """It counts with those of all voters alone, and one of them has said no."""
    ballot = Ballot(1, (1, 2, 3), 0)
    ballot.grant(2, 0, provisional=True)
    assert not ballot.lost
    ballot.refuse(3)
    assert ballot.lost


def test_a_voter_that_was_out_of_reach_and_refuses_is_missing_once() -> None:
    """It came back and said no; the third one may still elect."""
    ballot = Ballot(1, (1, 2, 3), 0)
    ballot.unreachable(2, 10)
    ballot.refuse(2)
    assert not ballot.lost
    ballot.grant(3, 20)
    assert ballot.won
