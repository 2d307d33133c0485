"""Creates the topics that the settings name, once the cluster has enough brokers.

Every broker with the setting tries; the controller creates each topic once, and the others get the error that it
exists, which is success here. An existing topic is left unchanged, whatever its partitions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from odradek_proto.errors import ErrorCode
from odradek_proto.transport.ports import Clock
from odradek_proto.v1.admin_messages import CreatedTopic, CreateTopicsRequest, CreateTopicsResponse, NewTopic

from odradek_broker.config.log_levels import SERVER
from odradek_broker.config.startup_topics import StartupTopic
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.runtime.membership.controller_channel import ControllerUnavailable
from odradek_broker.runtime.membership.metadata_feed import MetadataFeed

logger = logging.getLogger(SERVER)

SPREAD_MS = 3_000  # how long to wait for brokers that are not needed, but would take a share of the leaders
TIMEOUT_MS = 5_000
RETRY_MS = 500
LATER = (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_REPLICA_ASSIGNMENT)  # a broker went away meanwhile


class TopicCreation:
    """`create` passes a request to the active controller; `say` tells people, a sentence at a time."""

    def __init__(
        self,
        topics: Sequence[StartupTopic],
        *,
        default_replicas: int,
        expected_brokers: int,
        clock: Clock,
        feed: MetadataFeed,
        create: Callable[[CreateTopicsRequest, float], Awaitable[CreateTopicsResponse]],
        say: Callable[[str], None] = logger.info,
    ) -> None:
        self._topics = topics
        self._default_replicas = default_replicas
        self._expected_brokers = expected_brokers
        self._clock = clock
        self._feed = feed
        self._create_topics = create
        self._say = say

    async def run(self) -> None:
        """Return when every topic exists or was refused for good. One that needs more brokers holds up no other."""
        wanted = self._missing(self._topics)
        while wanted:
            await self._wait_for_brokers(min(map(self._replicas, wanted)))
            active = active_brokers(self._feed.image)
            asked = [topic for topic in self._missing(wanted) if self._replicas(topic) <= active]
            again = await self._create(asked)
            wanted = [topic for topic in self._missing(wanted) if topic not in asked or topic in again]
            if wanted:
                await self._clock.sleep(RETRY_MS)

    def _missing(self, topics: Sequence[StartupTopic]) -> list[StartupTopic]:
        return [topic for topic in topics if topic.name not in self._feed.image.topics]

    def _replicas(self, topic: StartupTopic) -> int:
        return topic.replicas if topic.replicas > 0 else self._default_replicas

    async def _wait_for_brokers(self, needed: int) -> None:
        """As long as it takes for those that are needed, and shortly for the others, which start at about the same
        time: the first of them should not lead everything.
        """
        await self._feed.wait_for(lambda image: active_brokers(image) >= needed)
        try:
            async with asyncio.timeout(SPREAD_MS / 1000):
                await self._feed.wait_for(lambda image: active_brokers(image) >= self._expected_brokers)
        except TimeoutError:
            pass

    async def _create(self, topics: Sequence[StartupTopic]) -> list[StartupTopic]:
        """Ask the controller; returns those to ask for again."""
        if not topics:
            return []
        wanted = [
            NewTopic(
                name=topic.name,
                partitions=topic.partitions,
                replication_factor=topic.replicas,
                configs=topic.configs,
            )
            for topic in topics
        ]
        request = CreateTopicsRequest(topics=wanted, timeout_ms=TIMEOUT_MS)
        try:
            answer = await self._create_topics(request, TIMEOUT_MS)
        except ControllerUnavailable:
            return list(topics)
        later = {created.name for created in answer.topics if self._again(created)}
        return [topic for topic in topics if topic.name in later]

    def _again(self, created: CreatedTopic) -> bool:
        error = ErrorCode.from_number(created.error_code)
        if error is ErrorCode.NONE:
            self._say(
                f"topic {created.name} created: {created.partitions} partitions, {created.replication_factor} replicas"
            )
        elif error in LATER or error.retriable:
            return True
        elif error is not ErrorCode.TOPIC_ALREADY_EXISTS:
            self._say(f"topic {created.name} cannot be created: {error.name}: {created.error_message}")
        return False


def active_brokers(image: MetadataImage) -> int:
    """How many brokers are unfenced and not shutting down."""
    return sum(image.is_active(broker_id) for broker_id in image.brokers)
