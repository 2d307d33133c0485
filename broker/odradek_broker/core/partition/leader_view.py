"""What a leader knows and says without changing anything: reads, bounds, ends of epochs, the state of its followers.

`LeaderPartition` adds what changes. Rule of this module: nothing here records, raises or proposes, so the rim may ask
as often as it likes, for instance when a fetch that waited is answered (R-122).
"""

from __future__ import annotations

from odradek_proto.errors import ErrorCode

from odradek_broker.core.partition import fencing
from odradek_broker.core.partition.bounds import ClientBounds
from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.core.partition.in_sync import InSyncReplicas
from odradek_broker.core.partition.messages import (
    NO_EPOCH,
    NO_OFFSET,
    FetchDecision,
    FollowerFetch,
    PartitionSettings,
    ReplicaLog,
)
from odradek_broker.core.partition.policy import ReplicaPolicy
from odradek_broker.core.partition.remote_replica import RemoteReplica, RemoteReplicaStatus


class LeaderView:
    """The reading side of a leader. Its fields are set by `LeaderPartition`."""

    log: ReplicaLog
    broker_id: int
    leader_epoch: int
    partition_epoch: int
    epoch_start_offset: int  # where this leadership began
    settings: PartitionSettings
    policy: ReplicaPolicy
    replicas: InSyncReplicas

    @property
    def isr(self) -> tuple[int, ...]:
        """The ISR that the controller has confirmed."""
        return self.replicas.isr.committed

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The ISR together with whom a pending proposal would add."""
        return self.replicas.isr.maximal

    @property
    def held_leader(self) -> int:
        """Whom this replica has last known to lead; the next follower's `previous_leader` (L-1)."""
        return self.broker_id

    @property
    def effective_min_isr(self) -> int:
        return min(self.settings.min_insync_replicas, self.replicas.assigned)

    @property
    def under_min_isr(self) -> bool:
        return len(self.replicas.isr.committed) < self.effective_min_isr

    def produce_outcome(self, required_offset: int) -> ErrorCode | None:
        """What a waiting acks=all produce is told (R-14); None: not yet."""
        if self.log.high_watermark < required_offset:
            return None
        if len(self.replicas.isr.maximal) < self.effective_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    # --- Fetch -------------------------------------------------------------------------------------------------------

    def read_for_follower(self, fetch: FollowerFetch) -> FetchDecision:
        """What a follower may read now; nothing is recorded (R-35 to R-37)."""
        epoch = fetch.current_leader_epoch if self.policy.fences_by_leader_epoch else NO_EPOCH
        if epoch not in (self.leader_epoch, NO_EPOCH):
            return fencing.refuse(self.log, fencing.check_leader_epoch(epoch, self.leader_epoch))
        if fetch.replica_id not in self.replicas.by_id:
            # With an epoch: we may not have seen yet the assignment that the replica acts on.
            unknown = ErrorCode.NOT_LEADER_OR_FOLLOWER if epoch == NO_EPOCH else ErrorCode.UNKNOWN_LEADER_EPOCH
            return fencing.refuse(self.log, unknown)
        last = fetch.last_fetched_epoch if self.policy.checks_divergence_on_fetch else NO_EPOCH
        return fencing.decide_read(self.log, fetch.fetch_offset, last, self.log.log_end_offset)

    def fetch_by_consumer(
        self, fetch_offset: int, current_leader_epoch: int, last_fetched_epoch: int, read_committed: bool, now_ms: int
    ) -> FetchDecision:
        """What a consumer may read: below the high watermark, or the last stable offset with `read_committed` (R-37).

        A limit at or below the fetch offset means that there is nothing yet; it is no error.
        """
        epoch = current_leader_epoch if self.policy.fences_by_leader_epoch else NO_EPOCH
        error = fencing.check_leader_epoch(epoch, self.leader_epoch)
        if error != ErrorCode.NONE:
            return fencing.refuse(self.log, error)
        last = last_fetched_epoch if self.policy.checks_divergence_on_fetch else NO_EPOCH
        return fencing.decide_read(self.log, fetch_offset, last, self.log.high_watermark)

    def end_offset_for_epoch(self, current_leader_epoch: int, epoch: int) -> tuple[ErrorCode, EpochEntry]:
        """Answer OffsetsForLeaderEpoch (R-69); undefined is (-1, -1) without an error."""
        error = fencing.check_leader_epoch(current_leader_epoch, self.leader_epoch)
        if error != ErrorCode.NONE:
            return error, EpochEntry(NO_EPOCH, NO_OFFSET)
        end = self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)
        return error, end if self.policy.answers_epoch_of_end else EpochEntry(NO_EPOCH, end.offset)

    # --- Offsets -----------------------------------------------------------------------------------------------------

    def client_bounds(self) -> ClientBounds:
        """What ListOffsets and DeleteRecords may answer just now."""
        hides = self.policy.hides_offsets_after_election
        return ClientBounds(self.log, self.leader_epoch, self.epoch_start_offset if hides else NO_OFFSET)

    def offset_bound(self, current_leader_epoch: int, *, replica: bool, read_committed: bool) -> tuple[ErrorCode, int]:
        """LATEST of ListOffsets (R-26)."""
        return self.client_bounds().latest(current_leader_epoch, replica=replica)

    def timestamp_bound(
        self, current_leader_epoch: int, found_offset: int, *, replica: bool, read_committed: bool
    ) -> tuple[ErrorCode, int]:
        """Whether a look-up by time may answer with `found_offset` (R-26); -1: nothing visible was found."""
        return self.client_bounds().by_timestamp(current_leader_epoch, found_offset, replica=replica)

    def check_delete_records(self, offset: int) -> tuple[ErrorCode, int]:
        """Where DeleteRecords up to `offset` would put the log start offset; -1 asks for the high watermark (R-161)."""
        return self.client_bounds().delete_up_to(offset)

    def low_watermark(self) -> int:
        """The smallest log start offset of this replica and of those on live brokers (R-125); -1: one is unknown."""
        return self.replicas.low_watermark(self.log.log_start_offset)

    # --- Followers ---------------------------------------------------------------------------------------------------

    def remote_replicas(self, now_ms: int) -> list[RemoteReplicaStatus]:
        """What is known of each follower, by broker id."""
        return self.replicas.statuses(self.log.log_end_offset, self.settings.replica_lag_time_max_ms, now_ms)

    def remote_replica(self, broker_id: int) -> RemoteReplica | None:
        return self.replicas.by_id.get(broker_id)
