"""Who calls over gRPC: by SASL where the listener wants it, else by certificate, else User:ANONYMOUS."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from odradek_proto.messages import DecodeError, Message
from odradek_proto.security.identity import node_id_of
from odradek_proto.transport.ports import CallContext, CallRejected, Stream, StreamHandler, UnaryHandler
from odradek_proto.values import replace

from odradek_broker.core.context import RequestContext, principal_of
from odradek_broker.requests.quotas import LONGEST_CLIENT_ID, NO_QUOTAS, Throttle
from odradek_broker.rpc.authentication import Identities

MOST_BYTES: Final = 1 << 20  # of a request: a stranger may send one
R = TypeVar("R", bound=Message)
Call = Callable[[bytes, RequestContext], Coroutine[Any, Any, bytes]]
StreamCall = Callable[[Stream, RequestContext], Awaitable[None]]


class Callers:
    """The callers of one listener."""

    def __init__(self, listener: str, identities: Identities | None = None, throttle: Throttle = NO_QUOTAS) -> None:
        """With `identities` everybody has to have authenticated."""
        self.throttle = throttle
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
    return partial(_run, callers, handler)


async def _run(callers: Callers, handler: Call, request: bytes, call: CallContext) -> bytes:
    context, throttle = callers.of(call), callers.throttle
    if not throttle.is_on:
        return await handler(request, context)
    await throttle.hold(throttle.owed(context))
    return await throttle.run(context, handler(request, context))


def stream(callers: Callers, handler: StreamCall) -> StreamHandler:
    """A stream on a listener."""

    async def run(opened: Stream, call: CallContext) -> None:
        context, identities = callers.of(call), callers.identities
        await handler(identities.watched(opened, call) if identities else opened, context)

    return run


def of_client(context: RequestContext, client_id: str) -> RequestContext:
    """With the client id that a message names, for quotas and logs; a long one is cut."""
    client_id = client_id[:LONGEST_CLIENT_ID]
    return context if client_id == context.client_id else replace(context, client_id=client_id)


def parsed(kind: type[R], data: bytes) -> R:
    """A request. Raises `CallRejected` for what is too large to become objects on the loop, and for what is none."""
    if len(data) > MOST_BYTES:
        said = f"{kind.__name__} of {len(data)} bytes: at most {MOST_BYTES}; ask for less at a time"
        raise CallRejected(said, status="INVALID_ARGUMENT")
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise CallRejected(f"not a {kind.__name__}: {error}", status="INVALID_ARGUMENT") from error
