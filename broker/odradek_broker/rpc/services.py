"""Which calls a broker answers on which listener."""

from __future__ import annotations

from odradek_proto.transport.ports import Clock, Handlers

from odradek_broker.requests.layer import Requests
from odradek_broker.rpc.admin import admin_handlers
from odradek_broker.rpc.caller import Call, StreamCall, stream, unary
from odradek_broker.rpc.data import DataService
from odradek_broker.rpc.fetch_session import SessionLimits
from odradek_broker.rpc.metadata import MetadataService
from odradek_broker.rpc.offsets import OffsetsService
from odradek_broker.rpc.producer_ids import ProducerIdService
from odradek_broker.rpc.records import RecordService

BROKER = "odradek.v1.Broker"
REPLICATION = "odradek.v1.Replication"
ADMIN = "odradek.v1.Admin"


class BrokerServices:
    """A broker's requests over gRPC, one set of services for all listeners."""

    def __init__(
        self, requests: Requests, *, limits: SessionLimits, stream_credit_bytes: int, broker_id: int, clock: Clock
    ) -> None:
        data = DataService(requests.produce, requests.fetch, limits=limits, stream_credit_bytes=stream_credit_bytes)
        offsets, records = OffsetsService(requests.offsets), RecordService(requests.records)
        self._admin = requests.admin
        self._unary: dict[str, Call] = {
            f"/{BROKER}/Metadata": MetadataService(requests.metadata, broker_id=broker_id, clock=clock).metadata,
            f"/{BROKER}/Produce": data.produce,
            f"/{BROKER}/Fetch": data.fetch,
            f"/{BROKER}/ListOffsets": offsets.list_offsets,
            f"/{BROKER}/OffsetsForLeaderEpoch": offsets.offsets_for_leader_epoch,
            f"/{BROKER}/InitProducerId": ProducerIdService(requests.producer_ids).init_producer_id,
            f"/{BROKER}/DeleteRecords": records.delete_records,
            f"/{BROKER}/DescribeReplicas": records.describe_replicas,
            f"/{REPLICATION}/ListOffsets": offsets.list_offsets,
            f"/{REPLICATION}/OffsetsForLeaderEpoch": offsets.offsets_for_leader_epoch,
        }
        self._streams: dict[str, StreamCall] = {
            f"/{BROKER}/ProduceStream": data.produce_stream,
            f"/{BROKER}/FetchStream": data.fetch_stream,
            f"/{REPLICATION}/FetchStream": data.replica_fetch_stream,
        }

    def handlers(self, listener: str) -> Handlers:
        """Everything of the client and inter-broker listeners; `listener` is the name of the one that is served."""
        return Handlers(
            unary={
                **{path: unary(listener, call) for path, call in self._unary.items()},
                **admin_handlers(self._admin, listener),
            },
            streams={path: stream(listener, call) for path, call in self._streams.items()},
            services=(BROKER, REPLICATION, ADMIN),
        )


def merge(*parts: Handlers) -> Handlers:
    """One set of handlers for a listener that several services share."""
    return Handlers(
        unary={path: handler for part in parts for path, handler in part.unary.items()},
        streams={path: handler for part in parts for path, handler in part.streams.items()},
        services=[service for part in parts for service in part.services],
    )
