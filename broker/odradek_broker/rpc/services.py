"""The calls that a broker answers over gRPC, and on which listener.

`requests` says what is answered; the services say it in protobuf.
"""

from __future__ import annotations

from functools import partial

from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import CallContext, CallRejected, Clock, Handlers, UnaryHandler
from odradek_proto.v1 import broker_pb2 as pb

from odradek_broker.config.settings import BrokerSettings
from odradek_broker.core.controller.admin import ADMIN_REQUESTS
from odradek_broker.requests.admin import DEFAULT_TIMEOUT_MS, AdminRequests
from odradek_broker.requests.context import RequestContext
from odradek_broker.requests.layer import Requests
from odradek_broker.requests.metadata import MetadataRequests, PartitionDescription, TopicDescription
from odradek_broker.requests.offsets import CONSUMER, EpochQuery, OffsetQuery, OffsetRequests
from odradek_broker.requests.producer_ids import ProducerIdRequests
from odradek_broker.requests.records import DeleteRecords, RecordRequests, ReplicaDescription
from odradek_broker.rpc.authentication import AUTHENTICATE, Identities
from odradek_broker.rpc.authentication import SERVICE as AUTHENTICATION
from odradek_broker.rpc.caller import Call, Callers, StreamCall, parsed, stream, unary
from odradek_broker.rpc.data import DataService
from odradek_broker.rpc.groups import SERVICE as GROUPS
from odradek_broker.rpc.groups import GroupService
from odradek_broker.runtime.membership.controller_channel import ControllerUnavailable

# --- DescribeReplicas and DeleteRecords over gRPC --------------------------------------------------------------------


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
            _describe_replica(response.replicas.add(), replica)
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


def _describe_replica(described: pb.ReplicaDescription, replica: ReplicaDescription) -> None:
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


# --- ListOffsets and OffsetsForLeaderEpoch over gRPC, for clients and for followers ----------------------------------


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


# --- Metadata over gRPC ----------------------------------------------------------------------------------------------


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


# --- InitProducerId over gRPC ----------------------------------------------------------------------------------------


class ProducerIdService:
    """Answers InitProducerId: `requests.producer_ids` says what, this says it in protobuf."""

    def __init__(self, requests: ProducerIdRequests) -> None:
        self._requests = requests

    async def init_producer_id(self, request: bytes, context: RequestContext) -> bytes:
        message = pb.InitProducerIdRequest.FromString(request)
        answer = await self._requests.init_producer_id(
            context, message.transactional_id, message.producer_id, message.producer_epoch
        )
        return pb.InitProducerIdResponse(
            error_code=int(answer.error),
            error_message=answer.message,
            producer_id=answer.producer_id,
            producer_epoch=answer.producer_epoch,
        ).SerializeToString()


BROKER = "odradek.v1.Broker"
REPLICATION = "odradek.v1.Replication"
ADMIN = "odradek.v1.Admin"


class BrokerServices:
    """A broker's requests over gRPC, and which of them each kind of listener serves."""

    def __init__(self, requests: Requests, settings: BrokerSettings, clock: Clock) -> None:
        data = DataService(requests.produce, requests.fetch, settings, requests.throttle)
        offsets, records = OffsetsService(requests.offsets, for_followers=False), RecordService(requests.records)
        of_followers = OffsetsService(requests.offsets, for_followers=True)
        self._admin = requests.admin
        self._throttle = requests.throttle
        self._unary: dict[str, Call] = {
            f"/{BROKER}/Metadata": MetadataService(requests.metadata, broker_id=settings.node_id, clock=clock).metadata,
            f"/{BROKER}/Produce": data.produce,
            f"/{BROKER}/Fetch": data.fetch,
            f"/{BROKER}/ListOffsets": offsets.list_offsets,
            f"/{BROKER}/OffsetsForLeaderEpoch": offsets.offsets_for_leader_epoch,
            f"/{BROKER}/InitProducerId": ProducerIdService(requests.producer_ids).init_producer_id,
            f"/{BROKER}/DeleteRecords": records.delete_records,
            f"/{BROKER}/DescribeReplicas": records.describe_replicas,
            **GroupService(requests.groups, requests.metadata.topic_name).calls(),
        }
        self._streams: dict[str, StreamCall] = {
            f"/{BROKER}/ProduceStream": data.produce_stream,
            f"/{BROKER}/FetchStream": data.fetch_stream,
        }
        self._unary_of_brokers: dict[str, Call] = {
            f"/{REPLICATION}/ListOffsets": of_followers.list_offsets,
            f"/{REPLICATION}/OffsetsForLeaderEpoch": of_followers.offsets_for_leader_epoch,
        }
        self._streams_of_brokers: dict[str, StreamCall] = {f"/{REPLICATION}/FetchStream": data.replica_fetch_stream}

    def for_clients(self, listener: str, identities: Identities | None = None) -> Handlers:
        """Everything of the listener of this name, for clients; with `identities` callers authenticate first."""
        callers = Callers(listener, identities, self._throttle)
        streams = {path: stream(callers, call) for path, call in self._streams.items()}
        if identities is not None:
            streams[AUTHENTICATE] = identities.authenticate
        return Handlers(
            unary={
                **{path: unary(callers, call) for path, call in self._unary.items()},
                **admin_handlers(self._admin, callers),
            },
            streams=streams,
            services=(BROKER, ADMIN, GROUPS, *((AUTHENTICATION,) if identities else ())),
        )

    def for_brokers(self, listener: str) -> Handlers:
        """Everything of the inter-broker listener: a fetch by a follower moves the high watermark."""
        callers = Callers(listener)
        return Handlers(
            unary={path: unary(callers, call) for path, call in self._unary_of_brokers.items()},
            streams={path: stream(callers, call) for path, call in self._streams_of_brokers.items()},
            services=(REPLICATION,),
        )


def merge(*parts: Handlers) -> Handlers:
    """One set of handlers for a listener that several services share."""
    return Handlers(
        unary={path: handler for part in parts for path, handler in part.unary.items()},
        streams={path: handler for part in parts for path, handler in part.streams.items()},
        services=[service for part in parts for service in part.services],
    )


# --- Admin over gRPC -------------------------------------------------------------------------------------------------
# One handler for each method of `ADMIN_REQUESTS`.


def admin_handlers(requests: AdminRequests, callers: Callers) -> dict[str, UnaryHandler]:
    """By full method name. Without a controller a call is UNAVAILABLE, which says nothing about what was done."""
    return {f"/odradek.v1.Admin/{method}": partial(_run, requests, callers, method) for method in ADMIN_REQUESTS}


async def _run(requests: AdminRequests, callers: Callers, method: str, data: bytes, context: CallContext) -> bytes:
    async def call(data: bytes, who: RequestContext) -> bytes:
        request = parsed(ADMIN_REQUESTS[method].request, data)
        try:
            answer = await requests.call(who, method, request, context.deadline_ms or DEFAULT_TIMEOUT_MS)
        except ControllerUnavailable as error:
            said = str(error).removeprefix("ForwardAdmin: ")
            raise CallRejected(f"no active controller: {said}", status="UNAVAILABLE") from error
        encoded: bytes = answer.SerializeToString()
        return encoded

    return await unary(callers, call)(data, context)
