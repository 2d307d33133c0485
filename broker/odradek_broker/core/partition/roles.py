"""The role of a broker under a partition's metadata, and whether its current role continues (R-100 to R-104)."""

from __future__ import annotations

from odradek_broker.core.metadata.image import NO_LEADER, PartitionRegistration
from odradek_broker.core.partition.epochs import UNDEFINED_EPOCH, EpochEntry
from odradek_broker.core.partition.follower import FollowerPartition
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.core.partition.messages import BrokerView, PartitionSettings, ReplicaLog
from odradek_broker.core.partition.policy import ReplicaPolicy

Role = LeaderPartition | FollowerPartition


def role_goes_on(known: PartitionRegistration, registration: PartitionRegistration, broker_id: int) -> bool:
    """The same epoch, or this broker stays leader in the very next one, as when a replica was removed (R-56, R-42).

    With a gap between the epochs, as after a metadata snapshot, another broker may have led, or followers were removed
    and returned with less: nothing known of them is valid.
    """
    if registration.leader_epoch == known.leader_epoch:
        return True
    is_next = (registration.leader_epoch, registration.partition_epoch) == (
        known.leader_epoch + 1,
        known.partition_epoch + 1,
    )
    leads_on = known.leader == registration.leader == broker_id
    return leads_on and is_next and not registration.recovering


def impossible_epoch(log: ReplicaLog, registration: PartitionRegistration) -> EpochEntry | None:
    """The first epoch of a log that the partition has not reached."""
    if log.epochs.latest_epoch <= registration.leader_epoch:
        return None
    return next(entry for entry in log.epochs.entries if entry.epoch > registration.leader_epoch)


def credible_end(log: ReplicaLog, registration: PartitionRegistration) -> tuple[int, int]:
    """The last epoch and the end of a log, without what stands behind an epoch that the partition has not reached: that
    is not what was written, and would make a copy the newest of all (R-146)."""
    impossible = impossible_epoch(log, registration)
    if impossible is None:
        return log.epochs.latest_epoch, log.log_end_offset
    last_epoch = log.epochs.epoch_for_offset(impossible.offset - 1)
    return UNDEFINED_EPOCH if last_epoch is None else last_epoch, impossible.offset


def new_role(
    before: Role | None,
    log: ReplicaLog,
    registration: PartitionRegistration,
    *,
    broker_id: int,
    settings: PartitionSettings,
    policy: ReplicaPolicy,
    brokers: BrokerView,
    now_ms: int,
) -> Role:
    """A leader or a follower above a log; a follower gets the leader that the previous role knew.

    A batch of an epoch above the partition's own was never written: no CRC covers the epoch (R-146).
    """
    impossible = impossible_epoch(log, registration)
    if impossible is not None:
        log.damaged_at = impossible.offset if log.damaged_at is None else min(log.damaged_at, impossible.offset)
    if registration.leader == broker_id:
        return LeaderPartition(
            log,
            broker_id=broker_id,
            registration=registration,
            settings=settings,
            policy=policy,
            brokers=brokers,
            now_ms=now_ms,
        )
    return FollowerPartition(
        log,
        broker_id=broker_id,
        registration=registration,
        settings=settings,
        policy=policy,
        now_ms=now_ms,
        previous_leader=NO_LEADER if before is None else before.held_leader,
    )
