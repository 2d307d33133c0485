"""The table of the APIs that are served, each with its versions. ApiVersions is made from it.

Versions are those that Apache Kafka 4.1.1 offers, and minima are never raised: old clients depend on them, and
librdkafka switches its features by ranges and by pairs of APIs (K-1, K-6). Produce is advertised from 0, though
versions 0 to 2 close the connection: older librdkafka takes anything else for a broker without compression.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from odradek_broker.kafka import api_versions, fetch_codec, produce_codec
from odradek_broker.kafka.codec import definition
from odradek_broker.kafka.coordinators import CoordinatorsApi
from odradek_broker.kafka.endpoints import NodeEndpoint, split_address
from odradek_broker.kafka.fetch import FetchApi
from odradek_broker.kafka.metadata import MetadataApi
from odradek_broker.kafka.offsets import OffsetsApi
from odradek_broker.kafka.produce import ProduceApi
from odradek_broker.kafka.producer_ids import ProducerIdsApi
from odradek_broker.kafka.request import Api, Body, Request
from odradek_broker.requests.layer import Requests

PRODUCE, FETCH = 0, 1


def served(requests: Requests) -> dict[int, Api]:
    """Every API of a listener for Kafka's clients, by its key."""
    metadata = requests.metadata

    def endpoints(listener: str, broker_ids: Iterable[int]) -> list[NodeEndpoint]:
        brokers = {broker.broker_id: broker for broker in metadata.brokers(listener)}
        return [
            NodeEndpoint(known.broker_id, *split_address(known.endpoints[listener]), known.rack or None)
            for broker_id in broker_ids
            if (known := brokers.get(broker_id)) is not None
        ]

    produce = ProduceApi(requests.produce, topic_name=metadata.topic_name, endpoints=endpoints)
    fetch = FetchApi(requests.fetch, topic_name=metadata.topic_name, endpoints=endpoints)
    offsets = OffsetsApi(requests.offsets)
    apis: dict[int, Api] = {}
    rows = [
        Api(PRODUCE, "Produce", 0, 13, produce_codec.FLEXIBLE_FROM, start=produce.start, measures_itself=True),
        Api(FETCH, "FetchConsumer", 4, 18, fetch_codec.FLEXIBLE_FROM, fetch.answer, measures_itself=True),
        _row(2, offsets.list_offsets),
        _row(3, MetadataApi(metadata).answer),
        _row(10, CoordinatorsApi().find_coordinator),
        _row(api_versions.KEY, api_versions.ApiVersionsApi(apis).answer, any_version=True),
        _row(22, ProducerIdsApi(requests.producer_ids).answer),
        _row(23, offsets.offsets_for_leader_epoch),
    ]
    apis.update({row.key: row for row in rows})
    return apis


def _row(key: int, answer: Callable[[Request], Awaitable[Body]], *, any_version: bool = False) -> Api:
    """Name, versions and encoding as the definition says."""
    api = definition(key)
    return Api(key, api.name, api.versions.first, api.versions.last, api.flexible_from, answer, any_version=any_version)
