"""ACLs of a real broker, by both protocols: what is refused without one, with Kafka's codes, and done with one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka import TopicPartition as KafkaPartition
from odradek import Admin, Consumer, NewTopic, OdradekError, Producer
from odradek.broker_errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    SaslAuthenticationFailed,
    TopicAuthorizationFailed,
)
from odradek.cli.clusters.status import gather_status
from odradek_broker.local.cluster import LocalCluster
from odradek_proto.security.acl_words import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from odradek_proto.security.acls import Acl
from odradek_proto.topics import TopicPartition

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

kafka_admin: Any = import_module("confluent_kafka.admin")  # its types export nothing
START_S = 180
USERS = ("admin", "alice", "bob")
SETTINGS = {
    "listener.security.protocol.map": "GRPC:GRPC_SASL_PLAINTEXT,KAFKA:SASL_PLAINTEXT,REPLICATION:GRPC,CONTROLLER:GRPC",
    "odradek.create.users": ",".join(f"{user}={user}" for user in USERS),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "group.initial.rebalance.delay.ms": "0",
}
ORDERS = TopicPartition("orders", 0)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One broker with an authorizer and two topics; alice and bob may do nothing."""
    cluster = LocalCluster.create(tmp_path_factory.mktemp("acls"), brokers=1)
    try:
        cluster.start(1, SETTINGS)
        asyncio.run(_prepare(cluster))
        yield cluster
    finally:
        cluster.kill_all()


async def _prepare(cluster: LocalCluster) -> None:
    async with asyncio.timeout(START_S):
        while True:
            try:
                async with Admin(cluster.bootstrap, **as_user("admin")) as admin:
                    await admin.create_topics([NewTopic("orders", 1, 1), NewTopic("secrets", 1, 1)])
                break
            except SaslAuthenticationFailed:  # until the broker has made the users that it was told to
                pass
        async with Producer(cluster.bootstrap, **as_user("admin")) as producer:
            await producer.send("orders", b"0")


def as_user(user: str) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT", "sasl_username": user, "sasl_password": user,
        "bootstrap_timeout_ms": START_S * 1_000,
    }  # fmt: skip


def librdkafka(cluster: LocalCluster, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.kafka_bootstrap, "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": user, "sasl.password": user,
    }  # fmt: skip


def topic_acl(user: str, operation: Operation, name: str = "orders") -> Acl:
    return Acl(ResourceType.TOPIC, name, PatternType.LITERAL, f"User:{user}", "*", operation, Permission.ALLOW)


async def read_on(consumer: Consumer[Any, Any]) -> None:
    async with asyncio.timeout(START_S):
        async for each in consumer:
            assert each.value != b"secret"


async def kafka_codes(cluster: LocalCluster, user: str) -> dict[str, int]:
    """What one of Kafka's clients hears for a write, a read and some orders; 0: it was done."""

    def code_of(work: Any) -> int:
        try:
            work()
        except KafkaException as error:
            return int(error.args[0].code())
        return 0

    def write() -> None:
        producer = KafkaProducer({**librdkafka(cluster, user), "enable.idempotence": False})
        errors: list[KafkaError | None] = []
        producer.produce("orders", b"kafka", on_delivery=lambda error, _: errors.append(error))
        producer.flush(START_S)
        if errors[0] is not None:
            raise KafkaException(errors[0])

    def read() -> None:
        consumer = KafkaConsumer({**librdkafka(cluster, user), "group.id": "none", "enable.auto.commit": False})
        consumer.assign([KafkaPartition("orders", 0, 0)])
        consumer.get_watermark_offsets(KafkaPartition("orders", 0), timeout=START_S)  # ListOffsets; the errors of Fetch
        found = consumer.consume(1, START_S)  # are for its log alone
        consumer.close()
        assert [message.error() for message in found] == [None]

    admin = kafka_admin.AdminClient(librdkafka(cluster, user))
    binding = kafka_admin.AclBinding(
        kafka_admin.ResourceType.TOPIC, "mine", kafka_admin.ResourcePatternType.LITERAL, f"User:{user}", "*",
        kafka_admin.AclOperation.ALL, kafka_admin.AclPermissionType.ALLOW,
    )  # fmt: skip
    orders = {
        "write": write,
        "read": read,
        "create": lambda: admin.create_topics([kafka_admin.NewTopic("new", 1, 1)])["new"].result(START_S),
        "delete": lambda: admin.delete_topics(["secrets"])["secrets"].result(START_S),
        "acls": lambda: admin.create_acls([binding])[binding].result(START_S),
        "describe broker": lambda: next(
            iter(admin.describe_configs([kafka_admin.ConfigResource("broker", "1")]).values())
        ).result(START_S),
    }  # fmt: skip
    return {name: await asyncio.to_thread(code_of, work) for name, work in orders.items()}


def test_without_an_acl_nothing_is_done_by_either_door(guarded: LocalCluster) -> None:
    """Topics are not even named; and the log says who tried what."""

    async def story() -> None:
        async with Admin(guarded.bootstrap, **as_user("bob")) as admin:
            assert await admin.list_topics() == []
            with pytest.raises(TopicAuthorizationFailed):
                await admin.describe_topics(["orders"])
            of_topics: list[Any] = [
                admin.delete_topics(["orders"]),
                admin.create_topics([NewTopic("new", 1, 1)]),
                admin.create_partitions("orders", 2),
                admin.incremental_alter_configs("topic", "orders", set={"retention.ms": "1"}),
                admin.describe_configs("topic", "orders"),
                admin.delete_records({ORDERS: 1}),
            ]
            for order in of_topics:
                with pytest.raises(TopicAuthorizationFailed):
                    await order
            of_cluster: list[Any] = [
                admin.elect_leaders(),
                admin.describe_quorum(),
                admin.list_partition_reassignments(),
                admin.alter_partition_reassignments({ORDERS: [1]}),
                admin.incremental_alter_configs("broker", "", set={"min.insync.replicas": "1"}),
                admin.describe_configs("broker", "1"),
                admin.describe_user_scram_credentials(),
                admin.upsert_user_scram_credentials("bob", "better"),
                admin.describe_acls(),
                admin.create_acls([topic_acl("bob", Operation.ALL)]),
            ]
            for order in of_cluster:
                with pytest.raises(ClusterAuthorizationFailed):
                    await order
            with pytest.raises(ClusterAuthorizationFailed):
                await admin.describe_replicas()
            assert (await gather_status(admin)).silent == {}  # whoever says no is neither dead nor frozen
        async with Producer(guarded.bootstrap, **as_user("bob"), enable_idempotence=False) as producer:
            with pytest.raises(TopicAuthorizationFailed):
                await producer.send("orders", b"bob")
        codes = await kafka_codes(guarded, "bob")
        hidden, topic, cluster = (
            KafkaError._UNKNOWN_PARTITION,
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        )
        assert codes == {
            "write": topic, "read": hidden, "create": topic, "delete": topic, "acls": cluster,
            "describe broker": cluster,
        }  # fmt: skip

    asyncio.run(story())
    said = guarded.log_file(1).read_text()
    assert "odradek.audit: User:bob from 127.0.0.1:" in said
    assert "on GRPC: refused DELETE on TOPIC 'orders'" in said
    assert "on KAFKA: refused DELETE on TOPIC 'secrets'" in said


async def test_an_acl_counts_for_both_doors_until_it_is_removed(guarded: LocalCluster, tmp_path: Path) -> None:
    """Added by the command, used by odradek's and Kafka's clients; without it even a running consumer gets nothing."""
    properties = tmp_path / "admin.properties"
    properties.write_text("security.protocol=SASL_PLAINTEXT\nsasl.username=admin\nsasl.password=admin\n")

    def command(*words: str) -> str:
        line = [sys.executable, "-m", "odradek.cli", "--command-config", str(properties), "acl", *words]
        environment = {**os.environ, "ODRADEK_BOOTSTRAP": guarded.bootstrap}
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=START_S)
        assert done.returncode == 0, done.stderr
        return done.stdout

    await asyncio.to_thread(
        command, "add", "--principal", "User:alice", "--operation", "read", "--operation", "write", "--topic",
        "ord", "--prefixed",
    )  # fmt: skip
    await asyncio.to_thread(command, "add", "--principal", "User:alice", "--group", "none")
    async with Admin(guarded.bootstrap, **as_user("alice")) as admin:
        assert await admin.list_topics() == ["orders"]
    async with Producer(guarded.bootstrap, **as_user("alice")) as producer:
        await producer.send("orders", b"alice")
    codes = await kafka_codes(guarded, "alice")
    assert (codes["write"], codes["read"], codes["create"]) == (0, 0, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    consumer: Consumer[Any, Any] = Consumer(
        guarded.bootstrap, "orders", auto_offset_reset="earliest", **as_user("alice")
    )
    async with consumer:
        assert [each.value async for each in consumer.records(until="end")] == [b"0", b"alice", b"kafka"]
        listed = await asyncio.to_thread(command, "list", "--topic", "orders")
        assert [line.split()[2] for line in listed.splitlines()] == ["OPERATION", "read", "write"]
        await asyncio.to_thread(command, "remove", "--principal", "User:alice", "--topic", "ord", "--prefixed")
        async with Producer(guarded.bootstrap, **as_user("admin")) as producer:
            await producer.send("orders", b"secret")
        with pytest.raises(TopicAuthorizationFailed):
            await read_on(consumer)
    assert (await kafka_codes(guarded, "alice"))["write"] == KafkaError.TOPIC_AUTHORIZATION_FAILED


async def test_a_request_is_done_as_far_as_it_is_allowed(guarded: LocalCluster) -> None:
    """Of two topics one is made; the cluster's CREATE allows both. Kafka's client makes the ACLs."""
    admin = kafka_admin.AdminClient(librdkafka(guarded, "admin"))
    binding = kafka_admin.AclBinding(
        kafka_admin.ResourceType.TOPIC, "bobs", kafka_admin.ResourcePatternType.PREFIXED, "User:bob", "*",
        kafka_admin.AclOperation.CREATE, kafka_admin.AclPermissionType.ALLOW,
    )  # fmt: skip
    admin.create_acls([binding])[binding].result(START_S)
    bob = kafka_admin.AdminClient(librdkafka(guarded, "bob"))
    made = bob.create_topics([kafka_admin.NewTopic("bobs-1", 1, 1), kafka_admin.NewTopic("others", 1, 1)])
    assert made["bobs-1"].result(START_S) is None
    with pytest.raises(KafkaException) as refused:
        made["others"].result(START_S)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    allowed = topic_acl("bob", Operation.CREATE)
    cluster = Acl(
        ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL, allowed.principal, "*", Operation.CREATE,
        Permission.ALLOW,
    )  # fmt: skip
    async with Admin(guarded.bootstrap, **as_user("admin")) as admin:
        await admin.create_acls([cluster])
    async with Admin(guarded.bootstrap, **as_user("bob")) as own:
        await own.create_topics([NewTopic("others", 1, 1)])


def test_a_group_is_a_resource_of_its_own(guarded: LocalCluster) -> None:
    """Reading in a group needs READ on the group and on the topic; commits of other topics are refused one by one."""
    settings: dict[str, Any] = {
        **librdkafka(guarded, "carl"), "group.id": "carls", "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }  # fmt: skip
    group = Acl(
        ResourceType.GROUP, "carls", PatternType.LITERAL, "User:carl", "*", Operation.READ, Permission.ALLOW
    )  # fmt: skip

    async def allow(*acls: Acl) -> None:
        async with Admin(guarded.bootstrap, **as_user("admin")) as admin:
            await admin.upsert_user_scram_credentials("carl", "carl")
            await admin.create_acls(acls)

    def first(consumer: KafkaConsumer) -> tuple[int, bytes | None]:
        consumer.subscribe(["orders"])
        message = None
        while message is None:
            message = consumer.poll(START_S)
        error = message.error()
        return (0, message.value()) if error is None else (int(error.code()), None)

    asyncio.run(allow(topic_acl("carl", Operation.READ)))
    refused = KafkaConsumer(settings)
    assert first(refused) == (KafkaError.GROUP_AUTHORIZATION_FAILED, None)
    refused.close()
    asyncio.run(allow(group))
    consumer = KafkaConsumer(settings)
    assert first(consumer) == (0, b"0")
    offsets = [KafkaPartition("orders", 0, 1), KafkaPartition("secrets", 0, 1)]
    with pytest.raises(KafkaException) as caught:
        consumer.commit(offsets=offsets, asynchronous=False)
    assert caught.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer.commit(offsets=offsets[:1], asynchronous=False)
    assert [each.offset for each in consumer.committed(offsets[:1], START_S)] == [1]
    consumer.close()
    admin = kafka_admin.AdminClient(librdkafka(guarded, "bob"))
    assert admin.list_consumer_groups(request_timeout=START_S).result().valid == []
    with pytest.raises(KafkaException) as gone:
        admin.delete_consumer_groups(["carls"])["carls"].result(START_S)
    assert gone.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED


async def test_a_member_names_only_topics_that_it_may_know(guarded: LocalCluster) -> None:
    """ConsumerGroupHeartbeat needs READ on the group, and DESCRIBE on the topics that it names, as in Kafka 4.1."""

    async def read(topic: str) -> object:
        async with Consumer(
            guarded.bootstrap, topic, group_id="daves", auto_offset_reset="earliest", **as_user("dave")
        ) as consumer:
            [record] = await consumer.poll(START_S, max_records=1)
            return record.value

    async with Admin(guarded.bootstrap, **as_user("admin")) as admin:
        await admin.upsert_user_scram_credentials("dave", "dave")
        with pytest.raises(GroupAuthorizationFailed):
            await read("orders")
        group = (ResourceType.GROUP, "daves", PatternType.LITERAL, "User:dave", "*")
        await admin.create_acls([Acl(*group, Operation.READ, Permission.ALLOW), topic_acl("dave", Operation.READ)])
        with pytest.raises(TopicAuthorizationFailed):
            await read("secrets")
        assert await read("orders") == b"0"
    async with Consumer(guarded.bootstrap, group_id="daves", **as_user("dave")) as consumer:
        consumer.subscribe(pattern=".*")  # finds what dave may describe
        while not (found := consumer.assignment()):
            await consumer.poll(0.1)
        assert found == [ORDERS]


def test_without_an_authorizer_acls_are_security_disabled(odradek_cluster: Any) -> None:
    """As in Kafka: whoever writes ACLs must not believe that anybody reads them."""

    async def ask() -> None:
        async with Admin(odradek_cluster.bootstrap) as admin:
            await admin.create_acls([topic_acl("alice", Operation.READ)])

    with pytest.raises(OdradekError, match="SECURITY_DISABLED: No Authorizer is configured"):
        asyncio.run(ask())
