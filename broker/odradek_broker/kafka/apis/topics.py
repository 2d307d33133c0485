"""CreateTopics, DeleteTopics, CreatePartitions, and DescribeTopicPartitions (KIP-966)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from odradek_proto.errors import ErrorCode
from odradek_proto.v1 import admin_messages

from odradek_broker.kafka.apis.admin import AdminApi, failed, told
from odradek_broker.kafka.messages.primitives import NO_UUID
from odradek_broker.kafka.messages.request import Body, KafkaRequest
from odradek_broker.requests.metadata import MetadataRequests, TopicDescription

NAMES_AND_IDS_FROM = 6  # of DeleteTopics
MOST_PARTITIONS = 2_000  # max.request.partition.size.limit, of one DescribeTopicPartitions

NAMED_TWICE = (ErrorCode.INVALID_REQUEST, "the topic is named twice")


class TopicsApi:
    def __init__(self, admin: AdminApi, metadata: MetadataRequests) -> None:
        self._admin = admin
        self._metadata = metadata

    async def create(self, request: KafkaRequest) -> Body:
        asked = request.read()
        new_topics = [
            admin_messages.NewTopic(
                name=topic["name"],
                partitions=topic["num_partitions"],
                replication_factor=topic["replication_factor"],
                configs={config["name"]: config["value"] or "" for config in topic["configs"]},
                assignments=[
                    admin_messages.ReplicaAssignment(partition=each["partition_index"], broker_ids=each["broker_ids"])
                    for each in topic["assignments"]
                ],
            )
            for topic in asked["topics"]
        ]
        wanted = admin_messages.CreateTopicsRequest(
            topics=new_topics, timeout_ms=asked["timeout_ms"], validate_only=asked["validate_only"]
        )
        answer = await self._admin.call(request, "CreateTopics", wanted, asked["timeout_ms"])
        topics = [
            {
                "name": topic.name,
                "topic_id": topic.topic_id or NO_UUID,
                "num_partitions": topic.partitions or -1,
                "replication_factor": topic.replication_factor or -1,
                "configs": [],
                **told(topic),
            }
            for topic in answer.topics
        ]
        return request.answered({"topics": topics})

    async def delete(self, request: KafkaRequest) -> Body:
        asked = request.read()
        if request.version < NAMES_AND_IDS_FROM:
            topics: list[dict[str, Any]] = [{"name": name, "topic_id": NO_UUID} for name in asked["topic_names"]]
        else:
            topics = asked["topics"]
        keys = [
            self._metadata.topic_name(topic["topic_id"]) or topic["topic_id"]
            if topic["name"] is None
            else topic["name"]
            for topic in topics
        ]
        times = Counter(keys)
        wanted = admin_messages.DeleteTopicsRequest(
            topics=[key for key, count in times.items() if isinstance(key, str) and count == 1],
            timeout_ms=asked["timeout_ms"],
        )
        unknown = failed(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
        twice = failed(ErrorCode.INVALID_REQUEST, "the request names this topic more than once: name it once")
        results = {key: unknown if count == 1 else twice for key, count in times.items()}
        answer = await self._admin.call(request, "DeleteTopics", wanted, asked["timeout_ms"])
        results |= {topic.name: told(topic) for topic in answer.topics}
        ids = [topic["topic_id"] for topic in topics if topic["name"] is None]
        known = {each.topic_id: each.name for each in (await self._metadata.metadata(request.context, (), ids)).topics}
        responses = {
            key: {"name": _told_name(topic, key, results[key], known), "topic_id": topic["topic_id"], **results[key]}
            for key, topic in zip(keys, topics, strict=True)
        }
        return request.answered({"responses": list(responses.values())})

    async def create_partitions(self, request: KafkaRequest) -> Body:
        asked = request.read()
        times = Counter(topic["name"] for topic in asked["topics"])
        once = {topic["name"]: topic for topic in asked["topics"]}
        results = [
            {"name": name, **(await self._grow(request, topic, asked) if times[name] == 1 else failed(*NAMED_TWICE))}
            for name, topic in once.items()
        ]
        return request.answered({"results": results})

    async def _grow(
        self, request: KafkaRequest, topic: Mapping[str, Any], asked: Mapping[str, Any]
    ) -> dict[str, object]:
        if topic["assignments"] == []:
            return failed(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "null lets the controller choose, no replicas nobody")
        placed = [each["broker_ids"] for each in topic["assignments"] or ()]
        first = max(0, topic["count"] - len(placed))  # what cannot be is refused by the controller
        wanted = admin_messages.CreatePartitionsRequest(
            topic=topic["name"],
            count=topic["count"],
            timeout_ms=asked["timeout_ms"],
            assignments=[
                admin_messages.ReplicaAssignment(partition=number, broker_ids=broker_ids)
                for number, broker_ids in enumerate(placed, first)
            ],
            validate_only=asked["validate_only"],
        )
        return told(await self._admin.call(request, "CreatePartitions", wanted, asked["timeout_ms"]))

    async def describe(self, request: KafkaRequest) -> Body:
        """Pages of partitions, by topic name; the cursor is where the next page begins."""
        asked = request.read()
        names = sorted({topic["name"] for topic in asked["topics"]})
        cluster = await self._metadata.metadata(request.context, names or None)
        limit = max(1, min(asked["response_partition_limit"], MOST_PARTITIONS))
        cursor = asked["cursor"] or {"topic_name": "", "partition_index": 0}
        topics: list[dict[str, Any]] = []
        for topic in sorted(cluster.topics, key=lambda each: each.name):
            if topic.name < cursor["topic_name"]:
                continue
            first = cursor["partition_index"] if topic.name == cursor["topic_name"] else 0
            wanted = [each for each in topic.partitions if each.partition >= first]
            if (topics and limit <= 0) or len(wanted) > limit:
                following = {"topic_name": topic.name, "partition_index": wanted[limit].partition if wanted else 0}
                if limit > 0:
                    topics.append(self._described(request, topic, wanted[:limit]))
                return request.answered({"topics": topics, "next_cursor": following})
            topics.append(self._described(request, topic, wanted))
            limit -= len(wanted)
        return request.answered({"topics": topics})

    def _described(self, request: KafkaRequest, topic: TopicDescription, partitions: Sequence[Any]) -> dict[str, Any]:
        row = _described(topic, partitions)
        if topic.error is ErrorCode.NONE:
            row["topic_authorized_operations"] = self._metadata.operations_on_topic(request.context, topic.name)
        return row


def _told_name(
    topic: Mapping[str, Any], key: str | bytes, result: Mapping[str, object], known: Mapping[bytes, str]
) -> str | None:
    """Of a topic that was named by its id, nobody learns the name who may neither delete nor describe it."""
    refused = topic["name"] is None and result["error_code"] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if refused:
        return known.get(topic["topic_id"]) or None
    return None if isinstance(key, bytes) else key


def _described(topic: TopicDescription, partitions: Sequence[Any]) -> dict[str, Any]:
    return {
        "error_code": topic.error,
        "name": topic.name,
        "topic_id": topic.topic_id or NO_UUID,
        "is_internal": topic.is_internal,
        "partitions": [
            {
                "error_code": each.error,
                "partition_index": each.partition,
                "leader_id": each.leader_id,
                "leader_epoch": each.leader_epoch,
                "replica_nodes": each.replicas,
                "isr_nodes": each.isr,
                "eligible_leader_replicas": each.eligible,
                "last_known_elr": each.last_known_eligible,
                "offline_replicas": each.offline_replicas,
            }
            for each in partitions
        ],
    }
