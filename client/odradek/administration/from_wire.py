"""From the protocol's messages to the descriptions that users get, and from a `NewTopic` to its message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek_proto.security.quota_words import DEFAULT, EXACT, OF_DEFAULT
from odradek_proto.security.quotas import QuotaEntity
from odradek_proto.topics import TOPIC_ID_SIZE, topic_id_to_text
from odradek_proto.v1 import admin_messages, broker_pb2
from odradek_proto.v1 import admin_messages as messages

from odradek.administration.descriptions import (
    BrokerDescription,
    ClusterDescription,
    ConfigEntry,
    ConfigSynonym,
    EpochStart,
    NewTopic,
    PartitionDescription,
    QuorumReplica,
    RemoteReplicaDescription,
    ReplicaDescription,
    TopicDescription,
)
from odradek.shared.errors import broker_error

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
    synonyms = tuple(
        ConfigSynonym(synonym.name, synonym.value, CONFIG_SOURCES.get(synonym.source, "UNKNOWN"))
        for synonym in entry.synonyms
    )
    source = CONFIG_SOURCES.get(entry.source, "UNKNOWN")
    return ConfigEntry(entry.name, entry.value, source, entry.read_only, entry.sensitive, entry.type, synonyms)


def describe_cluster(answer: broker_pb2.MetadataResponse) -> ClusterDescription:
    """Brokers are sorted by id."""
    found = [
        BrokerDescription(broker.broker_id, dict(broker.endpoints), broker.rack, broker.fenced, broker.broker_epoch)
        for broker in answer.brokers
    ]
    brokers = sorted(found, key=lambda broker: broker.broker_id)
    return ClusterDescription(answer.cluster_id, answer.controller_id, brokers, answer.listener)


def describe_topic(topic: broker_pb2.TopicMetadata) -> TopicDescription:
    """Partitions are sorted by number."""
    partitions = [
        PartitionDescription(
            found.partition,
            found.leader_id,
            found.leader_epoch,
            found.partition_epoch,
            tuple(found.replicas),
            tuple(found.isr),
            tuple(found.offline_replicas),
            tuple(found.eligible),
            tuple(found.last_known_eligible),
        )
        for found in topic.partitions
    ]
    topic_id = topic_id_to_text(topic.topic_id) if len(topic.topic_id) == TOPIC_ID_SIZE else ""
    return TopicDescription(
        topic.topic, topic_id, topic.internal, sorted(partitions, key=lambda partition: partition.partition)
    )


def describe_replica(broker_id: int, replica: broker_pb2.ReplicaDescription) -> ReplicaDescription:
    return ReplicaDescription(
        broker_id=broker_id,
        topic=replica.topic,
        partition=replica.partition,
        role=replica.role,
        leader_id=replica.leader_id,
        leader_epoch=replica.leader_epoch,
        partition_epoch=replica.partition_epoch,
        log_start_offset=replica.log_start_offset,
        log_end_offset=replica.log_end_offset,
        high_watermark=replica.high_watermark,
        size_bytes=replica.size_bytes,
        isr=tuple(replica.isr),
        remote_replicas=[
            RemoteReplicaDescription(remote.broker_id, remote.log_end_offset, remote.lag_ms, remote.in_sync)
            for remote in replica.remote_replicas
        ],
        epochs=[EpochStart(entry.epoch, entry.start_offset) for entry in replica.epochs],
        waiting_produces=replica.waiting_produces,
        waiting_fetches=replica.waiting_fetches,
    )


def describe_quorum_replica(replica: admin_messages.QuorumReplica) -> QuorumReplica:
    return QuorumReplica(replica.node_id, replica.log_end_offset, replica.last_fetch_ms, replica.last_caught_up_ms)


def raise_first(results: Sequence[tuple[str, int, str]]) -> None:
    """Raise the first error of several results; the others become notes."""
    errors = [broker_error(code, message, where=name) for name, code, message in results if code]
    if errors:
        for other in errors[1:]:
            errors[0].add_note(str(other))
        raise errors[0]


def filters_of(entity: QuotaEntity) -> list[messages.QuotaFilter]:
    """Of all that are about whom the entity names."""
    return [
        messages.QuotaFilter(type=kind, match_type=OF_DEFAULT if name is None else EXACT, match=name or "")
        for kind, name in entity.names().items()
    ]


def alteration(entity: QuotaEntity, quotas: Mapping[str, float | None]) -> messages.QuotaAlteration:
    return messages.QuotaAlteration(
        entity=[messages.QuotaName(type=kind, name=name) for kind, name in entity.names().items()],
        values=[messages.QuotaValue(key=key, value=value) for key, value in quotas.items()],
    )


def quotas_of(described: messages.DescribedQuota) -> tuple[QuotaEntity, dict[str, float]]:
    names = {each.type.replace("-", "_"): DEFAULT if each.name is None else each.name for each in described.entity}
    return QuotaEntity(**names), {each.key: each.value for each in described.values if each.value is not None}
