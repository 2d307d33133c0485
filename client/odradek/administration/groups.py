"""What an admin client asks of consumer groups, of both protocols, and what it is told.

Rules of this module. A group is asked about at its coordinator; all groups are known only to all brokers together. To
commit for a group, or to delete it, may be said twice: it is the same the second time.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from odradek_proto.errors import ErrorCode
from odradek_proto.messages import Request
from odradek_proto.topics import TopicPartition
from odradek_proto.v1 import groups_messages as wire

from odradek.administration.from_wire import described, raise_with_notes
from odradek.cluster.client import Client
from odradek.cluster.coordinator import CALL_TIMEOUT_MS, GROUPS, Coordinator, CoordinatorAnswer, in_portions
from odradek.shared.arguments import as_commits, as_names, as_partition
from odradek.shared.config import AdminConfig
from odradek.shared.errors import OdradekError, broker_error, raise_for
from odradek.shared.results import OffsetAndMetadata

R = TypeVar("R")
M = TypeVar("M", bound=CoordinatorAnswer)

NOT_A_MEMBER = -1
HAS_MEMBERS = "the group has members, who commit for themselves: stop them first"


@dataclass(frozen=True, slots=True)
class GroupListing:
    """`type` is "classic" or "consumer" (KIP-848); `protocol_type` is "consumer" of consumers of both, or empty."""

    group_id: str
    type: str
    state: str
    protocol_type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """`epoch` is -1 in a classic group. `target` is what the coordinator wants it to have, where it has not yet."""

    member_id: str
    instance_id: str
    client_id: str
    host: str
    epoch: int = -1
    assignment: tuple[TopicPartition, ...] = ()
    target: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """`epoch` is -1 of a classic group; its `assignor` is the protocol that its members agreed on."""

    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    epoch: int = -1
    members: tuple[MemberDescription, ...] = ()


class GroupAdmin(Client):
    """The part of `Admin` that is about groups."""

    _config: AdminConfig

    async def list_consumer_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[GroupListing]:
        """All groups, or those in some states ("Stable", "Empty", ...) and of some types ("classic", "consumer")."""
        cluster = self._require_running()
        await cluster.refresh()
        request = wire.ListGroupsRequest(tuple(states), tuple(types))

        async def of(broker_id: int) -> wire.ListGroupsResponse:
            if broker_id in cluster.view.fenced or broker_id not in cluster.view.brokers:
                return wire.ListGroupsResponse()  # others lead its groups by now
            answer = await cluster.call_broker(
                broker_id, GROUPS + "ListGroups", request, wire.ListGroupsResponse, CALL_TIMEOUT_MS
            )
            raise_for(answer.error_code, where=f"broker {broker_id}")
            return answer

        answers = await asyncio.gather(
            *(self._retried("ListGroups", partial(of, broker_id)) for broker_id in cluster.view.brokers)
        )
        found = {each.group_id: each for answer in answers for each in answer.groups}
        return [described(GroupListing, each) for _, each in sorted(found.items())]

    async def describe_consumer_groups(self, group_ids: Iterable[str]) -> list[GroupDescription]:
        """Groups of either kind with their members. Raises `GroupIdNotFound`."""
        return list(await asyncio.gather(*(self._describe(group_id) for group_id in as_names(group_ids))))

    async def _describe(self, group_id: str) -> GroupDescription:
        request = wire.DescribeGroupRequest(group_id)
        answer = await self._ask_coordinator(group_id, request, wire.DescribeGroupResponse)
        is_classic = answer.type == "classic"
        members = [
            described(
                MemberDescription,
                each,
                instance_id=each.group_instance_id or "",
                host=each.client_host.removeprefix("/"),
                epoch=-1 if is_classic else each.member_epoch,
                assignment=classic_assignment(each.classic_assignment) if is_classic else _partitions(each.assignment),
                target=() if is_classic else _partitions(each.target),
            )
            for each in answer.members
        ]
        epoch = -1 if is_classic else answer.group_epoch
        return described(GroupDescription, answer, group_id=group_id, epoch=epoch, members=tuple(members))

    async def list_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed: all of it, or for some partitions. A group that there is not has nothing."""
        named = None if partitions is None else _named(partitions)
        request = wire.OffsetFetchRequest(group_id, named is None, named or (), "", NOT_A_MEMBER)
        answer = await self._ask_coordinator(group_id, request, wire.OffsetFetchResponse)
        for each in answer.offsets:
            raise_for(each.error_code, where=f"{TopicPartition(each.topic, each.partition)}")
        return {
            TopicPartition(each.topic, each.partition): OffsetAndMetadata(each.offset, each.metadata, each.leader_epoch)
            for each in answer.offsets
            if each.offset >= 0
        }

    async def alter_consumer_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> None:
        """Commit for a group without members; one that there is not is made. Raises the first partition's error."""
        coordinator = Coordinator(self._require_running(), group_id)
        for some in in_portions([*as_commits(offsets).items()]):
            await self._commit(coordinator, group_id, some)

    async def _commit(
        self, coordinator: Coordinator, group_id: str, commits: Sequence[tuple[TopicPartition, OffsetAndMetadata]]
    ) -> None:
        offsets = [
            wire.PartitionOffset(*partition, each.offset, each.leader_epoch, each.metadata)
            for partition, each in commits
        ]
        request = wire.OffsetCommitRequest(group_id, NOT_A_MEMBER, offsets=offsets)

        async def ask() -> wire.OffsetCommitResponse:
            answer = await coordinator.call("OffsetCommit", request, wire.OffsetCommitResponse)
            if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                error = broker_error(ErrorCode.NON_EMPTY_GROUP, where=f"group {group_id!r}")
                error.hint = HAS_MEMBERS
                raise error
            raise_for(answer.error_code, where=f"group {group_id!r}")
            return answer

        answer = await self._retried("OffsetCommit", ask)
        _raise_first(answer.partitions)

    async def delete_consumer_groups(self, group_ids: Iterable[str]) -> None:
        """Groups without members, with all that they have committed. Raises the first group's error."""
        outcomes = await asyncio.gather(
            *(self._delete(group_id) for group_id in as_names(group_ids)), return_exceptions=True
        )
        raise_with_notes([each for each in outcomes if each is not None])

    async def _delete(self, group_id: str) -> None:
        coordinator = Coordinator(self._require_running(), group_id)
        attempts = 0

        async def ask() -> None:
            nonlocal attempts
            attempts += 1
            answer = await coordinator.call("DeleteGroup", wire.DeleteGroupRequest(group_id), wire.DeleteGroupResponse)
            if attempts == 1 or answer.error_code != ErrorCode.GROUP_ID_NOT_FOUND:  # else the first attempt did it
                raise_for(answer.error_code, where=f"group {group_id!r}")

        try:
            await self._retried("DeleteGroup", ask)
        except OdradekError as error:
            if getattr(error, "code", None) is ErrorCode.NON_EMPTY_GROUP:
                error.hint = "stop its members first"
            raise

    async def delete_consumer_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget what a group has committed for partitions of topics that its members do not read.

        Raises the first partition's error.
        """
        request = wire.OffsetDeleteRequest(group_id, _named(partitions))
        answer = await self._ask_coordinator(group_id, request, wire.OffsetDeleteResponse)
        _raise_first(answer.partitions)

    async def _ask_coordinator(self, group_id: str, request: Request, kind: type[M]) -> M:
        """Raises the error of the whole answer."""
        coordinator = Coordinator(self._require_running(), group_id)
        method = type(request).__name__.removesuffix("Request")

        async def ask() -> M:
            answer = await coordinator.call(method, request, kind)
            message = getattr(answer, "error_message", "")
            raise_for(answer.error_code, message, where=f"group {group_id!r}")
            return answer

        return await self._retried(method, ask)

    async def _retried(self, what: str, attempt: Callable[[], Awaitable[R]]) -> R:
        return await self._require_running().patiently(what, self._config.default_api_timeout_ms, attempt)


def classic_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of a member of a classic group, as consumers write them (ConsumerProtocolAssignment).

        int16 version, int32 number of topics, for each: int16 length, name, int32 number of partitions, int32 each

    What is not written so, of Connect for example, has none.
    """
    try:
        _, topics = struct.unpack_from(">hi", data)
        at, found = 6, []
        for _ in range(topics):
            (length,) = struct.unpack_from(">h", data, at)
            name = data[at + 2 : at + 2 + length].decode()
            at += 2 + length
            (count,) = struct.unpack_from(">i", data, at)
            if count < 0:
                return ()
            found += [TopicPartition(name, number) for number in struct.unpack_from(f">{count}i", data, at + 4)]
            at += 4 + 4 * count
    except (struct.error, UnicodeDecodeError, MemoryError):
        return ()
    return tuple(sorted(found))


def _partitions(assignment: wire.Assignment | None) -> tuple[TopicPartition, ...]:
    topics = () if assignment is None else assignment.topics
    return tuple(sorted(TopicPartition(each.topic, number) for each in topics for number in each.partitions))


def _named(partitions: Iterable[TopicPartition]) -> tuple[wire.NamedPartition, ...]:
    return tuple(wire.NamedPartition(*as_partition(partition)) for partition in partitions)


def _raise_first(outcomes: Iterable[wire.PartitionOutcome]) -> None:
    for each in outcomes:
        raise_for(each.error_code, where=f"{TopicPartition(each.topic, each.partition)}")
