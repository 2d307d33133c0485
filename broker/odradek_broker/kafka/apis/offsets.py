"""ListOffsets and OffsetForLeaderEpoch (K-29, K-30)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition

from odradek_broker.kafka.messages.request import Body, KafkaRequest
from odradek_broker.requests.offsets import (
    CONSUMER,
    DEBUGGER,
    EARLIEST,
    MAX_TIMESTAMP,
    EpochQuery,
    ListedOffset,
    OffsetQuery,
    OffsetRequests,
)

READ_COMMITTED = 1
EARLIEST_LOCAL = -4  # KIP-405: all of a log is local here
LATEST_TIERED = -5  # nothing is in tiered storage
OFFSET_NOT_AVAILABLE_FROM = 5  # KIP-207; clients of older versions retry another error


TIMES_FROM = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
"""The versions from which on these may be asked for; what lies below them no version knows yet."""


class OffsetsApi:
    """Both are asked of leaders alone, but by a debugger."""

    def __init__(self, requests: OffsetRequests) -> None:
        self._requests = requests

    async def list_offsets(self, request: KafkaRequest) -> Body:
        asked = request.read()
        topics = [(each["name"], _each_once(each["partitions"], request.version)) for each in asked["topics"]]
        queries = [
            OffsetQuery(
                TopicPartition(name, partition["partition_index"]),
                EARLIEST if partition["timestamp"] == EARLIEST_LOCAL else partition["timestamp"],
                partition.get("current_leader_epoch", -1),
            )
            for name, places in topics
            for partition, refused in places
            if not refused and partition["timestamp"] != LATEST_TIERED
        ]
        committed = asked.get("isolation_level", 0) == READ_COMMITTED
        replica_id = DEBUGGER if asked["replica_id"] == DEBUGGER else CONSUMER  # followers list by gRPC
        found = iter(await self._requests.list_offsets(request.context, queries, replica_id, committed))

        def told(name: str, partition: Mapping[str, Any], refused: ErrorCode) -> dict[str, object]:
            index = partition["partition_index"]
            unasked = refused or partition["timestamp"] == LATEST_TIERED
            listed = ListedOffset(TopicPartition(name, index), refused) if unasked else next(found)
            error = listed.error
            if error is ErrorCode.OFFSET_NOT_AVAILABLE and request.version < OFFSET_NOT_AVAILABLE_FROM:
                error = ErrorCode.LEADER_NOT_AVAILABLE
            return {
                "partition_index": index,
                "error_code": error,
                "timestamp": listed.timestamp_ms,
                "offset": listed.offset,
                "leader_epoch": listed.leader_epoch,
            }

        answers = [
            {"name": name, "partitions": [told(name, *each) for each in places]} for name, places in topics if places
        ]
        return request.answered({"topics": answers})

    async def offsets_for_leader_epoch(self, request: KafkaRequest) -> Body:
        asked = request.read()
        queries = [
            EpochQuery(
                TopicPartition(topic["topic"], partition["partition"]),
                partition["current_leader_epoch"],
                partition["leader_epoch"],
            )
            for topic in asked["topics"]
            for partition in topic["partitions"]
        ]
        found = iter(await self._requests.offsets_for_leader_epoch(request.context, queries))
        topics = [
            {
                "topic": topic["topic"],
                "partitions": [
                    {
                        "error_code": end.error,
                        "partition": end.topic_partition.partition,
                        "leader_epoch": end.leader_epoch,
                        "end_offset": end.end_offset,
                    }
                    for _ in topic["partitions"]
                    for end in (next(found),)
                ],
            }
            for topic in asked["topics"]
        ]
        return request.answered({"topics": topics})


def _each_once(partitions: Sequence[Mapping[str, Any]], version: int) -> list[tuple[Mapping[str, Any], ErrorCode]]:
    """The partitions of a topic and why they are not looked up, if so: one that is named twice, and times that this
    version does not know."""
    found: dict[int, tuple[Mapping[str, Any], ErrorCode]] = {}
    for partition in partitions:
        index, time_ms = partition["partition_index"], partition["timestamp"]
        unknown = time_ms < EARLIEST and version < TIMES_FROM.get(time_ms, version + 1)
        error = ErrorCode.UNSUPPORTED_VERSION if unknown else ErrorCode.NONE
        found[index] = (partition, ErrorCode.INVALID_REQUEST if index in found else error)
    return list(found.values())
