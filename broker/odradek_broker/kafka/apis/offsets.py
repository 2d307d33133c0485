"""ListOffsets and OffsetForLeaderEpoch (K-29, K-30)."""

from __future__ import annotations

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition

from odradek_broker.kafka.messages.request import Body, Request
from odradek_broker.requests.offsets import EARLIEST, EpochQuery, ListedOffset, OffsetQuery, OffsetRequests

READ_COMMITTED = 1
EARLIEST_LOCAL = -4  # KIP-405: all of a log is local here
LATEST_TIERED = -5  # nothing is in tiered storage
OFFSET_NOT_AVAILABLE_FROM = 5  # KIP-207; clients of older versions retry another error


class OffsetsApi:
    """Both are asked of leaders alone."""

    def __init__(self, requests: OffsetRequests) -> None:
        self._requests = requests

    async def list_offsets(self, request: Request) -> Body:
        asked = request.read()
        places = [(topic["name"], partition) for topic in asked["topics"] for partition in topic["partitions"]]
        queries = [
            OffsetQuery(
                TopicPartition(name, partition["partition_index"]),
                EARLIEST if partition["timestamp"] == EARLIEST_LOCAL else partition["timestamp"],
                partition.get("current_leader_epoch", -1),
            )
            for name, partition in places
            if partition["timestamp"] != LATEST_TIERED
        ]
        committed = asked.get("isolation_level", 0) == READ_COMMITTED
        found = iter(await self._requests.list_offsets(request.context, queries, read_committed=committed))

        def told(name: str, index: int, timestamp_ms: int) -> dict[str, object]:
            listed = (
                ListedOffset(TopicPartition(name, index), ErrorCode.NONE)
                if timestamp_ms == LATEST_TIERED
                else next(found)
            )
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

        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    told(topic["name"], partition["partition_index"], partition["timestamp"])
                    for partition in topic["partitions"]
                ],
            }
            for topic in asked["topics"]
        ]
        return request.answered({"topics": topics})

    async def offsets_for_leader_epoch(self, request: Request) -> Body:
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
