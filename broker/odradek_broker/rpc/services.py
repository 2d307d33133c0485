"""Which calls a broker answers on which listener."""

from __future__ import annotations

from odradek_proto.transport.ports import Handlers
from odradek_proto.values import Value

from odradek_broker.rpc.admin import ForwardAdmin, admin_handlers
from odradek_broker.rpc.admin_configs import DescribeOwn
from odradek_broker.rpc.data import DataService
from odradek_broker.rpc.metadata import MetadataService
from odradek_broker.rpc.offsets import OffsetsService
from odradek_broker.rpc.producer_ids import ProducerIdService
from odradek_broker.rpc.replicas import ReplicaService

BROKER = "odradek.v1.Broker"
REPLICATION = "odradek.v1.Replication"
ADMIN = "odradek.v1.Admin"


class BrokerServices(Value, frozen=True):
    data: DataService
    metadata: MetadataService
    offsets: OffsetsService
    producer_ids: ProducerIdService
    replicas: ReplicaService
    forward_admin: ForwardAdmin
    describe_own: DescribeOwn

    def handlers(self, listener: str) -> Handlers:
        """Everything of the client and inter-broker listeners; `listener` is the name of the one that is served."""
        return Handlers(
            unary={
                f"/{BROKER}/Metadata": self.metadata.handler(listener),
                f"/{BROKER}/Produce": self.data.produce,
                f"/{BROKER}/Fetch": self.data.fetch,
                f"/{BROKER}/ListOffsets": self.offsets.list_offsets,
                f"/{BROKER}/OffsetsForLeaderEpoch": self.offsets.offsets_for_leader_epoch,
                f"/{BROKER}/InitProducerId": self.producer_ids.init_producer_id,
                f"/{BROKER}/DeleteRecords": self.replicas.delete_records,
                f"/{BROKER}/DescribeReplicas": self.replicas.describe,
                f"/{REPLICATION}/ListOffsets": self.offsets.list_offsets,
                f"/{REPLICATION}/OffsetsForLeaderEpoch": self.offsets.offsets_for_leader_epoch,
                **admin_handlers(self.forward_admin, self.describe_own),
            },
            streams={
                f"/{BROKER}/ProduceStream": self.data.produce_stream,
                f"/{BROKER}/FetchStream": self.data.fetch_stream,
                f"/{REPLICATION}/FetchStream": self.data.replica_fetch_stream,
            },
            services=(BROKER, REPLICATION, ADMIN),
        )


def merge(*parts: Handlers) -> Handlers:
    """One set of handlers for a listener that several services share."""
    return Handlers(
        unary={path: handler for part in parts for path, handler in part.unary.items()},
        streams={path: handler for part in parts for path, handler in part.streams.items()},
        services=[service for part in parts for service in part.services],
    )
