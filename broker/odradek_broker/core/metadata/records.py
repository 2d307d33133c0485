"""The records of the metadata log: their bytes, and their effect on an image.

Two rules of this module. Only `apply` changes an image, on the controller and on every broker. And a record that does
not fit the image is damage, never skipped: a node that continued would diverge from the others forever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from odradek_proto.messages import DecodeError
from odradek_proto.security.acls import acl_of
from odradek_proto.security.quota_words import KEYS
from odradek_proto.security.quotas import QuotaEntity
from odradek_proto.security.scram import HASHES, Credential
from odradek_proto.topics import TopicPartition
from odradek_proto.v1 import metadata_messages as messages
from odradek_proto.values import replace

from odradek_broker.core.metadata.delta import (
    BrokerChanged,
    BrokerConfigChanged,
    Change,
    PartitionChanged,
    TopicConfigChanged,
    TopicDeleted,
)
from odradek_broker.core.metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage

MetadataRecord: TypeAlias = (
    messages.RegisterBrokerRecord
    | messages.BrokerStateRecord
    | messages.TopicRecord
    | messages.RemoveTopicRecord
    | messages.PartitionRecord
    | messages.PartitionChangeRecord
    | messages.ConfigRecord
    | messages.ProducerIdsRecord
    | messages.NoOpRecord
    | messages.ClusterRecord
    | messages.UserScramCredentialRecord
    | messages.RemoveUserScramCredentialRecord
    | messages.AccessControlEntryRecord
    | messages.RemoveAccessControlEntryRecord
    | messages.ClientQuotaRecord
    | messages.UnregisterBrokerRecord
)


class CorruptMetadata(ValueError):
    """A record that cannot be read, or that speaks of what the image does not hold."""


def encode(record: MetadataRecord) -> bytes:
    """The value of a record in `__cluster_metadata`."""
    kinds: dict[str, Any] = {_KINDS[type(record)][0]: record}
    return messages.MetadataRecord(**kinds).SerializeToString()


def decode(value: bytes) -> MetadataRecord:
    """Raises `CorruptMetadata`."""
    try:
        decoded = messages.MetadataRecord.FromString(value)
    except DecodeError as error:
        raise CorruptMetadata(f"a metadata record of {len(value)} bytes cannot be read: {error}") from error
    for kind, _ in _KINDS.values():
        record: MetadataRecord | None = getattr(decoded, kind)
        if record is not None:
            return record
    raise CorruptMetadata(f"a metadata record of {len(value)} bytes is of no kind that this version knows")


def apply(image: MetadataImage, record: MetadataRecord, offset: int, epoch: int) -> Change | None:
    """Change the image by one record at this offset and quorum epoch; what changed, or None for what no delta names.

    Raises `CorruptMetadata` when the record does not fit; the image is then as before.
    """
    kind, change_image = _KINDS[type(record)]
    try:
        change = change_image(image, record, offset)
    except CorruptMetadata as error:
        raise CorruptMetadata(f"metadata offset {offset}, epoch {epoch}, {kind}: {error}") from None
    image.offset = offset + 1
    image.epoch = epoch
    return change


def _register_broker(image: MetadataImage, registration: messages.RegisterBrokerRecord, offset: int) -> Change:
    image.brokers[registration.broker_id] = BrokerRegistration(
        broker_id=registration.broker_id,
        broker_epoch=offset if registration.broker_epoch is None else registration.broker_epoch,
        incarnation_id=registration.incarnation_id,
        endpoints=dict(registration.endpoints),
        rack=registration.rack,
        log_directory_id=registration.log_directory_id,
        fenced=registration.fenced,
        in_controlled_shutdown=registration.in_controlled_shutdown,
    )
    return BrokerChanged(registration.broker_id)


def _unregister_broker(image: MetadataImage, record: messages.UnregisterBrokerRecord, offset: int) -> Change:
    _registration_of(image, record.broker_id, record.broker_epoch)
    del image.brokers[record.broker_id]
    return BrokerChanged(record.broker_id)


def _broker_state(image: MetadataImage, state: messages.BrokerStateRecord, offset: int) -> Change:
    image.brokers[state.broker_id] = replace(
        _registration_of(image, state.broker_id, state.broker_epoch),
        fenced=state.fenced,
        in_controlled_shutdown=state.in_controlled_shutdown,
    )
    return BrokerChanged(state.broker_id)


def _registration_of(image: MetadataImage, broker_id: int, broker_epoch: int) -> BrokerRegistration:
    registration = image.brokers.get(broker_id)
    if registration is None or registration.broker_epoch != broker_epoch:
        raise CorruptMetadata(f"broker {broker_id} is not registered with broker epoch {broker_epoch}")
    return registration


def _topic(image: MetadataImage, topic: messages.TopicRecord, offset: int) -> None:
    if topic.name in image.topics or topic.topic_id in image.topic_names:
        raise CorruptMetadata(f"topic {topic.name} or its id exists already")
    image.topics[topic.name] = TopicImage(topic.name, topic.topic_id)
    image.topic_names[topic.topic_id] = topic.name


def _remove_topic(image: MetadataImage, removed: messages.RemoveTopicRecord, offset: int) -> Change:
    topic = _topic_of(image, removed.topic_id)
    del image.topics[topic.name]
    del image.topic_names[topic.topic_id]
    image.topic_configs.pop(topic.name, None)
    return TopicDeleted(topic.name, topic.topic_id, tuple(sorted(topic.partitions)))


def _partition(image: MetadataImage, new: messages.PartitionRecord, offset: int) -> Change:
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


def _partition_change(image: MetadataImage, change: messages.PartitionChangeRecord, offset: int) -> Change:
    topic = _topic_of(image, change.topic_id)
    old = topic.partitions.get(change.partition)
    if old is None:
        raise CorruptMetadata(f"partition {topic.name}-{change.partition} does not exist")
    topic.partitions[change.partition] = PartitionRegistration(
        replicas=tuple(change.replicas) if change.replicas_changed else old.replicas,
        isr=tuple(change.isr) if change.isr_changed else old.isr,
        leader=old.leader if change.leader is None else change.leader,
        leader_epoch=old.leader_epoch + change.bump_leader_epoch,
        partition_epoch=old.partition_epoch + 1,
        recovering=old.recovering if change.recovering is None else change.recovering,
        eligible=tuple(change.eligible) if change.eligible_changed else old.eligible,
        last_known_eligible=tuple(change.last_known_eligible) if change.eligible_changed else old.last_known_eligible,
        adding=tuple(change.adding_replicas) if change.reassignment_changed else old.adding,
        removing=tuple(change.removing_replicas) if change.reassignment_changed else old.removing,
    )
    return PartitionChanged(TopicPartition(topic.name, change.partition))


def _config(image: MetadataImage, config: messages.ConfigRecord, offset: int) -> Change | None:
    change: Change | None
    if config.resource_type == "topic":
        resources, change = image.topic_configs, TopicConfigChanged(config.resource_name)
    elif config.resource_type == "broker":
        resources, change = image.broker_configs, BrokerConfigChanged(config.resource_name)
    elif config.resource_type == "group":
        resources, change = image.group_configs, None
    else:
        raise CorruptMetadata(f"there is no resource type {config.resource_type!r}")
    values = resources.get(config.resource_name, {})
    if config.value is not None:
        resources[config.resource_name] = values | {config.name: config.value}
    else:
        kept = {name: value for name, value in values.items() if name != config.name}
        resources.pop(config.resource_name, None)
        if kept:
            resources[config.resource_name] = kept
    return change


def _producer_ids(image: MetadataImage, allocated: messages.ProducerIdsRecord, offset: int) -> None:
    if allocated.next_producer_id < image.next_producer_id:
        raise CorruptMetadata(f"producer ids go back from {image.next_producer_id}")
    image.next_producer_id = allocated.next_producer_id


def _cluster(image: MetadataImage, cluster: messages.ClusterRecord, offset: int) -> None:
    image.cluster_id = cluster.cluster_id


def _no_op(image: MetadataImage, record: messages.NoOpRecord, offset: int) -> None: ...


def _user(image: MetadataImage, user: messages.UserScramCredentialRecord, offset: int) -> None:
    if user.mechanism not in HASHES:
        raise CorruptMetadata(f"there is no mechanism {user.mechanism!r}")
    credential = Credential(user.salt, user.stored_key, user.server_key, user.iterations)
    image.scram[user.name] = image.scram.get(user.name, {}) | {user.mechanism: credential}


def _remove_user(image: MetadataImage, user: messages.RemoveUserScramCredentialRecord, offset: int) -> None:
    known = image.scram.get(user.name, {})
    if user.mechanism not in known:
        raise CorruptMetadata(f"the user {user.name!r} has no credential of {user.mechanism}")
    kept = {mechanism: credential for mechanism, credential in known.items() if mechanism != user.mechanism}
    image.scram.pop(user.name)
    if kept:
        image.scram[user.name] = kept


def _acl(image: MetadataImage, entry: messages.AccessControlEntryRecord, offset: int) -> None:
    if entry.id in image.acls:
        raise CorruptMetadata(f"the ACL {entry.id.hex()} exists already")
    try:
        acl = acl_of(entry)
    except ValueError as error:
        raise CorruptMetadata(f"no ACL of this version: {error}") from None
    image.acls = image.acls | {entry.id: acl}


def _remove_acl(image: MetadataImage, entry: messages.RemoveAccessControlEntryRecord, offset: int) -> None:
    if entry.id not in image.acls:
        raise CorruptMetadata(f"there is no ACL {entry.id.hex()}")
    image.acls = {known: acl for known, acl in image.acls.items() if known != entry.id}


def _quota(image: MetadataImage, quota: messages.ClientQuotaRecord, offset: int) -> None:
    if quota.key not in KEYS or (quota.user is None and quota.client_id is None):
        raise CorruptMetadata(f"no quota of this version: {quota.key!r}")
    entity = QuotaEntity(quota.user, quota.client_id)
    values = {key: value for key, value in image.quotas.get(entity, {}).items() if key != quota.key}
    if quota.value is not None:
        values[quota.key] = quota.value
    image.quotas = {known: rates for known, rates in image.quotas.items() if known != entity}
    if values:
        image.quotas[entity] = values


def _topic_of(image: MetadataImage, topic_id: bytes) -> TopicImage:
    topic = image.topic_by_id(topic_id)
    if topic is None:
        raise CorruptMetadata(f"no topic has the id {topic_id.hex()}")
    return topic


_KINDS: Final[Mapping[type, tuple[str, Callable[[MetadataImage, Any, int], Change | None]]]] = {
    messages.RegisterBrokerRecord: ("register_broker", _register_broker),
    messages.BrokerStateRecord: ("broker_state", _broker_state),
    messages.TopicRecord: ("topic", _topic),
    messages.RemoveTopicRecord: ("remove_topic", _remove_topic),
    messages.PartitionRecord: ("partition", _partition),
    messages.PartitionChangeRecord: ("partition_change", _partition_change),
    messages.ConfigRecord: ("config", _config),
    messages.ProducerIdsRecord: ("producer_ids", _producer_ids),
    messages.NoOpRecord: ("no_op", _no_op),
    messages.ClusterRecord: ("cluster", _cluster),
    messages.UserScramCredentialRecord: ("user_scram_credential", _user),
    messages.RemoveUserScramCredentialRecord: ("remove_user_scram_credential", _remove_user),
    messages.AccessControlEntryRecord: ("access_control_entry", _acl),
    messages.RemoveAccessControlEntryRecord: ("remove_access_control_entry", _remove_acl),
    messages.ClientQuotaRecord: ("client_quota", _quota),
    messages.UnregisterBrokerRecord: ("unregister_broker", _unregister_broker),
}
"""The field of a `MetadataRecord` on the disk, and what the record does to an image."""
