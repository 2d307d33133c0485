"""Metadata names the endpoints of the listener on which the request came in, as Kafka's does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.requests.context import RequestContext
from odradek_broker.requests.metadata import MetadataRequests
from odradek_broker.rpc.caller import Callers, unary
from odradek_broker.rpc.services import MetadataService
from odradek_proto.errors import ErrorCode
from odradek_proto.transport.clock import LoopClock
from odradek_proto.transport.ports import CallContext
from odradek_proto.v1 import broker_pb2 as pb
from odradek_proto.values import replace

from tests.broker.controller_images import add_topic, image_of, partition_of


def two_networks() -> MetadataImage:
    """Three brokers; the third has no outer listener."""
    image = image_of([1, 2, 3])
    for broker_id, broker in image.brokers.items():
        endpoints = {"GRPC": f"inner{broker_id}:1", "GRPC_HOST": f"outer{broker_id}:2", "REPLICATION": "brokers:3"}
        if broker_id == 3:
            del endpoints["GRPC_HOST"]
        image.brokers[broker_id] = replace(broker, endpoints=endpoints)
    add_topic(image, "orders", partition_of([1, 2]), partition_of([3, 1]))
    return image


def ask(listener: str, *, all_listeners: bool = False) -> pb.MetadataResponse:
    async def asked() -> pb.MetadataResponse:
        async def create(context: RequestContext, names: Sequence[str]) -> None:
            raise AssertionError(names)

        caught_up = asyncio.Event()
        caught_up.set()
        requests = MetadataRequests(
            image=two_networks, controller_id=lambda: 1, auto_create=False, create_topics=create, caught_up=caught_up
        )
        service = MetadataService(requests, broker_id=2, clock=LoopClock(random.Random(1)))
        request = pb.MetadataRequest(topics=["orders"], all_listeners=all_listeners)
        raw = await unary(Callers(listener), service.metadata)(request.SerializeToString(), CallContext("test", None))
        return pb.MetadataResponse.FromString(raw)

    return asyncio.run(asked())


def endpoints(answer: pb.MetadataResponse) -> dict[int, dict[str, str]]:
    return {broker.broker_id: dict(broker.endpoints) for broker in answer.brokers}


def test_only_the_listener_of_the_request_is_told_of() -> None:
    """A broker that lacks it is not there for this client; the answer says whose it is."""
    inner, outer = ask("GRPC"), ask("GRPC_HOST")
    assert endpoints(inner) == {1: {"GRPC": "inner1:1"}, 2: {"GRPC": "inner2:1"}, 3: {"GRPC": "inner3:1"}}
    assert endpoints(outer) == {1: {"GRPC_HOST": "outer1:2"}, 2: {"GRPC_HOST": "outer2:2"}}
    assert (outer.listener, outer.answered_by) == ("GRPC_HOST", 2)


def test_a_leader_without_the_listener_is_an_error_of_its_partition() -> None:
    """LISTENER_NOT_FOUND, which a client may ask about again; on the other listener all is well."""
    partitions = ask("GRPC_HOST").topics[0].partitions
    assert [each.error_code for each in partitions] == [ErrorCode.NONE, ErrorCode.LISTENER_NOT_FOUND]
    assert ErrorCode.LISTENER_NOT_FOUND.retriable
    assert [each.error_code for each in ask("GRPC").topics[0].partitions] == [ErrorCode.NONE] * 2


def test_who_asks_for_all_listeners_gets_them() -> None:
    """As `odradek doctor` does, to dial them all; but never that of the brokers, which is nobody else's."""
    found = endpoints(ask("GRPC_HOST", all_listeners=True))
    assert found[1] == {"GRPC": "inner1:1", "GRPC_HOST": "outer1:2"}
    assert found[3] == {"GRPC": "inner3:1"}
