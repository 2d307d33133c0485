"""Metadata over gRPC."""

from __future__ import annotations

from odradek_proto.transport.ports import Clock
from odradek_proto.v1 import broker_pb2 as pb

from odradek_broker.requests.context import RequestContext
from odradek_broker.requests.metadata import MetadataRequests, PartitionDescription, TopicDescription


class MetadataService:
    """Answers Metadata: `requests.metadata` says what, this says it in protobuf."""

    def __init__(self, requests: MetadataRequests, *, broker_id: int, clock: Clock) -> None:
        self._requests = requests
        self._broker_id = broker_id
        self._clock = clock

    async def metadata(self, request: bytes, context: RequestContext) -> bytes:
        message = pb.MetadataRequest.FromString(request)
        cluster = await self._requests.metadata(
            context,
            None if message.all_topics else list(message.topics),
            allow_auto_topic_creation=message.allow_auto_topic_creation and not message.all_topics,
            all_listeners=message.all_listeners,
        )
        response = pb.MetadataResponse(
            cluster_id=cluster.cluster_id,
            controller_id=cluster.controller_id,
            listener=context.listener,
            answered_by=self._broker_id,
            wall_ms=self._clock.wall_ms(),
        )
        for broker in cluster.brokers:
            response.brokers.add(
                broker_id=broker.broker_id,
                endpoints=broker.endpoints,
                rack=broker.rack,
                fenced=broker.fenced,
                broker_epoch=broker.broker_epoch,
            )
        for topic in cluster.topics:
            _describe(response.topics.add(), topic)
        return response.SerializeToString()


def _describe(described: pb.TopicMetadata, topic: TopicDescription) -> None:
    described.topic = topic.name
    described.topic_id = topic.topic_id
    described.error_code = int(topic.error)
    described.error_message = topic.message
    described.internal = topic.is_internal
    for partition in topic.partitions:
        _describe_partition(described.partitions.add(), partition)


def _describe_partition(described: pb.PartitionMetadata, partition: PartitionDescription) -> None:
    described.error_code = int(partition.error)
    described.partition = partition.partition
    described.leader_id = partition.leader_id
    described.leader_epoch = partition.leader_epoch
    described.partition_epoch = partition.partition_epoch
    described.replicas.extend(partition.replicas)
    described.isr.extend(partition.isr)
    described.offline_replicas.extend(partition.offline_replicas)
    described.eligible.extend(partition.eligible)
    described.last_known_eligible.extend(partition.last_known_eligible)
