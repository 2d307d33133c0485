"""All request handlers of a broker, as one value."""

from __future__ import annotations

from odradek_proto.values import Value

from odradek_broker.requests.admin import AdminRequests
from odradek_broker.requests.authentication import Authentication
from odradek_broker.requests.fetch import FetchRequests
from odradek_broker.requests.groups import GroupRequests
from odradek_broker.requests.metadata import MetadataRequests
from odradek_broker.requests.offsets import OffsetRequests
from odradek_broker.requests.produce import ProduceRequests
from odradek_broker.requests.producer_ids import ProducerIdRequests
from odradek_broker.requests.quotas import Throttle
from odradek_broker.requests.records import RecordRequests


class Requests(Value, frozen=True):
    """What a broker is asked; whoever speaks a protocol with clients is given this."""

    produce: ProduceRequests
    fetch: FetchRequests
    metadata: MetadataRequests
    offsets: OffsetRequests
    producer_ids: ProducerIdRequests
    records: RecordRequests
    groups: GroupRequests
    admin: AdminRequests
    authentication: Authentication
    throttle: Throttle
