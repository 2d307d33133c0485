"""The image as records: the content of a snapshot of the metadata log (KIP-630).

Rules of this module. `records_of` is the inverse of `records.apply`: the records, applied to an empty image, make the
same image again, with everything in the same order, since election order depends on it. And a node that loads a
snapshot instead of the records before it gets the same changes as if it had applied them one by one: `difference`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from odradek_proto.security.acls import Acl, in_messages
from odradek_proto.topics import TopicPartition
from odradek_proto.v1.metadata_messages import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ClusterRecord,
    ConfigRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)

from odradek_broker.core.metadata.delta import (
    BrokerChanged,
    BrokerConfigChanged,
    MetadataDelta,
    TopicConfigChanged,
    TopicDeleted,
)
from odradek_broker.core.metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage
from odradek_broker.core.metadata.records import CorruptMetadata, MetadataRecord, apply, decode

Key = TypeVar("Key", int, str)


def records_of(image: MetadataImage) -> Iterator[MetadataRecord]:
    """Everything that the image holds. Its offset and epoch are not among the records: they are the snapshot's name."""
    if image.cluster_id:
        yield ClusterRecord(cluster_id=image.cluster_id)
    if image.next_producer_id:
        yield ProducerIdsRecord(next_producer_id=image.next_producer_id)
    for registration in image.brokers.values():
        yield _broker(registration)
    for topic in image.topics.values():
        yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for number, partition in topic.partitions.items():
            yield _partition(topic.topic_id, number, partition)
    kinds = {"topic": image.topic_configs, "broker": image.broker_configs, "group": image.group_configs}
    for resource_type, resources in kinds.items():
        for resource_name, values in resources.items():
            for name, value in values.items():
                yield ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)

    yield from _security(image)


def _security(image: MetadataImage) -> Iterator[MetadataRecord]:
    for user, credentials in image.scram.items():
        for mechanism, kept in credentials.items():
            yield UserScramCredentialRecord(
                name=user,
                mechanism=mechanism,
                salt=kept.salt,
                stored_key=kept.stored_key,
                server_key=kept.server_key,
                iterations=kept.iterations,
            )
    for acl_id, acl in image.acls.items():
        yield acl_record(acl_id, acl)
    for entity, quotas in image.quotas.items():
        for key, rate in quotas.items():
            yield ClientQuotaRecord(user=entity.user, client_id=entity.client_id, key=key, value=rate)


def acl_record(acl_id: bytes, acl: Acl) -> MetadataRecord:
    return AccessControlEntryRecord(id=acl_id, **in_messages(acl))


def _broker(registration: BrokerRegistration) -> MetadataRecord:
    """With its broker epoch, which is the offset of another record than this one."""
    return RegisterBrokerRecord(
        broker_id=registration.broker_id,
        broker_epoch=registration.broker_epoch,
        incarnation_id=registration.incarnation_id,
        endpoints=registration.endpoints,
        rack=registration.rack,
        log_directory_id=registration.log_directory_id,
        fenced=registration.fenced,
        in_controlled_shutdown=registration.in_controlled_shutdown,
    )


def _partition(topic_id: bytes, number: int, partition: PartitionRegistration) -> MetadataRecord:
    return PartitionRecord(
        topic_id=topic_id,
        partition=number,
        replicas=partition.replicas,
        isr=partition.isr,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        recovering=partition.recovering,
        eligible=partition.eligible,
        last_known_eligible=partition.last_known_eligible,
        adding_replicas=partition.adding,
        removing_replicas=partition.removing,
    )


def image_of(values: Iterable[bytes], end_offset: int, epoch: int) -> MetadataImage:
    """The image that a snapshot holds, as it was below `end_offset`. Raises `CorruptMetadata`."""
    image = MetadataImage()
    for place, value in enumerate(values):
        record = decode(value)
        if isinstance(record, RegisterBrokerRecord) and record.broker_epoch is None:
            raise CorruptMetadata(f"record {place} of a snapshot registers a broker without its broker epoch")
        apply(image, record, place, epoch)
    image.offset, image.epoch = end_offset, epoch
    return image


def difference(old: MetadataImage, new: MetadataImage) -> MetadataDelta:
    """What happened between two images, for those who have seen the old one.

    Topics are told apart by their ids: one that was deleted and created again under its name is both, with all its
    partitions. What changed and changed back is not named.
    """
    delta = MetadataDelta()
    _compare_topics(delta, old, new)
    for broker_id in _changed(old.brokers, new.brokers):
        delta.add(BrokerChanged(broker_id))
    for name in _changed(old.topic_configs, new.topic_configs):
        if name in new.topics:
            delta.add(TopicConfigChanged(name))
    for name in _changed(old.broker_configs, new.broker_configs):
        delta.add(BrokerConfigChanged(name))
    return delta


def _compare_topics(delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
    """Deletions first: a name may be in use again."""
    for topic in old.topics.values():
        if topic.topic_id not in new.topic_names:
            delta.add(TopicDeleted(topic.name, topic.topic_id, tuple(sorted(topic.partitions))))
    for topic in new.topics.values():
        _compare_partitions(delta, old.topic_by_id(topic.topic_id), topic)


def _compare_partitions(delta: MetadataDelta, old: TopicImage | None, new: TopicImage) -> None:
    known = {} if old is None else old.partitions
    for number, partition in new.partitions.items():
        if known.get(number) != partition:
            delta.partitions[TopicPartition(new.name, number)] = None  # there may be very many


def _changed(old: Mapping[Key, object], new: Mapping[Key, object]) -> list[Key]:
    """The keys that are there, were there, or both, with another value than before."""
    changed = [key for key, value in new.items() if old.get(key) != value]
    return changed + [key for key in old if key not in new]
