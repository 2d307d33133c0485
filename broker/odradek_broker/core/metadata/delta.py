"""The changes by a run of metadata records, so that a broker visits only what changed.

A delta names things and holds no values: those are in the image that comes with it. Everything keeps the order of the
records, and nothing is named twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from odradek_proto.topics import TopicPartition
from odradek_proto.values import Value


class BrokerChanged(Value, frozen=True):
    broker_id: int


class TopicCreated(Value, frozen=True):
    name: str
    topic_id: bytes


class TopicDeleted(Value, frozen=True):
    name: str
    topic_id: bytes
    partitions: tuple[int, ...]


class PartitionChanged(Value, frozen=True):
    """Created or changed."""

    topic_partition: TopicPartition


class TopicConfigChanged(Value, frozen=True):
    name: str


class BrokerConfigChanged(Value, frozen=True):
    name: str  # the broker id as text; "" is the cluster-wide default


class GroupConfigChanged(Value, frozen=True):
    name: str


class ProducerIdsChanged(Value, frozen=True):
    next_producer_id: int


class ClusterChanged(Value, frozen=True):
    cluster_id: str


class SecurityChanged(Value, frozen=True):
    """A user's credentials, ACLs or quotas."""

    principal: str


Change = (
    BrokerChanged
    | TopicCreated
    | TopicDeleted
    | PartitionChanged
    | TopicConfigChanged
    | BrokerConfigChanged
    | GroupConfigChanged
    | ProducerIdsChanged
    | ClusterChanged
    | SecurityChanged
)


@dataclass(slots=True)
class MetadataDelta:
    """The names of what changed. The dicts serve as ordered sets, or map a name to what a reader needs beside it.

    A topic that was deleted and created again under its name is in both `deleted_topics` and `created_topics`, with
    two ids: carry out deletions first. A topic that came and went within the run is in `deleted_topics` alone.
    """

    partitions: dict[TopicPartition, None] = field(default_factory=dict)  # created or changed, and still there
    created_topics: dict[str, bytes] = field(default_factory=dict)  # name -> topic id
    deleted_topics: dict[bytes, TopicDeleted] = field(default_factory=dict)  # by topic id
    brokers: dict[int, None] = field(default_factory=dict)
    topic_configs: dict[str, None] = field(default_factory=dict)  # topics whose settings changed
    broker_configs: dict[str, None] = field(default_factory=dict)
    other: bool = False  # cluster id, producer ids, users, ACLs, quotas or settings of groups

    @classmethod
    def of(cls, changes: Iterable[Change | None]) -> MetadataDelta:
        delta = cls()
        for change in changes:
            delta.add(change)
        return delta

    def add(self, change: Change | None) -> None:
        """Take in the change that `records.apply` returned."""
        match change:
            case PartitionChanged(topic_partition):
                self.partitions[topic_partition] = None
            case BrokerChanged(broker_id):
                self.brokers[broker_id] = None
            case TopicCreated(name, topic_id):
                self.created_topics[name] = topic_id
            case TopicDeleted(name, topic_id, partitions):
                self.created_topics.pop(name, None)
                self.topic_configs.pop(name, None)
                for partition in partitions:
                    self.partitions.pop(TopicPartition(name, partition), None)
                self.deleted_topics[topic_id] = change
            case TopicConfigChanged(name):
                self.topic_configs[name] = None
            case BrokerConfigChanged(name):
                self.broker_configs[name] = None
            case GroupConfigChanged() | ProducerIdsChanged() | ClusterChanged() | SecurityChanged():
                self.other = True
            case None:
                pass

    def __bool__(self) -> bool:
        return bool(
            self.partitions
            or self.created_topics
            or self.deleted_topics
            or self.brokers
            or self.topic_configs
            or self.broker_configs
            or self.other
        )
