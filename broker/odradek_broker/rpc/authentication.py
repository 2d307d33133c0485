"""SASL over gRPC: a stream on which a mechanism's messages go, and the token that it ends with.

Rules of this module. A token counts on the connection on which it was given, and nowhere else: another one that shows
it is nobody. It lasts as long as the connection, or until many more have been given; whoever shows one that is not
known is UNAUTHENTICATED, before anything was done, and authenticates again. A connection has one: who authenticates on
it as somebody else has another one from then on.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from odradek_proto.errors import ErrorCode
from odradek_proto.security.scram import AuthenticationRefused
from odradek_proto.transport.ports import CallContext, CallRejected, Stream
from odradek_proto.v1 import broker_pb2 as pb

from odradek_broker.requests.authentication import Authentication
from odradek_broker.requests.context import Principal

SERVICE = "odradek.v1.Authentication"
AUTHENTICATE = f"/{SERVICE}/Authenticate"
MOST_TOKENS = 20_000  # ten times the connections of a server
MOST_MESSAGES = 4  # of one conversation
MOST_BYTES = 524_288  # of one message: sasl.server.max.receive.size, Kafka's default
PATIENCE_S = 30.0  # for a whole conversation


class Identities:
    """Who has authenticated, by token."""

    def __init__(self, authentication: Authentication, new_token: Callable[[], str]) -> None:
        self._authentication = authentication
        self._new_token = new_token
        self._known: dict[str, tuple[str, Principal]] = {}  # the connection it is of, and who
        self._of_peer: OrderedDict[str, str] = OrderedDict()  # tokens by connection, the oldest first

    def principal(self, call: CallContext) -> Principal:
        """Raises `CallRejected` for nobody."""
        peer, principal = self._known.get(call.token, ("", None))
        if principal is None or peer != call.peer:
            raise CallRejected("this listener wants SASL first", status="UNAUTHENTICATED")
        return principal

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
            if len(message) > MOST_BYTES:
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
                return pb.AuthenticateResponse(data=data, token=self._remember(call.peer, conversation.principal))
            await stream.send(pb.AuthenticateResponse(data=data).SerializeToString())
        return _refusal(ErrorCode.ILLEGAL_SASL_STATE, "too many messages, or too large ones")

    def _remember(self, peer: str, principal: Principal) -> str:
        token = self._of_peer.pop(peer, "")
        if self._known.get(token) != (peer, principal):
            self._known.pop(token, None)
            token = self._new_token()
            self._known[token] = (peer, principal)
        self._of_peer[peer] = token
        while len(self._of_peer) > MOST_TOKENS:
            self._known.pop(self._of_peer.popitem(last=False)[1])
        return token


def _refusal(error: ErrorCode, text: str) -> pb.AuthenticateResponse:
    return pb.AuthenticateResponse(error_code=error, error_message=text)
