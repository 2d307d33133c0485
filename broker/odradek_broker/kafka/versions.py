"""The table of the APIs that are served, each with its versions. ApiVersions is made from it.

Versions are those that Apache Kafka 4.1.1 offers, and minima are never raised: old clients depend on them, and
librdkafka switches its features by ranges and by pairs of APIs (K-1, K-6). Produce is advertised from 0, though
versions 0 to 2 close the connection: older librdkafka takes anything else for a broker without compression.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from odradek_proto.transport.ports import Clock

from odradek_broker.kafka.apis import api_versions
from odradek_broker.kafka.apis.acls import AclsApi
from odradek_broker.kafka.apis.admin import AdminApi
from odradek_broker.kafka.apis.cluster import ClusterApi
from odradek_broker.kafka.apis.configs import ConfigsApi
from odradek_broker.kafka.apis.consumer_groups import ConsumerGroupsApi
from odradek_broker.kafka.apis.coordinators import CoordinatorsApi
from odradek_broker.kafka.apis.fetch import FetchApi
from odradek_broker.kafka.apis.group_offsets import GroupOffsetsApi
from odradek_broker.kafka.apis.groups import GroupsApi
from odradek_broker.kafka.apis.metadata import MetadataApi
from odradek_broker.kafka.apis.offsets import OffsetsApi
from odradek_broker.kafka.apis.produce import ProduceApi
from odradek_broker.kafka.apis.producer_ids import ProducerIdsApi, TransactionsApi
from odradek_broker.kafka.apis.quotas import QuotasApi
from odradek_broker.kafka.apis.records import RecordsApi
from odradek_broker.kafka.apis.sasl import AUTHENTICATE, HANDSHAKE, SaslApi
from odradek_broker.kafka.apis.topics import TopicsApi
from odradek_broker.kafka.apis.users import UsersApi
from odradek_broker.kafka.messages import fetch_codec, produce_codec
from odradek_broker.kafka.messages.codec import definition
from odradek_broker.kafka.messages.endpoints import NodeEndpoint, split_address
from odradek_broker.kafka.messages.request import Api, Body, KafkaRequest
from odradek_broker.requests.layer import Requests
from odradek_broker.requests.metadata import MetadataRequests

PRODUCE, FETCH = 0, 1


def served(
    requests: Requests, *, clock: Clock, log_directory: str, needs_sasl: bool, elr_enable: bool
) -> dict[int, Api]:
    """Every API of a listener for Kafka's clients, by its key."""
    metadata = requests.metadata
    endpoints = partial(_endpoints, metadata)
    produce = ProduceApi(requests.produce, topic_name=metadata.topic_name, endpoints=endpoints)
    fetch = FetchApi(requests.fetch, topic_name=metadata.topic_name, endpoints=endpoints, throttle=requests.throttle)
    offsets, admin = OffsetsApi(requests.offsets), AdminApi(requests.admin)
    topics, configs = TopicsApi(admin, metadata), ConfigsApi(admin, metadata)
    cluster, records = ClusterApi(admin, metadata, clock), RecordsApi(requests.records, log_directory)
    sasl, users = SaslApi(requests.authentication if needs_sasl else None), UsersApi(admin)
    groups, group_offsets = GroupsApi(requests.groups), GroupOffsetsApi(requests.groups)
    acls, quotas, transactions = AclsApi(admin), QuotasApi(admin), TransactionsApi(requests.groups)
    consumer_groups = ConsumerGroupsApi(requests.groups, metadata.topic_name)
    apis: dict[int, Api] = {}
    features = api_versions.ApiVersionsApi(apis, metadata, elr_enable=elr_enable)
    rows = [
        Api(PRODUCE, "Produce", 0, 13, produce_codec.FLEXIBLE_FROM, start=produce.start, measures_itself=True),
        Api(FETCH, "FetchConsumer", 4, 18, fetch_codec.FLEXIBLE_FROM, fetch.answer, measures_itself=True),
        _row(2, offsets.list_offsets),
        _row(3, MetadataApi(metadata).answer),
        _row(8, group_offsets.commit),
        _row(9, group_offsets.fetch),
        _row(10, CoordinatorsApi(requests.groups, endpoints).find_coordinator),
        _row(11, groups.join),
        _row(12, groups.heartbeat),
        _row(13, groups.leave),
        _row(14, groups.sync),
        _row(15, groups.describe),
        _row(16, groups.list_groups),
        _row(HANDSHAKE, sasl.handshake),
        _row(AUTHENTICATE, sasl.authenticate),
        _row(api_versions.KEY, features.answer, any_version=True),
        _row(19, topics.create),
        _row(20, topics.delete),
        _row(21, records.delete),
        _row(22, ProducerIdsApi(requests.producer_ids).answer),
        _row(23, offsets.offsets_for_leader_epoch),
        _row(29, acls.describe),
        _row(30, acls.create),
        _row(31, acls.delete),
        _row(32, configs.describe),
        _row(33, configs.alter),
        _row(34, records.alter_log_dirs),
        _row(35, records.describe_log_dirs),
        _row(37, topics.create_partitions),
        _row(42, groups.delete),
        *_of_the_cluster(cluster),
        _row(44, configs.alter_incrementally),
        _row(47, group_offsets.delete),
        _row(48, quotas.describe),
        _row(49, quotas.alter),
        _row(50, users.describe),
        _row(51, users.alter),
        _row(57, features.update),
        _row(61, records.describe_producers),
        _row(65, transactions.describe),
        _row(66, transactions.list_transactions),
        _row(68, consumer_groups.heartbeat),
        _row(69, consumer_groups.describe),
        _row(74, configs.list_resources),
        _row(75, topics.describe),
    ]
    apis.update({row.key: row for row in rows})
    return apis


def _of_the_cluster(cluster: ClusterApi) -> list[Api]:
    return [
        _row(43, cluster.elect_leaders),
        _row(45, cluster.alter_reassignments),
        _row(46, cluster.list_reassignments),
        _row(55, cluster.describe_quorum),
        _row(60, cluster.describe),
        _row(64, cluster.unregister_broker),
        _row(80, cluster.add_voter),
        _row(81, cluster.remove_voter),
    ]


def _endpoints(metadata: MetadataRequests, listener: str, broker_ids: Iterable[int]) -> list[NodeEndpoint]:
    brokers = {broker.broker_id: broker for broker in metadata.brokers(listener)}
    return [
        NodeEndpoint(known.broker_id, *split_address(known.endpoints[listener]), known.rack or None)
        for broker_id in broker_ids
        if (known := brokers.get(broker_id)) is not None
    ]


def _row(key: int, answer: Callable[[KafkaRequest], Coroutine[Any, Any, Body]], *, any_version: bool = False) -> Api:
    """Name, versions and encoding as the definition says."""
    api = definition(key)
    return Api(key, api.name, api.versions.first, api.versions.last, api.flexible_from, answer, any_version=any_version)
