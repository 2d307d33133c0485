"""What a leader knows of one follower: how far its log reaches, and when it last had everything (R-5, R-6).

Rules of this module. Only a fetch says where a follower's log ends; nothing else is an acknowledgement. Times are
monotonic milliseconds of the leader's own clock. And a follower that keeps fetching what the leader had at the fetch
before counts as caught up, although new records keep it from ever seeing the very end (R-41).
"""

from __future__ import annotations

from odradek_proto.values import Value

from odradek_broker.core.partition.messages import NO_EPOCH, NO_OFFSET, FollowerFetch

NEVER_MS = -(1 << 62)  # further back than any lag: a replica of which nothing is known is not caught up


class RemoteReplicaStatus(Value, frozen=True):
    """One follower as `cluster status` shows it. `lag_ms` is 0 at the end of the log, None when it was never there."""

    broker_id: int
    log_end_offset: int  # NO_OFFSET: no fetch in this leader epoch yet
    log_start_offset: int
    lag_ms: int | None
    caught_up: bool
    in_sync: bool  # a member of the committed ISR


class RemoteReplica:
    """The leader's second set of offsets, one object per follower."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "is_counted",
        "last_caught_up_ms",
        "last_fetch_leader_log_end_offset",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.is_counted = False
        self.log_end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.broker_epoch = NO_EPOCH
        self.last_fetch_leader_log_end_offset = NO_OFFSET
        self.last_fetch_ms = NEVER_MS
        self.last_caught_up_ms = NEVER_MS

    def on_leader_elected(self, in_isr: bool, now_ms: int) -> None:
        """A new leader knows nothing but the ISR, and gives its members the time of one lag (R-42)."""
        self.log_end_offset = self.log_start_offset = NO_OFFSET
        self.broker_epoch = NO_EPOCH
        self.last_fetch_leader_log_end_offset = NO_OFFSET
        self.last_fetch_ms = NEVER_MS
        self.last_caught_up_ms = now_ms if in_isr else NEVER_MS

    def on_new_epoch_of_same_leader(self, in_isr: bool, leader_log_end_offset: int, now_ms: int) -> None:
        """Who stays leader keeps what it knows of the members' offsets, and starts the times afresh (R-42).

        Who is no member has to fetch in the new epoch before it is one: it may have been removed and added again, with
        an empty log, before this leader heard of either.
        """
        if not in_isr:
            self.log_end_offset = self.log_start_offset = NO_OFFSET
        self.last_fetch_leader_log_end_offset = leader_log_end_offset
        self.last_fetch_ms = self.last_caught_up_ms = now_ms if in_isr else NEVER_MS

    def record(self, fetch: FollowerFetch, leader_log_end_offset: int, now_ms: int) -> bool:
        """Take in a fetch that was found in order (R-38, R-41). Returns whether the log end offset changed.

        `leader_log_end_offset` is the leader's, from before the read.
        """
        offset = fetch.fetch_offset
        if offset >= leader_log_end_offset:
            if self.last_caught_up_ms < now_ms:
                self.last_caught_up_ms = now_ms
        elif offset >= self.last_fetch_leader_log_end_offset and self.last_caught_up_ms < self.last_fetch_ms:
            self.last_caught_up_ms = self.last_fetch_ms
        if self.last_fetch_leader_log_end_offset < leader_log_end_offset:
            self.last_fetch_leader_log_end_offset = leader_log_end_offset
        self.last_fetch_ms = now_ms
        self.log_start_offset = fetch.log_start_offset
        self.broker_epoch = fetch.replica_epoch
        if self.log_end_offset == offset:
            return False
        self.log_end_offset = offset
        return True

    def is_caught_up(self, leader_log_end_offset: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """At the leader's log end offset, or there not longer ago than the lag time; the bound counts as in (R-40)."""
        return self.log_end_offset == leader_log_end_offset or now_ms - self.last_caught_up_ms <= lag_time_max_ms

    def lag_ms(self, leader_log_end_offset: int, now_ms: int) -> int | None:
        """How long ago this replica had everything; 0 when it has it now, None when it never did."""
        if self.log_end_offset == leader_log_end_offset:
            return 0
        return None if self.last_caught_up_ms == NEVER_MS else now_ms - self.last_caught_up_ms
