"""When a leader's high watermark moves, and for whom it waits (A3)."""

from __future__ import annotations

import pytest
from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.core.partition.messages import (
    AdvanceLogStart,
    HighWatermarkAdvanced,
    IsrChanged,
    ProposeIsr,
    TruncationMode,
    WriteEpochs,
)
from odradek_chaos.stage.metadata import Brokers
from odradek_proto.errors import ErrorCode

from tests.scripts.roles import (
    LAG_MS,
    accepted,
    append,
    events,
    fetch,
    leader,
    of_kind,
    proposals,
    registration,
    replica_log,
)


def test_leader_alone_commits_at_once() -> None:
    """With itself as the whole ISR, the append moves the high watermark (R-12)."""
    partition = leader(metadata=registration(isr=[0]))
    assert of_kind(append(partition, 4), HighWatermarkAdvanced) == [HighWatermarkAdvanced(0, 4)]


def test_smallest_position_of_the_isr_decides() -> None:
    """The smallest of all members' positions is the high watermark; it only rises (R-20, R-22, R-23)."""
    partition = leader()
    append(partition, 10)
    assert partition.fetch_by_follower(fetch(1, 7), 0)[1] == []
    _, effects = partition.fetch_by_follower(fetch(2, 4), 0)
    assert effects == [HighWatermarkAdvanced(0, 4)]
    assert partition.fetch_by_follower(fetch(2, 4), 0)[1] == []
    assert partition.fetch_by_follower(fetch(2, 10), 0)[1] == [HighWatermarkAdvanced(4, 7)]


@pytest.mark.parametrize("mode", [TruncationMode.FETCH, TruncationMode.HIGH_WATERMARK])
def test_answer_carries_the_high_watermark_from_before(mode: TruncationMode) -> None:
    """A fetch that commits records is itself answered with the old high watermark. (PA-47, L-11, R-24)"""
    partition = leader(metadata=registration(replicas=[0, 1]), mode=mode)
    append(partition, 2)
    decision, effects = partition.fetch_by_follower(fetch(1, 2, epoch=-1), 0)
    assert (decision.high_watermark, effects) == (0, [HighWatermarkAdvanced(0, 2)])
    assert partition.fetch_by_follower(fetch(1, 2, epoch=-1), 1)[0].high_watermark == 2


def test_new_leader_keeps_its_high_watermark() -> None:
    """An election neither raises nor lowers it (R-25)."""
    partition = leader(replica_log(5, high_watermark=2))
    assert (partition.log.high_watermark, partition.epoch_start_offset) == (2, 5)


def test_new_leader_notes_where_its_epoch_begins() -> None:
    """Become leader writes (epoch, log end offset) before any record. (PA-02)"""
    log = replica_log(5, high_watermark=2, epochs=[(3, 0)])
    partition = leader(log, metadata=registration(leader_epoch=7))
    assert log.epochs.entries == ((3, 0), (7, 5))
    again = partition.update(registration(leader_epoch=8, partition_epoch=1), 0)
    assert events(again) == ["leader_elected"]
    assert of_kind(again, WriteEpochs) == [WriteEpochs((EpochEntry(3, 0), EpochEntry(8, 5)))]


def test_a_partition_cannot_need_more_members_than_it_has_replicas() -> None:
    """R-21: min.insync.replicas=3 asks two replicas for two, and a third one that is added for three."""
    partition = leader(metadata=registration(replicas=[0, 1]), min_isr=3)
    assert not partition.under_min_isr
    partition.update(registration(replicas=[0, 1, 2], isr=[0, 1], partition_epoch=1), 0)
    assert partition.under_min_isr


def test_under_min_isr_it_stands_still() -> None:
    """min ISR 3, ISR 2: it stays, even with a maximal ISR of 3, and moves when the expansion is confirmed. (PA-05)"""
    partition = leader(metadata=registration(isr=[0, 1]), min_isr=3)
    append(partition, 6)
    partition.fetch_by_follower(fetch(1, 6), 0)
    _, effects = partition.fetch_by_follower(fetch(2, 6), 0)
    assert (partition.maximal_isr, partition.log.high_watermark) == ((0, 1, 2), 0)
    (order,) = of_kind(effects, ProposeIsr)
    effects = partition.on_isr_answer(order.proposal, accepted(order.proposal), 0)
    assert of_kind(effects, HighWatermarkAdvanced) == [HighWatermarkAdvanced(0, 6)]
    assert of_kind(effects, IsrChanged) == [IsrChanged((0, 1, 2))]


@pytest.mark.parametrize(("fenced", "stopping"), [(True, False), (False, True)])
def test_replica_that_cannot_join_does_not_hold_it(fenced: bool, stopping: bool) -> None:
    """A fenced or stopping ex-member that is caught up by the clock does not hold it back; a free one does. (PA-06)"""
    brokers = Brokers(range(3))
    partition = leader(brokers=brokers)
    for replica_id in (1, 2):
        partition.fetch_by_follower(fetch(replica_id, 0), 0)
    append(partition, 10)
    partition.update(registration(isr=[0, 1], partition_epoch=1), 0)
    partition.fetch_by_follower(fetch(1, 10), 0)
    assert partition.log.high_watermark == 0
    brokers.change(2, fenced=fenced, stopping=stopping)
    assert partition.on_brokers_changed(0) == [HighWatermarkAdvanced(0, 10)]


@pytest.mark.parametrize("told_first", [False, True])
def test_replica_that_lost_its_log_does_not_hold_it(told_first: bool) -> None:
    """What the process before had says nothing of the one that fetches now (KIP-903): its disk may be empty.

    Seed 1640 of the simulated world found it: for a lag time nothing was committed, although the ISR had everything.
    It is the same whether the leader hears first of the new ISR or of the new process.
    """
    brokers = Brokers(range(3))
    partition = leader(brokers=brokers)
    append(partition, 10)
    for replica_id in (1, 2):
        partition.fetch_by_follower(fetch(replica_id, 10), 0)
    assert partition.log.high_watermark == 10
    brokers.change(2, epoch=200)
    if told_first:
        partition.update(registration(isr=[0, 1], partition_epoch=1), 1)
    partition.fetch_by_follower(fetch(2, 0, broker_epoch=200), 1)
    partition.update(registration(isr=[0, 1], partition_epoch=1), 1)
    append(partition, 5, 2)
    _, effects = partition.fetch_by_follower(fetch(1, 15), 3)
    assert effects == [HighWatermarkAdvanced(10, 15)]


def test_replica_that_fell_behind_does_not_hold_it() -> None:
    """Outside of the ISR only those count that were caught up within the lag time (R-20)."""
    partition = leader(metadata=registration(isr=[0, 1]))
    append(partition, 5)
    partition.fetch_by_follower(fetch(1, 2), 0)
    partition.fetch_by_follower(fetch(2, 1), 0)
    assert partition.fetch_by_follower(fetch(1, 5), 0)[1] == [HighWatermarkAdvanced(2, 5)]


def test_metadata_without_a_silent_member_free_it() -> None:
    """Who is no member any more is not waited for, and who waits for records or members looks again (R-23, R-124)."""
    partition = leader()
    append(partition, 5)
    partition.fetch_by_follower(fetch(1, 5), 0)
    effects = partition.update(registration(isr=[0, 1], partition_epoch=1), LAG_MS + 1)
    assert of_kind(effects, HighWatermarkAdvanced) == [HighWatermarkAdvanced(0, 5)]
    assert of_kind(effects, IsrChanged) == [IsrChanged((0, 1))]


def test_confirmed_shrink_frees_it() -> None:
    """It waits for a member that is proposed to leave, until the controller confirms (KAFKA-13091, R-44). (PA-10)"""
    partition = leader()
    append(partition, 5)
    partition.fetch_by_follower(fetch(1, 5), 0)
    append(partition, 1, LAG_MS)
    partition.fetch_by_follower(fetch(1, 6), LAG_MS)
    effects = partition.on_time(LAG_MS + 1)
    assert proposals(effects) == [(0, 1)]
    assert (partition.maximal_isr, partition.log.high_watermark) == ((0, 1, 2), 0)
    (order,) = of_kind(effects, ProposeIsr)
    effects = partition.on_isr_answer(order.proposal, accepted(order.proposal), LAG_MS + 2)
    assert of_kind(effects, HighWatermarkAdvanced) == [HighWatermarkAdvanced(0, 6)]


def test_latest_is_hidden_until_the_epoch_start_is_reached() -> None:
    """HW 2, LEO 5 at election: clients hear the end once the high watermark is 5, replicas at once. (PA-03, R-26)

    Told 2 by the new leader, a client would see the end go back from what the old one told it (KAFKA-2334, KIP-207).
    """
    partition = leader(replica_log(5, high_watermark=2), metadata=registration(replicas=[0, 1]))
    hidden = (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    assert partition.offset_bound(-1, replica=False, read_committed=False) == hidden
    assert partition.offset_bound(-1, replica=True, read_committed=False) == (ErrorCode.NONE, 5)
    assert partition.timestamp_bound(-1, 1, replica=False, read_committed=False) == (ErrorCode.NONE, 1)
    assert partition.timestamp_bound(-1, 2, replica=False, read_committed=False) == hidden
    assert partition.timestamp_bound(-1, -1, replica=False, read_committed=False) == hidden
    partition.fetch_by_follower(fetch(1, 5), 0)
    append(partition, 2)
    assert partition.offset_bound(-1, replica=False, read_committed=False) == (ErrorCode.NONE, 5)
    assert partition.timestamp_bound(-1, 5, replica=False, read_committed=False) == (ErrorCode.NONE, -1)
    assert partition.offset_bound(9, replica=False, read_committed=False)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_visible_offset_by_time_is_fenced_too() -> None:
    """What was found below the high watermark is told to nobody who believes in another epoch (R-26, R-110)."""
    partition = leader(replica_log(5, high_watermark=2), metadata=registration(replicas=[0, 1], leader_epoch=4))
    asked = [partition.timestamp_bound(epoch, 1, replica=False, read_committed=False)[0] for epoch in (3, 4, 5)]
    assert asked == [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NONE, ErrorCode.UNKNOWN_LEADER_EPOCH]


def test_same_epoch_keeps_the_epoch_start() -> None:
    """Metadata without a new leader epoch leave the epoch's start where it was. (PA-25)"""
    partition = leader(replica_log(5))
    append(partition, 3)
    partition.update(registration(isr=[0, 1], partition_epoch=1), 0)
    assert partition.epoch_start_offset == 5
    partition.update(registration(leader_epoch=1, partition_epoch=2), 0)
    assert partition.epoch_start_offset == 8


def test_unflushed_records_of_the_leader_do_not_count_before_ack() -> None:
    """With odradek.fsync=before-ack the leader counts for itself only what is flushed."""
    partition = leader(metadata=registration(replicas=[0, 1]), flush_before_ack=True)
    append(partition, 4)
    assert partition.fetch_by_follower(fetch(1, 4), 0)[1] == []
    assert partition.on_flushed(3, 0) == [HighWatermarkAdvanced(0, 3)]
    assert partition.on_flushed(4, 0) == [HighWatermarkAdvanced(3, 4)]


def test_it_does_not_fall_to_what_the_leader_has_flushed() -> None:
    """A leader that was a follower may have flushed less than is committed; it waits for its disk (R-22)."""
    log = replica_log(4, high_watermark=4)
    log.flushed_offset = 2
    partition = leader(log, metadata=registration(replicas=[0, 1]), flush_before_ack=True)
    append(partition, 2)
    assert partition.fetch_by_follower(fetch(1, 6), 0)[1] == []
    assert partition.on_flushed(3, 0) == []
    assert partition.log.high_watermark == 4
    assert partition.on_flushed(6, 0) == [HighWatermarkAdvanced(4, 6)]


def test_oldest_protocol_counts_without_conditions() -> None:
    """L-4: no min ISR, no maximal ISR; L-10: the end is told at once."""
    partition = leader(
        replica_log(3, high_watermark=1),
        metadata=registration(isr=[0, 1]),
        min_isr=3,
        mode=TruncationMode.HIGH_WATERMARK,
    )
    assert partition.offset_bound(-1, replica=False, read_committed=False) == (ErrorCode.NONE, 1)
    partition.fetch_by_follower(fetch(1, 3, epoch=-1), 0)
    assert partition.log.high_watermark == 3
    assert partition.log.epochs.entries == ()


def test_log_start_moves_up_to_the_high_watermark_only() -> None:
    """DeleteRecords: -1 is the high watermark, above it is out of range, nothing goes back (R-160, R-161). (LG-07)"""
    partition = leader(metadata=registration(isr=[0]))
    append(partition, 6)
    assert partition.check_delete_records(7)[0] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.check_delete_records(-2)[0] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.check_delete_records(-1) == (ErrorCode.NONE, 6)
    partition.on_log_start_advanced(4, 0)
    assert partition.check_delete_records(2) == (ErrorCode.NONE, 4)
    assert partition.on_log_start_advanced(3, 0) == []
    assert partition.log.epochs.entries == ((0, 4),)


def test_a_moved_log_start_is_written_with_its_epochs() -> None:
    """The epoch that the first record belongs to begins with it, in the file too (R-64)."""
    partition = leader(replica_log(9, 9, [(2, 0), (3, 5)]), metadata=registration(isr=[0], leader_epoch=3))
    assert partition.on_log_start_advanced(7, 0) == [AdvanceLogStart(7), WriteEpochs((EpochEntry(3, 7),))]


def test_low_watermark_waits_for_live_replicas() -> None:
    """DeleteRecords is done when every live replica has moved its log start offset (R-125)."""
    brokers = Brokers(range(3))
    partition = leader(metadata=registration(isr=[0, 1]), brokers=brokers)
    append(partition, 6)
    partition.fetch_by_follower(fetch(1, 6), 0)
    partition.on_log_start_advanced(4, 0)
    assert partition.low_watermark() == -1
    brokers.change(2, fenced=True)
    assert partition.low_watermark() == 0
    partition.fetch_by_follower(fetch(1, 6, log_start=4), 0)
    assert partition.low_watermark() == 4
