"""Who calls over gRPC: until somebody authenticates, everybody is User:ANONYMOUS of the listener that was dialled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from odradek_proto.transport.ports import CallContext, Stream, StreamHandler, UnaryHandler

from odradek_broker.core.context import ANONYMOUS, RequestContext

Call = Callable[[bytes, RequestContext], Awaitable[bytes]]
StreamCall = Callable[[Stream, RequestContext], Awaitable[None]]


def caller(listener: str, call: CallContext) -> RequestContext:
    """The caller's identity, made once for each call or stream."""
    return RequestContext(ANONYMOUS, listener, peer=call.peer)


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
