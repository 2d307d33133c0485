"""The leader of the quorum: fetches, high watermark, check quorum, resignation (R-205 to R-209, R-211, R-212)."""

from __future__ import annotations

import pytest
from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.core.quorum.core import QuorumCore
from odradek_broker.core.quorum.leader import Leader
from odradek_broker.core.quorum.messages import (
    AppendLeaderChange,
    BeginEpoch,
    EndEpoch,
    EpochAnswer,
    FetchAnswer,
    FlushLog,
    HighWatermarkAdvanced,
    LeadershipBegan,
    LeadershipEnded,
    NotLeader,
    Reply,
    Send,
)
from odradek_broker.core.quorum.roles import Resigned
from odradek_proto.errors import ErrorCode

from tests.broker.quorum_simulation.single import NOW, core_with, fetch, fetched, leader_with, of

CHECK_QUORUM_MS = 3_000  # 1.5 fetch timeouts


def high_watermark(core: QuorumCore) -> int | None:
    assert isinstance(core.role, Leader)
    return core.role.high_watermark


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
    assert high_watermark(core) is None
    fetch(core, 2, 10, 1)
    assert high_watermark(core) is None, "offset 10 covers older epochs alone"
    effects = fetch(core, 2, 15, 5)
    assert of(effects, HighWatermarkAdvanced) == [HighWatermarkAdvanced(0, 15)]
    assert of(effects, LeadershipBegan) == [LeadershipBegan(5)]
    fetch(core, 2, 10, 1)
    assert high_watermark(core) == 15


def test_a_leader_counts_itself_after_its_flush() -> None:
    """R-207: what only the page cache holds is on no disk."""
    core = at_ten()
    fetch(core, 2, 11, 5)
    assert high_watermark(core) is None
    core.on_flushed(11, NOW)
    assert high_watermark(core) == 11


def test_two_followers_are_a_majority_without_the_leaders_disk() -> None:
    """R-206: any majority will do, so a slow disk of the leader delays nothing."""
    core = at_ten()
    fetch(core, 2, 11, 5)
    fetch(core, 3, 11, 5)
    assert high_watermark(core) == 11


def test_an_observer_does_not_count() -> None:
    """R-214."""
    core = at_ten()
    core.on_flushed(11, NOW)
    fetch(core, 9, 11, 5)
    assert high_watermark(core) is None


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
    answer = fetched(effects)
    assert answer is not None
    assert answer.diverging == diverging
    assert isinstance(core.role, Leader)
    assert core.role.voters[2].end_offset == (-1 if diverging else offset)


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
    answer = fetched(fetch(at_ten(), 2, offset, last_epoch, epoch=epoch))
    assert answer is not None
    assert answer.error is error


def test_a_follower_names_the_leader_that_it_knows() -> None:
    """R-208: that is how others find it."""
    core = core_with()
    core.on_request(BeginEpoch(3, 4), "begin", NOW)
    answer = fetched(fetch(core, 9, 0, 0))
    assert answer is not None
    assert (answer.error, answer.leader_id, answer.epoch) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 3, 4)


def test_a_fetch_at_the_end_waits_for_records() -> None:
    """R-209: and gets them before the leader has flushed them itself."""
    core = at_ten()
    assert fetched(fetch(core, 2, 11, 5)) is None
    base_offset, effects = core.append([b"x"], NOW)
    assert base_offset == 11
    answer = fetched(effects)
    assert answer is not None
    assert answer.error is ErrorCode.NONE
    assert of(effects, FlushLog)


def test_a_waiting_fetch_hears_of_a_new_high_watermark() -> None:
    """KIP-1166: brokers apply metadata only up to it, and need not wait for the next record to learn it."""
    core = at_ten()
    assert fetched(fetch(core, 9, 11, 5, known=0)) is None
    core.on_flushed(11, NOW)
    replies = of(fetch(core, 2, 11, 5, known=0), Reply)
    assert [reply.token for reply in replies] == [f"fetch of 9 at 11, {NOW}", f"fetch of 2 at 11, {NOW}"]
    assert [reply.answer.high_watermark for reply in replies if isinstance(reply.answer, FetchAnswer)] == [11, 11]
    assert fetched(fetch(core, 3, 11, 5, known=11)) is None, "who knows it already waits"


def test_a_waiting_fetch_ends_when_its_time_is_over() -> None:
    """R-209: with what there is, which is nothing."""
    core = at_ten()
    assert fetched(fetch(core, 2, 11, 5, wait_ms=500)) is None
    assert fetched(core.on_time(NOW + 499)) is None
    answer = fetched(core.on_time(NOW + 500))
    assert answer is not None
    assert answer.error is ErrorCode.NONE


def test_waiting_fetches_end_when_leadership_does() -> None:
    """RA-08, KAFKA-10677: with the new epoch, so that their senders look elsewhere at once."""
    core = at_ten()
    fetch(core, 2, 11, 5)
    effects = core.on_request(BeginEpoch(3, 7), "begin", NOW)
    answer = fetched(effects)
    assert answer is not None
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
    told = of(core.on_time(NOW + 1_000), Send)
    assert [(send.peer_id, send.request) for send in told] == [(3, BeginEpoch(1, 5))]


def test_a_leader_that_resigns_names_the_one_with_the_longest_log_first() -> None:
    """RA-09, R-212; it repeats itself to those that did not hear it."""
    core = at_ten()
    fetch(core, 2, 10, 1)
    fetch(core, 3, 11, 5)
    goodbyes = of(core.resign(NOW), Send)
    assert [send.request for send in goodbyes] == [EndEpoch(1, 5, (3, 2))] * 2
    assert core.goodbyes_pending
    for send in goodbyes:
        core.on_answer(send, EpochAnswer(ErrorCode.NONE, -1, 5), NOW)
    assert not core.goodbyes_pending


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
    assert fetched(effects) is not None
    assert isinstance(core.role, Leader)
    assert len(core.role.waiting) == 1
