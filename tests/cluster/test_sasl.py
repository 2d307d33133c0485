"""Real brokers whose clients authenticate: odradek's and Kafka's, by every mechanism, over TLS."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaError
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka import TopicPartition as KafkaPartition
from kafka import KafkaProducer as PythonProducer
from odradek import Admin, Consumer, NewTopic, OdradekError, Producer
from odradek.broker_errors import SaslAuthenticationFailed
from odradek_audit.cli.commands import app as audit_commands
from odradek_broker.local.certificates import AUTHORITY
from odradek_broker.local.cluster import LocalCluster
from odradek_proto.security.tls import PemFiles, TlsSource
from odradek_proto.transport.grpc_login import Login, log_in
from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.transport.ports import NotAuthenticated, PeerUnavailable
from odradek_proto.v1 import broker_pb2
from typer.testing import CliRunner, Result

from tests.kafka.raw import API_VERSIONS, METADATA, header
from tests.secured import node_settings
from tests.waiting import until

kafka_admin: Any = import_module("confluent_kafka.admin")  # its types export nothing

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

START_S = 180
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS = "GRPC:GRPC_SASL_SSL,KAFKA:SASL_SSL,REPLICATION:GRPC_SSL,CONTROLLER:GRPC_SSL"
PASSWORD = "it's a, secret = ü"  # what SCRAM, files and command lines have to get right


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two brokers with the users admin and first, and alice, whom admin has made."""
    directory = tmp_path_factory.mktemp("sasl")
    cluster = LocalCluster.create(directory / "cluster", brokers=2)
    users = {"odradek.create.users": "admin=secret,first=other", "sasl.enabled.mechanisms": ",".join(MECHANISMS)}
    try:
        for node_id in cluster.nodes:
            cluster.start(node_id, node_settings(directory / "certificates", node_id, PROTOCOLS) | users)
        asyncio.run(_prepare(cluster))
        yield cluster
    finally:
        cluster.kill_all()


async def _prepare(cluster: LocalCluster) -> None:
    async with asyncio.timeout(START_S):
        while True:
            try:
                async with Admin(cluster.bootstrap, **settings(cluster, "admin", "secret")) as admin:
                    await admin.create_topics([NewTopic("orders", 1, 2)])
                    return await admin.upsert_user_scram_credentials("alice", PASSWORD)
            except SaslAuthenticationFailed:  # until the brokers have made the user that they were told to
                pass


def authority(cluster: LocalCluster) -> str:
    return str(cluster.directory.parent / "certificates" / AUTHORITY)


def settings(cluster: LocalCluster, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, Any]:
    return {
        "security_protocol": "SASL_SSL", "ssl_truststore_location": authority(cluster),
        "bootstrap_timeout_ms": START_S * 1_000, "sasl_username": user, "sasl_password": password,
        "sasl_mechanism": mechanism,
    }  # fmt: skip


def librdkafka(cluster: LocalCluster, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.kafka_bootstrap, "security.protocol": "SASL_SSL",
        "ssl.ca.location": authority(cluster), "sasl.mechanism": mechanism, "sasl.username": user,
        "sasl.password": password,
    }  # fmt: skip


def read_back(cluster: LocalCluster) -> list[bytes | None]:
    consumer = KafkaConsumer(
        {**librdkafka(cluster, "admin", "secret"), "group.id": "none", "enable.auto.commit": False}
    )
    end = consumer.get_watermark_offsets(KafkaPartition("orders", 0), timeout=START_S)[1]
    consumer.assign([KafkaPartition("orders", 0, 0)])
    found = [message.value() for message in consumer.consume(end, START_S)]
    consumer.close()
    return found


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_client_gets_in_by_every_mechanism(secured: LocalCluster, mechanism: str) -> None:
    """odradek's, librdkafka, aiokafka, kafka-python: each writes a record that all others would read."""
    context = ssl.create_default_context(cafile=authority(secured))
    values = [f"{client} {mechanism}".encode() for client in ("odradek", "librdkafka", "aiokafka", "kafka-python")]

    async def own() -> None:
        async with Producer(secured.bootstrap, **settings(secured, "alice", PASSWORD, mechanism)) as producer:
            await producer.send("orders", values[0])

    async def other() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=secured.kafka_bootstrap, security_protocol="SASL_SSL", ssl_context=context,
            sasl_mechanism=mechanism, sasl_plain_username="alice", sasl_plain_password=PASSWORD,
        )  # fmt: skip
        async with producer:
            await producer.send_and_wait("orders", values[2])

    asyncio.run(own())
    producer = KafkaProducer(librdkafka(secured, "alice", PASSWORD, mechanism))
    producer.produce("orders", values[1])
    assert producer.flush(START_S) == 0
    asyncio.run(other())
    python = PythonProducer(
        bootstrap_servers=secured.kafka_bootstrap.split(","), security_protocol="SASL_SSL",
        ssl_cafile=authority(secured), sasl_mechanism=mechanism, sasl_plain_username="alice",
        sasl_plain_password=PASSWORD,
    )  # fmt: skip
    python.send("orders", values[3]).get(START_S)
    python.close()
    assert read_back(secured)[-len(values) :] == values


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_audit_gets_in_by_every_mechanism(secured: LocalCluster, mechanism: str, tmp_path: Path) -> None:
    """With a file as Kafka's tools take it; it tells its cost before it reads, and its numbers behind. A wrong password
    and an authority that is not believed are told."""
    producer = KafkaProducer(librdkafka(secured, "alice", PASSWORD, mechanism))
    producer.produce("orders", b"audited")
    assert producer.flush(START_S) == 0

    def audited(password: str, truststore: str) -> Result:
        file = tmp_path / "client.properties"
        lines = ["security.protocol=SASL_SSL", f"sasl.mechanism={mechanism}", f"ssl.truststore.location={truststore}"]
        file.write_text("\n".join([*lines, "sasl.username=alice", f"sasl.password={password}"]), encoding="utf-8")
        options = ["--topics", "orders", "--quota", "0", "--metrics", str(tmp_path / "audit.prom"), "--json"]
        return CliRunner().invoke(
            audit_commands, ["live", "-b", secured.kafka_bootstrap, "--command-config", str(file), *options]
        )

    result = until(
        lambda: audited(PASSWORD, authority(secured)), lambda done: '"compared_records": 0' not in done.output
    )
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["compared_records"] > 0
    assert report["read_bytes"] > report["compared_records"] * len("audited")
    assert "\nodradek_audit_verdict 0\n" in (tmp_path / "audit.prom").read_text()
    wrong, unknown = audited("wrong", authority(secured)), audited(PASSWORD, "")
    refused = wrong.output + str(wrong.exception)
    assert "refuses the user alice" in refused or "does not know the password" in refused
    assert "no TLS" in unknown.output + str(unknown.exception)


def test_a_deleted_user_of_the_settings_keeps_nobody_out(secured: LocalCluster) -> None:
    """Who authenticates waits for these users of a new cluster, and only until they have been there."""

    async def run() -> None:
        async with Admin(secured.bootstrap, **settings(secured, "admin", "secret")) as admin:
            await admin.delete_user_scram_credentials("first")
        for address in secured.bootstrap.split(","):
            async with asyncio.timeout(START_S):
                while await gets_in(address, "first", "other"):  # until this broker has heard of it
                    pass
            assert await gets_in(address, "alice", PASSWORD)

    async def gets_in(address: str, user: str, password: str) -> bool:
        try:
            async with Admin(address, **settings(secured, user, password)) as admin:
                await admin.describe_topics(["orders"])
        except SaslAuthenticationFailed:
            return False
        return True

    asyncio.run(run())


def test_a_wrong_password_is_told_at_once(secured: LocalCluster) -> None:
    """Not "no broker could be reached" after a while; and the broker's log says who tried from where."""

    async def ask(user: str, password: str) -> None:
        async with asyncio.timeout(START_S), Admin(secured.bootstrap, **settings(secured, user, password)):
            pass

    for user, password in (("alice", "secret"), ("mallory", "x")):
        with pytest.raises(SaslAuthenticationFailed, match=f"refused as '{user}'"):
            asyncio.run(ask(user, password))
    errors: list[KafkaError] = []
    producer = KafkaProducer({**librdkafka(secured, "alice", "secret"), "error_cb": errors.append})
    while not errors:
        producer.poll(START_S)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    said = "".join(secured.log_file(node_id).read_text() for node_id in secured.nodes)
    assert "odradek.audit: 127.0.0.1:" in said
    assert PASSWORD not in said
    assert "secret" not in said.replace("create.users=[hidden]", "")


def test_nobody_is_served_before(secured: LocalCluster) -> None:
    """Of Kafka's APIs ApiVersions alone; over gRPC none, and a token counts on no other connection."""
    host, _, port = secured.nodes[1].kafka.rpartition(":")
    context = ssl.create_default_context(cafile=authority(secured))

    async def ask(*requests: bytes) -> list[bytes]:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        answers = []
        async with asyncio.timeout(START_S):
            for request in requests:
                writer.write(struct.pack(">i", len(request)) + request)
                try:
                    size = int.from_bytes(await reader.readexactly(4))
                    answers.append(await reader.readexactly(size))
                except (asyncio.IncompleteReadError, ConnectionError):
                    break
        writer.close()
        return answers

    assert len(asyncio.run(ask(header(API_VERSIONS, 0, 1), header(METADATA, 1, 2) + struct.pack(">i", -1)))) == 1
    too_large = header(36, 0, 1) + struct.pack(">i", 600_000) + bytes(600_000)
    assert asyncio.run(ask(too_large)) == []

    async def with_a_token_of_another_connection() -> None:
        tls = TlsSource(PemFiles(truststore=authority(secured)))
        request = broker_pb2.MetadataRequest().SerializeToString()
        login, address = Login("SCRAM-SHA-256", "alice", PASSWORD), secured.nodes[1].grpc
        first, second = GrpcNetwork(tls=tls), GrpcNetwork(tls=tls, login=login)
        token = (await log_in(login, lambda method: first.open(address, method))).token
        peer = second._peer(address)
        peer.token = token  # stolen
        with pytest.raises(PeerUnavailable, match="has to authenticate again"):
            await second.call(address, "/odradek.v1.Broker/Metadata", request, START_S * 1_000)
        assert await second.call(address, "/odradek.v1.Broker/Metadata", request, START_S * 1_000)
        with pytest.raises(NotAuthenticated, match="wants SASL first"):
            await first.call(address, "/odradek.v1.Broker/Metadata", request, START_S * 1_000)
        await first.close()
        await second.close()

    asyncio.run(with_a_token_of_another_connection())


def test_kafkas_admin_client_and_the_command_change_users(secured: LocalCluster, tmp_path: Path) -> None:
    """KIP-554 as confluent-kafka speaks it; the command with a file of properties. A deleted user is nobody."""
    admin: Any = kafka_admin.AdminClient(librdkafka(secured, "admin", "secret"))
    info = kafka_admin.ScramCredentialInfo(kafka_admin.ScramMechanism.SCRAM_SHA_256, 5_000)
    admin.alter_user_scram_credentials([kafka_admin.UserScramCredentialUpsertion("bob", info, b"bobs")])["bob"].result(
        START_S
    )
    told = admin.describe_user_scram_credentials(["bob"])["bob"].result(START_S).scram_credential_infos
    assert [(each.mechanism, each.iterations) for each in told] == [(kafka_admin.ScramMechanism.SCRAM_SHA_256, 5_000)]
    properties = tmp_path / "client.properties"
    properties.write_text(
        f"security.protocol=SASL_SSL\nssl.ca.location={authority(secured)}\nsasl.mechanism=SCRAM-SHA-256\n"
        "sasl.username=bob\nsasl.password=bobs\n"
    )

    def command(*words: str, typed: str = "") -> str:
        line = [sys.executable, "-m", "odradek.cli", "--command-config", str(properties), "user", *words]
        environment = {**os.environ, "ODRADEK_BOOTSTRAP": secured.bootstrap}
        done = subprocess.run(line, env=environment, input=typed, capture_output=True, text=True, timeout=START_S)
        assert done.returncode == 0, done.stderr
        return done.stdout

    command("set", "carol", "--password-file", "-", typed="carols\n")
    listed = [line.split()[0] for line in command("list").splitlines()]
    assert listed == ["USER", "admin", "alice", "bob", "carol"]
    command("delete", "carol", "--yes")

    async def ask() -> None:
        async with Admin(secured.bootstrap, **settings(secured, "carol", "carols")):
            pass

    with pytest.raises(SaslAuthenticationFailed):
        asyncio.run(ask())


def test_a_client_without_sasl_hears_what_is_missing(secured: LocalCluster) -> None:
    """And not only that nobody answers."""

    given: dict[str, Any] = {"security_protocol": "SSL", "ssl_truststore_location": authority(secured)}

    async def ask() -> None:
        async with Admin(secured.bootstrap, bootstrap_timeout_ms=2_000, **given):
            pass

    def refusal() -> str:
        with pytest.raises(OdradekError) as refused:
            asyncio.run(ask())
        return str(refused.value)

    until(refusal, lambda seen: "wants SASL first" in seen)  # a broker that has no turn does not say so


SESSION_MS = 2_000  # nobody may authenticate again more often than once in a second
LASTS_S = 2.5 * SESSION_MS / 1_000


def test_clients_go_on_when_their_sessions_end(tmp_path: Path) -> None:
    """odradek's through some sessions, librdkafka's until one was renewed: every record arrives once, no call fails.

    Renewed is a session when librdkafka's producer has had more conversations than connections; on a busy machine it is
    sometimes too late for that, is cut off, and let in again.
    """
    cluster = LocalCluster.create(tmp_path / "cluster", brokers=1)
    given = {"odradek.create.users": "admin=secret", "connections.max.reauth.ms": str(SESSION_MS)}
    cluster.start(1, node_settings(tmp_path / "certificates", 1, PROTOCOLS) | given)

    async def own() -> None:
        told = settings(cluster, "admin", "secret")
        async with Admin(cluster.bootstrap, **told) as admin, Producer(cluster.bootstrap, **told) as producer:
            await admin.create_topics([NewTopic("own", 1, 1), NewTopic("others", 1, 1)])
            async with Consumer(cluster.bootstrap, "own", auto_offset_reset="earliest", **told) as consumer:
                records = aiter(consumer)
                end = time.monotonic() + LASTS_S
                for number in itertools.takewhile(lambda _: time.monotonic() < end, itertools.count()):
                    await producer.send("own", b"%d" % number)
                    assert (await anext(records)).value == b"%d" % number
            assert await admin.list_topics() == ["others", "own"]

    def others() -> None:
        known = librdkafka(cluster, "admin", "secret")
        counted: list[str] = []
        counts = {"statistics.interval.ms": 100, "stats_cb": counted.append}
        producer, consumer = (
            KafkaProducer({**known, **counts, "enable.idempotence": True}),
            KafkaConsumer({**known, "group.id": "none", "enable.auto.commit": False}),
        )
        consumer.assign([KafkaPartition("others", 0, 0)])
        for number in itertools.takewhile(lambda _: not renewed(counted), itertools.count()):
            producer.produce("others", b"%d" % number)
            assert producer.flush(START_S) == 0
            while (message := consumer.poll(START_S)) is not None and message.error():
                pass  # a session was over before it was renewed: this machine was busy
            assert message is not None
            assert message.value() == b"%d" % number
        consumer.close()

    def renewed(counted: list[str]) -> bool:
        assert time.monotonic() < end, counted[-1:]
        brokers = [each for text in counted[-1:] for each in json.loads(text)["brokers"].values()]
        return any(each["req"].get("SaslHandshake", 0) > each["connects"] for each in brokers)

    try:
        asyncio.run(asyncio.wait_for(own(), START_S))
        end = time.monotonic() + START_S
        others()
    finally:
        cluster.kill_all()
