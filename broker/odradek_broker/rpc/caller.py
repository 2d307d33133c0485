"""Who calls over gRPC: by SASL where the listener wants it, else by certificate, else User:ANONYMOUS."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from odradek_proto.security.identity import node_id_of
from odradek_proto.transport.ports import CallContext, Stream, StreamHandler, UnaryHandler

from odradek_broker.core.context import RequestContext, principal_of
from odradek_broker.rpc.authentication import Identities

Call = Callable[[bytes, RequestContext], Awaitable[bytes]]
StreamCall = Callable[[Stream, RequestContext], Awaitable[None]]


class Callers:
    """The callers of one listener."""

    def __init__(self, listener: str, identities: Identities | None = None) -> None:
        """With `identities` everybody has to have authenticated."""
        self._listener = listener
        self.identities = identities

    def of(self, call: CallContext) -> RequestContext:
        """Made once for each call or stream. Raises `CallRejected` for nobody."""
        if self.identities is None:
            principal = principal_of(call.certificate)
        else:
            principal = self.identities.principal(call)
        return RequestContext(principal, self._listener, peer=call.peer, node_id=node_id_of(call.certificate))


def unary(callers: Callers, handler: Call) -> UnaryHandler:
    """A call on a listener."""

    async def run(request: bytes, call: CallContext) -> bytes:
        return await handler(request, callers.of(call))

    return run


def stream(callers: Callers, handler: StreamCall) -> StreamHandler:
    """A stream on a listener."""

    async def run(opened: Stream, call: CallContext) -> None:
        await handler(opened, callers.of(call))

    return run
