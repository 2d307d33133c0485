"""SaslHandshake and SaslAuthenticate (KIP-43, KIP-152, KIP-368): messages of a mechanism, inside of Kafka's frames.

Version 0 of SaslHandshake announces tokens without frames: it is refused (K-34). On a listener without SASL both are
ILLEGAL_SASL_STATE, as in Kafka. Who has authenticated may do so again, once in a second, as the same and by the same
mechanism; with `connections.max.reauth.ms` it has to, before that time is over.
"""

from __future__ import annotations

from odradek_proto.errors import ErrorCode
from odradek_proto.security.scram import AuthenticationRefused

from odradek_broker.kafka.messages.request import Body, ClientInformation, HangUp, KafkaRequest
from odradek_broker.requests.authentication import Authentication, Conversation

HANDSHAKE, AUTHENTICATE = 17, 36
AGAIN_MS = 1_000  # Kafka's: no client authenticates again more often


class SaslApi:
    def __init__(self, authentication: Authentication | None) -> None:
        self._authentication = authentication

    async def handshake(self, request: KafkaRequest) -> Body:
        asked, found = request.read(), self._authentication
        if found is None or not _may_begin(request.client, found.now_ms()):
            request.client.refused = found is not None
            return request.answered({"error_code": ErrorCode.ILLEGAL_SASL_STATE, "mechanisms": ()})
        if request.version == 0:
            raise HangUp("SaslHandshake of version 0 announces tokens without frames: the client is too old")
        request.client.conversation = found.begin(asked["mechanism"], request.context.peer)
        unknown = request.client.conversation is None
        request.client.refused = unknown
        error = ErrorCode.UNSUPPORTED_SASL_MECHANISM if unknown else ErrorCode.NONE
        return request.answered({"error_code": error, "mechanisms": found.mechanisms})

    async def authenticate(self, request: KafkaRequest) -> Body:
        asked, client = request.read(), request.client
        conversation = client.conversation
        if conversation is None:
            client.refused = self._authentication is not None
            message = "SaslAuthenticate follows a SaslHandshake, on a listener with SASL"
            return request.answered({"error_code": ErrorCode.ILLEGAL_SASL_STATE, "error_message": message})
        try:
            if client.principal is not None and conversation.mechanism != client.mechanism:
                raise AuthenticationRefused(f"authenticated by {client.mechanism}, again by {conversation.mechanism}")
            answer = await conversation.step(bytes(asked["auth_bytes"]))
            if conversation.principal is not None and client.principal not in (None, conversation.principal):
                raise AuthenticationRefused(f"authenticated as {client.principal}, again as {conversation.principal}")
        except AuthenticationRefused as reason:
            client.refused = True
            told = {"error_code": ErrorCode.SASL_AUTHENTICATION_FAILED, "error_message": str(reason)}
            return request.answered({**told, "auth_bytes": b""})
        lifetime_ms = 0
        if conversation.principal is not None:
            lifetime_ms = self._let_in(client, conversation)
        return request.answered({"error_message": None, "auth_bytes": answer, "session_lifetime_ms": lifetime_ms})

    def _let_in(self, client: ClientInformation, conversation: Conversation) -> int:
        """Returns for how long, in ms; 0: for ever."""
        assert self._authentication is not None
        client.principal, client.conversation = conversation.principal, None
        client.mechanism = conversation.mechanism
        session_ms = self._authentication.session_ms
        client.session_ends_ms = self._authentication.now_ms() + session_ms if session_ms else None
        return session_ms


def _may_begin(client: ClientInformation, now_ms: int) -> bool:
    """Whoever has authenticated not more than once in a second; that is noted."""
    if client.principal is None:
        return True
    if client.begun_again_ms is not None and now_ms - client.begun_again_ms < AGAIN_MS:
        return False
    client.begun_again_ms = now_ms
    return True
