"""The state of the cluster after some prefix of the metadata log: brokers, topics, partitions, settings.

The active controller keeps one image that runs ahead (its uncommitted decisions), and every broker keeps one that
follows the high watermark of the metadata log. Both are this class, and both change only through `records.apply`, so
that a broker and a controller cannot interpret a record differently.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from odradek_proto.security.acls import Acl
from odradek_proto.security.quotas import QuotaEntity
from odradek_proto.security.scram import Credential
from odradek_proto.topics import TopicPartition
from odradek_proto.values import Value

NO_LEADER = -1


class BrokerRegistration(Value, frozen=True):
    """One broker as the controller knows it. `broker_epoch` is the offset of its registration record (KIP-903)."""

    broker_id: int
    broker_epoch: int
    incarnation_id: bytes
    endpoints: dict[str, str]  # listener name -> advertised host:port
    rack: str = ""
    log_directory_id: bytes = b""
    fenced: bool = True
    in_controlled_shutdown: bool = False

    @property
    def active(self) -> bool:
        """May lead and may be in an ISR (R-130, R-143)."""
        return not self.fenced and not self.in_controlled_shutdown


class PartitionRegistration(Value, frozen=True):
    """One partition's place in the cluster. `partition_epoch` grows by one with each change (R-55)."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int  # NO_LEADER: none
    leader_epoch: int
    partition_epoch: int
    recovering: bool = False
    eligible: tuple[int, ...] = ()  # eligible leader replicas (KIP-966)
    last_known_eligible: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()  # of `replicas`, those that a reassignment brings (KIP-455)
    removing: tuple[int, ...] = ()  # of `replicas`, those that leave when it is complete

    @property
    def reassigning(self) -> bool:
        return bool(self.adding or self.removing)


@dataclass(slots=True)
class TopicImage:
    name: str
    topic_id: bytes  # 16 bytes
    partitions: dict[int, PartitionRegistration] = field(default_factory=dict)


@dataclass(slots=True)
class MetadataImage:
    """`offset` is one past the last applied record, `epoch` the quorum epoch of that record."""

    offset: int = 0
    epoch: int = 0
    cluster_id: str = ""
    brokers: dict[int, BrokerRegistration] = field(default_factory=dict)
    topics: dict[str, TopicImage] = field(default_factory=dict)
    topic_names: dict[bytes, str] = field(default_factory=dict)  # topic id -> name
    topic_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)  # "" is the cluster-wide default
    group_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    scram: dict[str, dict[str, Credential]] = field(default_factory=dict)  # user -> mechanism -> credential
    acls: dict[bytes, Acl] = field(default_factory=dict)  # by their ids
    quotas: dict[QuotaEntity, dict[str, float]] = field(default_factory=dict)

    def copy(self) -> MetadataImage:
        """An image that changes on its own. Registrations are immutable and shared."""
        return MetadataImage(
            offset=self.offset,
            epoch=self.epoch,
            cluster_id=self.cluster_id,
            brokers=dict(self.brokers),
            topics={
                name: TopicImage(topic.name, topic.topic_id, dict(topic.partitions))
                for name, topic in self.topics.items()
            },
            topic_names=dict(self.topic_names),
            topic_configs={name: dict(values) for name, values in self.topic_configs.items()},
            broker_configs={name: dict(values) for name, values in self.broker_configs.items()},
            group_configs={name: dict(values) for name, values in self.group_configs.items()},
            next_producer_id=self.next_producer_id,
            scram=dict(self.scram),
            acls=self.acls,  # a change makes a new one
            quotas=self.quotas,  # so it does here
        )

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        return self.brokers.get(broker_id)

    def is_active(self, broker_id: int) -> bool:
        """Registered, not fenced, not shutting down."""
        registration = self.brokers.get(broker_id)
        return registration is not None and registration.active

    def partition(self, tp: TopicPartition) -> PartitionRegistration | None:
        topic = self.topics.get(tp.topic)
        return None if topic is None else topic.partitions.get(tp.partition)

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics.get(name)
