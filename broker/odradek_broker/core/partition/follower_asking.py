"""What a follower may ask now, and when it must wait or has stopped (R-72, R-86, R-90).

Rules of this module. One request is in flight at a time. Nothing is asked while the disk is busy with an order, since
the next request speaks of where the log ends.
"""

from __future__ import annotations

from enum import Enum, auto

from odradek_proto.errors import ErrorCode

from odradek_broker.core.metadata.image import NO_LEADER, PartitionRegistration
from odradek_broker.core.partition import fencing
from odradek_broker.core.partition.backoff import Backoff
from odradek_broker.core.partition.messages import (
    NO_EPOCH,
    Effect,
    EpochRequest,
    FetchAnswer,
    FetchRequest,
    FollowerRequest,
    OffsetsRequest,
    PartitionFailed,
    PartitionSettings,
    ReplicaLog,
    RequestReady,
    Transition,
)
from odradek_broker.core.partition.policy import ReplicaPolicy


class Phase(Enum):
    """What a follower asks next."""

    TRUNCATING = auto()  # where the newest epoch ends
    FETCHING = auto()  # records
    OUT_OF_RANGE = auto()  # where the leader's log begins and ends


class AskingFollower:
    """The state of a follower and its requests. `failed` says why it has stopped until new metadata come."""

    def __init__(
        self,
        log: ReplicaLog,
        *,
        broker_id: int,
        registration: PartitionRegistration,
        settings: PartitionSettings,
        policy: ReplicaPolicy,
        now_ms: int,
        previous_leader: int = NO_LEADER,
    ) -> None:
        """`previous_leader` is the leader held so far, -1 at process start (L-1). Nothing happens before `start`."""
        self.log = log
        self.broker_id = broker_id
        self.settings = settings
        self.policy = policy
        self.failed: str | None = None
        self.phase = Phase.FETCHING
        self._previous_leader = previous_leader
        self._in_flight: FollowerRequest | None = None
        self._backoff = Backoff()
        self._answer: FetchAnswer | None = None  # the one whose batches are being written
        self._on_disk_phase: Phase | None = None  # a cut or a restart is being carried out; this phase comes after it
        self._take(registration)

    def _take(self, registration: PartitionRegistration) -> None:
        assert registration.leader != self.broker_id, (registration, self.broker_id)
        self.leader = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.partition_epoch = registration.partition_epoch

    @property
    def held_leader(self) -> int:
        """Whom this replica has last known to lead; the next follower's `previous_leader` (L-1)."""
        return self._previous_leader if self.leader == NO_LEADER else self.leader

    @property
    def in_flight(self) -> FollowerRequest | None:
        """The request that is out."""
        return self._in_flight

    # --- Asking ------------------------------------------------------------------------------------------------------

    def next_request(self, now_ms: int) -> FollowerRequest | None:
        """What to ask the leader now; it counts as in flight from here on.

        None: one is in flight, the partition is delayed or failed, there is no leader, the disk is busy, or (with
        odradek.fsync=before-ack) the log is not flushed to its end, and a position would promise what can be lost.
        """
        if self._backoff.is_delayed(now_ms) or not self._can_ask():
            return None
        log = self.log
        epoch = self.leader_epoch if self.policy.fences_by_leader_epoch else NO_EPOCH
        request: FollowerRequest
        if self.phase is Phase.FETCHING:
            last_epoch = log.epochs.latest_epoch if self.policy.sends_last_fetched_epoch else NO_EPOCH
            request = FetchRequest(
                log.topic_partition,
                log.topic_id,
                log.log_end_offset,
                epoch,
                last_epoch,
                log.log_start_offset,
                self.settings.replica_fetch_max_bytes,
            )
        elif self.phase is Phase.TRUNCATING:
            request = EpochRequest(log.topic_partition, epoch, log.epochs.latest_epoch)
        else:
            request = OffsetsRequest(log.topic_partition, epoch)
        self._in_flight = request
        return request

    def _can_ask(self) -> bool:
        log = self.log
        return (
            self._in_flight is None
            and self._answer is None
            and self._on_disk_phase is None
            and self.failed is None
            and self.leader != NO_LEADER
            and not (self.settings.flush_before_ack and log.flushed_offset < log.log_end_offset)
        )

    def next_deadline_ms(self) -> int | None:
        """When a delayed partition wants to be asked again (R-90)."""
        return self._backoff.until_ms if self._can_ask() else None

    def _ready(self, now_ms: int) -> list[Effect]:
        return [RequestReady()] if self._can_ask() and not self._backoff.is_delayed(now_ms) else []

    # --- Waiting and stopping ----------------------------------------------------------------------------------------

    def on_transport_error(self, now_ms: int) -> list[Effect]:
        """The request in flight is lost, or could not be sent (R-90)."""
        self._in_flight = None
        if self.failed is None:
            self._backoff.delay(now_ms, self.settings.replica_fetch_backoff_ms)
        return []

    def on_corrupt_answer(self, now_ms: int) -> list[Effect]:
        """An answer held a batch that is corrupt or out of place: nothing of it is appended, ask again later (R-86).

        Also for an `AppendBatches` that the rim could not carry out and that left nothing behind, as on a full disk;
        the epochs that it would have brought are forgotten.
        """
        self._in_flight = None
        if self._answer is not None:
            self._answer = None
            self.log.epochs.truncate_from_end(self.log.log_end_offset)
        self._backoff.delay(now_ms, self.settings.replica_fetch_backoff_ms)
        return []

    def on_storage_error(self, reason: str, now_ms: int) -> list[Effect]:
        """The disk refused an order: this partition stops, the others go on (R-86)."""
        return self._fail(reason, "R-86")

    def _fail(self, reason: str, rule: str) -> list[Effect]:
        self.failed = reason
        self._in_flight = None
        self._answer = None
        self._on_disk_phase = None
        facts = {"reason": reason, "leader": self.leader, "leader_epoch": self.leader_epoch}
        return [Transition("replica_failed", rule, facts), PartitionFailed(reason)]

    def refusal(self, current_leader_epoch: int) -> ErrorCode:
        """What any request is told that only the leader may answer; the epoch is compared first (R-110)."""
        epoch = current_leader_epoch if self.policy.fences_by_leader_epoch else NO_EPOCH
        error = fencing.check_leader_epoch(epoch, self.leader_epoch)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if error == ErrorCode.NONE else error
