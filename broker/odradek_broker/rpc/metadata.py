"""Metadata: brokers, topics and leaders, from this broker's committed image.

- Named topics that do not exist get UNKNOWN_TOPIC_OR_PARTITION, or are created when both the request and
  `auto.create.topics.enable` say so.
- A broker that has just started answers once its image has reached its own registration: what it knew before its
  last stop would send clients to leaders of the past. The caller's deadline bounds the wait.
- Fenced brokers are listed, marked; clients do not dial them.
- As in Kafka, endpoints are those of the listener on which the request came in. A broker without that listener is not
  listed, and a partition that it leads has LISTENER_NOT_FOUND. Who asks for all listeners gets all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import validate_topic_name
from odradek_proto.transport.ports import CallContext, Clock, UnaryHandler
from odradek_proto.v1 import admin_pb2
from odradek_proto.v1 import broker_pb2 as pb

from odradek_broker.core.metadata.image import MetadataImage, TopicImage
from odradek_broker.runtime.membership.controller_channel import ControllerUnavailable

CREATE_TOPICS = "/odradek.v1.Admin/CreateTopics"
AUTO_CREATE_TIMEOUT_MS = 1_500  # the caller waits for its metadata meanwhile, and asks again anyway

ForwardAdmin = Callable[[str, bytes, float], Awaitable[bytes]]


class MetadataService:
    """Answers Metadata."""

    def __init__(
        self,
        *,
        image: Callable[[], MetadataImage],
        controller_id: Callable[[], int],
        auto_create: bool,
        forward_admin: ForwardAdmin,
        caught_up: asyncio.Event,
        broker_id: int,
        clock: Clock,
    ) -> None:
        self._broker_id = broker_id
        self._clock = clock
        self._caught_up = caught_up
        self._image = image
        self._controller_id = controller_id
        self._auto_create = auto_create
        self._forward_admin = forward_admin

    def handler(self, listener: str) -> UnaryHandler:
        """What answers on the listener of this name."""
        return partial(self.metadata, listener=listener)

    async def metadata(self, request: bytes, context: CallContext, *, listener: str) -> bytes:
        message = pb.MetadataRequest.FromString(request)
        await self._caught_up.wait()
        missing = [name for name in message.topics if name not in self._image().topics]
        if missing and message.allow_auto_topic_creation and self._auto_create:
            await self._create(missing)
        image = self._image()
        response = pb.MetadataResponse(
            cluster_id=image.cluster_id,
            controller_id=self._controller_id(),
            listener=listener,
            answered_by=self._broker_id,
            wall_ms=self._clock.wall_ms(),
        )
        for broker in image.brokers.values():
            endpoints = {
                name: address for name, address in broker.endpoints.items() if message.all_listeners or name == listener
            }
            if endpoints:
                response.brokers.add(
                    broker_id=broker.broker_id,
                    endpoints=endpoints,
                    rack=broker.rack,
                    fenced=broker.fenced,
                    broker_epoch=broker.broker_epoch,
                )
        names = list(image.topics) if message.all_topics else list(message.topics)
        for name in names:
            self._describe(response.topics.add(topic=name), image, name, listener)
        return response.SerializeToString()

    async def _create(self, names: list[str]) -> None:
        """Ask the controller; failures show as unknown topics, and the client asks again."""
        wanted = admin_pb2.CreateTopicsRequest(timeout_ms=AUTO_CREATE_TIMEOUT_MS)
        for name in names:
            wanted.topics.add(name=name, partitions=-1, replication_factor=-1)
        with contextlib.suppress(ControllerUnavailable):
            await self._forward_admin(CREATE_TOPICS, wanted.SerializeToString(), AUTO_CREATE_TIMEOUT_MS)

    def _describe(self, described: pb.TopicMetadata, image: MetadataImage, name: str, listener: str) -> None:
        topic = image.topics.get(name)
        if topic is None:
            try:
                validate_topic_name(name)
            except ValueError as error:
                described.error_code = int(ErrorCode.INVALID_TOPIC_EXCEPTION)
                described.error_message = str(error)
            else:
                described.error_code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                described.error_message = f"there is no topic {name!r}"
            return
        described.topic_id = topic.topic_id
        self._describe_partitions(described, image, topic, listener)

    def _describe_partitions(
        self, described: pb.TopicMetadata, image: MetadataImage, topic: TopicImage, listener: str
    ) -> None:
        active = {broker_id for broker_id, broker in image.brokers.items() if not broker.fenced}
        for index, registration in sorted(topic.partitions.items()):
            error = ErrorCode.NONE if registration.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE
            leader = image.brokers.get(registration.leader)
            if leader is not None and listener not in leader.endpoints:
                error = ErrorCode.LISTENER_NOT_FOUND
            described.partitions.add(
                error_code=int(error),
                partition=index,
                leader_id=registration.leader,
                leader_epoch=registration.leader_epoch,
                partition_epoch=registration.partition_epoch,
                replicas=registration.replicas,
                isr=registration.isr,
                offline_replicas=[replica for replica in registration.replicas if replica not in active],
                eligible=registration.eligible,
                last_known_eligible=registration.last_known_eligible,
            )
