"""How a follower begins, in each truncation mode, and what new metadata do to it (A7, A8, L-1)."""

from __future__ import annotations

import pytest
from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.core.partition.follower import FetchPhase
from odradek_broker.core.partition.messages import (
    EpochRequest,
    FetchAnswer,
    Truncate,
    TruncationMode,
    WriteEpochs,
)
from odradek_proto.errors import ErrorCode

from tests.scripts.roles import answer, ask, events, follower, header, leader, of_kind, registration, replica_log, take

ASKING = [TruncationMode.EPOCH_REQUEST, TruncationMode.EPOCH_SINGLE_ROUND]


def offsets(effects: list[object]) -> list[int]:
    return [effect.offset for effect in effects if isinstance(effect, Truncate)]


def test_fetch_mode_starts_at_the_log_end() -> None:
    """With epochs nothing is cut at first, whatever the high watermark says (R-70)."""
    partition = follower(replica_log(9, 2, [(3, 0)]))
    effects = partition.start(0)
    assert (events(effects), offsets([*effects])) == (["became_follower"], [])
    assert ask(partition).fetch_offset == 9


@pytest.mark.parametrize("mode", [TruncationMode.FETCH, *ASKING])
def test_without_any_epoch_the_high_watermark_is_kept(mode: TruncationMode) -> None:
    """A log without epochs can name none: cut at the high watermark, then fetch. (FE-05, R-71)"""
    partition = follower(replica_log(9, 2), mode=mode)
    assert offsets([*partition.start(0)]) == [2]
    partition.on_truncated(2, 0)
    assert ask(partition).fetch_offset == 2


@pytest.mark.parametrize("mode", ASKING)
def test_asking_modes_ask_first(mode: TruncationMode) -> None:
    """Before the first fetch the leader is asked where our newest epoch ends; fetches name no last epoch (R-73)."""
    partition = follower(replica_log(9, 2, [(3, 0)]), mode=mode)
    partition.start(0)
    request = partition.next_request(0)
    assert request == EpochRequest(partition.log.topic_partition, 5, 3)
    assert isinstance(request, EpochRequest)
    effects = partition.on_epoch_answer(request, ErrorCode.NONE, EpochEntry(3, 7), 0)
    assert offsets([*effects]) == [7]
    partition.on_truncated(7, 0)
    fetch = ask(partition)
    assert (fetch.fetch_offset, fetch.last_fetched_epoch) == (7, -1)


def test_second_round_asks_for_the_epoch_that_is_left() -> None:
    """The leader answers with an epoch unknown here: cut at our end before it, and ask again. (FE-14, R-76)"""
    partition = follower(replica_log(200, 50, [(3, 0), (5, 120)]), mode=TruncationMode.EPOCH_REQUEST)
    partition.start(0)
    first = partition.next_request(0)
    assert isinstance(first, EpochRequest)
    assert offsets([*partition.on_epoch_answer(first, ErrorCode.NONE, EpochEntry(4, 155), 0)]) == [120]
    partition.on_truncated(120, 0)
    second = partition.next_request(0)
    assert isinstance(second, EpochRequest)
    assert second.leader_epoch == 3
    assert offsets([*partition.on_epoch_answer(second, ErrorCode.NONE, EpochEntry(3, 101), 0)]) == [101]
    partition.on_truncated(101, 0)
    assert partition.phase is FetchPhase.FETCHING


def test_answer_that_nobody_asked_for_is_ignored() -> None:
    """An answer for a partition that has asked nothing changes nothing. (FE-07, FE-18)"""
    partition = follower(replica_log(9, 2, [(3, 0)]), mode=TruncationMode.EPOCH_REQUEST)
    partition.start(0)
    stray = EpochRequest(partition.log.topic_partition, 5, 3)
    assert partition.on_epoch_answer(stray, ErrorCode.NONE, EpochEntry(3, 1), 0) == []
    assert partition.log.log_end_offset == 9


@pytest.mark.parametrize(("previous", "cut"), [(-1, [2]), (2, [2]), (0, [])])
def test_oldest_protocol_cuts_for_another_leader(previous: int, cut: list[int]) -> None:
    """L-1: cut at the high watermark when the leader is another one than before; none is another one too."""
    log = replica_log(9, 2, [(3, 0)])
    partition = follower(log, mode=TruncationMode.HIGH_WATERMARK, previous_leader=previous)
    assert offsets([*partition.start(0)]) == cut
    if cut:
        partition.on_truncated(2, 0)
    request = ask(partition)
    assert (request.fetch_offset, request.current_leader_epoch, request.last_fetched_epoch) == ((cut or [9])[0], -1, -1)


def test_the_oldest_protocol_cuts_nothing_when_its_leader_leads_on() -> None:
    """L-1: what it copied from this leader is what this leader has, so it thinks."""
    partition = follower(replica_log(9, 2), mode=TruncationMode.HIGH_WATERMARK)
    assert offsets([*partition.start(0)]) == [2]
    partition.on_truncated(2, 0)
    take(partition, partition.on_fetch_answer(answer(ask(partition), [header(2, 3)]), 0))
    leads = partition.leader
    later = registration(leads, leader_epoch=partition.leader_epoch + 1, partition_epoch=partition.partition_epoch + 1)
    assert offsets([*partition.update(later, 0)]) == []
    assert ask(partition).fetch_offset == 5


def test_new_epoch_brings_a_failed_partition_back() -> None:
    """Only a new leader epoch ends a failure (R-91)."""
    partition = follower(replica_log(9, 2, [(3, 0)]))
    partition.start(0)
    ask(partition)
    partition.on_fetch_answer(FetchAnswer(9, ErrorCode.FENCED_LEADER_EPOCH, 0, 0), 0)
    partition.update(registration(isr=[0], leader_epoch=5, partition_epoch=1), 0)
    assert partition.failed is not None
    partition.update(registration(leader_epoch=6, partition_epoch=2), 0)
    assert partition.failed is None
    assert ask(partition).current_leader_epoch == 6


@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(4, 9), (3, 9), (5, 6), (6, 6)])
def test_older_metadata_are_ignored(leader_epoch: int, partition_epoch: int) -> None:
    """Leader epochs and partition epochs only rise, for a follower and for a leader. (PA-23, R-100)"""
    older = registration(leader=0, isr=[0], leader_epoch=leader_epoch, partition_epoch=partition_epoch)
    following = follower(metadata=registration(leader=2, leader_epoch=5, partition_epoch=7))
    following.start(0)
    assert following.update(older, 0) == []
    assert (following.leader, following.leader_epoch, following.partition_epoch) == (2, 5, 7)
    leading = leader(metadata=registration(leader_epoch=5, partition_epoch=7))
    assert leading.update(older, 0) == []
    assert (leading.isr, leading.leader_epoch, leading.partition_epoch) == ((0, 1, 2), 5, 7)


def test_without_a_leader_nothing_is_asked() -> None:
    """A leaderless partition keeps its log and waits (R-103)."""
    partition = follower(replica_log(9, 2), metadata=registration(leader=-1, leader_epoch=5))
    assert events(partition.start(0)) == ["became_follower"]
    assert (partition.next_request(0), partition.log.log_end_offset) == (None, 9)


def test_leader_that_becomes_a_follower_drops_its_unused_epoch() -> None:
    """Elected and replaced before it wrote a record: its entry goes when it asks, and no record does (R-65)."""
    log = replica_log(9, 9, [(3, 0)])
    leader(log, metadata=registration(leader_epoch=4))
    assert log.epochs.entries == ((3, 0), (4, 9))
    partition = follower(log, mode=TruncationMode.EPOCH_REQUEST)
    partition.start(0)
    request = partition.next_request(0)
    assert isinstance(request, EpochRequest)
    assert request.leader_epoch == 4
    effects = partition.on_epoch_answer(request, ErrorCode.NONE, EpochEntry(3, 9), 0)
    assert of_kind(effects, WriteEpochs) == [WriteEpochs((EpochEntry(3, 0),))]
    assert offsets([*effects]) == []


def test_own_retention_moves_the_log_start() -> None:
    """Every replica retains by itself (R-164); the epochs follow (R-64)."""
    log = replica_log(9, 9, [(2, 0), (3, 5)])
    partition = follower(log)
    partition.start(0)
    partition.on_log_start_advanced(6, 0)
    assert (log.log_start_offset, log.epochs.entries) == (6, ((3, 6),))
    assert partition.on_log_start_advanced(4, 0) == []
