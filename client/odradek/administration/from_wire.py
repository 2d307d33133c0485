"""From the protocol's messages to the descriptions that users get, and from a `NewTopic` to its message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from odradek_proto.security.quota_words import DEFAULT, EXACT, OF_DEFAULT
from odradek_proto.security.quotas import QuotaEntity
from odradek_proto.topics import TOPIC_ID_SIZE, topic_id_to_text
from odradek_proto.v1 import admin_messages, broker_pb2

from odradek.administration.descriptions import (
    BrokerDescription,
    ClusterDescription,
    ConfigEntry,
    ConfigSynonym,
    EpochStart,
    NewTopic,
    PartitionDescription,
    QuorumDescription,
    QuorumReplica,
    RemoteReplicaDescription,
    ReplicaDescription,
    TopicDescription,
)
from odradek.shared.errors import broker_error

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

D = TypeVar("D", bound="DataclassInstance")

# The words of the protocol, and Kafka's for them.
CONFIG_SOURCES = {
    "topic": "DYNAMIC_TOPIC_CONFIG",
    "group": "DYNAMIC_GROUP_CONFIG",
    "broker": "DYNAMIC_BROKER_CONFIG",
    "broker-logger": "DYNAMIC_BROKER_LOGGER_CONFIG",
    "cluster": "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "node": "STATIC_BROKER_CONFIG",
    "default": "DEFAULT_CONFIG",
}


def described(kind: type[D], message: object, **others: Any) -> D:
    """A description of what a message says under the same names, and of `others`."""
    same = {each.name: getattr(message, each.name) for each in fields(kind) if each.name not in others}
    return kind(**same, **others)


def topic_request(topic: NewTopic) -> admin_messages.NewTopic:
    return admin_messages.NewTopic(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=dict(topic.configs),
        assignments=[
            admin_messages.ReplicaAssignment(partition=partition, broker_ids=broker_ids)
            for partition, broker_ids in sorted(topic.assignments.items())
        ],
    )


def describe_config(entry: admin_messages.ConfigEntry) -> ConfigEntry:
    synonyms = tuple(described(ConfigSynonym, each, source=_source_of(each)) for each in entry.synonyms)
    return described(ConfigEntry, entry, source=_source_of(entry), synonyms=synonyms)


def _source_of(value: admin_messages.ConfigEntry | admin_messages.ConfigSynonym) -> str:
    return CONFIG_SOURCES.get(value.source, "UNKNOWN")


def describe_cluster(answer: broker_pb2.MetadataResponse) -> ClusterDescription:
    """Brokers are sorted by id."""
    found = [described(BrokerDescription, broker, endpoints=dict(broker.endpoints)) for broker in answer.brokers]
    return described(ClusterDescription, answer, brokers=sorted(found, key=lambda broker: broker.broker_id))


def describe_topic(topic: broker_pb2.TopicMetadata) -> TopicDescription:
    """Partitions are sorted by number."""
    partitions = [
        described(
            PartitionDescription,
            found,
            replicas=tuple(found.replicas),
            isr=tuple(found.isr),
            offline_replicas=tuple(found.offline_replicas),
            elr=tuple(found.eligible),
            last_known_elr=tuple(found.last_known_eligible),
        )
        for found in topic.partitions
    ]
    topic_id = topic_id_to_text(topic.topic_id) if len(topic.topic_id) == TOPIC_ID_SIZE else ""
    return TopicDescription(
        topic.topic, topic_id, topic.internal, sorted(partitions, key=lambda partition: partition.partition)
    )


def describe_replica(broker_id: int, replica: broker_pb2.ReplicaDescription) -> ReplicaDescription:
    return described(
        ReplicaDescription,
        replica,
        broker_id=broker_id,
        isr=tuple(replica.isr),
        remote_replicas=[described(RemoteReplicaDescription, remote) for remote in replica.remote_replicas],
        epochs=[described(EpochStart, entry) for entry in replica.epochs],
    )


def describe_quorum(answer: admin_messages.DescribeQuorumResponse) -> QuorumDescription:
    voters, observers = ([described(QuorumReplica, each) for each in of] for of in (answer.voters, answer.observers))
    return described(QuorumDescription, answer, voters=voters, observers=observers)


class ItemResult(Protocol):
    """What became of one of several things; most have a name."""

    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str: ...


def raise_first(results: Sequence[ItemResult], names: Sequence[str] | None = None) -> None:
    """Raise the first error of several results, whose names may stand elsewhere; the others become notes."""
    of_each = names if names is not None else [getattr(each, "name", "") for each in results]
    raise_with_notes(
        [
            broker_error(each.error_code, each.error_message, where=name)
            for name, each in zip(of_each, results, strict=True)
            if each.error_code
        ]
    )


def raise_with_notes(errors: Sequence[BaseException]) -> None:
    """Raise the first, if there is one; the others become its notes."""
    if errors:
        for other in errors[1:]:
            errors[0].add_note(str(other))
        raise errors[0]


def filters_of(entity: QuotaEntity) -> list[admin_messages.QuotaFilter]:
    """Of all that are about whom the entity names."""
    return [
        admin_messages.QuotaFilter(type=kind, match_type=OF_DEFAULT if name is None else EXACT, match=name or "")
        for kind, name in entity.names().items()
    ]


def alteration(entity: QuotaEntity, quotas: Mapping[str, float | None]) -> admin_messages.QuotaAlteration:
    return admin_messages.QuotaAlteration(
        entity=[admin_messages.QuotaName(type=kind, name=name) for kind, name in entity.names().items()],
        values=[admin_messages.QuotaValue(key=key, value=value) for key, value in quotas.items()],
    )


def quotas_of(described: admin_messages.DescribedQuota) -> tuple[QuotaEntity, dict[str, float]]:
    names = {each.type.replace("-", "_"): DEFAULT if each.name is None else each.name for each in described.entity}
    return QuotaEntity(**names), {each.key: each.value for each in described.values if each.value is not None}
