"""When a follower counts as caught up: at the end of the log, or not long ago (R-40, R-41, R-42)."""

from __future__ import annotations

import pytest
from odradek_broker.core.partition.in_sync import NEVER_MS, RemoteReplica

from tests.scripts.roles import LAG_MS, append, fetch, leader, proposals, registration


def replica(*, in_isr: bool = True, now_ms: int = 0) -> RemoteReplica:
    remote = RemoteReplica(1)
    remote.on_leader_elected(in_isr, now_ms)
    return remote


def test_fetch_at_the_end_is_caught_up_now() -> None:
    """A fetch offset at the leader's end: caught up at the time of the fetch. (PA-29)"""
    remote = replica()
    assert remote.record(fetch(1, 10), 10, 500)
    assert (remote.last_caught_up_ms, remote.log_end_offset, remote.broker_epoch) == (500, 10, 101)


def test_fetch_at_the_end_of_the_last_fetch_is_caught_up_then() -> None:
    """A fetch that has what the leader had at the fetch before: caught up at that fetch. (PA-29, R-41)"""
    remote = replica()
    remote.record(fetch(1, 5), 10, 500)
    remote.record(fetch(1, 10), 15, 900)
    assert remote.last_caught_up_ms == 500


def test_fetch_behind_that_is_not_caught_up() -> None:
    """A fetch that lacks what the leader had at the fetch before changes no time. (PA-29)"""
    remote = replica(now_ms=7)
    remote.record(fetch(1, 5), 10, 500)
    remote.record(fetch(1, 8), 15, 900)
    assert remote.last_caught_up_ms == 7


def test_repeated_fetch_says_that_nothing_changed() -> None:
    """Only a changed log end offset can move the high watermark (R-23)."""
    remote = replica()
    assert remote.record(fetch(1, 5), 10, 1)
    assert not remote.record(fetch(1, 5), 10, 2)


@pytest.mark.parametrize(("age_ms", "caught_up"), [(0, True), (LAG_MS, True), (LAG_MS + 1, False)])
def test_lag_bound_is_inclusive(age_ms: int, caught_up: bool) -> None:
    """A lag of exactly replica.lag.time.max.ms is in sync. (PA-30)"""
    remote = replica(now_ms=1_000)
    assert remote.is_caught_up(10, 1_000 + age_ms, LAG_MS) is caught_up


def test_end_of_log_is_caught_up_for_ever() -> None:
    """At the leader's end no time counts. (PA-12, PA-34)"""
    remote = replica()
    remote.record(fetch(1, 10), 10, 0)
    assert remote.is_caught_up(10, 10**12, LAG_MS)
    assert not remote.is_caught_up(11, 10**12, LAG_MS)


def test_replica_outside_of_the_isr_starts_unknown() -> None:
    """A new leader takes only ISR members as caught up. (PA-31)"""
    remote = replica(in_isr=False, now_ms=0)
    assert (remote.log_end_offset, remote.last_caught_up_ms) == (-1, NEVER_MS)
    assert not remote.is_caught_up(0, 0, LAG_MS)


def test_new_epoch_of_the_same_leader_keeps_offsets() -> None:
    """Who leads on keeps the log end offset and starts the times afresh (R-42)."""
    remote = replica()
    remote.record(fetch(1, 10), 12, 0)
    remote.on_new_epoch_of_same_leader(True, 12, 800)
    assert (remote.log_end_offset, remote.last_caught_up_ms, remote.last_fetch_leader_log_end_offset) == (10, 800, 12)
    remote.on_new_epoch_of_same_leader(False, 12, 900)
    assert (remote.log_end_offset, remote.last_caught_up_ms) == (-1, NEVER_MS), "no member has to fetch anew (R-45)"


def test_new_epoch_begins_all_times_anew() -> None:
    """A stranger's old fetch proves nothing, and a member's next one is measured from here (R-42)."""
    member, stranger = replica(), replica(in_isr=False)
    for remote in (member, stranger):
        remote.record(fetch(1, 10), 12, 500)
        remote.on_new_epoch_of_same_leader(remote is member, 15, 800)
        assert remote.last_fetch_leader_log_end_offset == 15
        remote.record(fetch(1, 15), 20, 900)
    assert (member.last_caught_up_ms, stranger.last_caught_up_ms) == (800, NEVER_MS)


def test_who_left_and_came_back_unseen_is_not_proposed_before_it_fetches() -> None:
    """A metadata snapshot may tell a leader at once that a replica was removed and added: what it had then is gone."""
    partition = leader(min_isr=2)
    append(partition, 100)
    for replica_id in (1, 2):
        partition.fetch_by_follower(fetch(replica_id, 100), 0)
    assert partition.log.high_watermark == 100
    after = registration(replicas=[0, 1, 2], isr=[0, 1], leader_epoch=1, partition_epoch=2)
    assert proposals(partition.update(after, 10)) == []
    assert partition.maximal_isr == (0, 1)
    assert proposals(partition.fetch_by_follower(fetch(2, 40, epoch=1), 20)[1]) == []
    assert proposals(partition.fetch_by_follower(fetch(2, 100, epoch=1), 30)[1]) == [(0, 1, 2)]


def test_stuck_follower_leaves_after_the_lag_time() -> None:
    """Fetches that stop one record before the end: out of sync after the lag time. (PA-32)"""
    partition = leader()
    append(partition, 10)
    for replica_id, offset in ((1, 9), (2, 10)):
        partition.fetch_by_follower(fetch(replica_id, offset), 0)
    assert proposals(partition.on_time(LAG_MS)) == []
    assert proposals(partition.on_time(LAG_MS + LAG_MS // 2)) == [(0, 2)]


def test_slow_follower_leaves_and_a_catch_up_keeps_it() -> None:
    """A follower that fetches and never catches up is out; one that reached the last end is in. (PA-33)"""
    partition = leader()
    append(partition, 10)
    for now_ms in range(0, LAG_MS + 1, 1_000):
        append(partition, 10, now_ms)
        partition.fetch_by_follower(fetch(1, now_ms // 1_000 + 1), now_ms)
        partition.fetch_by_follower(fetch(2, partition.log.log_end_offset), now_ms)
    assert proposals(partition.on_time(LAG_MS + 5_000)) == [(0, 2)]


def test_follower_is_kept_while_it_reaches_the_last_end() -> None:
    """Fetch 5 at 5000, append, fetch 10 at 10001: caught up at 5000, so no shrink. (PA-11)"""
    partition = leader()
    append(partition, 10)
    partition.fetch_by_follower(fetch(2, 10), 0)
    partition.fetch_by_follower(fetch(1, 5), 5_000)
    append(partition, 5, 5_000)
    partition.fetch_by_follower(fetch(1, 10), 10_001)
    partition.fetch_by_follower(fetch(2, 15), 10_001)
    assert proposals(partition.on_time(10_001)) == []


def test_idle_follower_has_the_whole_lag_time_after_an_append() -> None:
    """A fetch that waits at the end counts until the append that answers it (R-263)."""
    partition = leader()
    for replica_id in (1, 2):
        partition.fetch_by_follower(fetch(replica_id, 0), 0)
    append(partition, 1, 100_000)
    assert proposals(partition.on_time(100_000 + LAG_MS)) == []
    assert proposals(partition.on_time(100_000 + LAG_MS + LAG_MS // 2)) == [(0,)]


def test_status_says_lag_and_membership() -> None:
    """What `cluster status` shows of each follower, by broker id (R-5)."""
    partition = leader()
    partition.fetch_by_follower(fetch(2, 0), 100)
    append(partition, 3, 200)
    partition.fetch_by_follower(fetch(1, 3), 300)
    first, second = partition.remote_replicas(700)
    assert (first.broker_id, first.log_end_offset, first.lag_ms, first.in_sync) == (1, 3, 0, True)
    assert (second.broker_id, second.log_end_offset, second.lag_ms, second.caught_up) == (2, 0, 500, True)
