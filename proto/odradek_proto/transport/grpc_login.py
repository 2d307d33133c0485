"""SASL of a gRPC channel: a conversation on a stream, before the first call, that ends with a token for the others."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable

from odradek_proto.security.scram import PLAIN, AuthenticationRefused, ScramClient, plain_message
from odradek_proto.transport.ports import CallRejected, NotAuthenticated, Stream
from odradek_proto.v1 import broker_pb2 as pb
from odradek_proto.values import Value

AUTHENTICATE = "/odradek.v1.Authentication/Authenticate"
NONCE_BYTES = 24
TIMEOUT_MS = 10_000  # of a conversation; a server holds a refusal back


class Login(Value, frozen=True):
    """Who to be, and how to prove it."""

    mechanism: str
    username: str
    password: str


class LoginSession(Value, frozen=True):
    """What a conversation ended with."""

    token: str
    lifetime_ms: int  # the server wants another conversation before that is over; 0: never


async def log_in(login: Login, open_stream: Callable[[str], Awaitable[Stream]]) -> LoginSession:
    """Raises `NotAuthenticated` when the server refuses, and `NetworkError`."""
    try:
        stream = await open_stream(AUTHENTICATE)
    except CallRejected as error:
        raise NotAuthenticated(f"no SASL is spoken there: {error}") from None
    try:
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            return await _converse(login, stream)
    except AuthenticationRefused as reason:
        raise NotAuthenticated(f"{stream.peer}: {reason}") from None
    except TimeoutError:
        raise NotAuthenticated(f"{stream.peer}: no answer of SASL within {TIMEOUT_MS} ms") from None
    finally:
        stream.close()


async def _converse(login: Login, stream: Stream) -> LoginSession:
    async def say(data: bytes) -> pb.AuthenticateResponse:
        request = pb.AuthenticateRequest(mechanism=login.mechanism, data=data)
        await stream.send(request.SerializeToString())
        answer = pb.AuthenticateResponse.FromString(await stream.recv())
        if answer.error_code:
            raise AuthenticationRefused(f"refused as {login.username!r}: {answer.error_message}")
        return answer

    if login.mechanism == PLAIN:
        return _session(await say(plain_message(login.username, login.password)))
    scram = ScramClient(login.mechanism, login.username, login.password, secrets.token_urlsafe(NONCE_BYTES))
    first = await say(scram.first())
    last = await say(await asyncio.to_thread(scram.final, first.data))  # milliseconds of work on purpose
    scram.check(last.data)
    return _session(last)


def _session(last: pb.AuthenticateResponse) -> LoginSession:
    return LoginSession(last.token, last.session_lifetime_ms)
