"""Admin over gRPC: one handler for each method of `ADMIN_REQUESTS`."""

from __future__ import annotations

from functools import partial

from odradek_proto.transport.ports import CallContext, CallRejected, UnaryHandler

from odradek_broker.core.controller.admin import ADMIN_REQUESTS
from odradek_broker.requests.admin import DEFAULT_TIMEOUT_MS, AdminRequests
from odradek_broker.requests.context import RequestContext
from odradek_broker.rpc.caller import Callers, parsed, unary
from odradek_broker.runtime.membership.controller_channel import ControllerUnavailable


def admin_handlers(requests: AdminRequests, callers: Callers) -> dict[str, UnaryHandler]:
    """By full method name. Without a controller a call is UNAVAILABLE, which says nothing about what was done."""
    return {f"/odradek.v1.Admin/{method}": partial(_run, requests, callers, method) for method in ADMIN_REQUESTS}


async def _run(requests: AdminRequests, callers: Callers, method: str, data: bytes, context: CallContext) -> bytes:
    async def call(data: bytes, who: RequestContext) -> bytes:
        request = parsed(ADMIN_REQUESTS[method].request, data)
        try:
            answer = await requests.call(who, method, request, context.deadline_ms or DEFAULT_TIMEOUT_MS)
        except ControllerUnavailable as error:
            said = str(error).removeprefix("ForwardAdmin: ")
            raise CallRejected(f"no active controller: {said}", status="UNAVAILABLE") from error
        encoded: bytes = answer.SerializeToString()
        return encoded

    return await unary(callers, call)(data, context)
