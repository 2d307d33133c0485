"""What strangers say who speak the brokers' and controllers' own calls to a listener for clients: nobody is there.

Without TLS whoever reaches the inter-broker listener is believed (docs/limits.md), so each story
ends with the same words said there: they would have done harm.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from itertools import product
from typing import TYPE_CHECKING

import pytest
from odradek_broker.testing import AsyncCluster
from odradek_proto.records import encode_batch
from odradek_proto.transport.frames import pack_frame
from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.transport.ports import CallRejected, Network
from odradek_proto.v1 import broker_pb2 as pb

if TYPE_CHECKING:
    from google.protobuf.descriptor import MethodDescriptor
    from odradek_broker.process.node import Node

TIMEOUT_MS = 30_000
DESCRIBE = "/odradek.v1.Broker/DescribeReplicas"
FETCH_STREAM = "/odradek.v1.Replication/FetchStream"
FILES = [
    import_module(f"odradek_proto.v1.{name}_pb2").DESCRIPTOR for name in ("broker", "admin", "controller", "quorum")
]
SERVED_BY = {
    "odradek.v1.Broker": "GRPC",
    "odradek.v1.Admin": "GRPC",
    "odradek.v1.Replication": "REPLICATION",
    "odradek.v1.Controller": "CONTROLLER",
    "odradek.v1.Quorum": "CONTROLLER",
    "odradek.v1.Authentication": "",  # on listeners with SASL alone, of which there is none here
}
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
LIST_SERVICES = b"\x3a\x00"  # ServerReflectionRequest{list_services: ""}


async def replica(network: GrpcNetwork, address: str) -> pb.ReplicaDescription:
    request = pb.DescribeReplicasRequest(topics=["orders"])
    answer = await network.call(address, DESCRIBE, request.SerializeToString(), TIMEOUT_MS)
    return pb.DescribeReplicasResponse.FromString(answer).replicas[0]


async def append_unreplicated(network: GrpcNetwork, leader: str) -> None:
    """One record with acks=1, which only the leader has."""
    batch = encode_batch([(0, None, b"unreplicated", ())])
    header = pb.ProduceHeader(items=[pb.ProduceItem(acks=1, topic="orders", partition=0, size=len(batch))])
    answers = await network.call(
        leader, "/odradek.v1.Broker/Produce", pack_frame(header.SerializeToString(), [batch]), TIMEOUT_MS
    )
    assert [answer.error_code for answer in pb.ProduceAnswers.FromString(answers).answers] == [0]


def as_follower(broker_id: int, epoch: int, at: pb.ReplicaDescription, topic_id: bytes) -> bytes:
    """A fetch of a follower that claims to have all that the leader has."""
    header = pb.FetchHeader(replica_id=broker_id, replica_epoch=epoch, max_wait_ms=1, max_bytes=1 << 20)
    header.credit_bytes = 1 << 20
    header.partitions.add(
        topic="orders", partition=0, fetch_offset=at.log_end_offset, current_leader_epoch=at.leader_epoch,
        last_fetched_epoch=at.leader_epoch, log_start_offset=0, max_bytes=1 << 20, topic_id=topic_id,
    )  # fmt: skip
    return pack_frame(header.SerializeToString(), ())


async def test_a_forged_followers_fetch_moves_no_high_watermark() -> None:
    """Both followers are dead; a client claims to be them. Their own listener would have believed it."""
    network = GrpcNetwork()
    async with AsyncCluster(3, settings={"broker.session.timeout.ms": 600_000}) as cluster:
        await cluster.create_topic("orders", replication_factor=3)
        leader = await cluster.leader_of("orders")
        address = cluster.bootstrap.split(",")[leader - 1]
        node = cluster._member(leader).node
        assert node is not None
        others = {each: node.feed.image.brokers[each].broker_epoch for each in cluster.brokers if each != leader}
        topic_id = node.feed.image.topics["orders"].topic_id
        for each in others:
            await cluster.kill(each)
        await append_unreplicated(network, address)
        before = await replica(network, address)
        assert before.high_watermark < before.log_end_offset

        with pytest.raises(CallRejected) as refused:
            await network.open(address, FETCH_STREAM, TIMEOUT_MS)
        assert refused.value.status == "UNIMPLEMENTED"
        assert (await replica(network, address)).high_watermark == before.high_watermark

        streams = []
        for each, epoch in others.items():
            own = node.addresses()["REPLICATION"]
            streams.append(await network_to(cluster, network, own).open(own, FETCH_STREAM, TIMEOUT_MS))
            await streams[-1].send(as_follower(each, epoch, before, topic_id))
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            while (await replica(network, address)).high_watermark < before.log_end_offset:
                pass
        for stream in streams:
            stream.close()
    await network.close()


def grpc_addresses(node: Node) -> dict[str, str]:
    """Of all listeners but the one that speaks Kafka's protocol."""
    return {name: address for name, address in node.addresses().items() if name != "KAFKA"}


def network_to(cluster: AsyncCluster, network: GrpcNetwork, address: str) -> Network:
    """Listeners between the brokers of one process have no sockets."""
    own = cluster._network
    assert own is not None
    return own if address in cluster._fabric.listeners else network


async def is_served(network: Network, address: str, method: MethodDescriptor) -> bool:
    """Whether anybody answers there, whatever the answer."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    try:
        if method.client_streaming:
            (await network.open(address, path, TIMEOUT_MS)).close()
        else:
            await network.call(address, path, b"", TIMEOUT_MS)
    except CallRejected as error:
        return error.status != "UNIMPLEMENTED"
    return True


async def test_every_call_is_served_by_one_listener() -> None:
    """Those of brokers and of controllers never by a listener for clients."""
    services = [service for file in FILES for service in file.services_by_name.values()]
    assert {service.full_name for service in services} == set(SERVED_BY)
    network = GrpcNetwork()
    async with AsyncCluster(1) as cluster:
        node = cluster._member(1).node
        assert node is not None
        for service, (listener, address) in product(services, grpc_addresses(node).items()):
            for method in service.methods:
                served = await is_served(network_to(cluster, network, address), address, method)
                assert served == (SERVED_BY[service.full_name] == listener), (method.full_name, listener)
    await network.close()


@pytest.mark.parametrize("enabled", [False, True])
async def test_reflection_is_for_development(enabled: bool) -> None:
    """No listener tells what it serves, unless a setting says so."""
    network = GrpcNetwork()
    async with AsyncCluster(1, settings={"odradek.grpc.reflection.enable": enabled}) as cluster:
        node = cluster._member(1).node
        assert node is not None
        for address in grpc_addresses(node).values():
            if address in cluster._fabric.listeners:
                assert cluster._fabric.listeners[address].handlers.reflection is enabled
                continue
            if enabled:
                assert b"odradek.v1." in await network.call(address, REFLECTION, LIST_SERVICES, TIMEOUT_MS)
                continue
            with pytest.raises(CallRejected, match="Method not found"):
                await network.call(address, REFLECTION, LIST_SERVICES, TIMEOUT_MS)
    await network.close()
