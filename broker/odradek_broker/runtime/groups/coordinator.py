"""The group coordinator of a broker: a shard for each partition of `__consumer_offsets` that it leads (R-270, K-42)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import OFFSETS_TOPIC, TopicPartition

from odradek_broker.core.groups.messages import (
    Answer,
    DescribeConsumerGroup,
    DescribeGroup,
    ErrorAnswer,
    Heartbeat,
    ListGroups,
    ListGroupsAnswer,
    OffsetFetch,
    Request,
)
from odradek_broker.core.groups.records import partition_for
from odradek_broker.core.groups.shard import GroupCoordinatorShard
from odradek_broker.core.metadata.delta import MetadataDelta
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.runtime.groups.partition import CoordinatorPartition, ShardServices
from odradek_broker.runtime.replicas.replica import Replica

_WRITES_NOTHING = (DescribeConsumerGroup, DescribeGroup, Heartbeat, OffsetFetch)
_NOT_NOW = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}


class ImageView:
    """`MetadataView` of the metadata that this broker has."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image

    def topic_id(self, name: str) -> bytes | None:
        topic = self._image().topics.get(name)
        return None if topic is None else topic.topic_id

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._image().topic_names.get(topic_id)

    def partition_count(self, name: str) -> int | None:
        topic = self._image().topics.get(name)
        return None if topic is None else len(topic.partitions)

    def topic_names(self) -> Iterable[str]:
        return self._image().topics

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        return self._image().group_configs.get(group_id, {})


class GroupCoordinator:
    """`LeadershipListener` of the offsets topic. `replica` gives the one that began to lead."""

    def __init__(self, services: ShardServices, replica: Callable[[TopicPartition], Replica]) -> None:
        self.services = services
        self._replica = replica
        self.partitions: dict[int, CoordinatorPartition] = {}  # of the offsets topic, that this broker leads

    # --- LeadershipListener -----------------------------------------------------------------------------------------

    def began(self, tp: TopicPartition, leader_epoch: int) -> None:
        """A leader that leads on keeps its shard: nobody else has written meanwhile."""
        if tp.partition not in self.partitions:
            self.partitions[tp.partition] = CoordinatorPartition(self._replica(tp), self.services)

    def ceased(self, tp: TopicPartition) -> None:
        self.partitions.pop(tp.partition).close()

    def close(self) -> None:
        """The broker stops, in whatever way: no timer may write into a log that is closed."""
        for partition in self.partitions.values():
            partition.close()

    # --- What is shown ----------------------------------------------------------------------------------------------

    def shards(self) -> list[GroupCoordinatorShard]:
        """Of the partitions that are loaded."""
        return [shard for each in self.partitions.values() if (shard := each.shard) is not None]

    # --- Metadata ---------------------------------------------------------------------------------------------------

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Topics that came, went or have other partitions; what a leader change says is nothing here."""
        if delta.partitions or delta.deleted_topics:
            gone = [each.name for each in delta.deleted_topics.values()]
            for partition in tuple(self.partitions.values()):
                partition.on_topics_changed(gone)

    # --- Requests ---------------------------------------------------------------------------------------------------

    async def call(self, request: Request) -> Answer:
        """ErrorAnswer when this broker does not coordinate the group, or not yet."""
        if isinstance(request, ListGroups):
            return await self._list(request)
        count = self.services.metadata.partition_count(OFFSETS_TOPIC)
        partition = self.partitions.get(partition_for(request.group_id, count)) if count else None
        if partition is None:
            return ErrorAnswer(ErrorCode.NOT_COORDINATOR)
        return await partition.call(request, writes=not isinstance(request, _WRITES_NOTHING))

    async def _list(self, request: ListGroups) -> Answer:
        """The groups of all partitions that this broker leads; while one of them loads, none (as in Kafka)."""
        asked = [partition.call(request, writes=False) for partition in tuple(self.partitions.values())]
        answers = await asyncio.gather(*asked)
        if failed := next((each.error for each in answers if each.error in _NOT_NOW), None):
            return ListGroupsAnswer(failed)
        found = [group for each in answers if isinstance(each, ListGroupsAnswer) for group in each.groups]
        return ListGroupsAnswer(ErrorCode.NONE, tuple(found))
