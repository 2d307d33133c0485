"""Admin over gRPC: one handler for each method of `ADMIN_REQUESTS`."""

from __future__ import annotations

from odradek_proto.transport.ports import CallContext, CallRejected, UnaryHandler

from odradek_broker.core.controller.admin import ADMIN_REQUESTS
from odradek_broker.requests.admin import DEFAULT_TIMEOUT_MS, AdminRequests
from odradek_broker.requests.context import RequestContext
from odradek_broker.rpc.caller import Callers, parsed, unary
from odradek_broker.runtime.membership.controller_channel import ControllerUnavailable


def admin_handlers(requests: AdminRequests, callers: Callers) -> dict[str, UnaryHandler]:
    """By full method name. Without a controller a call is UNAVAILABLE, which says nothing about what was done."""

    def handler(method: str) -> UnaryHandler:
        request_type = ADMIN_REQUESTS[method].request

        async def call(data: bytes, who: RequestContext, timeout_ms: float) -> bytes:
            request = parsed(request_type, data)
            try:
                answer = await requests.call(who, method, request, timeout_ms)
            except ControllerUnavailable as error:
                said = str(error).removeprefix("ForwardAdmin: ")
                raise CallRejected(f"no active controller: {said}", status="UNAVAILABLE") from error
            encoded: bytes = answer.SerializeToString()
            return encoded

        async def run(data: bytes, context: CallContext) -> bytes:
            return await unary(callers, lambda asked, who: call(asked, who, context.deadline_ms or DEFAULT_TIMEOUT_MS))(
                data, context
            )

        return run

    return {f"/odradek.v1.Admin/{method}": handler(method) for method in ADMIN_REQUESTS}
