"""Real brokers with two client listeners each, configured by their environment as in containers."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from odradek import Admin, Consumer, OdradekError, Producer
from odradek_broker.local import processes
from odradek_proto.transport.clock import LoopClock
from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.v1 import broker_pb2 as pb

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

NODES = (1, 2, 3)
METADATA = "/odradek.v1.Broker/Metadata"
LOOK_AGAIN_MS = 20
START_S = 180  # on a busy machine; the topics are what is waited for
LOOKING_MS = START_S * 1_000  # a client knows one address, and whoever is there may have no turn for a while
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
TOPICS = {"orders": (3, 3), "payments": (6, 2)}


@dataclass
class TwoNetworks:
    """Addresses by node: the inner listener, by a name, and the outer one, by a number."""

    inner: dict[int, str]
    outer: dict[int, str]
    directory: Path

    def said(self, node: int) -> str:
        return (self.directory / f"{node}.log").read_text()

    def everything_said(self) -> str:
        return "".join(map(self.said, NODES))


def environment(node: int, inner: dict[int, str], outer: dict[int, str], controllers: dict[int, str]) -> dict[str, str]:
    bound = inner[node].replace("localhost", "127.0.0.1"), outer[node].replace("127.0.0.1", "0.0.0.0")
    listeners = f"GRPC://{bound[0]},GRPC_HOST://{bound[1]},REPLICATION://127.0.0.1:0,CONTROLLER://{controllers[node]}"
    return {
        "CLUSTER_ID": CLUSTER_ID,
        "KAFKA_NODE_ID": str(node),
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": listeners,
        "KAFKA_ADVERTISED_LISTENERS": f"GRPC://{inner[node]},GRPC_HOST://{outer[node]}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "GRPC:GRPC,GRPC_HOST:GRPC,REPLICATION:GRPC,CONTROLLER:GRPC",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "REPLICATION",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": ",".join(f"{voter}@{at}" for voter, at in controllers.items()),
        "KAFKA_DELETE_TOPIC_ENABLE": "false",
        "KAFKA_HEAP_OPTS": "-Xmx1g",
        "ODRADEK_CREATE_TOPICS": "orders:3:3,payments:6:2:retention.ms=60000",
    }


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNetworks]:
    """Three brokers, and the topics that the environment named."""
    directory = tmp_path_factory.mktemp("networks")
    ports = iter(processes.free_ports(9))
    inner = {node: f"localhost:{next(ports)}" for node in NODES}
    outer = {node: f"127.0.0.1:{next(ports)}" for node in NODES}
    controllers = {node: f"localhost:{next(ports)}" for node in NODES}
    children = []
    for node in NODES:
        command = [sys.executable, "-m", "odradek_broker", "-X", f"log.dirs={directory / str(node)}"]
        with open(directory / f"{node}.log", "wb") as output:
            variables = environment(node, inner, outer, controllers)
            children.append(subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **variables}))
    found = TwoNetworks(inner, outer, directory)
    try:
        asyncio.run(topics_are_there(found))
        yield found
    finally:
        for child in children:
            child.kill()
        for child in children:
            child.wait()


async def topics_are_there(networks: TwoNetworks) -> None:
    """Every node knows them, and so all nodes, which were there before; and who created them has said so."""
    clock = LoopClock(random.Random())
    async with asyncio.timeout(START_S):
        async with Admin(networks.outer[1], bootstrap_timeout_ms=LOOKING_MS) as admin:
            while set(await admin.list_topics()) != set(TOPICS):
                await clock.sleep(LOOK_AGAIN_MS)
        for address in networks.outer.values():
            while {topic.topic for topic in (await ask(address)).topics} != set(TOPICS):
                await clock.sleep(LOOK_AGAIN_MS)
        while any(f"topic {topic} created: " not in networks.everything_said() for topic in TOPICS):
            await clock.sleep(LOOK_AGAIN_MS)


async def ask(address: str, *, all_listeners: bool = False) -> pb.MetadataResponse:
    network = GrpcNetwork()
    try:
        request = pb.MetadataRequest(all_topics=True, all_listeners=all_listeners)
        answer = await network.call(address, METADATA, request.SerializeToString(), START_S * 1000)
        return pb.MetadataResponse.FromString(answer)
    finally:
        await network.close()


def endpoints(answer: pb.MetadataResponse) -> dict[int, dict[str, str]]:
    return {broker.broker_id: dict(broker.endpoints) for broker in answer.brokers}


def test_a_client_is_told_the_addresses_of_the_listener_it_came_in_by(networks: TwoNetworks) -> None:
    """Each listener speaks of itself alone, whichever broker is asked; who asks for all gets all."""
    for node in NODES:
        inside = asyncio.run(ask(networks.inner[node]))
        outside = asyncio.run(ask(networks.outer[node]))
        assert endpoints(inside) == {other: {"GRPC": networks.inner[other]} for other in NODES}
        assert endpoints(outside) == {other: {"GRPC_HOST": networks.outer[other]} for other in NODES}
        assert (inside.listener, outside.listener) == ("GRPC", "GRPC_HOST")
        assert (inside.answered_by, outside.answered_by) == (node, node)
    both = asyncio.run(ask(networks.outer[1], all_listeners=True))
    assert endpoints(both)[3] == {"GRPC": networks.inner[3], "GRPC_HOST": networks.outer[3]}


@pytest.mark.parametrize("listener", ["inner", "outer"])
async def test_records_of_all_partitions_go_both_ways_on_each_listener(networks: TwoNetworks, listener: str) -> None:
    """Leaders are on three brokers, so a client that was told another network's address would miss some."""
    bootstrap: str = getattr(networks, listener)[2]
    values = [f"{listener}-{number}" for number in range(30)]
    async with (
        Producer(bootstrap, bootstrap_timeout_ms=LOOKING_MS) as producer,
        Consumer(bootstrap, "orders", auto_offset_reset="earliest", bootstrap_timeout_ms=LOOKING_MS) as consumer,
        asyncio.timeout(START_S),
    ):
        for number, value in enumerate(values):
            await producer.send("orders", value, partition=number % 3)
        seen = [(record.partition, (record.value or b"").decode()) async for record in consumer.records(until="end")]
    mine = sorted(pair for pair in seen if pair[1] in values)
    assert mine == sorted((number % 3, value) for number, value in enumerate(values))


def test_topics_of_the_environment_are_created_once(networks: TwoNetworks) -> None:
    """Three brokers were told to; one order was carried out, with the partitions and replicas that were asked for."""

    async def described() -> dict[str, tuple[int, int]]:
        async with Admin(networks.outer[1], bootstrap_timeout_ms=LOOKING_MS) as admin:
            topics = await admin.describe_topics(list(TOPICS))
            return {topic.name: (len(topic.partitions), len(topic.partitions[0].replicas)) for topic in topics}

    assert asyncio.run(described()) == TOPICS
    said = networks.everything_said()
    assert said.count("topic orders created: 3 partitions, 3 replicas") == 1
    assert said.count("topic payments created: 6 partitions, 2 replicas") == 1


def test_a_node_says_what_it_runs_with(networks: TwoNetworks) -> None:
    """Which source set what, what is no setting, and once that others can reach it."""
    said = networks.said(1)
    assert "settings from the environment: " in said
    assert "WARN broker 1 odradek.server: variables that are no settings: KAFKA_HEAP_OPTS" in said
    assert said.count("without TLS or authentication") == 1
    assert "GRPC_HOST://0.0.0.0" in said


def test_topics_cannot_be_deleted_when_that_is_forbidden(networks: TwoNetworks) -> None:
    """delete.topic.enable=false, on the way through any broker."""

    async def delete() -> None:
        async with Admin(networks.outer[3], bootstrap_timeout_ms=LOOKING_MS) as admin:
            await admin.delete_topics(["orders"])

    with pytest.raises(OdradekError, match=r"delete\.topic\.enable=false on the active controller"):
        asyncio.run(delete())
