"""Admin requests at the active controller: the full method name says which, bytes in and bytes out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from odradek_proto.v1 import admin_pb2

from odradek_broker.core.controller.balance import elect_leaders
from odradek_broker.core.controller.configs import alter_configs, describe_configs
from odradek_broker.core.controller.reassignment import alter_partition_reassignments, list_partition_reassignments
from odradek_broker.core.controller.topics import create_partitions, create_topics, delete_topics
from odradek_broker.runtime.controller.term import Term

if TYPE_CHECKING:
    from odradek_broker.runtime.controller.node import ControllerNode

SERVICE = "/odradek.v1.Admin/"


class UnknownAdminMethod(ValueError):
    """No admin request has this name."""


class ControllerAdmin:
    def __init__(self, node: ControllerNode) -> None:
        self._node = node
        self._methods: dict[str, Callable[[Term, bytes], Awaitable[bytes]]] = {
            "CreateTopics": self._create_topics,
            "DeleteTopics": self._delete_topics,
            "CreatePartitions": self._create_partitions,
            "DescribeConfigs": self._describe_configs,
            "AlterConfigs": self._alter_configs,
            "ElectLeaders": self._elect_leaders,
            "DescribeQuorum": self._describe_quorum,
            "AlterPartitionReassignments": self._alter_reassignments,
            "ListPartitionReassignments": self._list_reassignments,
        }

    async def answer(self, term: Term, method: str, request: bytes) -> bytes:
        """Raises `UnknownAdminMethod`, `NotActive`, and `DecodeError` for what is no such request."""
        found = self._methods.get(method.removeprefix(SERVICE))
        if found is None:
            raise UnknownAdminMethod(f"there is no admin request {method!r}")
        return await found(term, request)

    async def _create_topics(self, term: Term, request_bytes: bytes) -> bytes:
        request = admin_pb2.CreateTopicsRequest.FromString(request_bytes)
        node = self._node
        answer = await node.carry_through(
            term, lambda image: create_topics(image, node.settings, request, node.clock.rng)
        )
        return answer.SerializeToString()

    async def _delete_topics(self, term: Term, request_bytes: bytes) -> bytes:
        request = admin_pb2.DeleteTopicsRequest.FromString(request_bytes)
        enabled = self._node.settings.delete_topic_enable
        answer = await self._node.carry_through(term, lambda image: delete_topics(image, request, enabled=enabled))
        return answer.SerializeToString()

    async def _create_partitions(self, term: Term, request_bytes: bytes) -> bytes:
        request = admin_pb2.CreatePartitionsRequest.FromString(request_bytes)
        node = self._node
        answer = await node.carry_through(term, lambda image: create_partitions(image, request, node.clock.rng))
        return answer.SerializeToString()

    async def _describe_configs(self, term: Term, request_bytes: bytes) -> bytes:
        request = admin_pb2.DescribeConfigsRequest.FromString(request_bytes)
        return describe_configs(self._node.feed.image, self._node.settings, request).SerializeToString()

    async def _alter_configs(self, term: Term, request_bytes: bytes) -> bytes:
        request = admin_pb2.AlterConfigsRequest.FromString(request_bytes)
        node = self._node
        answer = await node.carry_through(term, lambda image: alter_configs(image, node.settings, request))
        return answer.SerializeToString()

    async def _elect_leaders(self, term: Term, request_bytes: bytes) -> bytes:
        request = admin_pb2.ElectLeadersRequest.FromString(request_bytes)
        node = self._node
        answer = await node.carry_through(term, lambda image: elect_leaders(image, node.settings, request))
        return answer.SerializeToString()

    async def _describe_quorum(self, term: Term, request_bytes: bytes) -> bytes:
        admin_pb2.DescribeQuorumRequest.FromString(request_bytes)
        return self._node.quorum.describe().SerializeToString()

    async def _alter_reassignments(self, term: Term, request_bytes: bytes) -> bytes:
        request = admin_pb2.AlterPartitionReassignmentsRequest.FromString(request_bytes)
        node = self._node
        answer = await node.carry_through(
            term, lambda image: alter_partition_reassignments(image, node.settings, request)
        )
        return answer.SerializeToString()

    async def _list_reassignments(self, term: Term, request_bytes: bytes) -> bytes:
        request = admin_pb2.ListPartitionReassignmentsRequest.FromString(request_bytes)
        return list_partition_reassignments(self._node.feed.image, request).SerializeToString()
