"""Faults of a cluster inside this process, as Kafka's own clients meet them: all three in the same test, unchanged.

`KafkaContainer`, too: a test written for testcontainers runs with another import, and without Docker.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from odradek_broker.config.sources import SettingError
from odradek_broker.testing import Cluster, ClusterError, KafkaContainer

PATIENCE_S = 60
API_VERSIONS = 18
IMPATIENT = {"broker.session.timeout.ms": 1000, "broker.heartbeat.interval.ms": 200}
Write = Callable[[str, str, Sequence[bytes], bool], None]  # bootstrap, topic, values, idempotent


def by_aiokafka(bootstrap: str, topic: str, values: Sequence[bytes], idempotent: bool = True) -> None:
    from aiokafka import AIOKafkaProducer

    async def story() -> None:
        settings = {"acks": "all", "enable_idempotence": idempotent, "retry_backoff_ms": 20}
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, **settings) as producer:
            for value in values:
                await producer.send_and_wait(topic, value, partition=0)

    asyncio.run(asyncio.wait_for(story(), PATIENCE_S))


def by_confluent(bootstrap: str, topic: str, values: Sequence[bytes], idempotent: bool = True) -> None:
    from confluent_kafka import Producer

    told: list[object] = []
    settings = {"acks": "all", "enable.idempotence": idempotent, "linger.ms": 0}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _message: told.append(error))
        assert producer.flush(PATIENCE_S) == 0
    assert told == [None] * len(values)


def by_kafka_python(bootstrap: str, topic: str, values: Sequence[bytes], idempotent: bool = True) -> None:
    from kafka import KafkaProducer

    settings = {"acks": "all", "enable_idempotence": idempotent}
    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), **settings)
    for value in values:
        producer.send(topic, value, partition=0).get(PATIENCE_S)
    producer.close()


CLIENTS: dict[str, Write] = {"aiokafka": by_aiokafka, "confluent": by_confluent, "kafka-python": by_kafka_python}


def by_all(bootstrap: str, topic: str, what: str, idempotent: bool = True) -> list[bytes]:
    """Each writes a record; what they wrote."""
    values = [f"{what} {client}".encode() for client in CLIENTS]
    for value, write in zip(values, CLIENTS.values(), strict=True):
        write(bootstrap, topic, [value], idempotent)
    return values


def read(bootstrap: str, topic: str) -> list[bytes]:
    """Everything, by aiokafka."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def story() -> list[bytes]:
        partition = TopicPartition(topic, 0)
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([partition])
            end = (await consumer.end_offsets([partition]))[partition]
            return [(await consumer.getone()).value for _ in range(end)]

    return asyncio.run(asyncio.wait_for(story(), PATIENCE_S))


@pytest.mark.odradek(settings=IMPATIENT)
def test_a_frozen_leader_is_replaced_and_follows_when_it_goes_on(
    odradek_cluster: Cluster, kafka_bootstrap: str, odradek_topic: str
) -> None:
    """It says nothing, so its session times out; another one leads, and nothing is lost, twice or out of order."""
    written = by_all(kafka_bootstrap, odradek_topic, "before")
    frozen = odradek_cluster.leader_of(odradek_topic)
    odradek_cluster.freeze(frozen)
    assert odradek_cluster.leader_of(odradek_topic) != frozen
    odradek_cluster.wait_until_ready()  # until it is fenced, clients hear of it, and wait for its answers
    others = [address for broker, address in odradek_cluster.kafka_addresses.items() if broker != frozen]
    written += by_all(",".join(others), odradek_topic, "meanwhile")  # the frozen one takes connections
    odradek_cluster.thaw(frozen)
    odradek_cluster.wait_until_in_sync(odradek_topic)
    written += by_all(kafka_bootstrap, odradek_topic, "after")
    assert read(kafka_bootstrap, odradek_topic) == written


@pytest.mark.odradek(settings={"replica.lag.time.max.ms": 300, **IMPATIENT})
def test_a_follower_that_is_cut_off_leaves_the_isr_and_comes_back(
    odradek_cluster: Cluster, kafka_bootstrap: str, odradek_topic: str
) -> None:
    """Two of three replicas are enough for acks=all; the third one has everything once the network is mended."""
    leader, controller = odradek_cluster.leader_of(odradek_topic), odradek_cluster.controller()
    lonely = next(broker for broker in odradek_cluster.brokers if broker not in (leader, controller))
    odradek_cluster.cut(lonely)
    others = [address for broker, address in odradek_cluster.kafka_addresses.items() if broker != lonely]
    written = by_all(",".join(others), odradek_topic, "without it", False)  # it could give nobody a producer id
    assert lonely not in odradek_cluster.isr_of(odradek_topic)
    odradek_cluster.heal()
    odradek_cluster.wait_until_in_sync(odradek_topic)
    odradek_cluster.kill(leader)
    assert odradek_cluster.leader_of(odradek_topic) != leader
    assert read(kafka_bootstrap, odradek_topic) == written


def test_a_slow_broker_answers_late(odradek_cluster: Cluster, kafka_bootstrap: str, odradek_topic: str) -> None:
    """Each way takes the delay: a record to it and its answer take two of them."""
    leader = odradek_cluster.leader_of(odradek_topic)
    odradek_cluster.slow(leader, 100)
    for client, write in CLIENTS.items():
        begun = time.monotonic()
        write(kafka_bootstrap, odradek_topic, [client.encode()], True)
        assert time.monotonic() - begun >= 0.2, client
    odradek_cluster.heal()
    assert read(kafka_bootstrap, odradek_topic) == [client.encode() for client in CLIENTS]


def test_requests_of_two_clients_wait_for_a_slow_broker_apart(odradek_cluster: Cluster) -> None:
    """All connections of a listener are read into one buffer: what waits must not lie in it."""
    odradek_cluster.slow(1, 300)
    host, port = odradek_cluster.kafka_addresses[1].split(":")
    with socket.create_connection((host, int(port))) as one, socket.create_connection((host, int(port))) as other:
        clients = {101: one, 202: other}
        for number, client in clients.items():
            client.settimeout(PATIENCE_S)
            request = struct.pack(">hhih", API_VERSIONS, 0, number, -1)
            client.sendall(struct.pack(">i", len(request)) + request)
        answered = {
            number: struct.unpack(">ii", client.recv(8, socket.MSG_WAITALL))[1] for number, client in clients.items()
        }
    assert answered == {101: 101, 202: 202}


def test_a_lost_answer_writes_twice_without_idempotence_and_once_with_it(
    odradek_cluster: Cluster, kafka_bootstrap: str, odradek_topic: str
) -> None:
    """The broker has the record and the client does not know: each client sends it again."""
    leader = odradek_cluster.leader_of(odradek_topic)
    for client, write in CLIENTS.items():
        for idempotent in (False, True):
            odradek_cluster.lose_next_answer(leader)
            write(kafka_bootstrap, odradek_topic, [f"{client} {idempotent}".encode()], idempotent)
    found = Counter(read(kafka_bootstrap, odradek_topic))
    for client in CLIENTS:
        assert (found[f"{client} False".encode()], found[f"{client} True".encode()]) == (2, 1), client
    with pytest.raises(ClusterError, match="there is no API 'Prduce'"):
        odradek_cluster.lose_next_answer(leader, "Prduce")


def test_a_fault_that_would_be_none_is_refused(odradek_cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match="broker 1 cannot be cut off from itself"):
        odradek_cluster.cut(1, 1)


@pytest.mark.parametrize(
    "fsync",
    [
        pytest.param("never", marks=pytest.mark.odradek(settings={"odradek.fsync": "never"})),
        pytest.param("before-ack", marks=pytest.mark.odradek(settings={"odradek.fsync": "before-ack"})),
    ],
)
def test_all_brokers_lose_their_power(
    odradek_cluster: Cluster, kafka_bootstrap: str, odradek_topic: str, fsync: str
) -> None:
    """Of records that nobody flushed none is left, as in Kafka; what is flushed before its acknowledgement stays."""
    written = by_all(kafka_bootstrap, odradek_topic, "before")
    odradek_cluster.lose_power()
    assert odradek_cluster.running == []
    odradek_cluster.heal()
    odradek_cluster.leader_of(odradek_topic)
    assert read(kafka_bootstrap, odradek_topic) == (written if fsync == "before-ack" else [])
    by_all(kafka_bootstrap, odradek_topic, "after")


def test_faults_need_a_broker_that_runs(odradek_cluster: Cluster) -> None:
    """And say so."""
    odradek_cluster.kill(2)
    faults: list[Callable[[], None]] = [
        lambda: odradek_cluster.freeze(2),
        lambda: odradek_cluster.cut(1, 2),
        lambda: odradek_cluster.slow(2, 10),
        lambda: odradek_cluster.lose_next_answer(2),
    ]
    for fault in faults:
        with pytest.raises(ClusterError, match="broker 2 does not run"):
            fault()
    odradek_cluster.lose_power(2)  # it is dead, and now it has forgotten, too
    odradek_cluster.heal()
    assert odradek_cluster.running == [1, 2, 3]


OF_THE_IMAGE = {  # as testcontainers and compose files set them
    "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9093,BROKER://broker:9092",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
}


def test_a_test_for_testcontainers_runs_unchanged() -> None:
    """Settings by the image's variables, the address of one broker, all three clients; gone at the end."""
    started = r".*\[KafkaServer id=\d+\] started.*"
    env = {"KAFKA_NUM_PARTITIONS": "2"}
    container = KafkaContainer("confluentinc/cp-kafka:7.6.0", 9093, started, "CLIENTS", env=env).with_kraft()
    with container.with_env("KAFKA_NUM_PARTITIONS", "1") as kafka:
        assert kafka.get_bootstrap_server() == f"{kafka.get_container_host_ip()}:{kafka.get_exposed_port(9093)}"
        for client, write in CLIENTS.items():
            write(kafka.get_bootstrap_server(), "orders", [client.encode()], True)
        kafka.cluster.kill(kafka.cluster.leader_of("orders"))
        assert read(kafka.cluster.kafka_bootstrap, "orders") == [client.encode() for client in CLIENTS]
    with pytest.raises(ClusterError, match="has not been started"):
        container.get_bootstrap_server()
    container.stop()


def test_what_has_no_effect_is_warned_of_and_what_is_wrong_refused() -> None:
    """A variable of Kafka's that odradek does not use, one of the JVM, one that there is not, another port."""
    container = KafkaContainer(brokers=1, port=29092)
    with pytest.warns(UserWarning, match="KAFKA_LOG_CLEANER_THREADS has no effect"):
        container.with_env("KAFKA_LOG_CLEANER_THREADS", 2)
    with pytest.warns(UserWarning, match="KAFKA_NODE_ID has no effect"):
        container.with_envs(KAFKA_NODE_ID=7, KAFKA_HEAP_OPTS="-Xmx1g", KAFKA_LOG4J_ROOT_LOGLEVEL="WARN", TZ="UTC")
    for variable, value in OF_THE_IMAGE.items():
        with pytest.warns(UserWarning, match=f"{variable} has no effect"):
            container.with_env(variable, value)
    with pytest.warns(UserWarning, match="with_cluster_id has no effect"):
        container.with_cluster_id("MkU3OEVBNTcwNTJENDM2Qk")
    with pytest.raises(ClusterError, match="security_protocol is 'PLAINTEXT', not 'SSL'"):
        KafkaContainer(security_protocol="SSL")
    with pytest.raises(SettingError, match=r"^KAFKA_NUM_PARTITOINS: unknown setting 'num\.partitoins'"):
        container.with_env("KAFKA_NUM_PARTITOINS", 2)
    container.start()
    try:
        assert container.cluster.brokers == [1]
        with pytest.raises(ClusterError, match="port 9093 is not exposed"):
            container.get_exposed_port(9093)
    finally:
        container.stop()
