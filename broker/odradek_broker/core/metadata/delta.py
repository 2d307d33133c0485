"""The changes by a run of metadata records, so that a broker visits only what changed.

A delta names things and holds no values: those are in the image that comes with it. Everything keeps the order of the
records, and nothing is named twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from odradek_proto.topics import TopicPartition
from odradek_proto.values import Value


class BrokerChanged(Value, frozen=True):
    broker_id: int


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


Change = BrokerChanged | TopicDeleted | PartitionChanged | TopicConfigChanged | BrokerConfigChanged


@dataclass(slots=True)
class MetadataDelta:
    """The names of what changed. The dicts serve as ordered sets, or map a name to what a reader needs beside it.

    Of a topic that was deleted and created again under its name `partitions` has the new one's: carry out deletions
    first. What the image alone is asked about has no name here: the cluster id, new topics by themselves, producer ids,
    users, ACLs, quotas, settings of groups.
    """

    partitions: dict[TopicPartition, None] = field(default_factory=dict)  # created or changed, and still there
    deleted_topics: dict[bytes, TopicDeleted] = field(default_factory=dict)  # by topic id
    brokers: dict[int, None] = field(default_factory=dict)
    topic_configs: dict[str, None] = field(default_factory=dict)  # topics whose settings changed
    broker_configs: dict[str, None] = field(default_factory=dict)

    def add(self, change: Change | None) -> None:
        """Take in the change that `records.apply` returned."""
        match change:
            case PartitionChanged(topic_partition):
                self.partitions[topic_partition] = None
            case BrokerChanged(broker_id):
                self.brokers[broker_id] = None
            case TopicDeleted(name, topic_id, partitions):
                self.topic_configs.pop(name, None)
                for partition in partitions:
                    self.partitions.pop(TopicPartition(name, partition), None)
                self.deleted_topics[topic_id] = change
            case TopicConfigChanged(name):
                self.topic_configs[name] = None
            case BrokerConfigChanged(name):
                self.broker_configs[name] = None
            case None:
                pass
