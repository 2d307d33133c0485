"""The role that a broker takes when metadata says that it leads a partition or follows (R-100 to R-104)."""

from __future__ import annotations

from odradek_broker.core.metadata.image import PartitionRegistration
from odradek_broker.core.partition.follower import FollowerPartition
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.core.partition.messages import BrokerView, PartitionSettings, ReplicaLog
from odradek_broker.core.partition.policy import ReplicaPolicy

Role = LeaderPartition | FollowerPartition


def goes_on(role: Role | None, registration: PartitionRegistration, broker_id: int) -> bool:
    """Whether a broker keeps the role that it has: the same one goes on, whatever else has changed."""
    return role is not None and isinstance(role, LeaderPartition) == (registration.leader == broker_id)


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
        previous_leader=-1 if before is None else before.held_leader,
    )
