"""Consumer groups over gRPC: `requests.groups` says what, this says it in protobuf."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from odradek_proto.errors import ErrorCode
from odradek_proto.messages import Message
from odradek_proto.topics import TopicPartition
from odradek_proto.v1 import groups_messages as wire

from odradek_broker.core.groups import messages as core
from odradek_broker.requests.context import RequestContext
from odradek_broker.requests.groups import GROUP, GroupRequests
from odradek_broker.rpc.caller import Call, parsed

SERVICE: Final = "odradek.v1.Groups"
TOPIC_ID_BYTES = 16

R = TypeVar("R", bound=Message)


class GroupService:
    """`topic_name` finds a topic by its id."""

    def __init__(self, groups: GroupRequests, topic_name: Callable[[bytes], str | None]) -> None:
        self._groups = groups
        self._topic_name = topic_name

    def calls(self) -> dict[str, Call]:
        """By full method name."""
        return {
            f"/{SERVICE}/FindCoordinator": _call(wire.FindCoordinatorRequest, self._find),
            f"/{SERVICE}/ConsumerGroupHeartbeat": _call(wire.ConsumerGroupHeartbeatRequest, self._heartbeat),
            f"/{SERVICE}/OffsetCommit": _call(wire.OffsetCommitRequest, self._commit),
            f"/{SERVICE}/OffsetFetch": _call(wire.OffsetFetchRequest, self._fetch),
            f"/{SERVICE}/OffsetDelete": _call(wire.OffsetDeleteRequest, self._delete_offsets),
            f"/{SERVICE}/ListGroups": _call(wire.ListGroupsRequest, self._list),
            f"/{SERVICE}/DescribeGroup": _call(wire.DescribeGroupRequest, self._describe),
            f"/{SERVICE}/DeleteGroup": _call(wire.DeleteGroupRequest, self._delete),
        }

    async def _find(self, context: RequestContext, request: wire.FindCoordinatorRequest) -> Message:
        [found] = await self._groups.find_coordinator(context, GROUP, [request.group_id])
        return wire.FindCoordinatorResponse(found.error, found.message, found.broker_id)

    async def _heartbeat(self, context: RequestContext, request: wire.ConsumerGroupHeartbeatRequest) -> Message:
        subscription, owned = request.subscription, request.owned
        if owned is not None and any(len(each.topic_id) != TOPIC_ID_BYTES for each in owned.topics):
            text = f"the id of a topic has {TOPIC_ID_BYTES} bytes"
            return wire.ConsumerGroupHeartbeatResponse(ErrorCode.INVALID_REQUEST, text)
        asked = core.ConsumerGroupHeartbeat(
            group_id=request.group_id,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            group_instance_id=request.group_instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=-1 if request.rebalance_timeout_ms is None else request.rebalance_timeout_ms,
            subscribed_topic_names=None if subscription is None else tuple(subscription.topics),
            subscribed_topic_regex=None if subscription is None else subscription.pattern,
            server_assignor=request.server_assignor,
            owned=None if owned is None else {each.topic_id: tuple(sorted(each.partitions)) for each in owned.topics},
            client_id=request.client_id,
            client_host=context.client_host,
        )
        told = await self._groups.call(context, asked, core.ConsumerGroupHeartbeatAnswer)
        return wire.ConsumerGroupHeartbeatResponse(
            error_code=told.error,
            error_message=told.message or "",
            member_id=told.member_id or "",
            member_epoch=told.member_epoch,
            heartbeat_interval_ms=told.heartbeat_interval_ms,
            assignment=None if told.assignment is None else self._assignment(told.assignment),
        )

    def _assignment(self, assignment: core.Assignment) -> wire.Assignment:
        return wire.Assignment(
            tuple(
                wire.TopicPartitions(topic_id, self._topic_name(topic_id) or "", partitions)
                for topic_id, partitions in assignment.items()
            )
        )

    # --- Offsets ----------------------------------------------------------------------------------------------------

    async def _commit(self, context: RequestContext, request: wire.OffsetCommitRequest) -> Message:
        offsets = tuple(
            core.OffsetToCommit(
                TopicPartition(each.topic, each.partition), each.offset, each.leader_epoch, each.metadata
            )
            for each in request.offsets
        )
        asked = core.OffsetCommit(
            request.group_id, request.member_epoch, request.member_id, request.group_instance_id, offsets
        )
        told = await self._groups.call(context, asked, core.OffsetCommitAnswer)
        return wire.OffsetCommitResponse(told.error, _outcomes(told.partitions))

    async def _fetch(self, context: RequestContext, request: wire.OffsetFetchRequest) -> Message:
        asked = core.OffsetFetch(
            request.group_id,
            None if request.all_partitions else _named(request.partitions),
            request.member_id or None,
            request.member_epoch if request.member_id else core.NO_EPOCH,
        )
        told = await self._groups.call(context, asked, core.OffsetFetchAnswer)
        return wire.OffsetFetchResponse(
            told.error,
            tuple(
                wire.PartitionOffset(*each.topic_partition, each.offset, each.leader_epoch, each.metadata, each.error)
                for each in told.offsets
            ),
        )

    async def _delete_offsets(self, context: RequestContext, request: wire.OffsetDeleteRequest) -> Message:
        asked = core.OffsetDelete(request.group_id, _named(request.partitions))
        told = await self._groups.call(context, asked, core.OffsetDeleteAnswer)
        return wire.OffsetDeleteResponse(told.error, _outcomes(told.partitions))

    # --- Groups as a whole ------------------------------------------------------------------------------------------

    async def _list(self, context: RequestContext, request: wire.ListGroupsRequest) -> Message:
        asked = core.ListGroups(tuple(request.states), tuple(request.types))
        told = await self._groups.call(context, asked, core.ListGroupsAnswer)
        groups = [wire.ListedGroup(each.group_id, each.protocol_type, each.state, each.type) for each in told.groups]
        return wire.ListGroupsResponse(told.error, groups)

    async def _describe(self, context: RequestContext, request: wire.DescribeGroupRequest) -> Message:
        """Nobody has to know beforehand of which kind it is."""
        asked = core.DescribeConsumerGroup(request.group_id)
        told = await self._groups.call(context, asked, core.DescribeConsumerGroupAnswer)
        if told.error is ErrorCode.GROUP_ID_NOT_FOUND:
            return await self._describe_classic(context, request.group_id)
        return wire.DescribeGroupResponse(
            error_code=told.error,
            error_message=told.message or "",
            type="consumer",
            state=told.state,
            protocol_type="consumer",
            assignor=told.assignor,
            group_epoch=told.group_epoch,
            assignment_epoch=told.assignment_epoch,
            members=tuple(
                _member(
                    each,
                    member_epoch=each.member_epoch,
                    assignment=self._assignment(each.assignment),
                    target=self._assignment(each.target_assignment),
                )
                for each in told.members
            ),
        )

    async def _describe_classic(self, context: RequestContext, group_id: str) -> wire.DescribeGroupResponse:
        told = await self._groups.call(context, core.DescribeGroup(group_id), core.DescribeGroupAnswer)
        return wire.DescribeGroupResponse(
            error_code=told.error,
            error_message=told.message or "",
            type="classic",
            state=told.state,
            protocol_type=told.protocol_type,
            assignor=told.protocol_name,
            members=tuple(_member(each, classic_assignment=each.assignment) for each in told.members),
        )

    async def _delete(self, context: RequestContext, request: wire.DeleteGroupRequest) -> Message:
        told = await self._groups.call(context, core.DeleteGroup(request.group_id), core.ErrorAnswer)
        return wire.DeleteGroupResponse(told.error)


def _call(kind: type[R], handler: Callable[[RequestContext, R], Awaitable[Message]]) -> Call:
    return partial(_run, kind, handler)


async def _run(
    kind: type[R], handler: Callable[[RequestContext, R], Awaitable[Message]], data: bytes, context: RequestContext
) -> bytes:
    return (await handler(context, parsed(kind, data))).SerializeToString()


def _member(each: core.DescribedConsumer | core.DescribedMember, **own: Any) -> wire.GroupMember:
    """What members of both kinds have, and what those of one have."""
    return wire.GroupMember(each.member_id, each.group_instance_id, each.client_id, each.client_host, **own)


def _named(partitions: Iterable[wire.NamedPartition]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(each.topic, each.partition) for each in partitions)


def _outcomes(partitions: Sequence[tuple[TopicPartition, ErrorCode]]) -> tuple[wire.PartitionOutcome, ...]:
    return tuple(wire.PartitionOutcome(tp.topic, tp.partition, error) for tp, error in partitions)
