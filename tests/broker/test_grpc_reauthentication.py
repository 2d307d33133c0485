"""Clients that have to authenticate again over gRPC (`connections.max.reauth.ms`), on real connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from odradek_broker.core.context import RequestContext
from odradek_broker.requests.authentication import Authentication
from odradek_broker.rpc.authentication import AUTHENTICATE, Identities
from odradek_broker.rpc.caller import Callers, stream, unary
from odradek_proto.security.scram import credential_of, salted_password
from odradek_proto.transport.files import OsFiles
from odradek_proto.transport.grpc_login import Login
from odradek_proto.transport.grpc_network import LEAST_PAUSE_S, GrpcNetwork
from odradek_proto.transport.ports import CallContext, Handlers, PeerUnavailable, Stream, StreamClosed

from tests.kafka.by_hand import HandClock
from tests.playing import Test, plays

SCRAM = "SCRAM-SHA-256"
ECHO, ECHO_STREAM = "/test.Echo/Call", "/test.Echo/Stream"
PATIENCE_MS = 60_000
SHORTEST_MS = 1_200  # a session that can be renewed in time


class Served:
    """A listener with SASL that knows alice and says everything back; sessions are measured by `clock`."""

    def __init__(self, session_ms: int) -> None:
        self.session_ms, self.clock, self.address = session_ms, HandClock(), ""
        self.conversed = asyncio.Event()
        self.client = GrpcNetwork(login=Login(SCRAM, "alice", "alice"))
        salt = b"0123456789abcdef"
        known = {"alice": {SCRAM: credential_of(SCRAM, salted_password(SCRAM, "alice", salt, 4096), salt, 4096)}}
        tokens = iter("abcdefgh")
        self._identities = Identities(
            Authentication(
                (SCRAM,), credentials=lambda: known, new_nonce=lambda: "n", clock=self.clock, files=OsFiles(),
                refusal_delay_ms=0, session_ms=session_ms,
            ),
            lambda: next(tokens),
            65_536,
        )  # fmt: skip

    def handlers(self) -> Handlers:
        async def echo(request: bytes, context: RequestContext) -> bytes:
            return request

        async def echo_all(opened: Stream, context: RequestContext) -> None:
            while True:
                await opened.send(await opened.recv())

        async def authenticate(opened: Stream, call: CallContext) -> None:
            await self._identities.authenticate(opened, call)
            self.conversed.set()

        callers = Callers("GRPC", self._identities)
        streams = {ECHO_STREAM: stream(callers, echo_all), AUTHENTICATE: authenticate}
        return Handlers(unary={ECHO: unary(callers, echo)}, streams=streams)


def played(session_ms: int, story: Callable[[Served], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        served, server_side = Served(session_ms), GrpcNetwork()
        server = await server_side.serve("127.0.0.1:0", served.handlers())
        served.address = server.address
        try:
            async with asyncio.timeout(PATIENCE_MS / 1000):
                await story(served)
        finally:
            await served.client.close()
            await server.stop()
            await server_side.close()

    asyncio.run(run())


def sessions_of(session_ms: int) -> Callable[[Test], Callable[..., None]]:
    """A test that is a story of such sessions."""
    return plays(partial(played, session_ms))


async def answered(opened: Stream, message: bytes) -> bytes:
    await opened.send(message)
    return await opened.recv()


@sessions_of(SHORTEST_MS)
async def test_a_stream_in_use_lives_through_many_sessions(served: Served) -> None:
    """The client authenticates again before its session is over, without a call, and keeps its stream."""
    opened = await served.client.open(served.address, ECHO_STREAM, PATIENCE_MS)
    for message in (b"1", b"2", b"3", b"4"):  # for two sessions
        served.clock.turn(served.session_ms // 2 - 1)
        assert await answered(opened, message) == message
        served.conversed.clear()
        await served.conversed.wait()
    assert await served.client.call(served.address, ECHO, b"5", PATIENCE_MS) == b"5"
    opened.close()


@sessions_of(10 * PATIENCE_MS)
async def test_a_session_that_is_over_ends_streams_and_refuses_calls(served: Served) -> None:
    """For who does not do so in time; whatever was asked was not done, and after a conversation all is well."""
    opened = await served.client.open(served.address, ECHO_STREAM, PATIENCE_MS)
    assert await answered(opened, b"1") == b"1"
    served.clock.turn(served.session_ms)
    with pytest.raises(StreamClosed):
        await answered(opened, b"2")
    calls = [served.client.call(served.address, ECHO, b"3", PATIENCE_MS) for _ in range(3)]
    for refused in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(refused, PeerUnavailable), refused  # which is worth another try
        assert refused.undelivered
    assert await served.client.call(served.address, ECHO, b"3", PATIENCE_MS) == b"3"


def noted_timers() -> list[tuple[float, asyncio.TimerHandle]]:
    """The renewals of this loop from now on, with their delays in seconds; a server sleeps on it, too."""
    loop, found = asyncio.get_running_loop(), list[tuple[float, asyncio.TimerHandle]]()
    call_later = loop.call_later

    def noted(delay: float, callback: Callable[..., object], *args: Any, **named: Any) -> asyncio.TimerHandle:
        timer = call_later(delay, callback, *args, **named)
        if isinstance(getattr(callback, "__self__", None), GrpcNetwork):
            found.append((delay, timer))
        return timer

    loop.call_later = noted  # type: ignore[assignment, method-assign]
    return found


@sessions_of(10 * PATIENCE_MS)
async def test_of_each_connection_one_renewal_is_due(served: Served) -> None:
    """Not another one after each conversation, and none of a client that is closed: it would be kept as long."""
    timers = noted_timers()
    assert await served.client.call(served.address, ECHO, b"1", PATIENCE_MS) == b"1"
    served.clock.turn(served.session_ms)
    with pytest.raises(PeerUnavailable):
        await served.client.call(served.address, ECHO, b"2", PATIENCE_MS)
    assert await served.client.call(served.address, ECHO, b"2", PATIENCE_MS) == b"2"
    assert [timer.cancelled() for _, timer in timers] == [True, False]
    await served.client.close()
    assert all(timer.cancelled() for _, timer in timers)


@pytest.mark.parametrize(("session_ms", "timers"), [(-1, 0), (1, 1)])
def test_no_lifetime_makes_a_client_converse_without_a_pause(session_ms: int, timers: int) -> None:
    """Whatever a server says; a negative one is none."""

    async def story(served: Served) -> None:
        found = noted_timers()
        with contextlib.suppress(PeerUnavailable):
            await served.client.call(served.address, ECHO, b"1", PATIENCE_MS)
        assert len(found) == timers
        assert all(delay >= LEAST_PAUSE_S for delay, _ in found)

    played(session_ms, story)


@sessions_of(0)
async def test_without_the_setting_a_session_has_no_end(served: Served) -> None:
    """However late it is."""
    opened: Any = await served.client.open(served.address, ECHO_STREAM, PATIENCE_MS)
    served.clock.turn(10**9)
    assert await answered(opened, b"1") == b"1"
    opened.close()
