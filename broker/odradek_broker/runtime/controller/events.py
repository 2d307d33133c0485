"""The controller's decisions as events: what was written, in words, before it is committed."""

from __future__ import annotations

from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.metadata.records import MetadataRecord

Described = tuple[str, dict[str, object]]


def describe_record(image: MetadataImage, record: MetadataRecord) -> Described | None:
    """The event of a record that was just applied to this image; None for what is no transition."""
    match record.WhichOneof("kind"):
        case "register_broker":
            registration = image.brokers[record.register_broker.broker_id]
            facts: dict[str, object] = {
                "broker_id": registration.broker_id,
                "broker_epoch": registration.broker_epoch,
                "fenced": registration.fenced,
            }
            return "broker_registered", facts
        case "broker_state":
            state = record.broker_state
            facts = {"broker_id": state.broker_id, "broker_epoch": state.broker_epoch}
            if state.fenced:
                return "broker_fenced", facts
            return ("broker_leaving" if state.in_controlled_shutdown else "broker_unfenced"), facts
        case "topic":
            return "topic_created", {"topic": record.topic.name, "topic_id": record.topic.topic_id.hex()}
        case "remove_topic":
            return "topic_deleted", {"topic_id": record.remove_topic.topic_id.hex()}
        case "partition_change":
            return _partition_change(image, record)
        case _:
            return None


def _partition_change(image: MetadataImage, record: MetadataRecord) -> Described:
    change = record.partition_change
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
    if change.HasField("leader"):
        return "leader_chosen", facts | {"unclean": change.unclean}
    return ("replicas_decided" if "replicas" in facts else "isr_decided"), facts
