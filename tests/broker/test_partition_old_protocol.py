"""The protocol before Kafka 0.11 at one replica: what a follower takes over and cuts, and when it hears of a commit."""

from __future__ import annotations

import pytest
from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.core.partition.messages import (
    FollowerFetchRequest,
    HighWatermarkAdvanced,
    OffsetsRequest,
    RestartLog,
    Truncate,
    TruncationMode,
)
from odradek_chaos.stage.metadata import Brokers
from odradek_proto.errors import ErrorCode

from tests.scripts.roles import (
    LAG_MS,
    answer,
    append,
    ask,
    fetch,
    follower,
    header,
    leader,
    of_kind,
    proposals,
    registration,
    replica_log,
    take,
)

OLD = TruncationMode.HIGH_WATERMARK


def test_the_high_watermark_in_memory_is_the_one_to_cut_at() -> None:
    """At process start it is what the log was opened with, later what the last answer said, up or down (L-2)."""
    partition = follower(replica_log(9, 2), mode=OLD)
    assert [cut.offset for cut in of_kind(partition.start(0), Truncate)] == [2]
    partition.on_truncated(2, 0)
    take(partition, partition.on_fetch_answer(answer(ask(partition), [header(2, 6)], high_watermark=5), 0))
    later = registration(leader=2, leader_epoch=6, partition_epoch=1)
    assert [cut.offset for cut in of_kind(partition.update(later, 0), Truncate)] == [5]


@pytest.mark.parametrize(("told", "expected"), [(1, 1), (4, 4), (5, 5), (9, 5)])
def test_the_followers_high_watermark_is_that_of_the_answer_within_its_log(told: int, expected: int) -> None:
    """The smaller one of the own log end offset, here 5, and what the leader says; it may fall (L-3)."""
    partition = follower(replica_log(3, 3), mode=OLD, previous_leader=0)
    partition.start(0)
    take(partition, partition.on_fetch_answer(answer(ask(partition), [header(3, 2)], high_watermark=told), 0))
    assert partition.log.high_watermark == expected


@pytest.mark.parametrize(
    ("start", "end", "cut", "anew"),
    [(0, 6, [6], []), (4, 6, [6], []), (12, 20, [], [12])],
    ids=["ends below", "begins above our start", "begins above our end"],
)
def test_who_is_ahead_of_its_leader_cuts_at_the_leaders_end(
    start: int, end: int, cut: list[int], anew: list[int]
) -> None:
    """Out of range: the leader's log ends below ours, or begins above it (L-8). Nobody compares what is kept."""
    partition = follower(replica_log(9, 8, [(3, 0)]), mode=OLD, previous_leader=0)
    partition.start(0)
    assert partition.on_fetch_answer(answer(ask(partition), error=ErrorCode.OFFSET_OUT_OF_RANGE), 0) is not None
    question = partition.next_request(0)
    assert isinstance(question, OffsetsRequest)
    assert question.current_leader_epoch == -1
    effects = partition.on_offsets_answer(question, ErrorCode.NONE, start, end, 0)
    assert [each.offset for each in of_kind(effects, Truncate)] == cut
    assert [each.offset for each in of_kind(effects, RestartLog)] == anew
    if cut:
        partition.on_truncated(cut[0], 0)
    else:
        partition.on_restarted(anew[0], 0)
    offset = (cut + anew)[0]
    request = partition.next_request(0)
    assert isinstance(request, FollowerFetchRequest)
    assert (request.fetch_offset, partition.log.high_watermark) == (offset, min(8, offset) if cut else offset)


def test_the_leader_waits_for_whoever_was_caught_up_fenced_or_not() -> None:
    """Nobody asked whether an outsider may join; only its lag ends the waiting (L-4)."""
    brokers = Brokers(range(3))
    partition = leader(brokers=brokers, mode=OLD)
    append(partition, 10)
    partition.fetch_by_follower(fetch(1, 10, epoch=-1), 0)
    partition.update(registration(isr=[0, 1], partition_epoch=1), 1)
    brokers.change(2, fenced=True)
    assert partition.on_brokers_changed(LAG_MS) == []
    assert partition.on_brokers_changed(LAG_MS + 1) == [HighWatermarkAdvanced(0, 10)]


def test_the_leader_does_not_wait_for_whom_it_has_proposed() -> None:
    """A change of the ISR counted when it was stored, not before (L-4)."""
    partition = leader(replica_log(10, high_watermark=4), metadata=registration(isr=[0, 1]), mode=OLD)
    assert proposals(partition.fetch_by_follower(fetch(2, 4, epoch=-1), 0)[1]) == [(0, 1, 2)]
    _, effects = partition.fetch_by_follower(fetch(1, 10, epoch=-1), 0)
    assert effects == [HighWatermarkAdvanced(4, 10)]


def test_another_process_of_a_caught_up_replica_is_waited_for_like_the_one_before() -> None:
    """Nobody knew of incarnations: whoever had everything within the lag time counts, with an empty disk too (L-4)."""
    brokers = Brokers(range(3))
    partition = leader(brokers=brokers, mode=OLD)
    append(partition, 10)
    for replica_id in (1, 2):
        partition.fetch_by_follower(fetch(replica_id, 10, epoch=-1), 0)
    brokers.change(2, epoch=200)
    partition.update(registration(isr=[0, 1], partition_epoch=1), 1)
    partition.fetch_by_follower(fetch(2, 0, epoch=-1, broker_epoch=200), 1)
    append(partition, 5, 2)
    assert partition.fetch_by_follower(fetch(1, 15, epoch=-1), 3)[1] == []
    assert partition.on_brokers_changed(LAG_MS + 1) == [HighWatermarkAdvanced(10, 15)]


def test_a_fenced_broker_is_not_proposed() -> None:
    """The controller would refuse it (L-6)."""
    brokers = Brokers(range(3))
    brokers.change(2, fenced=True)
    partition = leader(metadata=registration(isr=[0, 1]), brokers=brokers, mode=OLD)
    assert proposals(partition.fetch_by_follower(fetch(2, 0, epoch=-1), 0)[1]) == []
    brokers.change(2, fenced=False)
    assert proposals(partition.on_brokers_changed(0)) == [(0, 1, 2)]


def test_a_follower_that_waits_at_the_end_is_caught_up() -> None:
    """Its fetch is not repeated, so it must not count as silent (L-6)."""
    partition = leader(mode=OLD)
    for replica_id in (1, 2):
        partition.fetch_by_follower(fetch(replica_id, 0, epoch=-1), 0)
    assert proposals(partition.on_time(10 * LAG_MS)) == []


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (4, ErrorCode.FENCED_LEADER_EPOCH),
        (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (5, ErrorCode.NONE),
        (-1, ErrorCode.NONE),
    ],
)
def test_questions_of_clients_are_fenced(epoch: int, error: ErrorCode) -> None:
    """Offsets and ends of epochs are told to whoever believes in our epoch or names none (L-5, L-10)."""
    log = replica_log(9, 9, [(2, 0), (5, 4)])
    partition = leader(log, metadata=registration(isr=[0], leader_epoch=5), mode=OLD)
    none = error is ErrorCode.NONE
    assert partition.offset_bound(epoch, replica=False, read_committed=False) == (error, 9 if none else -1)
    assert partition.end_offset_for_epoch(epoch, 2) == (error, EpochEntry(2, 4) if none else EpochEntry(-1, -1))


@pytest.mark.parametrize("epoch", [-1, 4, 5, 6])
def test_a_fetch_at_a_follower_is_told_that_it_does_not_lead(epoch: int) -> None:
    """Whatever epoch it names: there was none (L-5)."""
    partition = follower(mode=OLD)
    partition.start(0)
    assert partition.fetch_by_consumer(0, epoch, -1, False, 0).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
