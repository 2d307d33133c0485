"""Consumer groups: where a group's coordinator is, and whatever the group asks of it.

A request for one group is answered by the broker that leads the group's partition of `__consumer_offsets`; any other
says NOT_COORDINATOR, and whoever asked looks for the coordinator again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from odradek_proto.errors import ErrorCode
from odradek_proto.security.acl_words import CLUSTER_NAME, Operation, ResourceType
from odradek_proto.topics import OFFSETS_TOPIC, TopicPartition
from odradek_proto.values import Value, replace

from odradek_broker.core.groups.messages import (
    Answer,
    ConsumerGroupHeartbeat,
    DescribeConsumerGroupAnswer,
    FetchedOffset,
    ListGroups,
    ListGroupsAnswer,
    OffsetCommit,
    OffsetDelete,
    OffsetDeleteAnswer,
    OffsetFetch,
    OffsetFetchAnswer,
    OffsetToCommit,
    Request,
)
from odradek_broker.core.groups.records import partition_for
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.requests.access import OPEN, Access
from odradek_broker.requests.context import RequestContext
from odradek_broker.runtime.groups.coordinator import GroupCoordinator
from odradek_broker.runtime.groups.offsets_topic import OffsetsTopic

logger = logging.getLogger(__name__)

A = TypeVar("A", bound=Answer)

GROUP, TRANSACTION = 0, 1  # kinds of coordinators (CoordinatorType)
NO_TRANSACTIONS: Final = "there are no transactions yet: leave transactional.id unset"
HIDDEN: Final = "The group has described topic(s) that the client is not authorized to describe."
MOST_WARNED = 256  # transactional ids that the log names
LONGEST_LOGGED = 256  # characters of one of them


class FoundCoordinator(Value, frozen=True):
    """With an error there is none, and `broker_id` is -1."""

    key: str
    error: ErrorCode
    message: str = ""
    broker_id: int = -1


class GroupRequests:
    """What the listeners of both protocols call."""

    def __init__(
        self,
        *,
        coordinator: GroupCoordinator,
        image: Callable[[], MetadataImage],
        offsets_topic: OffsetsTopic,
        access: Access = OPEN,
    ) -> None:
        self._access = access
        self.coordinator = coordinator
        self._image = image
        self._offsets_topic = offsets_topic
        self._warned: set[str] = set()

    async def find_coordinator(self, context: RequestContext, kind: int, keys: Sequence[str]) -> list[FoundCoordinator]:
        """One answer for each key, in their order. The first that looks for a group's creates the offsets topic."""
        if kind == TRANSACTION:
            self._warn(context, keys)
            # Unlike Kafka: every client gives up at once on this one; on COORDINATOR_NOT_AVAILABLE it asks on and on.
            refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return [FoundCoordinator(key, refusal, NO_TRANSACTIONS) for key in keys]
        if kind != GROUP:
            text = f"there are no coordinators of kind {kind}"
            return [FoundCoordinator(key, ErrorCode.INVALID_REQUEST, text) for key in keys]
        refused = {key: error for key in keys if (error := self._refused(context, "FindCoordinator", key))}
        is_there = len(refused) < len(set(keys)) and await self._offsets_topic.wait()
        return [
            FoundCoordinator(key, refused[key], refused[key].message)
            if key in refused
            else self._find(context, key)
            if is_there
            else FoundCoordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} is not there yet")
            for key in keys
        ]

    def _refused(self, context: RequestContext, api: str, name: str) -> ErrorCode:
        return self._access.refusal(context, api, name) if self._access.is_on else ErrorCode.NONE

    def refusal_to_describe(self, context: RequestContext, transactional_id: str) -> ErrorCode:
        """NONE, or the error for whoever may not."""
        return self._refused(context, "DescribeTransactions", transactional_id)

    def operations(self, context: RequestContext, group_id: str) -> int:
        """As `Access.operations`."""
        return self._access.operations(context, ResourceType.GROUP, group_id)

    def _find(self, context: RequestContext, key: str) -> FoundCoordinator:
        image = self._image()
        partitions = image.topics[OFFSETS_TOPIC].partitions
        number = partition_for(key, len(partitions))
        leader = image.brokers.get(partitions[number].leader)
        if leader is None or leader.fenced or context.listener not in leader.endpoints:
            text = f"{OFFSETS_TOPIC}-{number} has no leader that can be reached on {context.listener}"
            return FoundCoordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
        return FoundCoordinator(key, ErrorCode.NONE, broker_id=leader.broker_id)

    def _warn(self, context: RequestContext, keys: Sequence[str]) -> None:
        """The error of the answer is of authorization, and few clients show the text that goes with it."""
        for key in (each[:LONGEST_LOGGED] for each in keys):
            if key not in self._warned and len(self._warned) < MOST_WARNED:
                self._warned.add(key)
                logger.warning(
                    "%s asks for the coordinator of transactional.id %r: %s", context.peer, key, NO_TRANSACTIONS
                )

    async def call(self, context: RequestContext, request: Request, kind: type[A]) -> A:
        """The answer, of the kind that belongs to the request; a refusal of all of it has nothing but its error."""
        api = type(request).__name__
        if not isinstance(request, ListGroups) and (refused := self._refused(context, api, request.group_id)):
            return kind(refused)
        if isinstance(request, ConsumerGroupHeartbeat) and self._access.is_on:
            allows = partial(self._access.allows, context, Operation.DESCRIBE, ResourceType.TOPIC)
            request = replace(request, may_describe=allows)
            for name in request.subscribed_topic_names or ():
                if refused := self._refused(context, "ConsumerGroupHeartbeat of topic", name):
                    return kind(refused)
        unasked: list[tuple[TopicPartition, ErrorCode]] = []
        if isinstance(request, OffsetCommit):
            request = replace(request, offsets=tuple(self._checked(context, each) for each in request.offsets))
        elif isinstance(request, OffsetDelete):
            told = [(tp, self._refused(context, "OffsetDelete of topic", tp.topic)) for tp in request.topic_partitions]
            unasked = [(tp, error) for tp, error in told if error]
            request = replace(request, topic_partitions=tuple(tp for tp, error in told if not error))
        answer = await self.coordinator.call(request)
        if not isinstance(answer, kind):
            return kind(answer.error)
        return self._seen(context, request, answer, unasked)

    def _seen(
        self, context: RequestContext, request: Request, answer: A, unasked: list[tuple[TopicPartition, ErrorCode]]
    ) -> A:
        """What the caller may see of an answer, with what was not asked at all."""
        if not self._access.is_on:
            return answer
        if isinstance(answer, OffsetDeleteAnswer):
            return replace(answer, partitions=(*answer.partitions, *unasked))
        if isinstance(answer, DescribeConsumerGroupAnswer):
            return (
                replace(answer, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, message=HIDDEN, members=())
                if self._hides(context, answer)
                else answer
            )
        if isinstance(answer, ListGroupsAnswer):
            if self._access.allows(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
                return answer
            seen = [
                each
                for each in answer.groups
                if not self._access.refusal(context, "ListGroups", each.group_id, told=False)
            ]
            return replace(answer, groups=tuple(seen))
        if isinstance(request, OffsetFetch) and isinstance(answer, OffsetFetchAnswer):
            found = [
                (each, self._refused(context, "OffsetFetch of topic", each.topic_partition.topic))
                for each in answer.offsets
            ]
            if request.topic_partitions is None:
                return replace(answer, offsets=tuple(each for each, error in found if not error))
            hidden = [FetchedOffset(each.topic_partition, error=error) if error else each for each, error in found]
            return replace(answer, offsets=tuple(hidden))
        return answer

    def _hides(self, context: RequestContext, group: DescribeConsumerGroupAnswer) -> bool:
        """Whether its members were assigned topics that the caller may not know of."""
        ids = {each for member in group.members for each in (*member.assignment, *member.target_assignment)}
        names = self._image().topic_names
        return any(
            self._refused(context, "DescribeConsumerGroup of topic", names[each])
            for each in sorted(ids)
            if each in names
        )

    def _checked(self, context: RequestContext, offset: OffsetToCommit) -> OffsetToCommit:
        tp: TopicPartition = offset.topic_partition
        if refused := self._refused(context, "OffsetCommit of topic", tp.topic):
            return replace(offset, error=refused)
        known = self._image().partition(tp) is not None
        return offset if known else replace(offset, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def close(self) -> None:
        """The broker stops."""
        self._offsets_topic.close()
        self.coordinator.close()
