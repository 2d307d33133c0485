"""Admin: every broker takes these calls and passes them to the active controller.

- What comes back is the controller's answer, unchanged, once it is committed.
- When no controller answers in time, the caller gets UNAVAILABLE, which says nothing about what was done.
- DescribeQuorum is passed on as well. DescribeConfigs of this very broker it answers itself (`admin_configs`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from google.protobuf.message import DecodeError
from odradek_proto.transport.ports import CallContext, CallRejected, UnaryHandler
from odradek_proto.v1 import admin_pb2

from odradek_broker.rpc.admin_configs import DescribeOwn
from odradek_broker.runtime.membership.controller_channel import ControllerUnavailable

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
DESCRIBE_CONFIGS = "/odradek.v1.Admin/DescribeConfigs"
DEFAULT_TIMEOUT_MS = 30_000  # default.api.timeout.ms of Kafka's admin client is 60 s; request.timeout.ms is this

ForwardAdmin = Callable[[str, bytes, float], Awaitable[bytes]]


def admin_handlers(forward: ForwardAdmin, describe_own: DescribeOwn) -> dict[str, UnaryHandler]:
    """One handler for each method of the service."""

    def handler(path: str) -> UnaryHandler:
        async def forward_one(request: bytes, context: CallContext) -> bytes:
            try:
                return await forward(path, request, context.deadline_ms or DEFAULT_TIMEOUT_MS)
            except ControllerUnavailable as error:
                raise CallRejected(f"no active controller: {error}", status="UNAVAILABLE") from error

        return forward_one

    handlers = {path: handler(path) for path in (f"/odradek.v1.Admin/{name}" for name in METHODS)}
    ask_controller = handlers[DESCRIBE_CONFIGS]

    async def describe_configs(request: bytes, context: CallContext) -> bytes:
        try:
            own = describe_own(admin_pb2.DescribeConfigsRequest.FromString(request))
        except DecodeError:
            own = None  # the controller says what is wrong with it
        return await ask_controller(request, context) if own is None else own.SerializeToString()

    return handlers | {DESCRIBE_CONFIGS: describe_configs}
