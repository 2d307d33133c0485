"""Consumer groups by the classic protocol, and groups as a whole: JoinGroup to ListGroups, and DeleteGroups."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from odradek_proto.errors import ErrorCode

from odradek_broker.core.groups.messages import (
    DeleteGroup,
    DescribeGroup,
    DescribeGroupAnswer,
    ErrorAnswer,
    Heartbeat,
    JoinGroup,
    JoinGroupAnswer,
    LeaveGroup,
    LeaveGroupAnswer,
    LeavingMember,
    ListGroups,
    ListGroupsAnswer,
    MemberProtocol,
    SyncGroup,
    SyncGroupAnswer,
)
from odradek_broker.kafka.messages.request import Body, KafkaRequest
from odradek_broker.requests.context import RequestContext
from odradek_broker.requests.groups import GroupRequests

KNOWN_MEMBERS_FROM = 4  # of JoinGroup: a member without an id is given one, and joins again with it (KIP-394)
SYNC_NAMES_ITS_PROTOCOL = 5  # SyncGroup (KIP-559)
NO_PROTOCOL_FROM = 7  # of JoinGroup: no protocol is null, before that it is empty
SKIPPING_FROM = 9  # of JoinGroup: a leader may be told not to assign (KIP-814)
MANY_MEMBERS_FROM = 3  # of LeaveGroup (KIP-345)
NOT_FOUND_FROM = 6  # of DescribeGroups: before that an unknown group is a dead one (KIP-1043)


class GroupsApi:
    def __init__(self, groups: GroupRequests) -> None:
        self._groups = groups

    async def join(self, request: KafkaRequest) -> Body:
        asked, version = request.read(), request.version
        request.release()  # it waits for other members; what a group keeps of it is bounded there
        session_timeout_ms: int = asked["session_timeout_ms"]
        wanted = JoinGroup(
            group_id=asked["group_id"],
            member_id=asked["member_id"],
            group_instance_id=asked.get("group_instance_id"),
            protocol_type=asked["protocol_type"],
            protocols=tuple(MemberProtocol(each["name"], each["metadata"]) for each in asked["protocols"]),
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=asked.get("rebalance_timeout_ms", session_timeout_ms),
            client_id=request.context.client_id,
            client_host=request.context.client_host,
            requires_known_member_id=version >= KNOWN_MEMBERS_FROM,
            supports_skipping_assignment=version >= SKIPPING_FROM,
        )
        told = await self._groups.call(request.context, wanted, JoinGroupAnswer)
        members = [
            {"member_id": each.member_id, "group_instance_id": each.group_instance_id, "metadata": each.metadata}
            for each in told.members
        ]
        protocol_name = told.protocol_name
        if protocol_name is None and version < NO_PROTOCOL_FROM:
            protocol_name = ""
        return request.answered(
            {
                "error_code": told.error,
                "generation_id": told.generation_id,
                "protocol_type": told.protocol_type,
                "protocol_name": protocol_name,
                "leader": told.leader,
                "skip_assignment": told.skip_assignment,
                "member_id": told.member_id or wanted.member_id,
                "members": members,
            }
        )

    async def sync(self, request: KafkaRequest) -> Body:
        asked = request.read()
        request.release()
        if request.version >= SYNC_NAMES_ITS_PROTOCOL and None in (asked["protocol_type"], asked["protocol_name"]):
            return request.answered({"error_code": ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "assignment": b""})
        wanted = SyncGroup(
            group_id=asked["group_id"],
            generation_id=asked["generation_id"],
            member_id=asked["member_id"],
            group_instance_id=asked.get("group_instance_id"),
            protocol_type=asked.get("protocol_type"),
            protocol_name=asked.get("protocol_name"),
            assignments={each["member_id"]: each["assignment"] for each in asked["assignments"]},
        )
        told = await self._groups.call(request.context, wanted, SyncGroupAnswer)
        return request.answered(
            {
                "error_code": told.error,
                "protocol_type": told.protocol_type,
                "protocol_name": told.protocol_name,
                "assignment": told.assignment,
            }
        )

    async def heartbeat(self, request: KafkaRequest) -> Body:
        asked = request.read()
        wanted = Heartbeat(
            asked["group_id"], asked["generation_id"], asked["member_id"], asked.get("group_instance_id")
        )
        told = await self._groups.call(request.context, wanted, ErrorAnswer)
        return request.answered({"error_code": told.error})

    async def leave(self, request: KafkaRequest) -> Body:
        asked, many = request.read(), request.version >= MANY_MEMBERS_FROM
        leaving = tuple(
            LeavingMember(each["member_id"], each.get("group_instance_id"), each.get("reason"))
            for each in (asked["members"] if many else [asked])
        )
        told = await self._groups.call(request.context, LeaveGroup(asked["group_id"], leaving), LeaveGroupAnswer)
        if not many:
            error = told.error or next((error for _, error in told.members), ErrorCode.NONE)
            return request.answered({"error_code": error})
        members = [
            {"member_id": each.member_id, "group_instance_id": each.group_instance_id, "error_code": error}
            for each, error in told.members
        ]
        return request.answered({"error_code": told.error, "members": members})

    # --- Groups as a whole ------------------------------------------------------------------------------------------

    async def list_groups(self, request: KafkaRequest) -> Body:
        asked = request.read()
        wanted = ListGroups(tuple(asked.get("states_filter", ())), tuple(asked.get("types_filter", ())))
        told = await self._groups.call(request.context, wanted, ListGroupsAnswer)
        groups = [
            {
                "group_id": each.group_id,
                "protocol_type": each.protocol_type,
                "group_state": each.state,
                "group_type": each.type,
            }
            for each in told.groups
        ]
        return request.answered({"error_code": told.error, "groups": groups})

    async def describe(self, request: KafkaRequest) -> Body:
        wanted = request.read()
        names = wanted["groups"]
        asked = [self._groups.call(request.context, DescribeGroup(name), DescribeGroupAnswer) for name in names]
        told = await asyncio.gather(*asked)
        rows = [_described(name, each, request.version) for name, each in zip(names, told, strict=True)]
        if wanted.get("include_authorized_operations"):
            tell_operations(rows, self._groups, request.context)
        return request.answered({"groups": rows})

    async def delete(self, request: KafkaRequest) -> Body:
        names = dict.fromkeys(request.read()["groups_names"])
        asked = [self._groups.call(request.context, DeleteGroup(name), ErrorAnswer) for name in names]
        told = await asyncio.gather(*asked)
        results = [{"group_id": name, "error_code": each.error} for name, each in zip(names, told, strict=True)]
        return request.answered({"results": results})


def tell_operations(rows: Sequence[dict[str, Any]], groups: GroupRequests, context: RequestContext) -> None:
    """What the caller may do with each group that is there (KIP-430)."""
    for row in rows:
        if not row["error_code"]:
            row["authorized_operations"] = groups.operations(context, row["group_id"])


def _described(group_id: str, told: DescribeGroupAnswer, version: int) -> dict[str, Any]:
    error, state = told.error, told.state
    if error is ErrorCode.GROUP_ID_NOT_FOUND:
        state = "Dead"
        if version < NOT_FOUND_FROM:
            error = ErrorCode.NONE
    return {
        "error_code": error,
        "error_message": told.message,
        "group_id": group_id,
        "group_state": state,
        "protocol_type": told.protocol_type,
        "protocol_data": told.protocol_name,
        "members": [
            {
                "member_id": each.member_id,
                "group_instance_id": each.group_instance_id,
                "client_id": each.client_id,
                "client_host": each.client_host,
                "member_metadata": each.metadata,
                "member_assignment": each.assignment,
            }
            for each in told.members
        ],
    }
