"""Which calls a broker answers on which listener."""

from __future__ import annotations

from odradek_proto.transport.ports import Clock, Handlers

from odradek_broker.requests.layer import Requests
from odradek_broker.rpc.admin import admin_handlers
from odradek_broker.rpc.authentication import AUTHENTICATE, Identities
from odradek_broker.rpc.authentication import SERVICE as AUTHENTICATION
from odradek_broker.rpc.caller import Call, Callers, StreamCall, stream, unary
from odradek_broker.rpc.data import DataService
from odradek_broker.rpc.fetch_session import SessionLimits
from odradek_broker.rpc.groups import SERVICE as GROUPS
from odradek_broker.rpc.groups import GroupService
from odradek_broker.rpc.metadata import MetadataService
from odradek_broker.rpc.offsets import OffsetsService
from odradek_broker.rpc.producer_ids import ProducerIdService
from odradek_broker.rpc.records import RecordService

BROKER = "odradek.v1.Broker"
REPLICATION = "odradek.v1.Replication"
ADMIN = "odradek.v1.Admin"


class BrokerServices:
    """A broker's requests over gRPC, and which of them each kind of listener serves."""

    def __init__(
        self, requests: Requests, *, limits: SessionLimits, stream_credit_bytes: int, broker_id: int, clock: Clock
    ) -> None:
        data = DataService(
            requests.produce,
            requests.fetch,
            limits=limits,
            stream_credit_bytes=stream_credit_bytes,
            throttle=requests.throttle,
        )
        offsets, records = OffsetsService(requests.offsets, for_followers=False), RecordService(requests.records)
        of_followers = OffsetsService(requests.offsets, for_followers=True)
        self._admin = requests.admin
        self._throttle = requests.throttle
        self._unary: dict[str, Call] = {
            f"/{BROKER}/Metadata": MetadataService(requests.metadata, broker_id=broker_id, clock=clock).metadata,
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
