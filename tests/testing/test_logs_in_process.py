"""What brokers say in their logs, inside of one process: a failover, strangers' bytes, and other levels meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from odradek import Admin
from odradek_broker.config.log_levels import LOGGERS, QUORUM, ROOT
from odradek_broker.testing import AsyncCluster, Cluster
from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.transport.ports import CallRejected, NetworkError

from tests.broker.test_forged_messages import FILES, SERVED_BY

TIMEOUT_MS = 30_000
FEW = 10
GARBAGE = b"\xff\xff\xff"


@pytest.fixture(autouse=True)
def info(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """As a broker's process has it."""
    caplog.set_level(logging.INFO, ROOT)
    yield
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.NOTSET)


def test_the_kill_of_a_leader_is_told_in_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    """By all survivors together: who was fenced and why, who leads, who follows; and nothing alarming."""
    with Cluster() as cluster:
        cluster.create_topic("orders", replication_factor=3)
        cluster.wait_until_in_sync("orders")
        leader = next(broker for broker in cluster.brokers if broker == cluster.leader_of("orders"))
        controller = cluster.controller()
        caplog.clear()
        cluster.kill(leader)
        cluster.leader_of("orders")
        cluster.wait_until_ready()
        told = [entry for entry in caplog.records if getattr(entry, "broker", 0) != leader]
    lines = [f"{entry.name}: {entry.getMessage()}" for entry in told if entry.name.startswith(ROOT)]
    assert any(f"broker {leader} is fenced: " in line for line in lines), lines
    assert any("orders-0: leads in leader epoch 1" in line for line in lines), lines
    if controller != leader:
        assert len(lines) < FEW, lines
    assert len(lines) < 2 * FEW, lines
    assert [line for entry, line in zip(told, lines, strict=False) if entry.levelno >= logging.WARNING] == []


async def test_grpc_at_a_listener_for_kafka_is_told_where_it_is_served(caplog: pytest.LogCaptureFixture) -> None:
    """A channel dials again and again; the broker closes it each time and says it once, with its own address."""
    async with AsyncCluster(1) as cluster:
        network = GrpcNetwork()
        for _ in range(3):
            with pytest.raises(NetworkError):
                await network.call(cluster.kafka_bootstrap, "/odradek.v1.Broker/Metadata", b"", TIMEOUT_MS)
        await network.close()
        said = [entry.getMessage() for entry in caplog.records if "speaks" in entry.getMessage()]
        served = f"gRPC clients, odradek's among them, are served at {cluster.bootstrap}"
        assert [f"speaks HTTP/2, and this listener is for Kafka's clients; {served}" in each for each in said] == [True]


async def test_strangers_bytes_are_an_invalid_argument_and_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """On every listener, for every call, by Admin too, which must not say that it is worth another try."""
    network = GrpcNetwork()
    async with AsyncCluster(1) as cluster:
        node = cluster._member(1).node
        assert node is not None
        for service in (service for file in FILES for service in file.services_by_name.values()):
            if not SERVED_BY[service.full_name]:
                continue
            address = node.addresses()[SERVED_BY[service.full_name]]
            for method in (method for method in service.methods if not method.client_streaming):
                if service.name in ("Quorum", "Controller"):  # they answer INVALID_REQUEST in their own messages
                    continue
                own = cluster._network if address.startswith("broker-") else None  # without a socket
                with pytest.raises(CallRejected) as refused:
                    await (own or network).call(address, f"/{service.full_name}/{method.name}", GARBAGE, TIMEOUT_MS)
                assert refused.value.status == "INVALID_ARGUMENT", (method.full_name, refused.value)
    await network.close()
    assert [entry.getMessage() for entry in caplog.records if entry.exc_info] == []
    said = [entry for entry in caplog.records if "INVALID_ARGUMENT" in entry.getMessage()]
    assert len(said) >= 15
    assert {entry.levelname for entry in said} == {"INFO"}


async def test_an_administrator_changes_the_levels_of_one_broker() -> None:
    """By the client's call, at that broker."""
    async with AsyncCluster(1) as cluster, Admin(cluster.bootstrap) as admin:
        await admin.incremental_alter_configs("broker-logger", "1", set={QUORUM: "DEBUG"})
        told = {entry.name: entry for entry in await admin.describe_configs("broker-logger", "1")}
        assert (told[QUORUM].value, told[QUORUM].source) == ("DEBUG", "DYNAMIC_BROKER_LOGGER_CONFIG")
        await admin.incremental_alter_configs("broker-logger", "1", unset=[QUORUM])
        told = {entry.name: entry for entry in await admin.describe_configs("broker-logger", "1")}
        assert told[QUORUM].is_default
