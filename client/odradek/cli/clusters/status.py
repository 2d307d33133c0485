"""The state of a whole cluster, gathered from its brokers: what `odradek cluster status` and the demo show.

Rule of this module: a broker that does not answer is a fact to be shown and never an error; only a cluster of which
nobody answers is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from odradek import (
    Admin,
    BrokerDescription,
    OdradekError,
    QuorumDescription,
    ReplicaDescription,
    ReplicasDescription,
    TopicDescription,
)

QUORUM_ANSWER_S = 2.0  # a quorum that has a leader answers within milliseconds


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition: what the controller says of it, and what its replicas say of themselves (by broker)."""

    topic: str
    partition: int
    leader_id: int
    leader_epoch: int
    isr: Sequence[int]
    assigned: Sequence[int]
    replicas: Mapping[int, ReplicaDescription] = field(default_factory=dict)
    awaited: Sequence[int] = ()  # with an empty ISR: the eligible leader replicas, else the last known leader (KIP-966)

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.partition}"

    @property
    def under_replicated(self) -> bool:
        return len(self.isr) < len(self.assigned)

    @property
    def leaderless(self) -> bool:
        return self.leader_id < 0

    @property
    def log_end_offset(self) -> int:
        """The leader's, -1 when it is not known."""
        leader = self.replicas.get(self.leader_id)
        return leader.log_end_offset if leader is not None else -1

    @property
    def high_watermark(self) -> int:
        leader = self.replicas.get(self.leader_id)
        return leader.high_watermark if leader is not None else -1

    def lag(self, broker_id: int) -> int | None:
        """How many records a replica is behind the leader; None when one of the two is not known."""
        replica = self.replicas.get(broker_id)
        if replica is None or self.log_end_offset < 0:
            return None
        return max(0, self.log_end_offset - replica.log_end_offset)

    def as_json(self) -> dict[str, Any]:
        replicas = [
            {
                "broker": broker_id,
                "role": replica.role,
                "leader_epoch": replica.leader_epoch,
                "log_start_offset": replica.log_start_offset,
                "log_end_offset": replica.log_end_offset,
                "high_watermark": replica.high_watermark,
                "lag": self.lag(broker_id),
                "in_sync": broker_id in self.isr,
                "size_bytes": replica.size_bytes,
            }
            for broker_id, replica in sorted(self.replicas.items())
        ]
        return {
            "topic": self.topic,
            "partition": self.partition,
            "leader": self.leader_id,
            "leader_epoch": self.leader_epoch,
            "isr": list(self.isr),
            "assigned": list(self.assigned),
            "under_replicated": self.under_replicated,
            "leaderless": self.leaderless,
            "replicas": replicas,
        }


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """Everything at about the same moment. `quorum` is None when no controller answered."""

    cluster_id: str
    controller_id: int
    quorum: QuorumDescription | None
    quorum_error: str
    brokers: Sequence[BrokerDescription]
    partitions: Sequence[PartitionStatus]
    unreachable: Mapping[int, str]
    listener: str = ""  # on which the brokers were asked

    def as_json(self) -> dict[str, Any]:
        quorum = self.quorum
        return {
            "cluster_id": self.cluster_id,
            "controller": self.controller_id,
            "quorum_epoch": quorum.leader_epoch if quorum is not None else None,
            "quorum_error": self.quorum_error or None,
            "brokers": [
                {
                    "broker": broker.broker_id,
                    "endpoints": dict(broker.endpoints),
                    "rack": broker.rack or None,
                    "fenced": broker.fenced,
                    "broker_epoch": broker.broker_epoch,
                    "unreachable": self.unreachable.get(broker.broker_id),
                }
                for broker in self.brokers
            ],
            "partitions": [partition.as_json() for partition in self.partitions],
        }


async def gather_status(admin: Admin, topics: Iterable[str] | None = None) -> ClusterStatus:
    """Ask all brokers at once. Raises what `describe_cluster` raises when nobody answers."""
    wanted = None if topics is None else list(topics)
    cluster, described, replicas, quorum = await asyncio.gather(
        admin.describe_cluster(all_listeners=True),
        admin.describe_topics(wanted),
        admin.describe_replicas(wanted or ()),
        asyncio.wait_for(admin.describe_quorum(), QUORUM_ANSWER_S),
        return_exceptions=True,
    )
    if isinstance(cluster, BaseException):
        raise cluster
    if isinstance(described, BaseException):
        raise described
    known = replicas if isinstance(replicas, ReplicasDescription) else ReplicasDescription((), {})
    if isinstance(quorum, TimeoutError):
        quorum = OdradekError("no majority of the voters answers: nothing can be decided until one does")
    if isinstance(quorum, BaseException) and not isinstance(quorum, OdradekError):
        raise quorum
    return ClusterStatus(
        cluster.cluster_id,
        cluster.controller_id,
        None if isinstance(quorum, BaseException) else quorum,
        str(quorum) if isinstance(quorum, BaseException) else "",
        sorted(cluster.brokers, key=lambda broker: broker.broker_id),
        partitions_of(described, known.replicas),
        known.unreachable,
        cluster.listener,
    )


def partitions_of(
    topics: Sequence[TopicDescription], replicas: Sequence[ReplicaDescription] = ()
) -> list[PartitionStatus]:
    """What the controller says of each partition, and what `replicas` say of themselves."""
    by_partition: dict[tuple[str, int], dict[int, ReplicaDescription]] = {}
    for replica in replicas:
        by_partition.setdefault((replica.topic, replica.partition), {})[replica.broker_id] = replica
    return [
        PartitionStatus(
            topic.name,
            partition.partition,
            partition.leader_id,
            partition.leader_epoch,
            tuple(partition.isr),
            tuple(partition.replicas),
            by_partition.get((topic.name, partition.partition), {}),
            tuple(partition.elr or partition.last_known_elr),
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition)
    ]
