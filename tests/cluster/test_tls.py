"""Real brokers with TLS on every listener: who comes in by which certificate, over both protocols."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka import TopicPartition as KafkaPartition
from odradek import Admin, Consumer, NewTopic, OdradekError, Producer
from odradek_broker.local.certificates import AUTHORITY, make_client, make_node
from odradek_broker.local.cluster import LocalCluster
from odradek_proto.security.tls import PemFiles, TlsSource
from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.transport.ports import CallRejected, NetworkError
from odradek_proto.v1 import controller_messages, quorum_pb2

from tests.secured import client_settings, node_settings
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

START_S = 180
TIMEOUT_MS = 90_000  # of a machine on which a broker gets no turn for a while
VALUES = [f"book {number}".encode() for number in range(20)]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers; their certificates lie beside them, in `certificates`."""
    directory = tmp_path_factory.mktemp("secured")
    cluster = LocalCluster.create(directory / "cluster")
    try:
        for node_id in cluster.nodes:
            cluster.start(node_id, node_settings(directory / "certificates", node_id))
        until(lambda: asyncio.run(registered(cluster)), lambda brokers: brokers == len(cluster.nodes))
        yield cluster
    finally:
        cluster.kill_all()


def certificates(cluster: LocalCluster) -> Path:
    return cluster.directory.parent / "certificates"


async def registered(cluster: LocalCluster) -> int:
    """How many brokers take replicas."""
    settings: dict[str, Any] = client_settings(certificates(cluster)) | {"bootstrap_timeout_ms": START_S * 1_000}
    async with Admin(cluster.bootstrap, **settings) as admin:
        return sum(not broker.fenced for broker in (await admin.describe_cluster()).brokers)


def network_as(cluster: LocalCluster, keystore: Path) -> GrpcNetwork:
    files = PemFiles(keystore=str(keystore), truststore=str(certificates(cluster) / AUTHORITY))
    return GrpcNetwork(tls=TlsSource(files))


def test_records_go_through_tls_from_one_protocol_to_the_other(secured: LocalCluster) -> None:
    """Replication by mTLS included: acks=all with three replicas."""
    settings: dict[str, Any] = client_settings(certificates(secured)) | {"bootstrap_timeout_ms": START_S * 1_000}

    async def story() -> list[bytes | None]:
        async with asyncio.timeout(START_S):
            async with Admin(secured.bootstrap, **settings) as admin:
                await admin.create_topics([NewTopic("orders", 1, 3)])
            async with Producer(secured.bootstrap, **settings) as producer:
                for value in VALUES[:10]:
                    await producer.send("orders", value)
            await asyncio.to_thread(kafka_writes)
            async with Consumer(secured.bootstrap, "orders", auto_offset_reset="earliest", **settings) as consumer:
                return [record.value async for record in consumer.records(until="end")]

    kafka: dict[str, Any] = {
        "bootstrap.servers": secured.kafka_bootstrap,
        "security.protocol": "ssl",
        "ssl.ca.location": str(certificates(secured) / AUTHORITY),
    }

    def kafka_writes() -> None:
        producer = KafkaProducer(kafka)
        for value in VALUES[10:]:
            producer.produce("orders", value)
        assert producer.flush(START_S) == 0

    assert asyncio.run(story()) == VALUES
    reader = KafkaConsumer({**kafka, "group.id": "none", "enable.auto.commit": False})
    reader.assign([KafkaPartition("orders", 0, 0)])
    read = [message.value() for message in reader.consume(len(VALUES), START_S)]
    reader.close()
    assert read == VALUES


def test_who_speaks_no_tls_or_trusts_nobody_is_told(secured: LocalCluster) -> None:
    """A sentence that names what to set, and not "unreachable" alone, unless the broker had no turn in that second."""

    async def ask(**settings: Any) -> None:
        async with Admin(secured.bootstrap.split(",")[0], bootstrap_timeout_ms=1_000, **settings):
            pass

    def hint(**settings: Any) -> str:
        with pytest.raises(OdradekError) as refused:
            asyncio.run(ask(**settings))
        return str(refused.value.hint)

    until(hint, lambda seen: "security_protocol" in seen)
    until(lambda: hint(security_protocol="SSL"), lambda seen: "ssl_truststore_location" in seen)


def test_a_node_speaks_for_itself_alone_and_a_client_for_none(secured: LocalCluster) -> None:
    """On the listener of controllers: no certificate, a user's, and another node's are refused; one's own is not."""
    controller = secured.nodes[1].controller
    own, user = make_node(certificates(secured), 2), make_client(certificates(secured), "alice")
    registration = controller_messages.RegisterBrokerRequest(broker_id=3, cluster_id=secured.cluster_id)
    vote = quorum_pb2.VoteRequest(cluster_id=secured.cluster_id, candidate_id=1, candidate_epoch=9, pre_vote=True)
    register, ask_for_vote = "/odradek.v1.Controller/RegisterBroker", "/odradek.v1.Quorum/Vote"

    async def call(network: GrpcNetwork, method: str, request: Any) -> bytes:
        try:
            return await network.call(controller, method, request.SerializeToString(), TIMEOUT_MS)
        finally:
            await network.close()

    for method, request in ((register, registration), (ask_for_vote, vote)):
        with pytest.raises(CallRejected, match="the certificate is that of node 2"):
            asyncio.run(call(network_as(secured, own), method, request))
        with pytest.raises(CallRejected, match="CN=alice is no node's"):
            asyncio.run(call(network_as(secured, user), method, request))
        anonymous = GrpcNetwork(tls=TlsSource(PemFiles(truststore=str(certificates(secured) / AUTHORITY))))
        with pytest.raises(NetworkError):
            asyncio.run(call(anonymous, method, request))
    vote.candidate_id = 2
    answer = quorum_pb2.VoteResponse.FromString(asyncio.run(call(network_as(secured, own), ask_for_vote, vote)))
    assert answer.error_code == 0
