"""The leader of the quorum: fetches, high watermark, check quorum, resignation (R-205 to R-209, R-211, R-212)."""

from __future__ import annotations

import pytest
from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.core.quorum.core import QuorumCore
from odradek_broker.core.quorum.leader import MAX_OBSERVERS, OBSERVER_SESSION_MS, Leader
from odradek_broker.core.quorum.messages import (
    AnswerFetches,
    AppendLeaderChange,
    BeginEpoch,
    Effect,
    EndEpoch,
    EpochAnswer,
    Fetch,
    FlushLog,
    LeadershipBegan,
    LeadershipEnded,
    NotLeader,
    QuorumFetchAnswer,
    QuorumHighWatermarkAdvanced,
    QuorumReply,
    ReplyRecords,
    SendRequest,
)
from odradek_broker.core.quorum.roles import Resigned
from odradek_proto.errors import ErrorCode

from tests.broker.quorum_core import (
    NEVER_EARLY,
    NOW,
    a_turn_later,
    answered,
    core_with,
    fetch,
    fetched,
    leader_with,
    leading,
    of,
)

FETCH_TIMEOUT_MS = 2_000
CHECK_QUORUM_MS = 3_000  # 1.5 fetch timeouts


def at_ten() -> QuorumCore:
    """The leader of epoch 5, which starts at 10 behind the records of epoch 1; its own first one is unflushed."""
    core = leader_with(epochs=[(1, 0)], log_end_offset=10, epoch=5)
    assert core.state.epoch == 5
    return core


def test_an_epoch_opens_with_a_record_of_its_own() -> None:
    """R-205: only such a record can be committed by counting."""
    core = core_with(voters=1, epochs=[(1, 0)], log_end_offset=10)
    opening = of(core.start(NOW), AppendLeaderChange)
    assert [(change.base_offset, change.epoch) for change in opening] == [(10, 2)]
    assert core.log.epochs.entries == (EpochEntry(1, 0), EpochEntry(2, 10))


def test_there_is_no_high_watermark_before_a_record_of_the_epoch_is_on_a_majority() -> None:
    """RA-12: epoch start 10: none at 10, 15 with two of three, and never back."""
    core = at_ten()
    core.append([b"x"] * 4, NOW)
    core.on_flushed(15, NOW)
    assert leading(core).high_watermark is None
    fetch(core, 2, 10, 1)
    assert leading(core).high_watermark is None, "offset 10 covers older epochs alone"
    effects = fetch(core, 2, 15, 5)
    assert of(effects, QuorumHighWatermarkAdvanced) == [QuorumHighWatermarkAdvanced(0, 15)]
    assert of(effects, LeadershipBegan) == [LeadershipBegan(5)]
    fetch(core, 2, 10, 1)
    assert leading(core).high_watermark == 15


def test_a_leader_counts_itself_after_its_flush() -> None:
    """R-207: what only the page cache holds is on no disk."""
    core = at_ten()
    fetch(core, 2, 11, 5)
    assert leading(core).high_watermark is None
    core.on_flushed(11, NOW)
    assert leading(core).high_watermark == 11


def test_two_followers_are_a_majority_without_the_leaders_disk() -> None:
    """R-206: any majority will do, so a slow disk of the leader delays nothing."""
    core = at_ten()
    fetch(core, 2, 11, 5)
    fetch(core, 3, 11, 5)
    assert leading(core).high_watermark == 11


@pytest.mark.parametrize(("voters", "needed"), [(2, 1), (3, 1), (4, 2), (5, 2), (6, 3)])
def test_a_majority_is_more_than_half(voters: int, needed: int) -> None:
    """R-206: beside the leader; half of an even number is no majority, and loses what it commits alone."""
    core = leader_with(voters=voters, epochs=[(1, 0)], log_end_offset=10, epoch=5)
    core.on_flushed(11, NOW)
    for follower in range(2, 2 + needed):
        assert leading(core).high_watermark is None
        fetch(core, follower, 11, 5)
    assert leading(core).high_watermark == 11


def test_a_leader_knows_when_each_follower_had_everything() -> None:
    """What `DescribeQuorum` says of it: not the last fetch, but the last one from the end of the log."""
    core = at_ten()
    for offset, now_ms in ((10, NOW), (11, NOW + 5), (10, NOW + 9)):
        fetch(core, 2, offset, 5 if offset > 10 else 1, now_ms=now_ms)
    position = leading(core).voters[2]
    assert (position.last_fetch_ms, position.last_caught_up_ms) == (NOW + 9, NOW + 5)


def test_an_observer_does_not_count() -> None:
    """R-214."""
    core = at_ten()
    core.on_flushed(11, NOW)
    fetch(core, 9, 11, 5)
    assert leading(core).high_watermark is None


@pytest.mark.parametrize(
    ("offset", "last_epoch", "diverging"),
    [
        (6, 2, EpochEntry(1, 3)),
        (2, 2, EpochEntry(1, 3)),  # the offset would do, but no record of epoch 2 can be there
        (4, 1, EpochEntry(1, 3)),
        (3, 1, None),
        (7, 3, EpochEntry(3, 6)),
        (6, 3, None),
        (0, 0, None),
        (2, 0, EpochEntry(0, 0)),
    ],
)
def test_a_divergence_is_answered_at_once_and_records_no_position(
    offset: int, last_epoch: int, diverging: EpochEntry | None
) -> None:
    """RA-06: epochs 1@0, 3@3, 5@6."""
    core = leader_with(epochs=[(1, 0), (3, 3)], log_end_offset=6, epoch=5)
    effects = fetch(core, 2, offset, last_epoch)
    answer = answered(effects)
    assert answer.diverging == diverging
    assert leading(core).voters[2].end_offset == (-1 if diverging else offset)


@pytest.mark.parametrize(
    ("offset", "last_epoch", "epoch", "error"),
    [
        (-1, 0, 5, ErrorCode.INVALID_REQUEST),
        (0, -1, 5, ErrorCode.INVALID_REQUEST),
        (0, 6, 5, ErrorCode.INVALID_REQUEST),
        (0, 0, -1, ErrorCode.INVALID_REQUEST),
        (0, 0, 4, ErrorCode.FENCED_LEADER_EPOCH),
        (0, 0, 6, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_fetches_that_cannot_be_answered_are_refused(
    offset: int, last_epoch: int, epoch: int, error: ErrorCode
) -> None:
    """RA-11, R-208."""
    answer = answered(fetch(at_ten(), 2, offset, last_epoch, epoch=epoch))
    assert answer.error is error


def test_a_follower_names_the_leader_that_it_knows() -> None:
    """R-208: that is how others find it."""
    core = core_with()
    core.on_request(BeginEpoch(3, 4), "begin", NOW)
    answer = answered(fetch(core, 9, 0, 0))
    assert (answer.error, answer.leader_id, answer.epoch) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 3, 4)


def test_a_fetch_at_the_end_waits_for_records() -> None:
    """R-209: and gets them before the leader has flushed them itself. What is appended in one turn is one answer."""
    core = at_ten()
    assert fetched(fetch(core, 2, 11, 5)) is None
    base_offset, effects = core.append([b"x"], NOW)
    assert base_offset == 11
    assert of(effects, FlushLog)
    assert fetched(effects) is None
    _, more = core.append([b"y"], NOW)
    assert not of(more, AnswerFetches), "once is enough"
    (reply,) = of(a_turn_later(core, effects), ReplyRecords)
    assert (reply.answer.error, reply.fetch_offset, reply.limit) == (ErrorCode.NONE, 11, 13)


def test_a_waiting_fetch_hears_of_a_new_high_watermark() -> None:
    """KIP-1166: brokers apply metadata only up to it, and need not wait for the next record to learn it."""
    core = at_ten()
    assert fetched(fetch(core, 9, 11, 5, known=0)) is None
    core.on_flushed(11, NOW)
    replies = of(fetch(core, 2, 11, 5, known=0), QuorumReply)
    assert [reply.token for reply in replies] == [f"fetch of 9 at 11, {NOW}", f"fetch of 2 at 11, {NOW}"]
    assert [reply.answer.high_watermark for reply in replies if isinstance(reply.answer, QuorumFetchAnswer)] == [11, 11]
    assert fetched(fetch(core, 3, 11, 5, known=11)) is None, "who knows it already waits"


def test_a_waiting_fetch_ends_when_its_time_is_over() -> None:
    """R-209: with what there is, which is nothing."""
    core = at_ten()
    assert fetched(fetch(core, 2, 11, 5, wait_ms=500)) is None
    assert fetched(core.on_time(NOW + 499)) is None
    answer = answered(core.on_time(NOW + 500))
    assert answer.error is ErrorCode.NONE


def test_a_fetch_whose_time_is_over_before_the_turn_is_has_its_records() -> None:
    """R-209: the leader's disk may hold its effects up for longer than a fetch waits."""
    core = at_ten()
    asked = Fetch(2, 5, 10, 1, NEVER_EARLY, 500, 1 << 20)
    assert of(core.on_request(asked, "fetch", NOW), AnswerFetches)
    (reply,) = of(core.on_time(NOW + 500), ReplyRecords)
    assert (reply.fetch_offset, reply.limit) == (10, 11)
    assert fetched(core.answer_fetches(NOW + 500)) is None, "once is enough"


@pytest.mark.parametrize(("replica", "waits"), [(-1, False), (0, True), (9, True)])
def test_whoever_follows_waits_and_whoever_reads_does_not(replica: int, waits: bool) -> None:
    """R-209: a replica id is one from 0 on; a negative one is somebody who only looks, and is answered at once."""
    assert (fetched(fetch(at_ten(), replica, 11, 5, wait_ms=500)) is None) is waits


def test_so_many_observers_may_wait_and_more_are_answered_at_once() -> None:
    """What a leader keeps for others has a limit; those whom it knows already are not turned away by it."""
    core = at_ten()
    for observer in range(100, 100 + MAX_OBSERVERS):
        assert fetched(fetch(core, observer, 11, 5)) is None
    assert answered(fetch(core, 9, 11, 5))
    assert answered(fetch(core, 100, 11, 5, now_ms=NOW + 1)), "the first one is answered for the second"
    assert fetched(fetch(core, 2, 11, 5)) is None


def test_observers_that_are_silent_for_a_fetch_timeout_make_room_when_there_is_none() -> None:
    """R-214, R-218: whoever made them up and went away keeps nobody out, and its fetches wait no more."""
    core = at_ten()
    for forged in range(100, 100 + MAX_OBSERVERS):
        fetch(core, forged, 11, 5, wait_ms=NEVER_EARLY)
    assert answered(fetch(core, 9, 11, 5, now_ms=NOW + FETCH_TIMEOUT_MS - 1))
    assert len(of(fetch(core, 9, 11, 5, now_ms=NOW + FETCH_TIMEOUT_MS), QuorumReply)) == MAX_OBSERVERS
    assert (list(leading(core).observers), len(leading(core).waiting)) == ([9], 1)


def test_an_observer_is_known_for_five_minutes_after_its_last_fetch() -> None:
    """As in Kafka: one that is gone for good is not described for ever; one that only looks is none."""
    core = at_ten()
    for replica, now_ms in ((8, NOW), (9, NOW + 1), (-1, NOW + 1)):
        fetch(core, replica, 11, 5, now_ms=now_ms)
    assert list(leading(core).observers) == [8, 9]
    fetch(core, 2, 11, 5, now_ms=NOW + OBSERVER_SESSION_MS)
    assert list(leading(core).observers) == [9]


def test_waiting_fetches_end_when_leadership_does() -> None:
    """RA-08, KAFKA-10677: with the new epoch, so that their senders look elsewhere at once."""
    core = at_ten()
    fetch(core, 2, 11, 5)
    effects = core.on_request(BeginEpoch(3, 7), "begin", NOW)
    answer = answered(effects)
    assert (answer.error, answer.leader_id, answer.epoch) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 3, 7)
    assert of(effects, LeadershipEnded) == [LeadershipEnded(5)]


def test_a_leader_without_a_majority_resigns() -> None:
    """RA-04, KAFKA-15489: others may long have elected another one."""
    core = at_ten()
    fetch(core, 2, 11, 5, now_ms=NOW + 100)
    core.on_time(NOW + 100 + CHECK_QUORUM_MS - 1)
    assert isinstance(core.role, Leader)
    core.on_time(NOW + 100 + CHECK_QUORUM_MS)
    assert isinstance(core.role, Resigned)


def test_a_single_voter_needs_nobody() -> None:
    """RA-05, KAFKA-16144."""
    core = core_with(voters=1)
    core.start(NOW)
    core.on_time(NOW + 100 * CHECK_QUORUM_MS)
    assert isinstance(core.role, Leader)


@pytest.mark.parametrize(
    ("voters", "fetching", "stays"),
    [(3, (2,), True), (3, (), False), (5, (2, 3), True), (5, (2,), False), (2, (), False)],
)
def test_the_leader_counts_itself_for_the_majority(voters: int, fetching: tuple[int, ...], stays: bool) -> None:
    """RA-13."""
    core = leader_with(voters=voters)
    for replica in fetching:
        fetch(core, replica, 0, 0, now_ms=NOW + 2_000)
    core.on_time(NOW + CHECK_QUORUM_MS)
    assert isinstance(core.role, Leader) is stays


def test_voters_that_do_not_fetch_are_told_again_who_leads() -> None:
    """R-205: every half of a fetch timeout."""
    core = at_ten()
    fetch(core, 2, 11, 5, now_ms=NOW + 500)
    told = of(core.on_time(NOW + 1_000), SendRequest)
    assert [(send.peer_id, send.request) for send in told] == [(3, BeginEpoch(1, 5))]


def test_a_leader_that_resigns_names_the_one_with_the_longest_log_first() -> None:
    """RA-09, R-212; it repeats itself to those that did not hear it."""
    core = at_ten()
    fetch(core, 2, 10, 1)
    fetch(core, 3, 11, 5)
    resignations = of(core.resign(NOW), SendRequest)
    assert [send.request for send in resignations] == [EndEpoch(1, 5, (3, 2))] * 2
    assert core.end_epochs_pending
    for send in resignations:
        core.on_answer(send, EpochAnswer(ErrorCode.NONE, -1, 5), NOW)
    assert not core.end_epochs_pending


def test_a_voter_whose_quorum_does_not_run_yet_is_told_again_of_the_end() -> None:
    """R-212: its process answers, and nobody in it has heard that the leader resigned."""
    core = at_ten()
    (first, second) = of(core.resign(NOW), SendRequest)
    core.on_answer(first, EpochAnswer(ErrorCode.BROKER_NOT_AVAILABLE, -1, 5), NOW)
    core.on_answer(second, EpochAnswer(ErrorCode.NONE, -1, 5), NOW)
    assert core.end_epochs_pending
    again = of(core.on_time(NOW + 20), SendRequest)
    assert [(send.peer_id, send.request) for send in again] == [(first.peer_id, first.request)]


def test_whoever_has_hung_up_is_not_answered() -> None:
    """R-209: its fetch waits no more; the next one that comes is another."""
    core = at_ten()
    fetch(core, 2, 11, 5)
    core.forget(f"fetch of 2 at 11, {NOW}")
    assert fetched(core.append([b"x"], NOW)[1]) is None


def test_a_batch_without_records_is_not_appended() -> None:
    """R-216: it would have an offset of its own, and nothing that could be committed there."""
    core = at_ten()
    with pytest.raises(ValueError, match="at least one record"):
        core.append([], NOW)
    assert core.log.log_end_offset == 11


def test_an_append_that_was_decided_in_an_older_epoch_is_refused() -> None:
    """RA-10: what was decided on an older state may contradict the newer one."""
    core = at_ten()
    with pytest.raises(NotLeader):
        core.append([b"x"], NOW, epoch=4)
    assert core.append([b"x"], NOW, epoch=5)[0] == 11
    core.resign(NOW)
    with pytest.raises(NotLeader):
        core.append([b"x"], NOW, epoch=5)


def test_a_replica_has_one_waiting_fetch() -> None:
    """It asks once at a time, so an older one was given up over there; nothing piles up."""
    core = at_ten()
    fetch(core, 2, 11, 5, now_ms=NOW)
    effects = fetch(core, 2, 11, 5, now_ms=NOW + 1)
    assert answered(effects)
    assert len(leading(core).waiting) == 1


# --- voters that may have lost their disk (R-217) ---


def doubtful(core: QuorumCore, replica: int, offset: int, *, voted: bool = False, now_ms: int = NOW) -> list[Effect]:
    """What follows from the fetch of a voter that is catching up."""
    asked = Fetch(replica, core.state.epoch, offset, 5, NEVER_EARLY, 0, 1 << 20, catching_up=True, voted=voted)
    return core.on_request(asked, "doubtful", now_ms)


def questions(effects: list[Effect]) -> list[SendRequest]:
    return [send for send in of(effects, SendRequest) if isinstance(send.request, BeginEpoch)]


def yes(core: QuorumCore, send: SendRequest, epoch: int = 5) -> None:
    core.on_answer(send, EpochAnswer(ErrorCode.NONE, 1, epoch), NOW)


def opened(voters: int = 3) -> QuorumCore:
    """As `at_ten`, flushed, and every voter has been told who leads."""
    core = leader_with(voters=voters, epochs=[(1, 0)], log_end_offset=10, epoch=5)
    core.on_flushed(11, NOW)
    core.on_time(NOW)
    return core


def caught_up(core: QuorumCore, now_ms: int = NOW) -> bool:
    return answered(doubtful(core, 3, 11, now_ms=now_ms)).caught_up


def test_a_voter_that_catches_up_commits_nothing() -> None:
    """R-217: it may have acknowledged other records of a newer epoch, and forgotten it; nor do its late words count."""
    core = opened()
    doubtful(core, 3, 11)
    fetch(core, 3, 11, 5)
    assert leading(core).high_watermark is None
    fetch(core, 2, 11, 5)
    assert leading(core).high_watermark == 11


def test_a_voter_of_which_somebody_else_said_that_it_catches_up_counts_with_its_next_record() -> None:
    """R-218: only a voter that was there when it was appended has it; until the last such word its others do not."""
    core = opened()
    doubtful(core, 3, 0)
    core.append([b"x"], NOW)
    core.on_flushed(12, NOW)
    doubtful(core, 3, 0)
    fetch(core, 3, 12, 5)
    assert leading(core).high_watermark is None, "it may have lost all of it before it said so for the second time"
    core.append([b"x"], NOW)
    core.on_flushed(13, NOW)
    fetch(core, 3, 13, 4)
    assert leading(core).high_watermark is None, "not what this leader has there"
    fetch(core, 3, 13, 5)
    assert leading(core).high_watermark == 13


def test_a_voter_that_catches_up_keeps_nobody_in_office() -> None:
    """R-211 with R-217: check quorum is about voters that would know of a newer leader."""
    core = opened()
    doubtful(core, 3, 11, now_ms=NOW + CHECK_QUORUM_MS - 1)
    core.on_time(NOW + CHECK_QUORUM_MS)
    assert isinstance(core.role, Resigned)
    assert core.role.successors == (2, 3), "who cannot win is no good successor"


def test_a_voter_has_caught_up_once_the_others_know_no_newer_epoch() -> None:
    """R-217: words that were on their way before it came back prove nothing; the answer to a new question does."""
    core = opened()
    fetch(core, 2, 11, 5)
    asked = questions(doubtful(core, 3, 0))
    assert [send.peer_id for send in asked] == [2]
    fetch(core, 2, 11, 5)
    assert not caught_up(core)
    yes(core, SendRequest(2, asked[0].request))
    assert not caught_up(core), "that answered another question"
    yes(core, asked[0])
    behind = answered(doubtful(core, 3, 10))
    assert not behind.caught_up, "it has not everything yet"
    assert caught_up(core)
    core.append([b"x"], NOW)
    fetch(core, 3, 12, 5)
    core.on_flushed(12, NOW)
    assert leading(core).high_watermark == 12, "it counts as any other"


def test_a_voter_that_is_heard_later_is_asked_at_once() -> None:
    """R-217: until all others have confirmed, the death of two of five would leave no majority that counts."""
    core = opened(voters=5)
    fetch(core, 2, 11, 5)
    early = questions(doubtful(core, 3, 11))
    assert [send.peer_id for send in early] == [2]
    late = [questions(core.on_request(Fetch(voter, 5, 11, 5, NEVER_EARLY, 500, 1 << 20), f"of {voter}", NOW + 1))
            for voter in (4, 5)]  # fmt: skip
    assert [{send.peer_id for send in asked} >= {voter} for voter, asked in zip((4, 5), late, strict=True)] == [
        True
    ] * 2
    for send in late[-1]:
        yes(core, send)
    assert caught_up(core, NOW + 2)


def test_two_that_catch_up_need_not_wait_for_each_other() -> None:
    """R-217: each can say that it is no candidate; of elections of the past the other three know enough."""
    core = opened(voters=5)
    for voter in (2, 4):
        fetch(core, voter, 11, 5)
    doubtful(core, 5, 11)
    asked = questions(doubtful(core, 3, 11, now_ms=NOW + 1))
    for send in asked:
        if send.peer_id != 5:
            yes(core, send)
    assert not caught_up(core, NOW + 2)
    yes(core, next(send for send in asked if send.peer_id == 5))
    assert caught_up(core, NOW + 2)


def test_with_five_voters_the_last_one_is_asked_or_waited_for() -> None:
    """R-217: it may be a candidate with the lost vote in its hands, for as long as a candidate can keep it."""
    core = opened(voters=5)
    for voter in (2, 4):
        fetch(core, voter, 11, 5)
    for send in questions(doubtful(core, 3, 11)):
        yes(core, send)
    assert not caught_up(core)
    assert not caught_up(core, NOW + 2_999)
    assert caught_up(core, NOW + 3_000)


def test_the_voters_that_elected_a_leader_count_while_they_remember_it() -> None:
    """R-217: the others' votes may have been provisional, and a vote that is forgotten counts no more."""
    core = opened()
    doubtful(core, 3, 11, voted=True)
    assert leading(core).high_watermark is None, "its vote came too late to elect anybody"
    doubtful(core, 2, 11, voted=True)
    assert leading(core).high_watermark == 11
    core = opened()
    doubtful(core, 2, 11)
    assert leading(core).high_watermark is None


def test_every_vote_for_an_empty_log_counts() -> None:
    """R-217: so a new quorum begins, in which nobody has proved what it has."""
    core = leader_with(epoch=5)
    core.on_flushed(1, NOW)
    doubtful(core, 3, 1)
    assert leading(core).high_watermark is None
    core = leader_with(epoch=5)
    core.on_flushed(1, NOW)
    doubtful(core, 3, 1, voted=True)
    assert leading(core).high_watermark == 1


def test_time_alone_proves_nothing_of_a_voter_that_catches_up() -> None:
    """R-217: a majority without it has to confirm, however long that takes."""
    core = opened()
    fetch(core, 2, 11, 5)
    doubtful(core, 3, 11)
    assert not caught_up(core, NOW + 60_000)
