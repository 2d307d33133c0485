"""The controller's decisions as events, written before they are committed."""

from __future__ import annotations

from odradek_proto.v1.metadata_messages import (
    BrokerStateRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.metadata.records import MetadataRecord

Described = tuple[str, dict[str, object]]


def describe_record(image: MetadataImage, record: MetadataRecord) -> Described | None:
    """The event of a record that was just applied to this image; None for what is no transition."""
    match record:
        case RegisterBrokerRecord():
            registration = image.brokers[record.broker_id]
            facts: dict[str, object] = {
                "broker_id": registration.broker_id,
                "broker_epoch": registration.broker_epoch,
                "fenced": registration.fenced,
            }
            return "broker_registered", facts
        case BrokerStateRecord():
            facts = {"broker_id": record.broker_id, "broker_epoch": record.broker_epoch}
            if record.fenced:
                return "broker_fenced", facts
            return ("broker_leaving" if record.in_controlled_shutdown else "broker_unfenced"), facts
        case UnregisterBrokerRecord():
            return "broker_unregistered", {"broker_id": record.broker_id, "broker_epoch": record.broker_epoch}
        case TopicRecord():
            return "topic_created", {"topic": record.name, "topic_id": record.topic_id.hex()}
        case RemoveTopicRecord():
            return "topic_deleted", {"topic_id": record.topic_id.hex()}
        case PartitionChangeRecord():
            return _partition_change(image, record)
        case _:
            return None


def _partition_change(image: MetadataImage, change: PartitionChangeRecord) -> Described:
    topic = image.topic_by_id(change.topic_id)
    assert topic is not None, change.topic_id
    partition = topic.partitions[change.partition]
    facts: dict[str, object] = {
        "topic": topic.name,
        "partition": change.partition,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "isr": list(partition.isr),
        "offset": image.offset - 1,
    }
    if change.replicas_changed or change.reassignment_changed:
        facts |= {
            "replicas": list(partition.replicas),
            "adding": list(partition.adding),
            "removing": list(partition.removing),
        }
    if change.leader is not None:
        return "leader_chosen", facts | {"unclean": change.unclean}
    return ("replicas_decided" if "replicas" in facts else "isr_decided"), facts
