"""The records of the metadata log: bytes, and what each of them does to an image.

Two rules of this module. `apply` is the only thing that changes an image, on the controller and on every broker. And a
record that does not fit the image is damage, never skipped: whoever went on would disagree with the others for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from google.protobuf.message import DecodeError
from odradek_proto.topics import TopicPartition
from odradek_proto.v1 import metadata_pb2
from odradek_proto.values import replace

from odradek_broker.core.metadata.delta import (
    BrokerChanged,
    BrokerConfigChanged,
    Change,
    ClusterChanged,
    PartitionChanged,
    ProducerIdsChanged,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
)
from odradek_broker.core.metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage

MetadataRecord = metadata_pb2.MetadataRecord


class CorruptMetadata(ValueError):
    """A record that cannot be read, or that speaks of what the image does not hold."""


def encode(record: MetadataRecord) -> bytes:
    """The value of a record in `__cluster_metadata`."""
    return record.SerializeToString(deterministic=True)


def decode(value: bytes) -> MetadataRecord:
    """Raises `CorruptMetadata`."""
    try:
        record = MetadataRecord.FromString(value)
    except DecodeError as error:
        raise CorruptMetadata(f"a metadata record of {len(value)} bytes cannot be read: {error}") from error
    if record.WhichOneof("kind") is None:
        raise CorruptMetadata(f"a metadata record of {len(value)} bytes is of no kind that this version knows")
    return record


def apply(image: MetadataImage, record: MetadataRecord, offset: int, epoch: int) -> Change | None:
    """Change the image by one record at this offset and quorum epoch; what changed, or None.

    Raises `CorruptMetadata` when the record does not fit; the image is then as before.
    """
    kind = record.WhichOneof("kind")
    if kind is None:
        raise CorruptMetadata(f"the metadata record at offset {offset} has no kind")
    try:
        change = _APPLY[kind](image, record, offset)
    except CorruptMetadata as error:
        raise CorruptMetadata(f"metadata offset {offset}, epoch {epoch}, {kind}: {error}") from None
    image.offset = offset + 1
    image.epoch = epoch
    return change


def _register_broker(image: MetadataImage, record: MetadataRecord, offset: int) -> Change:
    registration = record.register_broker
    image.brokers[registration.broker_id] = BrokerRegistration(
        broker_id=registration.broker_id,
        broker_epoch=registration.broker_epoch if registration.HasField("broker_epoch") else offset,
        incarnation_id=registration.incarnation_id,
        endpoints=dict(registration.endpoints),
        rack=registration.rack,
        log_directory_id=registration.log_directory_id,
        fenced=registration.fenced,
        in_controlled_shutdown=registration.in_controlled_shutdown,
    )
    return BrokerChanged(registration.broker_id)


def _broker_state(image: MetadataImage, record: MetadataRecord, offset: int) -> Change:
    state = record.broker_state
    registration = image.brokers.get(state.broker_id)
    if registration is None or registration.broker_epoch != state.broker_epoch:
        raise CorruptMetadata(f"broker {state.broker_id} is not registered with broker epoch {state.broker_epoch}")
    image.brokers[state.broker_id] = replace(
        registration, fenced=state.fenced, in_controlled_shutdown=state.in_controlled_shutdown
    )
    return BrokerChanged(state.broker_id)


def _topic(image: MetadataImage, record: MetadataRecord, offset: int) -> Change:
    topic = record.topic
    if topic.name in image.topics or topic.topic_id in image.topic_names:
        raise CorruptMetadata(f"topic {topic.name} or its id exists already")
    image.topics[topic.name] = TopicImage(topic.name, topic.topic_id)
    image.topic_names[topic.topic_id] = topic.name
    return TopicCreated(topic.name, topic.topic_id)


def _remove_topic(image: MetadataImage, record: MetadataRecord, offset: int) -> Change:
    topic = _topic_of(image, record.remove_topic.topic_id)
    del image.topics[topic.name]
    del image.topic_names[topic.topic_id]
    image.topic_configs.pop(topic.name, None)
    return TopicDeleted(topic.name, topic.topic_id, tuple(sorted(topic.partitions)))


def _partition(image: MetadataImage, record: MetadataRecord, offset: int) -> Change:
    new = record.partition
    topic = _topic_of(image, new.topic_id)
    if new.partition in topic.partitions:
        raise CorruptMetadata(f"partition {topic.name}-{new.partition} exists already")
    topic.partitions[new.partition] = PartitionRegistration(
        replicas=tuple(new.replicas),
        isr=tuple(new.isr),
        leader=new.leader,
        leader_epoch=new.leader_epoch,
        partition_epoch=new.partition_epoch,
        recovering=new.recovering,
        eligible=tuple(new.eligible),
        last_known_eligible=tuple(new.last_known_eligible),
        adding=tuple(new.adding_replicas),
        removing=tuple(new.removing_replicas),
    )
    return PartitionChanged(TopicPartition(topic.name, new.partition))


def _partition_change(image: MetadataImage, record: MetadataRecord, offset: int) -> Change:
    change = record.partition_change
    topic = _topic_of(image, change.topic_id)
    old = topic.partitions.get(change.partition)
    if old is None:
        raise CorruptMetadata(f"partition {topic.name}-{change.partition} does not exist")
    topic.partitions[change.partition] = PartitionRegistration(
        replicas=tuple(change.replicas) if change.replicas_changed else old.replicas,
        isr=tuple(change.isr) if change.isr_changed else old.isr,
        leader=change.leader if change.HasField("leader") else old.leader,
        leader_epoch=old.leader_epoch + change.bump_leader_epoch,
        partition_epoch=old.partition_epoch + 1,
        recovering=change.recovering if change.HasField("recovering") else old.recovering,
        eligible=tuple(change.eligible) if change.eligible_changed else old.eligible,
        last_known_eligible=tuple(change.last_known_eligible) if change.eligible_changed else old.last_known_eligible,
        adding=tuple(change.adding_replicas) if change.reassignment_changed else old.adding,
        removing=tuple(change.removing_replicas) if change.reassignment_changed else old.removing,
    )
    return PartitionChanged(TopicPartition(topic.name, change.partition))


def _config(image: MetadataImage, record: MetadataRecord, offset: int) -> Change:
    config = record.config
    change: Change
    if config.resource_type == "topic":
        resources, change = image.topic_configs, TopicConfigChanged(config.resource_name)
    elif config.resource_type == "broker":
        resources, change = image.broker_configs, BrokerConfigChanged(config.resource_name)
    else:
        raise CorruptMetadata(f"there is no resource type {config.resource_type!r}")
    values = resources.get(config.resource_name, {})
    if config.HasField("value"):
        resources[config.resource_name] = values | {config.name: config.value}
    else:
        kept = {name: value for name, value in values.items() if name != config.name}
        resources.pop(config.resource_name, None)
        if kept:
            resources[config.resource_name] = kept
    return change


def _producer_ids(image: MetadataImage, record: MetadataRecord, offset: int) -> Change:
    if record.producer_ids.next_producer_id < image.next_producer_id:
        raise CorruptMetadata(f"producer ids go back from {image.next_producer_id}")
    image.next_producer_id = record.producer_ids.next_producer_id
    return ProducerIdsChanged(image.next_producer_id)


def _cluster(image: MetadataImage, record: MetadataRecord, offset: int) -> Change:
    image.cluster_id = record.cluster.cluster_id
    return ClusterChanged(image.cluster_id)


def _no_op(image: MetadataImage, record: MetadataRecord, offset: int) -> None:
    return None


def _topic_of(image: MetadataImage, topic_id: bytes) -> TopicImage:
    topic = image.topic_by_id(topic_id)
    if topic is None:
        raise CorruptMetadata(f"no topic has the id {topic_id.hex()}")
    return topic


_APPLY: Final[dict[str, Callable[[MetadataImage, MetadataRecord, int], Change | None]]] = {
    "register_broker": _register_broker,
    "broker_state": _broker_state,
    "topic": _topic,
    "remove_topic": _remove_topic,
    "partition": _partition,
    "partition_change": _partition_change,
    "config": _config,
    "producer_ids": _producer_ids,
    "no_op": _no_op,
    "cluster": _cluster,
}
