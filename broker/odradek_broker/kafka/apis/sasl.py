"""SaslHandshake and SaslAuthenticate (KIP-43, KIP-152): messages of a mechanism, inside of Kafka's frames.

Version 0 of SaslHandshake announces tokens without frames: it is refused (K-34). On a listener without SASL both are
ILLEGAL_SASL_STATE, as in Kafka.
"""

from __future__ import annotations

from odradek_proto.errors import ErrorCode
from odradek_proto.security.scram import AuthenticationRefused

from odradek_broker.kafka.messages.request import Body, HangUp, Request
from odradek_broker.requests.authentication import Authentication

HANDSHAKE, AUTHENTICATE = 17, 36


class SaslApi:
    def __init__(self, authentication: Authentication | None) -> None:
        self._authentication = authentication

    async def handshake(self, request: Request) -> Body:
        asked, found = request.read(), self._authentication
        if found is None or request.client.principal is not None:
            request.client.refused = found is not None
            return request.answered({"error_code": ErrorCode.ILLEGAL_SASL_STATE, "mechanisms": ()})
        if request.version == 0:
            raise HangUp("SaslHandshake of version 0 announces tokens without frames: the client is too old")
        request.client.conversation = found.begin(asked["mechanism"], request.context.peer)
        unknown = request.client.conversation is None
        request.client.refused = unknown
        error = ErrorCode.UNSUPPORTED_SASL_MECHANISM if unknown else ErrorCode.NONE
        return request.answered({"error_code": error, "mechanisms": found.mechanisms})

    async def authenticate(self, request: Request) -> Body:
        asked, client = request.read(), request.client
        conversation = client.conversation
        if conversation is None:
            client.refused = self._authentication is not None
            message = "SaslAuthenticate follows a SaslHandshake, on a listener with SASL"
            return request.answered({"error_code": ErrorCode.ILLEGAL_SASL_STATE, "error_message": message})
        try:
            answer = await conversation.step(bytes(asked["auth_bytes"]))
        except AuthenticationRefused as reason:
            client.refused = True
            told = {"error_code": ErrorCode.SASL_AUTHENTICATION_FAILED, "error_message": str(reason)}
            return request.answered({**told, "auth_bytes": b""})
        if conversation.principal is not None:
            client.principal, client.conversation = conversation.principal, None
        return request.answered({"error_message": None, "auth_bytes": answer})
