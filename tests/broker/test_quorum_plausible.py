"""What a node takes seriously of what others say: how far they raise its epoch, and what cannot be at all (R-218)."""

from __future__ import annotations

import pytest
from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.core.quorum.core import QuorumCore
from odradek_broker.core.quorum.leader import Leader
from odradek_broker.core.quorum.messages import (
    LAST_EPOCH,
    Answer,
    BeginEpoch,
    EndEpoch,
    EpochAnswer,
    Fail,
    Fetch,
    FetchSnapshot,
    PersistState,
    QuorumFetchAnswer,
    QuorumReply,
    QuorumState,
    Request,
    SendRequest,
    SnapshotId,
    Vote,
    VoteAnswer,
)
from odradek_broker.core.quorum.plausible import BURST, REFILL_MS, TRUSTED_EPOCH
from odradek_broker.core.quorum.roles import Follower
from odradek_proto.errors import ErrorCode

from tests.broker.quorum_core import NOW, core_with, leader_with, of

RAISING = [
    lambda epoch: Vote(epoch, 2, 0, 0, pre_vote=False),
    lambda epoch: Vote(epoch, 2, 0, 0, pre_vote=True),
    lambda epoch: BeginEpoch(2, epoch),
    lambda epoch: EndEpoch(2, epoch, ()),
]
KINDS = ["Vote", "PreVote", "BeginEpoch", "EndEpoch"]


def say(core: QuorumCore, request: Request, now_ms: int = NOW) -> ErrorCode:
    (*_, reply) = of(core.on_request(request, "said", now_ms), QuorumReply)
    return reply.answer.error


def following() -> QuorumCore:
    core = core_with(QuorumState(4))
    core.start(NOW)
    assert say(core, BeginEpoch(2, 4)) is ErrorCode.NONE
    return core


@pytest.mark.parametrize("request_in", RAISING, ids=KINDS)
@pytest.mark.parametrize("epoch", [4 + BURST + 1, 2**30, LAST_EPOCH, LAST_EPOCH + 1, 2**31 - 1, -1, -(2**31)])
def test_an_epoch_too_far_away_is_refused_and_changes_nothing(request_in: object, epoch: int) -> None:
    """R-218: one forged vote must not leave a voter without epochs."""
    core = following()
    assert callable(request_in)
    assert say(core, request_in(epoch)) is ErrorCode.INVALID_REQUEST
    assert core.state == QuorumState(4, leader_id=2)
    assert isinstance(core.role, Follower)


@pytest.mark.parametrize("request_in", RAISING, ids=KINDS)
def test_steps_that_others_make_it_take_are_counted(request_in: object) -> None:
    """An allowance, and so many epochs more with the time, however many requests they come in."""
    core, now_ms = following(), NOW
    assert callable(request_in)
    assert say(core, request_in(4 + BURST)) is ErrorCode.NONE
    assert say(core, request_in(core.state.epoch + 1)) is ErrorCode.INVALID_REQUEST
    for _ in range(50):
        now_ms += REFILL_MS
        say(core, request_in(core.state.epoch + 2), now_ms)
        say(core, request_in(core.state.epoch + 1), now_ms)
        assert core.state.epoch <= 4 + BURST + (now_ms - NOW) // REFILL_MS + 1  # its own candidacy is its own affair
    assert core.state.epoch >= 4 + BURST + 50


def test_the_allowance_fills_up_again_and_no_further() -> None:
    """A quiet year does not let somebody spend a year's epochs at once."""
    core, year_ms = following(), 365 * 24 * 3_600_000
    assert say(core, Vote(4 + BURST, 2, 0, 0, pre_vote=False)) is ErrorCode.NONE
    late = NOW + year_ms
    assert say(core, Vote(core.state.epoch + BURST + 1, 2, 0, 0, pre_vote=False), late) is ErrorCode.INVALID_REQUEST
    assert say(core, Vote(core.state.epoch + BURST, 2, 0, 0, pre_vote=False), late) is ErrorCode.NONE


def test_a_voter_that_was_away_for_long_comes_back_by_what_it_is_answered() -> None:
    """It refuses the vote of an epoch so far away, and hears of that epoch from the voters that it asks itself."""
    core = core_with(QuorumState(4, leader_id=2))
    (asked,) = of(core.start(NOW), SendRequest)
    assert say(core, BeginEpoch(3, 500_000)) is ErrorCode.INVALID_REQUEST
    core.on_answer(asked, QuorumFetchAnswer(ErrorCode.FENCED_LEADER_EPOCH, 3, 500_000), NOW)
    assert core.leader_id == 3
    assert core.state == QuorumState(500_000, leader_id=3)


@pytest.mark.parametrize("epoch", [TRUSTED_EPOCH + 1, LAST_EPOCH, 2**31 - 1, -1])
def test_no_answer_takes_more_than_half_of_the_epochs(epoch: int) -> None:
    """A peer whose state is wrong says so to everybody. It counts as one that did not answer."""
    core = leader_with(epoch=4)
    begin = of(core.on_time(NOW + 1_000), SendRequest)[0]
    effects = core.on_answer(begin, EpochAnswer(ErrorCode.FENCED_LEADER_EPOCH, -1, epoch), NOW + 1_000)
    assert not of(effects, PersistState)
    assert isinstance(core.role, Leader)


def test_above_that_half_answers_have_the_allowance_of_requests() -> None:
    """A quorum that is there already still follows its own elections."""
    core = core_with(QuorumState(TRUSTED_EPOCH, leader_id=2))
    (asked,) = of(core.start(NOW), SendRequest)
    fenced = QuorumFetchAnswer(ErrorCode.FENCED_LEADER_EPOCH, 3, TRUSTED_EPOCH + BURST)
    core.on_answer(asked, fenced, NOW)
    assert core.leader_id == 3
    assert isinstance(core.role, Follower)
    assert core.role.in_flight is not None
    core.on_answer(
        core.role.in_flight, QuorumFetchAnswer(ErrorCode.FENCED_LEADER_EPOCH, 2, TRUSTED_EPOCH + BURST + 1), NOW
    )
    assert core.leader_id == 3


def test_a_node_that_has_used_all_epochs_says_so() -> None:
    """Nothing above is ever written: the next start could not read it."""
    core = core_with(QuorumState(LAST_EPOCH), voters=1)
    effects = core.start(NOW)
    (fail,) = of(effects, Fail)
    assert "docs/troubleshooting.md" in fail.reason
    assert not of(effects, PersistState)


@pytest.mark.parametrize(
    "request_of",
    [
        Vote(5, 1, 3, 9, pre_vote=False),
        Vote(5, 1, 3, 9, pre_vote=True),
        EndEpoch(2, 4, (1, 2, 3, 1)),
        Fetch(2, 4, -1, 0, 0, 500, 1 << 20),
        Fetch(2, 4, 0, -1, 0, 500, 1 << 20),
        Fetch(2, 4, 0, 5, 0, 500, 1 << 20),
        Fetch(1, 4, 0, 0, 0, 500, 1 << 20),
        Fetch(2, 2**31 - 1, 0, 0, 0, 500, 1 << 20),
        FetchSnapshot(2, 4, SnapshotId(1, 1), -1, 100),
        FetchSnapshot(2, 4, SnapshotId(1, 1), 0, 0),
        FetchSnapshot(1, 4, SnapshotId(1, 1), 0, 100),
    ],
    ids=repr,
)
def test_what_no_sound_node_says_is_refused(request_of: Request) -> None:
    """A node asks neither itself nor for what cannot be."""
    core = leader_with(epoch=4)
    assert say(core, request_of) is ErrorCode.INVALID_REQUEST
    assert isinstance(core.role, Leader)


@pytest.mark.parametrize(
    "answer",
    [
        QuorumFetchAnswer(ErrorCode.NONE, 2, 4, high_watermark=-2),
        QuorumFetchAnswer(ErrorCode.NONE, 2, 4, diverging=EpochEntry(-1, -1)),
        QuorumFetchAnswer(ErrorCode.NONE, 2, 4, diverging=EpochEntry(5, 0)),
        QuorumFetchAnswer(ErrorCode.NONE, 2, 4, snapshot=SnapshotId(0, 0)),
        QuorumFetchAnswer(ErrorCode.NONE, 2, 4, snapshot=SnapshotId(9, 5)),
        QuorumFetchAnswer(ErrorCode.NONE, 2, -4),
    ],
    ids=repr,
)
def test_an_answer_that_cannot_be_counts_as_none(answer: Answer) -> None:
    """The follower asks again, and does not stop over it."""
    core = following()
    assert isinstance(core.role, Follower)
    asked = core.role.in_flight
    assert asked is not None
    effects = core.on_answer(asked, answer, NOW)
    assert not of(effects, Fail)
    assert isinstance(core.role, Follower)
    (again,) = of(core.on_time(NOW + 20), SendRequest)
    assert isinstance(again.request, Fetch)


def test_a_granted_vote_of_an_epoch_that_cannot_be_is_no_vote() -> None:
    """It would be counted for the present one."""
    core = core_with(QuorumState(4, voted_id=1))
    asked = of(core.start(NOW), SendRequest)
    core.on_answer(asked[0], VoteAnswer(ErrorCode.NONE, -1, -1, granted=True), NOW)
    assert not isinstance(core.role, Leader)
