"""SASL over gRPC: a stream on which a mechanism's messages go, and the token that it ends with.

Rules of this module. A token counts on the connection on which it was given, and nowhere else: another one that shows
it is nobody. It lasts as long as the connection, or until many more have been given; with `connections.max.reauth.ms`
only for so long after the connection's last conversation (KIP-368). Whoever shows one that is not known any more is
UNAUTHENTICATED, before anything was done, and authenticates again; a stream ends at its next message. A connection has
one token: who authenticates on it as somebody else has another one from then on.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from odradek_proto.errors import ErrorCode
from odradek_proto.security.scram import AuthenticationRefused
from odradek_proto.transport.ports import CallContext, CallRejected, Stream, StreamClosed
from odradek_proto.v1 import broker_pb2 as pb
from odradek_proto.values import Value

from odradek_broker.requests.authentication import Authentication
from odradek_broker.requests.context import Principal

SERVICE = "odradek.v1.Authentication"
AUTHENTICATE = f"/{SERVICE}/Authenticate"
MOST_TOKENS = 20_000  # ten times the connections of a server
MOST_MESSAGES = 4  # of one conversation
PATIENCE_S = 30.0  # for a whole conversation


class _Known(Value, frozen=True):
    """Whom a token is of."""

    peer: str  # the connection
    principal: Principal
    ends_ms: int | None  # when it counts no longer; None: never


class Identities:
    """Who has authenticated, by token."""

    def __init__(self, authentication: Authentication, new_token: Callable[[], str], most_bytes: int) -> None:
        """`most_bytes` are of one message (`sasl.server.max.receive.size`)."""
        self._authentication = authentication
        self._most_bytes = most_bytes
        self._new_token = new_token
        self._known: dict[str, _Known] = {}  # by token
        self._of_peer: OrderedDict[str, str] = OrderedDict()  # tokens by connection, the oldest first

    def principal(self, call: CallContext) -> Principal:
        """Raises `CallRejected` for nobody."""
        known = self._known.get(call.token)
        if known is None or known.peer != call.peer:
            raise CallRejected("this listener wants SASL first", status="UNAUTHENTICATED")
        if known.ends_ms is not None and self._authentication.now_ms() >= known.ends_ms:
            raise CallRejected("the session is over: authenticate again", status="UNAUTHENTICATED")
        return known.principal

    def watched(self, stream: Stream, call: CallContext) -> Stream:
        """A stream that ends when its caller says something and is not believed any more."""
        if not self._authentication.session_ms:
            return stream

        def check(_message: bytes) -> None:
            try:
                self.principal(call)
            except CallRejected as reason:
                stream.close()
                raise StreamClosed(f"{stream.peer}: {reason}", clean=True) from None

        return CheckedStream(stream, check)

    async def authenticate(self, stream: Stream, call: CallContext) -> None:
        """One conversation."""
        async with asyncio.timeout(PATIENCE_S):
            answer = await self._converse(stream, call)
            await stream.send(answer.SerializeToString())

    async def _converse(self, stream: Stream, call: CallContext) -> pb.AuthenticateResponse:
        """What to say last."""
        conversation = None
        for _ in range(MOST_MESSAGES):
            message = await stream.recv()
            if len(message) > self._most_bytes:
                break
            asked = pb.AuthenticateRequest.FromString(message)
            if conversation is None:
                conversation = self._authentication.begin(asked.mechanism, call.peer)
                if conversation is None:
                    text = f"enabled are {', '.join(self._authentication.mechanisms)}, not {asked.mechanism!r}"
                    return _refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, text)
            try:
                data = await conversation.step(asked.data)
            except AuthenticationRefused as reason:
                return _refusal(ErrorCode.SASL_AUTHENTICATION_FAILED, str(reason))
            if conversation.principal is not None:
                token, session_ms = self._remember(call.peer, conversation.principal), self._authentication.session_ms
                return pb.AuthenticateResponse(data=data, token=token, session_lifetime_ms=session_ms)
            await stream.send(pb.AuthenticateResponse(data=data).SerializeToString())
        return _refusal(ErrorCode.ILLEGAL_SASL_STATE, "too many messages, or too large ones")

    def _remember(self, peer: str, principal: Principal) -> str:
        token = self._of_peer.pop(peer, "")
        before = self._known.pop(token, None)
        if before is None or before.principal != principal:
            token = self._new_token()
        session_ms = self._authentication.session_ms
        ends_ms = self._authentication.now_ms() + session_ms if session_ms else None
        self._known[token] = _Known(peer, principal, ends_ms)
        self._of_peer[peer] = token
        while len(self._of_peer) > MOST_TOKENS:
            self._known.pop(self._of_peer.popitem(last=False)[1])
        return token


class CheckedStream:
    """A `Stream` whose messages are each looked at by `check`, which raises."""

    def __init__(self, stream: Stream, check: Callable[[bytes], None]) -> None:
        self._stream = stream
        self._check = check
        self.peer = stream.peer
        self.send = stream.send
        self.close = stream.close

    async def recv(self) -> bytes:
        message = await self._stream.recv()
        self._check(message)
        return message


def _refusal(error: ErrorCode, text: str) -> pb.AuthenticateResponse:
    return pb.AuthenticateResponse(error_code=error, error_message=text)
