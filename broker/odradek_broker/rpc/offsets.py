"""ListOffsets and OffsetsForLeaderEpoch over gRPC, for clients and for followers."""

from __future__ import annotations

from odradek_proto.topics import TopicPartition
from odradek_proto.v1 import broker_pb2 as pb

from odradek_broker.requests.context import RequestContext
from odradek_broker.requests.offsets import CONSUMER, EpochQuery, OffsetQuery, OffsetRequests


class OffsetsService:
    """Both calls: `requests.offsets` says what, this says it in protobuf."""

    def __init__(self, requests: OffsetRequests, *, for_followers: bool) -> None:
        """A client is no follower, whatever its message says: it sees nothing above the high watermark."""
        self._requests = requests
        self._for_followers = for_followers

    async def list_offsets(self, request: bytes, context: RequestContext) -> bytes:
        message = pb.ListOffsetsRequest.FromString(request)
        queries = [
            OffsetQuery(TopicPartition(each.topic, each.partition), each.timestamp_ms, each.current_leader_epoch)
            for each in message.partitions
        ]
        replica_id = message.replica_id if self._for_followers else CONSUMER
        listed = await self._requests.list_offsets(context, queries, replica_id, message.read_committed)
        response = pb.ListOffsetsResponse()
        for found in listed:
            response.partitions.add(
                topic=found.topic_partition.topic,
                partition=found.topic_partition.partition,
                error_code=int(found.error),
                offset=found.offset,
                timestamp_ms=found.timestamp_ms,
                leader_epoch=found.leader_epoch,
            )
        return response.SerializeToString()

    async def offsets_for_leader_epoch(self, request: bytes, context: RequestContext) -> bytes:
        message = pb.OffsetsForLeaderEpochRequest.FromString(request)
        queries = [
            EpochQuery(TopicPartition(each.topic, each.partition), each.current_leader_epoch, each.leader_epoch)
            for each in message.partitions
        ]
        replica_id = message.replica_id if self._for_followers else CONSUMER
        ends = await self._requests.offsets_for_leader_epoch(context, queries, replica_id)
        response = pb.OffsetsForLeaderEpochResponse()
        for end in ends:
            response.partitions.add(
                topic=end.topic_partition.topic,
                partition=end.topic_partition.partition,
                error_code=int(end.error),
                leader_epoch=end.leader_epoch,
                end_offset=end.end_offset,
            )
        return response.SerializeToString()
