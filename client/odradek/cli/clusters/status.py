"""The state of a whole cluster, gathered from its brokers: what `odradek cluster status` and the demo show.

Rules of this module. A broker that does not answer is a fact to be shown and never an error; only a cluster of which
nobody answers is one. A partition is shown at one moment, that of its leader's answer: the others are asked before it,
so that a follower's log can only have grown since, and what the leader knows of it and what the leader has are bounds
of where it ended then. Two answers of two moments side by side would show followers beyond their leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from odradek_proto.transport.reaching import Reached, reach

from odradek import (
    Admin,
    BrokerDescription,
    OdradekError,
    QuorumDescription,
    RemoteReplicaDescription,
    ReplicaDescription,
    ReplicasDescription,
    TopicDescription,
)

QUORUM_ANSWER_S: Final = 2.0  # a quorum that has a leader answers within milliseconds
REPLICAS_ANSWER_S: Final = 2.0
WATCHED_ANSWER_S: Final = 0.3  # while somebody watches: three questions one after the other, below a second
REACH_MS: Final = 200
WHY_SILENT: Final = {Reached.LISTENING: "frozen", Reached.REFUSED: "dead"}  # else it is cut off


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition at the moment of its leader's answer.

    `replicas` has what each replica says of itself, as far as it was then. Without an answer of the leader it is what
    each says at a moment of its own, and `known` is empty.
    """

    topic: str
    partition: int
    leader_id: int
    leader_epoch: int
    isr: Sequence[int]
    assigned: Sequence[int]
    replicas: Mapping[int, ReplicaDescription] = field(default_factory=dict)
    internal: bool = False  # of a topic that brokers keep for themselves, __consumer_offsets
    awaited: Sequence[int] = ()  # with an empty ISR: the eligible leader replicas, else the last known leader (KIP-966)

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def under_replicated(self) -> bool:
        return len(self.isr) < len(self.assigned)

    @property
    def leaderless(self) -> bool:
        return self.leader_id < 0

    @property
    def fully_replicated(self) -> bool:
        return not self.leaderless and not self.under_replicated

    @property
    def leader(self) -> ReplicaDescription | None:
        return self.replicas.get(self.leader_id)

    @property
    def known(self) -> Mapping[int, RemoteReplicaDescription]:
        """What the leader knows of each follower by its last fetch (the second set of log end offsets)."""
        return {each.broker_id: each for each in self.leader.remote_replicas} if self.leader is not None else {}

    @property
    def log_end_offset(self) -> int:
        """The leader's, -1 when it is not known."""
        return self.leader.log_end_offset if self.leader is not None else -1

    @property
    def high_watermark(self) -> int:
        return self.leader.high_watermark if self.leader is not None else -1

    def follows(self, broker_id: int) -> bool:
        """Whether a replica has fetched from this leader in its epoch: before that its log may end anywhere."""
        replica, known = self.replicas.get(broker_id), self.known.get(broker_id)
        same_epoch = replica is None or replica.leader_epoch == self.leader_epoch
        return same_epoch and known is not None and known.log_end_offset >= 0

    def lag(self, broker_id: int) -> int | None:
        """How many records a replica is behind the leader; None when one of the two is not known."""
        if broker_id == self.leader_id and self.leader is not None:
            return 0
        if not self.follows(broker_id):
            return None
        replica = self.replicas.get(broker_id)
        own = replica.log_end_offset if replica is not None else self.known[broker_id].log_end_offset
        return max(0, self.log_end_offset - own)

    def not_caught_up_ms(self, broker_id: int) -> int | None:
        """How long ago a follower had everything, as its leader sees it; None when it never had or nobody knows."""
        known = self.known.get(broker_id)
        return known.lag_ms if known is not None and known.lag_ms >= 0 else None

    def as_json(self) -> dict[str, Any]:
        replicas = [
            {
                "broker": broker_id,
                "role": replica.role,
                "leader_epoch": replica.leader_epoch,
                "log_start_offset": replica.log_start_offset,
                "log_end_offset": replica.log_end_offset,
                "high_watermark": replica.high_watermark,
                "follows": self.follows(broker_id),
                "lag": self.lag(broker_id),
                "in_sync": broker_id in self.isr,
                "size_bytes": replica.size_bytes,
            }
            for broker_id, replica in sorted(self.replicas.items())
        ]
        known = [
            {
                "broker": broker_id,
                "log_end_offset": each.log_end_offset,
                "not_caught_up_ms": self.not_caught_up_ms(broker_id),
            }
            for broker_id, each in sorted(self.known.items())
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
            "waiting_produces": self.leader.waiting_produces if self.leader is not None else None,
            "waiting_fetches": self.leader.waiting_fetches if self.leader is not None else None,
            "replicas": replicas,
            "known_by_leader": known,
        }


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """Each partition at its own moment, all within one question. `quorum` is None when no controller answered."""

    cluster_id: str
    controller_id: int
    quorum: QuorumDescription | None
    quorum_error: str
    brokers: Sequence[BrokerDescription]
    partitions: Sequence[PartitionStatus]
    unreachable: Mapping[int, str]
    listener: str = ""  # on which the brokers were asked
    silent: Mapping[int, str] = field(default_factory=dict)  # why a broker does not answer: dead, frozen, cut off
    replicas_error: str = ""  # why no broker was asked for its replicas: whoever asks may not
    decides: bool = True  # the active controller answers; whoever may not ask for the quorum believes so
    full: Sequence[int] = ()  # brokers that answer and whose disk has no room

    def as_json(self) -> dict[str, Any]:
        quorum = self.quorum
        return {
            "cluster_id": self.cluster_id,
            "controller": self.controller_id,
            "quorum_epoch": quorum.leader_epoch if quorum is not None else None,
            "quorum_error": self.quorum_error or None,
            "replicas_error": self.replicas_error or None,
            "brokers": [
                {
                    "broker": broker.broker_id,
                    "endpoints": dict(broker.endpoints),
                    "rack": broker.rack or None,
                    "fenced": broker.fenced,
                    "broker_epoch": broker.broker_epoch,
                    "unreachable": self.unreachable.get(broker.broker_id),
                    "process": self.silent.get(broker.broker_id, "up"),
                    "disk_full": broker.broker_id in self.full,
                }
                for broker in self.brokers
            ],
            "partitions": [partition.as_json() for partition in self.partitions],
        }


async def gather_status(admin: Admin, topics: Iterable[str] | None = None, *, watched: bool = False) -> ClusterStatus:
    """Ask all brokers, then once more those that lead. Raises what `describe_cluster` raises when nobody answers."""
    wanted = None if topics is None else list(topics)
    patience_s = WATCHED_ANSWER_S if watched else REPLICAS_ANSWER_S
    quorum_patience_s = min(QUORUM_ANSWER_S, patience_s)
    cluster, described, replicas, quorum = await asyncio.gather(
        admin.describe_cluster(all_listeners=True),
        admin.describe_topics(wanted),
        admin.describe_replicas(wanted or (), timeout=patience_s),
        asyncio.wait_for(admin.describe_quorum(), quorum_patience_s),
        return_exceptions=True,
    )
    if isinstance(cluster, BaseException):
        raise cluster
    if isinstance(described, BaseException):
        raise described
    known = replicas if isinstance(replicas, ReplicasDescription) else ReplicasDescription((), {})
    decides = not isinstance(quorum, TimeoutError)
    if isinstance(quorum, TimeoutError):
        quorum = OdradekError(no_controller(cluster.controller_id, quorum_patience_s))
    if isinstance(quorum, BaseException) and not isinstance(quorum, OdradekError):
        raise quorum
    leaders = {replica.broker_id for replica in known.replicas if replica.role == "leader"}
    led, silent = await asyncio.gather(
        admin.describe_replicas(wanted or (), brokers=leaders, timeout=patience_s),
        _why_silent(cluster.brokers, cluster.listener, known.unreachable),
    )
    return ClusterStatus(
        cluster.cluster_id,
        cluster.controller_id,
        None if isinstance(quorum, BaseException) else quorum,
        str(quorum) if isinstance(quorum, BaseException) else "",
        sorted(cluster.brokers, key=lambda broker: broker.broker_id),
        [at_one_moment(each, led.replicas) for each in partitions_of(described, known.replicas)],
        known.unreachable,
        cluster.listener,
        silent,
        str(replicas) if isinstance(replicas, OdradekError) else "",
        decides,
        known.full,
    )


def no_controller(controller_id: int, silence_s: float) -> str:
    """What is known when nobody answers for the quorum: whom the brokers believe to be the active controller.

    It may be busy, dead or without a majority: from here these look alike.
    """
    if controller_id < 0:
        return f"no broker knows an active controller, and none has answered for {silence_s:g} s"
    return f"controller {controller_id} has not answered for {silence_s:g} s"


async def _why_silent(brokers: Iterable[BrokerDescription], listener: str, silent: Iterable[int]) -> dict[int, str]:
    """Frozen ones take the connection and say nothing; where nobody listens the process is dead; else nobody knows."""
    addresses = {each.broker_id: each.endpoints.get(listener, "") for each in brokers if each.broker_id in silent}
    reached = await asyncio.gather(*(reach(address, REACH_MS) for address in addresses.values()))
    return {broker: WHY_SILENT.get(found, "cut off") for broker, found in zip(addresses, reached, strict=True)}


def at_one_moment(partition: PartitionStatus, led: Iterable[ReplicaDescription]) -> PartitionStatus:
    """The partition when its leader answered, which was after all that `partition` has of the others.

    `led`: the answers of those that lead something, of which one may lead this partition. A leader of a newer epoch
    than the metadata tells is believed, one of an older epoch is none any more.
    """
    name = (partition.topic, partition.partition)
    leaders = [each for each in led if (each.topic, each.partition) == name and each.role == "leader"]
    leader = max(leaders, key=lambda each: each.leader_epoch, default=None)
    if leader is None or leader.leader_epoch < partition.leader_epoch:
        others = {broker: each for broker, each in partition.replicas.items() if each.role != "leader"}
        return replace(partition, replicas=others)
    remotes = {each.broker_id: each for each in leader.remote_replicas}
    replicas = {leader.broker_id: leader}
    for broker, replica in partition.replicas.items():
        known = remotes.get(broker)
        if known is not None and known.log_end_offset >= 0 and replica.leader_epoch == leader.leader_epoch:
            at_least = max(replica.log_end_offset, known.log_end_offset)
            end = min(at_least, leader.log_end_offset)  # beyond it was what it has cut off since
            watermark = min(replica.high_watermark, leader.high_watermark)
            replicas.setdefault(broker, replace(replica, log_end_offset=end, high_watermark=watermark))
        else:
            replicas.setdefault(broker, replica)
    return replace(
        partition,
        leader_id=leader.broker_id,
        leader_epoch=leader.leader_epoch,
        isr=tuple(leader.isr),
        replicas=replicas,
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
            topic.internal,
            tuple(partition.elr or partition.last_known_elr),
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition)
    ]
