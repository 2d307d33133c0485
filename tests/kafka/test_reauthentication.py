"""Clients that have to authenticate again on their connections (KIP-368)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest
from odradek_broker.config.settings import BrokerSettings
from odradek_broker.kafka.apis.sasl import AGAIN_MS, AUTHENTICATE, HANDSHAKE, SaslApi
from odradek_broker.kafka.listener import KafkaListener
from odradek_broker.kafka.messages.codec import REQUEST, RESPONSE, reader_of, writer_of
from odradek_broker.kafka.messages.primitives import MessageReader, MessageWriter
from odradek_broker.kafka.messages.request import Api, Body, KafkaRequest
from odradek_broker.kafka.shared import Shared
from odradek_broker.process.wiring import authentication
from odradek_broker.requests.authentication import Authentication
from odradek_broker.runtime.counters import Counters
from odradek_broker.runtime.membership.metadata_feed import MetadataFeed
from odradek_proto.errors import ErrorCode
from odradek_proto.security.scram import PLAIN, credential_of, plain_message, salted_password
from odradek_proto.transport.files import OsFiles

from tests.kafka.by_hand import HandClock, Wire, feed, turns
from tests.kafka.raw import framed, header

ANY = 3  # an API that nobody may ask who has not authenticated
SCRAM = "SCRAM-SHA-512"
SESSION_MS = 10_000
OK = int(ErrorCode.NONE)


class AtOnce:
    """As files: what is computed away from the loop is there at once."""

    async def compute(self, function: Callable[[], Any]) -> Any:
        return function()


class NoPause(HandClock):
    """A refusal is not held back."""

    async def sleep(self, delay_ms: float) -> None: ...


class Client:
    """One connection to a listener with SASL that knows alice and bob, whose passwords are their names."""

    def __init__(self, session_ms: int = SESSION_MS) -> None:
        self.clock, self.wire = NoPause(), Wire()
        salt = b"0123456789abcdef"
        known = {
            name: {SCRAM: credential_of(SCRAM, salted_password(SCRAM, name, salt, 4096), salt, 4096)}
            for name in ("alice", "bob")
        }
        files: Any = AtOnce()
        api = SaslApi(
            Authentication(
                (PLAIN, SCRAM),
                credentials=lambda: known,
                new_nonce=lambda: "n",
                clock=self.clock,
                files=files,
                refusal_delay_ms=100,
                session_ms=session_ms,
            )
        )
        rows = [
            Api(HANDSHAKE, "SaslHandshake", 0, 1, 9, api.handshake),
            Api(AUTHENTICATE, "SaslAuthenticate", 0, 2, 2, api.authenticate),
            Api(ANY, "Any", 0, 0, 9, self._answer),
        ]
        shared = Shared(
            "KAFKA",
            lambda: {row.key: row for row in rows},
            clock=self.clock,
            settings=BrokerSettings(node_id=1),
            counters=Counters(),
            needs_sasl=True,
        )
        listener = KafkaListener(shared)
        listener.open()
        receiver = listener.accept(self.wire)
        assert receiver is not None
        self._receiver = receiver

    async def _answer(self, request: KafkaRequest) -> Body:
        return [b"an answer"]

    async def ask(self, key: int, version: int, body: bytes) -> bytes:
        """The answer without its header; empty when the connection was closed instead."""
        self.wire.written.clear()
        feed(self._receiver, framed(header(key, version, 1, flexible=key == AUTHENTICATE and version == 2) + body))
        await turns(12)
        return bytes(self.wire.written)[9 if key == AUTHENTICATE and version == 2 else 8 :]

    async def is_served(self) -> bool:
        return await self.ask(ANY, 0, b"") == b"an answer"

    async def _told(self, key: int, version: int, message: Mapping[str, Any]) -> Mapping[str, Any]:
        writer = MessageWriter()
        writer_of(key, REQUEST, version)(writer, message)
        answer = await self.ask(key, version, b"".join(map(bytes, writer.buffers())))
        return reader_of(key, RESPONSE, version)(MessageReader(memoryview(answer)))

    async def shake(self, mechanism: str = PLAIN) -> int:
        return int((await self._told(HANDSHAKE, 1, {"mechanism": mechanism}))["error_code"])

    async def log_in(self, name: str = "alice") -> tuple[int, int]:
        """The error, and how long the session lasts."""
        told = await self._told(AUTHENTICATE, 2, {"auth_bytes": plain_message(name, name)})
        return told["error_code"], told["session_lifetime_ms"]


async def known(session_ms: int = SESSION_MS) -> Client:
    client = Client(session_ms)
    assert await client.shake() == OK
    assert await client.log_in() == (OK, session_ms)
    assert await client.is_served()
    return client


async def in_time() -> None:
    """Whoever does so in time is served for as long again, on the same connection."""
    client = await known()
    for _ in range(3):
        client.clock.turn(SESSION_MS - 1)
        assert await client.is_served()
        assert await client.shake() == OK
        assert await client.log_in() == (OK, SESSION_MS)
    assert await client.is_served()


async def too_late() -> None:
    """Anything else ends the connection; it is not even answered."""
    client = await known()
    client.clock.turn(SESSION_MS)
    assert not await client.is_served()
    assert client.wire.aborted


async def late_but_first() -> None:
    """To begin with it is never too late."""
    client = await known()
    client.clock.turn(2 * SESSION_MS)
    assert await client.shake() == OK
    assert await client.log_in() == (OK, SESSION_MS)
    assert await client.is_served()


async def nothing_amid() -> None:
    """Between its handshake and its end nothing else is asked."""
    client = await known()
    assert await client.shake() == OK
    assert not await client.is_served()
    assert client.wire.aborted


async def as_another() -> None:
    """A connection stays its user's."""
    client = await known()
    assert await client.shake() == OK
    assert (await client.log_in("bob"))[0] == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.wire.aborted


async def by_another_mechanism() -> None:
    client = await known()
    assert await client.shake(SCRAM) == OK
    assert (await client.log_in())[0] == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.wire.aborted


async def too_often() -> None:
    """More than once in a second. It is no stranger: the connection ends as TLS wants it."""
    client = await known()
    assert await client.shake() == OK
    assert await client.log_in() == (OK, SESSION_MS)
    client.clock.turn(AGAIN_MS - 1)
    assert await client.shake() == ErrorCode.ILLEGAL_SASL_STATE
    assert client.wire.closed


async def never() -> None:
    """Without the setting nobody has to, however late, and everybody may."""
    client = await known(0)
    client.clock.turn(500_000)
    assert await client.is_served()
    assert await client.shake() == OK
    assert await client.log_in() == (OK, 0)


@pytest.mark.parametrize(
    "story",
    [in_time, too_late, late_but_first, nothing_amid, as_another, by_another_mechanism, too_often, never],
    ids=lambda story: story.__name__,
)
def test_a_session_lasts_as_long_as_the_setting_says(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Kafka's rules: what each client does, and whether it is served."""
    asyncio.run(story())


@pytest.mark.parametrize("named", ["", "admin=secret"])
async def test_a_login_waits_for_no_user_that_the_metadata_has(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for the broker, which may still recover its logs, or hear of no controller."""
    monkeypatch.setattr("odradek_broker.requests.authentication.PREPARING_S", 1_000_000)
    settings, metadata = BrokerSettings(node_id=1, odradek_create_users=named), MetadataFeed()
    metadata.image.scram["admin"] = {}
    sasl = authentication(settings, metadata, HandClock(), OsFiles(), asyncio.Event())
    async with asyncio.timeout(60):
        await sasl.prepare()
