"""Who calls over gRPC: whoever shows a certificate is its subject, and everybody else User:ANONYMOUS."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from odradek_proto.security.identity import node_id_of
from odradek_proto.transport.ports import CallContext, Stream, StreamHandler, UnaryHandler

from odradek_broker.core.context import RequestContext, principal_of

Call = Callable[[bytes, RequestContext], Awaitable[bytes]]
StreamCall = Callable[[Stream, RequestContext], Awaitable[None]]


def caller(listener: str, call: CallContext) -> RequestContext:
    """The caller's identity, made once for each call or stream."""
    return RequestContext(
        principal_of(call.certificate), listener, peer=call.peer, node_id=node_id_of(call.certificate)
    )


def unary(listener: str, handler: Call) -> UnaryHandler:
    """A call on the listener of this name."""

    async def run(request: bytes, call: CallContext) -> bytes:
        return await handler(request, caller(listener, call))

    return run


def stream(listener: str, handler: StreamCall) -> StreamHandler:
    """A stream on the listener of this name."""

    async def run(opened: Stream, call: CallContext) -> None:
        await handler(opened, caller(listener, call))

    return run
