"""Metadata: brokers, topics and leaders as Kafka's clients want them (K-18 to K-20)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from odradek_proto.errors import ErrorCode

from odradek_broker.kafka.messages.endpoints import split_address
from odradek_broker.kafka.messages.primitives import NO_UUID
from odradek_broker.kafka.messages.request import Body, KafkaRequest
from odradek_broker.requests.metadata import (
    BrokerDescription,
    ClusterDescription,
    MetadataRequests,
    PartitionDescription,
    TopicDescription,
)

EMPTY_MEANS_ALL = 0  # the version in which no topics are all topics; later null is
LISTENER_ERRORS_FROM = 6  # before that LISTENER_NOT_FOUND is not known


class MetadataApi:
    """Answers from this broker's committed image, whoever leads the quorum."""

    def __init__(self, requests: MetadataRequests) -> None:
        self._requests = requests

    async def answer(self, request: KafkaRequest) -> Body:
        asked, context = _asked(request), request.context
        cluster = await self._requests.metadata(context, asked.names, asked.ids, asked.may_create)
        answer = _described(cluster, context.listener, request.version)
        if asked.operations_on_topics:
            for topic in answer["topics"]:
                if not topic["error_code"]:
                    topic["topic_authorized_operations"] = self._requests.operations_on_topic(context, topic["name"])
        if asked.operations_on_cluster:
            answer["cluster_authorized_operations"] = self._requests.operations_on_cluster(context)
        return request.answered(answer)


class AwaitedTopics(NamedTuple):
    """Who waits for a topic to be created keeps no more of its request than this."""

    names: list[str] | None  # None: all topics
    ids: list[bytes]
    may_create: bool
    operations_on_topics: bool  # whether to tell what the caller may do with them (KIP-430)
    operations_on_cluster: bool


def _asked(request: KafkaRequest) -> AwaitedTopics:
    """Each name and each id once, as in Kafka. Java's admin client gives an id an empty name, others none."""
    asked = request.read()
    topics = asked["topics"]
    everything = topics is None or (not topics and request.version == EMPTY_MEANS_ALL)
    ids = dict.fromkeys(each["topic_id"] for each in topics or () if _is_by_id(each))
    names = dict.fromkeys(each["name"] for each in topics or () if not _is_by_id(each))
    return AwaitedTopics(
        None if everything else list(names),
        list(ids),
        asked.get("allow_auto_topic_creation", True),
        asked.get("include_topic_authorized_operations", False),
        asked.get("include_cluster_authorized_operations", False),
    )


def _is_by_id(topic: Mapping[str, Any]) -> bool:
    return topic["name"] is None or topic.get("topic_id", NO_UUID) != NO_UUID


def live_brokers(cluster: ClusterDescription, listener: str) -> list[Mapping[str, Any]]:
    """The brokers that can be dialled."""
    return [broker_row(broker, listener) for broker in cluster.brokers if not broker.fenced]


def broker_row(broker: BrokerDescription, listener: str) -> Mapping[str, Any]:
    """A broker under both of the names that Kafka's messages have for its id."""
    host, port = split_address(broker.endpoints[listener])
    number = broker.broker_id
    return {"node_id": number, "broker_id": number, "host": host, "port": port, "rack": broker.rack or None}


def any_live(cluster: ClusterDescription, brokers: list[Mapping[str, Any]]) -> int:
    """Who takes admin requests: the controller if it is a live broker, else any; each passes them on."""
    ids = [int(broker["node_id"]) for broker in brokers]
    return cluster.controller_id if cluster.controller_id in ids else ids[0] if ids else -1


def _described(cluster: ClusterDescription, listener: str, version: int) -> dict[str, Any]:
    brokers = live_brokers(cluster, listener)
    return {
        "brokers": brokers,
        "cluster_id": cluster.cluster_id,
        "controller_id": any_live(cluster, brokers),
        "topics": [_topic(topic, version) for topic in cluster.topics],
    }


def _topic(topic: TopicDescription, version: int) -> Mapping[str, Any]:
    return {
        "error_code": topic.error,
        "name": topic.name or (None if version >= 12 else ""),
        "topic_id": topic.topic_id or NO_UUID,
        "is_internal": topic.is_internal,
        "partitions": [_partition(partition, version) for partition in topic.partitions],
    }


def _partition(partition: PartitionDescription, version: int) -> Mapping[str, Any]:
    error, leader = partition.error, partition.leader_id
    if error is ErrorCode.LISTENER_NOT_FOUND:
        leader = -1
        if version < LISTENER_ERRORS_FROM:
            error = ErrorCode.LEADER_NOT_AVAILABLE
    return {
        "error_code": error,
        "partition_index": partition.partition,
        "leader_id": leader,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "offline_replicas": partition.offline_replicas,
    }
