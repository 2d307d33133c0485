"""Admin: every broker takes these calls and passes them to the active controller.

- What comes back is the controller's answer, unchanged, once it is committed.
- When no controller answers in time, the caller gets UNAVAILABLE, which says nothing about what was done.
- DescribeQuorum and DescribeConfigs of a broker are passed on as well: the controller knows them best.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from odradek_proto.transport.ports import CallContext, CallRejected, UnaryHandler

from odradek_broker.runtime.controller_channel import ControllerUnavailable

METHODS = (
    "CreateTopics",
    "DeleteTopics",
    "CreatePartitions",
    "DescribeConfigs",
    "AlterConfigs",
    "ElectLeaders",
    "DescribeQuorum",
    "AlterPartitionReassignments",
    "ListPartitionReassignments",
)
DEFAULT_TIMEOUT_MS = 30_000  # default.api.timeout.ms of Kafka's admin client is 60 s; request.timeout.ms is this

ForwardAdmin = Callable[[str, bytes, float], Awaitable[bytes]]


def admin_handlers(forward: ForwardAdmin) -> dict[str, UnaryHandler]:
    """One handler for each method of the service."""

    def handler(path: str) -> UnaryHandler:
        async def forward_one(request: bytes, context: CallContext) -> bytes:
            try:
                return await forward(path, request, context.deadline_ms or DEFAULT_TIMEOUT_MS)
            except ControllerUnavailable as error:
                raise CallRejected(f"no active controller: {error}", status="UNAVAILABLE") from error

        return forward_one

    return {path: handler(path) for path in (f"/odradek.v1.Admin/{name}" for name in METHODS)}
