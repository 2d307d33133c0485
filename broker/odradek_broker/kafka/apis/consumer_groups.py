"""Consumer groups by the protocol of KIP-848: ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from odradek_proto.errors import ErrorCode

from odradek_broker.core.groups.messages import (
    Assignment,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    DescribeConsumerGroup,
    DescribeConsumerGroupAnswer,
    DescribedConsumer,
)
from odradek_broker.kafka.apis.admin import failed
from odradek_broker.kafka.apis.groups import tell_operations
from odradek_broker.kafka.messages.request import Body, KafkaRequest
from odradek_broker.requests.groups import GroupRequests

OWN_MEMBER_ID_FROM = 1  # members choose their ids themselves (KIP-1082)
CLASSIC, CONSUMER = 0, 1  # as the type of a member

Row = dict[str, Any]


class ConsumerGroupsApi:
    """`topic_name` finds a topic by its id."""

    def __init__(self, groups: GroupRequests, topic_name: Callable[[bytes], str | None]) -> None:
        self._groups = groups
        self._topic_name = topic_name

    async def heartbeat(self, request: KafkaRequest) -> Body:
        asked = request.read()
        if not asked["group_id"].strip():
            return request.answered(failed(ErrorCode.INVALID_REQUEST, "GroupId can't be empty."))
        if request.version >= OWN_MEMBER_ID_FROM and not asked["member_id"].strip():
            return request.answered(failed(ErrorCode.INVALID_REQUEST, "MemberId can't be empty."))
        names, owned = asked["subscribed_topic_names"], asked["topic_partitions"]
        wanted = ConsumerGroupHeartbeat(
            group_id=asked["group_id"],
            member_id=asked["member_id"],
            member_epoch=asked["member_epoch"],
            group_instance_id=asked["instance_id"],
            rack_id=asked["rack_id"],
            rebalance_timeout_ms=asked["rebalance_timeout_ms"],
            subscribed_topic_names=None if names is None else tuple(names),
            subscribed_topic_regex=asked.get("subscribed_topic_regex"),
            server_assignor=asked["server_assignor"],
            owned=None if owned is None else {each["topic_id"]: tuple(sorted(each["partitions"])) for each in owned},
            client_id=request.context.client_id,
            client_host=request.context.client_host,
        )
        told = await self._groups.call(request.context, wanted, ConsumerGroupHeartbeatAnswer)
        assignment = None if told.assignment is None else {"topic_partitions": self._partitions(told.assignment)}
        return request.answered(
            {
                "error_code": told.error,
                "error_message": told.message,
                "member_id": told.member_id,
                "member_epoch": told.member_epoch,
                "heartbeat_interval_ms": told.heartbeat_interval_ms,
                "assignment": assignment,
            }
        )

    async def describe(self, request: KafkaRequest) -> Body:
        wanted = request.read()
        names = wanted["group_ids"]
        kind = DescribeConsumerGroupAnswer
        asked = [self._groups.call(request.context, DescribeConsumerGroup(name), kind) for name in names]
        told = await asyncio.gather(*asked)
        groups = [
            {
                "error_code": each.error,
                "error_message": each.message,
                "group_id": name,
                "group_state": each.state,
                "group_epoch": each.group_epoch,
                "assignment_epoch": each.assignment_epoch,
                "assignor_name": each.assignor,
                "members": [self._member(member) for member in each.members],
            }
            for name, each in zip(names, told, strict=True)
        ]
        if wanted["include_authorized_operations"]:
            tell_operations(groups, self._groups, request.context)
        return request.answered({"groups": groups})

    def _member(self, member: DescribedConsumer) -> Row:
        return {
            "member_id": member.member_id,
            "instance_id": member.group_instance_id,
            "rack_id": member.rack_id,
            "member_epoch": member.member_epoch,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "subscribed_topic_names": member.subscribed_topic_names,
            "subscribed_topic_regex": member.subscribed_topic_regex,
            "assignment": {"topic_partitions": self._partitions(member.assignment)},
            "target_assignment": {"topic_partitions": self._partitions(member.target_assignment)},
            "member_type": CLASSIC if member.is_classic else CONSUMER,
        }

    def _partitions(self, assignment: Assignment) -> list[Row]:
        """Rows of both messages: what one of them does not have is left out when it is written."""
        return [
            {"topic_id": topic_id, "topic_name": self._topic_name(topic_id) or "", "partitions": partitions}
            for topic_id, partitions in assignment.items()
        ]
