"""DescribeReplicas and DeleteRecords over gRPC."""

from __future__ import annotations

from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import CallRejected
from odradek_proto.v1 import broker_pb2 as pb

from odradek_broker.requests.context import RequestContext
from odradek_broker.requests.records import DeleteRecords, RecordRequests, ReplicaDescription


class RecordService:
    """Both calls: `requests.records` says what, this says it in protobuf."""

    def __init__(self, requests: RecordRequests) -> None:
        self._requests = requests

    async def describe_replicas(self, request: bytes, context: RequestContext) -> bytes:
        message = pb.DescribeReplicasRequest.FromString(request)
        broker = self._requests.describe_replicas(context, frozenset(message.topics))
        if broker.error:
            raise CallRejected(f"DESCRIBE on the cluster: {broker.error.message}", status="PERMISSION_DENIED")
        response = pb.DescribeReplicasResponse(
            broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, disk_full=broker.disk_full
        )
        for replica in broker.replicas:
            _describe(response.replicas.add(), replica)
        return response.SerializeToString()

    async def delete_records(self, request: bytes, context: RequestContext) -> bytes:
        message = pb.DeleteRecordsRequest.FromString(request)
        wanted = [DeleteRecords(TopicPartition(each.topic, each.partition), each.offset) for each in message.partitions]
        response = pb.DeleteRecordsResponse()
        for deleted in await self._requests.delete_records(context, wanted, message.timeout_ms):
            response.partitions.add(
                topic=deleted.topic_partition.topic,
                partition=deleted.topic_partition.partition,
                error_code=int(deleted.error),
                low_watermark=deleted.low_watermark,
            )
        return response.SerializeToString()


def _describe(described: pb.ReplicaDescription, replica: ReplicaDescription) -> None:
    described.topic, described.partition = replica.topic_partition
    described.role = replica.role
    described.leader_id = replica.leader_id
    described.leader_epoch = replica.leader_epoch
    described.partition_epoch = replica.partition_epoch
    described.log_start_offset = replica.log_start_offset
    described.log_end_offset = replica.log_end_offset
    described.high_watermark = replica.high_watermark
    described.size_bytes = replica.size_bytes
    described.isr.extend(replica.isr)
    described.damage.extend(replica.damage)
    described.disk_full = replica.disk_full
    described.waiting_produces = replica.waiting_produces
    described.waiting_fetches = replica.waiting_fetches
    for entry in replica.epochs:
        described.epochs.add(epoch=entry.epoch, start_offset=entry.offset)
    for remote in replica.remote_replicas:
        described.remote_replicas.add(
            broker_id=remote.broker_id,
            log_end_offset=remote.log_end_offset,
            lag_ms=-1 if remote.lag_ms is None else remote.lag_ms,
            in_sync=remote.in_sync,
        )
