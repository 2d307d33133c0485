"""`KafkaContainer`: a test written for testcontainers runs with another import, and without Docker."""

from __future__ import annotations

import pytest
from odradek_broker.config.sources import ConfigError
from odradek_broker.testing import ClusterError, KafkaContainer

from tests.testing.test_faults_in_process import CLIENTS, read


def test_a_test_for_testcontainers_runs_unchanged() -> None:
    """Settings by the image's variables, the address of one broker, all three clients; gone at the end."""
    container = KafkaContainer("confluentinc/cp-kafka:7.6.0").with_kraft().with_env("KAFKA_NUM_PARTITIONS", "1")
    with container as kafka:
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
        container.with_envs(KAFKA_NODE_ID=7, KAFKA_HEAP_OPTS="-Xmx1g", TZ="UTC")
    with pytest.raises(ConfigError, match=r"^KAFKA_NUM_PARTITOINS: unknown setting 'num\.partitoins'"):
        container.with_env("KAFKA_NUM_PARTITOINS", 2)
    container.start()
    try:
        assert container.cluster.brokers == [1]
        with pytest.raises(ClusterError, match="port 9093 is not exposed"):
            container.get_exposed_port(9093)
    finally:
        container.stop()
