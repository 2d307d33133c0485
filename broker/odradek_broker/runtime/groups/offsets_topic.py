"""Creates `__consumer_offsets` when the first group looks for its coordinator (K-41)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import OFFSETS_TOPIC
from odradek_proto.v1.admin_messages import CreateTopicsRequest, CreateTopicsResponse, NewTopic

from odradek_broker.config.log_levels import SERVER
from odradek_broker.config.settings import BrokerSettings
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.runtime.membership.controller_channel import ControllerUnavailable
from odradek_broker.runtime.membership.metadata_feed import MetadataFeed

logger = logging.getLogger(SERVER)

TIMEOUT_MS = 5_000
WAIT_S = 0.3  # of who looks for a coordinator: whatever else it asks waits behind this; then it asks again


class OffsetsTopic:
    """`create` passes a request to the active controller and returns when this broker knows the topic.

    `expected_brokers` are those that a cluster has when all of its nodes have started, 0 where nobody knows.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        expected_brokers: int,
        feed: MetadataFeed,
        create: Callable[[CreateTopicsRequest, float], Awaitable[CreateTopicsResponse]],
    ) -> None:
        self._settings = settings
        self._expected_brokers = expected_brokers
        self._feed = feed
        self._create = create
        self._creating: asyncio.Task[None] | None = None
        self._warned = False

    async def wait(self) -> bool:
        """Whether the topic is there. If not it is asked for, and given a moment to come and to have leaders."""
        image = self._feed.image
        if OFFSETS_TOPIC not in image.topics:
            if self._creating is None or self._creating.done():
                self._creating = asyncio.ensure_future(self._ask())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WAIT_S):
                    await asyncio.shield(self._creating)
                    if OFFSETS_TOPIC in image.topics:
                        await self._feed.wait_for(_leads)
        return OFFSETS_TOPIC in image.topics

    def close(self) -> None:
        if self._creating is not None:
            self._creating.cancel()

    async def _ask(self) -> None:
        wanted = self._settings.offsets_topic_replication_factor
        factor = min(wanted, max(len(self._feed.image.brokers), self._expected_brokers))
        if factor < wanted and not self._warned:
            self._warned = True
            logger.warning(
                "%s gets %d replicas, not offsets.topic.replication.factor=%d: there are no more brokers",
                *(OFFSETS_TOPIC, factor, wanted),
            )
        partitions = self._settings.offsets_topic_num_partitions
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self._settings.offsets_topic_segment_bytes),
        }
        topic = NewTopic(name=OFFSETS_TOPIC, partitions=partitions, replication_factor=factor, configs=configs)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        try:
            (created,) = (await self._create(request, TIMEOUT_MS)).topics
        except ControllerUnavailable:
            return
        error = ErrorCode.from_number(created.error_code)
        if error is ErrorCode.NONE:
            logger.info("%s created: %d partitions, %d replicas", OFFSETS_TOPIC, partitions, factor)
        elif error is not ErrorCode.TOPIC_ALREADY_EXISTS:
            logger.warning("%s cannot be created yet: %s: %s", OFFSETS_TOPIC, error.name, created.error_message)


def _leads(image: MetadataImage) -> bool:
    topic = image.topics.get(OFFSETS_TOPIC)
    return topic is not None and all(each.leader >= 0 for each in topic.partitions.values())
