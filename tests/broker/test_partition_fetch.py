"""What a leader answers to fetches and epoch queries, and which of them count as acknowledgements (A4, A9)."""

from __future__ import annotations

import pytest
from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.core.partition.messages import TruncationMode
from odradek_chaos.stage.metadata import Brokers
from odradek_proto.errors import ErrorCode
from odradek_proto.values import replace

from tests.scripts.roles import append, events, fetch, follower, leader, position, registration, replica_log


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (3, ErrorCode.FENCED_LEADER_EPOCH),
        (5, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (4, ErrorCode.NONE),
        (-1, ErrorCode.NONE),
    ],
)
def test_leader_epoch_fences_every_reader(epoch: int, error: ErrorCode) -> None:
    """Followers, consumers, offset and epoch queries are fenced alike. (PA-21)"""
    partition = leader(metadata=registration(leader_epoch=4))
    assert partition.fetch_by_follower(fetch(1, 0, epoch=epoch), 0)[0].error == error
    assert partition.fetch_by_consumer(0, epoch, -1, False, 0).error == error
    assert partition.end_offset_for_epoch(epoch, 4)[0] == error
    assert partition.offset_bound(epoch, replica=True, read_committed=False)[0] == error


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (4, ErrorCode.FENCED_LEADER_EPOCH),
        (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (5, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_follower_compares_the_epoch_before_it_says_that_it_does_not_lead(epoch: int, error: ErrorCode) -> None:
    """The same on a follower: the epoch first, then the role. (PA-22)"""
    partition = follower()
    partition.start(0)
    assert partition.fetch_by_consumer(0, epoch, -1, False, 0).error == error
    assert partition.refusal(epoch) == error


@pytest.mark.parametrize("start", [-2, 3, 2**63 - 1])
def test_a_log_that_begins_behind_its_own_end_acknowledges_nothing(start: int) -> None:
    """Its start would let DeleteRecords count as done (R-125), its position move the high watermark (R-6)."""
    partition = leader(replica_log(5), metadata=registration(isr=[0, 1]))
    decision, effects = partition.fetch_by_follower(replace(fetch(1, 2), log_start_offset=start), 0)
    assert (decision.error, effects) == (ErrorCode.INVALID_REQUEST, [])
    assert position(partition, 1) == -1


def test_unassigned_replica_is_told_to_wait_or_to_leave() -> None:
    """With an epoch our metadata may be behind, without one it does not belong here; assigned, it may read. (PA-20)"""
    partition = leader(metadata=registration(replicas=[0, 1]))
    assert partition.fetch_by_follower(fetch(3, 0), 0)[0].error == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert partition.fetch_by_follower(fetch(3, 0, epoch=-1), 0)[0].error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.update(registration(replicas=[0, 1, 3], isr=[0, 1], partition_epoch=1), 0)
    assert partition.fetch_by_follower(fetch(3, 0), 0)[0].error == ErrorCode.NONE


def test_epoch_comes_before_assignment_and_assignment_before_the_log() -> None:
    """Who is not assigned and believes in another epoch is fenced; else its offset and epoch say nothing (R-35)."""
    log = replica_log(10, epochs=[(2, 0), (3, 4)])
    partition = leader(log, metadata=registration(replicas=[0, 1], leader_epoch=4))
    told = [
        partition.fetch_by_follower(fetch(3, offset, epoch=epoch, last_epoch=last), 0)[0]
        for offset, epoch, last in [(0, 3, -1), (0, 5, -1), (99, 4, -1), (6, 4, 2)]
    ]
    unknown = ErrorCode.UNKNOWN_LEADER_EPOCH
    assert [each.error for each in told] == [ErrorCode.FENCED_LEADER_EPOCH, unknown, unknown, unknown]
    assert [each.diverging for each in told] == [None] * 4


def test_old_incarnation_moves_nothing() -> None:
    """A broker epoch below the registered one: NOT_LEADER_OR_FOLLOWER, position as before. (PA-19, R-38)"""
    brokers = Brokers(range(3))
    partition = leader(brokers=brokers)
    append(partition, 5)
    partition.fetch_by_follower(fetch(1, 2), 0)
    brokers.change(1, epoch=200)
    decision, effects = partition.fetch_by_follower(fetch(1, 5), 0)
    assert (decision.error, position(partition, 1)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)
    assert events(effects) == ["fenced"]
    assert partition.fetch_by_follower(fetch(1, 5, broker_epoch=200), 0)[0].error == ErrorCode.NONE
    assert position(partition, 1) == 5


@pytest.mark.parametrize("bad", [{"epoch": 0}, {"last_epoch": 9}, {"last_epoch": 2}, {"offset": 11}])
def test_fetch_that_is_not_served_is_no_acknowledgement(bad: dict[str, int]) -> None:
    """Fenced, of an unknown epoch, diverging, or out of range: the recorded position stays. (PA-39)"""
    partition = leader(replica_log(10, epochs=[(2, 0), (3, 4)]), metadata=registration(leader_epoch=4))
    partition.fetch_by_follower(fetch(1, 3, epoch=4, last_epoch=2), 0)
    values = {"offset": 10, "epoch": 4, "last_epoch": -1} | bad
    decision, _ = partition.fetch_by_follower(
        fetch(1, values["offset"], epoch=values["epoch"], last_epoch=values["last_epoch"]), 0
    )
    assert decision.error != ErrorCode.NONE or decision.diverging is not None
    assert position(partition, 1) == 3


def test_fenced_follower_is_written_down_once() -> None:
    """A follower that asks again and again with an old epoch leaves one line of evidence."""
    partition = leader(metadata=registration(leader_epoch=4))
    assert events(partition.fetch_by_follower(fetch(1, 0, epoch=3), 0)[1]) == ["fenced"]
    assert partition.fetch_by_follower(fetch(1, 0, epoch=3), 1)[1] == []
    assert events(partition.fetch_by_follower(fetch(1, 0, epoch=2), 2)[1]) == ["fenced"]


def test_consumer_reads_below_the_high_watermark() -> None:
    """Above the high watermark there is nothing yet, which is no error; above the log end it is one. (PA-40)"""
    partition = leader(replica_log(9, high_watermark=6))
    for read_committed in (False, True):
        decision = partition.fetch_by_consumer(2, -1, -1, read_committed, 0)
        assert (decision.error, decision.limit, decision.last_stable_offset) == (ErrorCode.NONE, 6, 6)
    assert partition.fetch_by_consumer(8, -1, -1, False, 0).error == ErrorCode.NONE
    assert partition.fetch_by_consumer(8, -1, -1, False, 0).limit <= 8
    assert partition.fetch_by_consumer(10, -1, -1, False, 0).error == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_serves_below_its_own_high_watermark_who_knows_of_followers() -> None:
    """Its epoch fences as everywhere; who knows leaders alone is sent to the leader. (R-269)"""
    partition = follower(replica_log(9, high_watermark=6))
    partition.start(0)
    decision = partition.read_for_consumer(2, -1, -1)
    assert (decision.error, decision.limit) == (ErrorCode.NONE, 6)
    assert partition.read_for_consumer(8, -1, -1).limit <= 8
    assert partition.read_for_consumer(10, -1, -1).error == ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.read_for_consumer(2, 4, -1).error == ErrorCode.FENCED_LEADER_EPOCH
    assert partition.read_for_consumer(2, 6, -1).error == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert partition.fetch_by_consumer(2, -1, -1, False, 0).error == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_consumer_is_told_where_its_log_parted() -> None:
    """A consumer that names the epoch of its last record is treated like a follower. (PU-02)"""
    partition = leader(replica_log(9, high_watermark=9, epochs=[(2, 0), (3, 4)]), metadata=registration(leader_epoch=4))
    assert partition.fetch_by_consumer(6, 4, 2, False, 0).diverging == EpochEntry(2, 4)


def test_same_epoch_keeps_positions_and_new_epoch_keeps_them_too() -> None:
    """Metadata in the same epoch change nothing that is known of followers; a new epoch keeps the positions. (PA-24)"""
    partition = leader()
    append(partition, 5)
    partition.fetch_by_follower(fetch(1, 4), 0)
    partition.update(registration(isr=[0, 1], partition_epoch=1), 50)
    remote = partition.replicas.by_id.get(1)
    assert remote is not None
    assert (remote.log_end_offset, remote.last_fetch_ms) == (4, 0)
    partition.update(registration(isr=[0, 1], leader_epoch=1, partition_epoch=2), 60)
    assert (position(partition, 1), remote.last_caught_up_ms) == (4, 60)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (TruncationMode.EPOCH_REQUEST, EpochEntry(2, 4)),
        (TruncationMode.EPOCH_SINGLE_ROUND, EpochEntry(-1, 4)),
    ],
)
def test_single_round_hides_the_epoch_of_an_end(mode: TruncationMode, expected: EpochEntry) -> None:
    """KIP-279 is the epoch in the answer; without it there is only an offset (B5, FE-17)."""
    partition = leader(replica_log(9, epochs=[(2, 0), (4, 4)]), metadata=registration(leader_epoch=5), mode=mode)
    assert partition.end_offset_for_epoch(5, 3) == (ErrorCode.NONE, expected)


def test_the_newest_epoch_ends_where_the_log_ends() -> None:
    """Not at the high watermark, which may be far behind (R-62, R-69)."""
    partition = leader(replica_log(9, 2, [(2, 0)]), metadata=registration(leader_epoch=5))
    append(partition, 3)
    assert partition.end_offset_for_epoch(5, 5) == (ErrorCode.NONE, EpochEntry(5, 12))
    assert partition.end_offset_for_epoch(-1, 2) == (ErrorCode.NONE, EpochEntry(2, 9))


def test_unknown_epoch_has_no_end() -> None:
    """Undefined is (-1, -1) without an error (R-69)."""
    partition = leader(replica_log(9, epochs=[(2, 0)]), metadata=registration(leader_epoch=5))
    assert partition.end_offset_for_epoch(5, 6) == (ErrorCode.NONE, EpochEntry(-1, -1))


def test_oldest_protocol_compares_no_epochs() -> None:
    """L-5: neither the leader epoch nor the last fetched epoch of a request is looked at."""
    partition = leader(
        replica_log(9, high_watermark=9, epochs=[(2, 0), (4, 4)]),
        metadata=registration(leader_epoch=5),
        mode=TruncationMode.HIGH_WATERMARK,
    )
    assert partition.fetch_by_follower(fetch(1, 6, epoch=1, last_epoch=2), 0)[0].limit == 9
    assert partition.fetch_by_consumer(6, 1, 2, False, 0).limit == 9
