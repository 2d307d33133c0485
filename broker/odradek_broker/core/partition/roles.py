"""Which role a broker has under a partition's metadata, and whether the one that it has goes on (R-100 to R-104)."""

from __future__ import annotations

from odradek_broker.core.metadata.image import NO_LEADER, PartitionRegistration
from odradek_broker.core.partition.follower import FollowerPartition
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.core.partition.messages import BrokerView, PartitionSettings, ReplicaLog
from odradek_broker.core.partition.policy import ReplicaPolicy

Role = LeaderPartition | FollowerPartition


def role_goes_on(known: PartitionRegistration, registration: PartitionRegistration, broker_id: int) -> bool:
    """The same epoch, or this broker leads on in the very next one, as when a replica was removed (R-56, R-42).

    With a gap between the epochs, as a snapshot of the metadata makes one, somebody else may have led, or followers
    were removed and came back with less: what is known of them is nothing.
    """
    if registration.leader_epoch == known.leader_epoch:
        return True
    is_next = (registration.leader_epoch, registration.partition_epoch) == (
        known.leader_epoch + 1,
        known.partition_epoch + 1,
    )
    leads_on = known.leader == registration.leader == broker_id
    return leads_on and is_next and not registration.recovering


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
    """A leader or a follower above a log; a follower is told whom the role before held to be the leader."""
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
