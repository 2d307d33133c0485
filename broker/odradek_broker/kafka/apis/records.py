"""DeleteRecords, DescribeProducers, AlterReplicaLogDirs and DescribeLogDirs: what this broker's replicas hold."""

from __future__ import annotations

from typing import Any

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition

from odradek_broker.kafka.apis.admin import MOST_TIMEOUT_MS, by_topic
from odradek_broker.kafka.messages.request import Body, KafkaRequest
from odradek_broker.requests.records import DeleteRecords, RecordRequests


class RecordsApi:
    """`log_directory` is the broker's one."""

    def __init__(self, requests: RecordRequests, log_directory: str) -> None:
        self._requests = requests
        self._log_directory = log_directory

    async def delete(self, request: KafkaRequest) -> Body:
        asked = request.read()
        wanted = [
            DeleteRecords(TopicPartition(topic["name"], each["partition_index"]), each["offset"])
            for topic in asked["topics"]
            for each in topic["partitions"]
        ]
        timeout_ms = min(asked["timeout_ms"], MOST_TIMEOUT_MS)
        deleted = iter(await self._requests.delete_records(request.context, wanted, timeout_ms))
        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    {
                        "partition_index": each["partition_index"],
                        "low_watermark": told.low_watermark,
                        "error_code": told.error,
                    }
                    for each in topic["partitions"]
                    for told in (next(deleted),)
                ],
            }
            for topic in asked["topics"]
        ]
        return request.answered({"topics": topics})

    async def describe_producers(self, request: KafkaRequest) -> Body:
        topics = [
            {
                "name": topic["name"],
                "partitions": [self._producers(request, topic["name"], index) for index in topic["partition_indexes"]],
            }
            for topic in request.read()["topics"]
        ]
        return request.answered({"topics": topics})

    def _producers(self, request: KafkaRequest, topic: str, index: int) -> dict[str, Any]:
        found = self._requests.describe_producers(request.context, TopicPartition(topic, index))
        if isinstance(found, ErrorCode):
            return {"partition_index": index, "error_code": found, "error_message": found.message}
        producers = [
            {
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
                "last_sequence": each.last_sequence,
                "last_timestamp": each.last_timestamp,
                "coordinator_epoch": each.coordinator_epoch,
                "current_txn_start_offset": each.transaction_first_offset,
            }
            for each in found
        ]
        return {"partition_index": index, "active_producers": producers}

    async def alter_log_dirs(self, request: KafkaRequest) -> Body:
        """There is one directory: a replica is there already, or nowhere."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for directory in request.read()["dirs"]:
            for topic in directory["topics"]:
                topics.setdefault(topic["name"], []).extend(
                    {
                        "partition_index": index,
                        "error_code": self._requests.refusal_to_move(
                            request.context,
                            TopicPartition(topic["name"], index),
                            is_known=directory["path"] == self._log_directory,
                        ),
                    }
                    for index in topic["partitions"]
                )
        return request.answered(
            {"results": [{"topic_name": topic, "partitions": partitions} for topic, partitions in topics.items()]}
        )

    async def describe_log_dirs(self, request: KafkaRequest) -> Body:
        """Of all replicas here, or of those that are named."""
        asked = request.read()
        wanted = None
        if asked["topics"] is not None:
            wanted = {(topic["topic"], index) for topic in asked["topics"] for index in topic["partitions"]}
        described = self._requests.describe_replicas(request.context)
        if described.error:
            return request.answered({"error_code": described.error, "results": []})
        rows = []
        for replica in described.replicas:
            tp = replica.topic_partition
            if wanted is None or (tp.topic, tp.partition) in wanted:
                lag = 0 if replica.role == "leader" else max(0, replica.high_watermark - replica.log_end_offset)
                row = {"partition_index": tp.partition, "partition_size": replica.size_bytes, "offset_lag": lag}
                rows.append((tp.topic, row))
        return request.answered({"results": [{"log_dir": self._log_directory, "topics": by_topic(rows)}]})
