"""The gRPC adapter against a peer in a process of its own: death, restart, freeze and abuse."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from odradek_proto.transport.grpc_admission import STREAMS_OF_EVERYBODY, StreamAdmission, UnreadResponses
from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.transport.grpc_options import KEEPALIVE_MS, GrpcOptions
from odradek_proto.transport.ports import (
    CallContext,
    CallRejected,
    DeadlineExceeded,
    DialResult,
    Handlers,
    NetworkError,
    PeerUnavailable,
    Stream,
    StreamClosed,
)

ECHO = "/odradek.test.Peer/Echo"
STREAM = "/odradek.test.Peer/Stream"
MIB = 1024 * 1024
PATIENT = GrpcOptions(connect_timeout_ms=30_000)  # a peer that stands still for a moment is no unreachable one
PATIENCE_MS = 90_000  # of calls whose answers come, however slow this machine is
PEER = """
import asyncio, sys
from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.transport.ports import Handlers

async def unary(request, call):
    return request

async def stream(stream, call):
    while True:
        await stream.send(await stream.recv())

async def main():
    handlers = Handlers({"/odradek.test.Peer/Echo": unary}, {"/odradek.test.Peer/Stream": stream})
    server = await GrpcNetwork().serve(sys.argv[1], handlers)
    print(server.address, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


class Peer:
    """An echo server that can be killed and started again at the same address."""

    def __init__(self) -> None:
        self.address = "127.0.0.1:0"
        self.process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PEER, self.address],
            stdout=subprocess.PIPE,
            text=True,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "MALLOC_ARENA_MAX": "2"},  # as brokers are started: many cores are many arenas else
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        assert self.address, "it could not listen"

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def resident_bytes(self) -> int:
        assert self.process is not None
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()


@pytest.fixture
def peer() -> Iterator[Peer]:
    started = Peer()
    yield started
    started.kill()


@contextlib.asynccontextmanager
async def network(options: GrpcOptions = PATIENT) -> AsyncIterator[GrpcNetwork]:
    opened = GrpcNetwork(options)
    try:
        yield opened
    finally:
        await opened.close()


async def failure_of(attempt: Awaitable[object]) -> NetworkError | None:
    try:
        await attempt
    except NetworkError as failed:
        return failed
    return None


def is_refused(failed: NetworkError | None) -> bool:
    """Not so when it has not failed at all: then nobody is dead."""
    assert failed is not None
    return isinstance(failed, PeerUnavailable) and failed.refused


async def test_killed_peer_shows_on_a_waiting_recv_at_once(peer: Peer) -> None:
    """SIGKILL ends the stream without waiting for any deadline, uncleanly, and then the address refuses."""
    async with network() as client:
        stream = await client.open(peer.address, STREAM, PATIENCE_MS)
        receiver = asyncio.ensure_future(stream.recv())
        await asyncio.sleep(0)
        peer.kill()
        with pytest.raises(StreamClosed) as ended:
            async with asyncio.timeout(KEEPALIVE_MS / 2_000):  # keepalive would notice it, too, much later
                await receiver
        assert not ended.value.clean
        assert await client.dial(peer.address, PATIENCE_MS) is DialResult.REFUSED
        async with asyncio.timeout(120):
            while not is_refused(await failure_of(client.open(peer.address, STREAM))):
                pass  # the first may still meet the dying connection


def test_stream_to_a_restarted_peer_opens_at_once(peer: Peer) -> None:
    """No back-off stands between a peer that listens again and its callers, however often it was refused before: while
    there is one, an attempt fails."""

    async def story() -> None:
        async with network() as client:
            await client.call(peer.address, ECHO, b"", PATIENCE_MS)
            for _ in range(3):
                await open_again(client)

    async def open_again(client: GrpcNetwork) -> None:
        peer.kill()
        for _ in range(30):
            with pytest.raises(NetworkError):
                await client.open(peer.address, STREAM)
        await asyncio.get_running_loop().run_in_executor(None, peer.start)
        stream = await client.open(peer.address, STREAM, PATIENCE_MS)
        await stream.send(b"x")
        assert await stream.recv() == b"x"

    asyncio.run(story())


async def test_frozen_peer_takes_the_deadline_and_is_not_refused(peer: Peer) -> None:
    """A stopped process is silence: dials are accepted by its kernel, calls run into their deadlines."""
    async with network() as client:
        stream = await client.open(peer.address, STREAM, PATIENCE_MS)
        peer.signal(signal.SIGSTOP)
        with pytest.raises(DeadlineExceeded):
            await client.call(peer.address, ECHO, b"", 200)
        with pytest.raises(DeadlineExceeded):
            await client.open(peer.address, STREAM, timeout_ms=200)
        assert await client.dial(peer.address, PATIENCE_MS) is DialResult.LISTENING
        peer.signal(signal.SIGCONT)
        await stream.send(b"still here")
        assert await stream.recv() == b"still here"


@pytest.mark.parametrize("wall_s", [0.0, 4e9])
async def test_a_timeout_ignores_the_wall_clock(peer: Peer, monkeypatch: pytest.MonkeyPatch, wall_s: float) -> None:
    """A test that freezes time, in the past or in the future, has its calls answered, or ended when it is time."""
    left_ms: list[float | None] = []

    async def echo(request: bytes, context: CallContext) -> bytes:
        left_ms.append(context.deadline_ms)
        return request

    monkeypatch.setattr("time.time", lambda: wall_s)
    async with network() as client, asyncio.timeout(120):
        server = await client.serve("127.0.0.1:0", Handlers({ECHO: echo}))
        assert await client.call(server.address, ECHO, b"x", PATIENCE_MS) == b"x"
        assert left_ms == [PATIENCE_MS]
        await server.stop()
        peer.signal(signal.SIGSTOP)
        with pytest.raises(DeadlineExceeded):
            await client.call(peer.address, ECHO, b"", 200)


async def test_frozen_connection_attempt_is_not_a_refusal(peer: Peer) -> None:
    """A first connection to a stopped process fails by time, never as refused."""
    async with network(GrpcOptions()) as client, asyncio.timeout(120):
        peer.signal(signal.SIGSTOP)
        failed = await failure_of(client.call(peer.address, ECHO, b"", 2000))
        assert failed is not None
        assert not is_refused(failed)
        peer.signal(signal.SIGCONT)
        while failed := await failure_of(client.call(peer.address, ECHO, b"", 5000)):
            assert not is_refused(failed)  # to wake up may take longer than an attempt to connect
        assert await client.call(peer.address, ECHO, b"again", PATIENCE_MS) == b"again"


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nobody.invalid:50061", "hangs-up"])
async def test_a_call_without_a_connection_is_undelivered(address: str) -> None:
    """Refused, a name that nobody has, or a peer that hangs up before it has said a word: it did not get the call."""

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    there = f"127.0.0.1:{server.sockets[0].getsockname()[1]}" if address == "hangs-up" else address
    async with server, network() as client:
        failed = await failure_of(client.call(there, ECHO, b"", PATIENCE_MS))
    assert isinstance(failed, PeerUnavailable)
    assert failed.undelivered
    assert failed.refused == (address == "127.0.0.1:1")


async def test_a_call_whose_connection_breaks_may_have_been_delivered() -> None:
    """The peer had it when it went away; and what a peer says of its own peers is no refusal by itself."""
    asked = asyncio.Event()

    async def gone(request: bytes, _: CallContext) -> bytes:
        if request:
            raise CallRejected(f"no controller: {request.decode()}", status="UNAVAILABLE")
        asked.set()
        await asyncio.get_running_loop().create_future()
        raise AssertionError("nobody answers it")

    async with network() as client, network() as host:
        server = await host.serve("127.0.0.1:0", Handlers({ECHO: gone}))
        words = b"failed to connect to all addresses; last error: Connection refused"
        passed_on = await failure_of(client.call(server.address, ECHO, words, PATIENCE_MS))
        sent = asyncio.ensure_future(failure_of(client.call(server.address, ECHO, b"", PATIENCE_MS)))
        await asked.wait()
        await server.stop(0)
        for failed in (passed_on, await sent):
            assert isinstance(failed, PeerUnavailable)
            assert not failed.undelivered, failed
            assert not failed.refused


async def test_a_channel_that_is_put_aside_lives_as_long_as_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else finds the channel broken and takes a new one; a call and a stream on the old one go on."""
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slow(request: bytes, _: CallContext) -> bytes:
        if request == b"slow":
            asked.set()
            await answer.wait()
        return request

    async def echo(stream: Stream, _: CallContext) -> None:
        while True:
            await stream.send(await stream.recv())

    async with network() as client, network() as host:
        server = await host.serve("127.0.0.1:0", Handlers({ECHO: slow}, {STREAM: echo}))
        stream = await client.open(server.address, STREAM, PATIENCE_MS)
        first = asyncio.ensure_future(client.call(server.address, ECHO, b"slow", PATIENCE_MS))
        await asked.wait()
        with monkeypatch.context() as patch:
            patch.setattr(grpc.aio.Channel, "get_state", lambda *_: grpc.ChannelConnectivity.TRANSIENT_FAILURE)
            assert await client.call(server.address, ECHO, b"new", PATIENCE_MS) == b"new"
        answer.set()
        assert await first == b"slow"
        await stream.send(b"still here")
        assert await stream.recv() == b"still here"
        stream.close()
        await server.stop(0)


async def test_port_held_by_another_process_is_named(peer: Peer) -> None:
    """Two processes never share a port in silence."""
    async with network() as client:
        with pytest.raises(OSError, match=peer.address):
            await client.serve(peer.address, Handlers())
        with pytest.raises(OSError, match="nonsense"):
            await client.serve("127.0.0.1:nonsense", Handlers())


async def test_half_closed_stream_of_a_foreign_client_gets_all_its_answers() -> None:
    """gRPC's idiom in other languages: send all, close the sending direction, read on to the end."""

    async def counts(stream: Stream, _: CallContext) -> None:
        received = [await stream.recv(), await stream.recv()]
        with pytest.raises(StreamClosed) as ended:
            await stream.recv()
        assert ended.value.clean
        await stream.send(b"".join(received))

    async with network() as served:
        server = await served.serve("127.0.0.1:0", Handlers(streams={STREAM: counts}))
        async with grpc.aio.insecure_channel(server.address) as channel:
            method: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(STREAM)
            call = method(iter([b"abc", b"de"]))
            assert [answer async for answer in call] == [b"abcde"]
        await server.stop()


async def test_health_follows_set_serving() -> None:
    """The standard health service answers for the server and for each named service."""
    async with network() as served:
        server = await served.serve("127.0.0.1:0", Handlers(services=["grpc.health.v1.Health"]))
        async with grpc.aio.insecure_channel(server.address) as channel:
            health: Any = health_pb2_grpc.HealthStub(channel)  # the stubs lack its methods
            for serving, expected in ((True, "SERVING"), (False, "NOT_SERVING")):
                server.set_serving(serving)
                for service in ("", "grpc.health.v1.Health"):
                    answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
                    assert health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status) == expected
        await server.stop()


def http2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def http2_request(path: str) -> bytes:
    """The start of a gRPC call, headers as literals without compression."""
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x")]
    fields += [("te", "trailers"), ("content-type", "application/grpc")]
    block = b"".join(
        b"\x00" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode() for name, value in fields
    )
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2_frame(4, 0, 0, b"") + http2_frame(1, 4, 1, block)


ABUSES = {
    "silent": b"",
    "half a preface": b"PRI * HTTP/2.0",
    "half a request": http2_request(ECHO)
    + http2_frame(0, 0, 1, b"\x00" + (8 * MIB).to_bytes(4, "big") + bytes(16_000)),
    "claims 2 GiB": http2_request(ECHO)
    + http2_frame(0, 0, 1, b"\x00" + (2**31 - 1).to_bytes(4, "big") + bytes(16_000)),
    "never reads": http2_request(STREAM)
    + http2_frame(0, 0, 1, b"\x00" + (15_000).to_bytes(4, "big") + bytes(15_000)) * 4,
}


@pytest.mark.slow
@pytest.mark.parametrize("abuse", ABUSES)
async def test_a_thousand_hostile_connections_stay_small(peer: Peer, abuse: str) -> None:
    """Clients that never read, send half or claim 2 GiB cost less than 128 MiB together, and others are served on."""
    async with network() as client:
        await client.call(peer.address, ECHO, b"warm", PATIENCE_MS)
        before = peer.resident_bytes()
        host, _, port = peer.address.rpartition(":")
        with contextlib.ExitStack() as connections:
            for _ in range(1000):
                connection = connections.enter_context(socket.create_connection((host, int(port))))
                connection.sendall(ABUSES[abuse])
            for _ in range(20):
                assert await client.call(peer.address, ECHO, bytes(1000), PATIENCE_MS) == bytes(1000)
            assert peer.resident_bytes() - before < 128 * MIB


# --- How much one connection may take ---------------------------------------------------------------------------------


def test_one_connection_cannot_take_all_streams_from_the_others() -> None:
    """A full server refuses whoever has many streams and still takes the first ones of everybody else."""
    admission = StreamAdmission(10)
    assert all(admission.admit("greedy") for _ in range(10))
    assert not admission.admit("greedy")
    assert all(admission.admit("honest") for _ in range(STREAMS_OF_EVERYBODY))
    assert not admission.admit("honest")


def test_a_stream_that_ended_makes_room() -> None:
    """Closing a stream gives its place back."""
    admission = StreamAdmission(STREAMS_OF_EVERYBODY)
    for _ in range(STREAMS_OF_EVERYBODY):
        assert admission.admit("one")
    assert not admission.admit("one")
    admission.release("one")
    assert admission.admit("one")


def test_large_responses_that_nobody_reads_are_bounded() -> None:
    """Beyond the bound a large response is refused, a small one never; the first passes whatever its size."""
    unread = UnreadResponses(100, counted_from_bytes=10)
    assert unread.admit(150) == 150
    assert unread.admit(10) is None
    assert unread.admit(9) == 0
    unread.release(150)
    assert unread.admit(100) == 100


# --- A peer that is gone without a word -------------------------------------------------------------------------------


QUICK = GrpcOptions(connect_timeout_ms=30_000, keepalive_ms=500, keepalive_timeout_ms=2_000)
PATIENCE_S = 60


class Wire:
    """Passes bytes on between a client and a server, until it is cut: then it takes them and passes nothing on."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._cut = False
        self._writers: list[asyncio.StreamWriter] = []

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._server.rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        self._writers += [writer, far_writer]
        await asyncio.gather(self._pass_on(reader, far_writer), self._pass_on(far_reader, writer))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                if not self._cut:
                    writer.write(data)

    def cut(self) -> None:
        self._cut = True

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


async def answer_the_first(stream: Stream, call: CallContext) -> None:
    await stream.send(await stream.recv())
    with contextlib.suppress(StreamClosed):
        await stream.recv()


async def story() -> None:
    network = GrpcNetwork(QUICK)
    server = await network.serve("127.0.0.1:0", Handlers({}, {STREAM: answer_the_first}))
    wire = Wire(server.address)
    listening = await asyncio.start_server(wire.take, "127.0.0.1", 0)
    try:
        port = listening.sockets[0].getsockname()[1]
        stream = await network.open(f"127.0.0.1:{port}", STREAM, PATIENCE_S * 1000)
        await stream.send(b"once")
        assert await stream.recv() == b"once"
        wire.cut()
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(StreamClosed):
                await stream.recv()
    finally:
        wire.close()
        listening.close()
        await network.close()
        await server.stop(0)


def test_who_only_waits_learns_that_the_other_side_is_gone() -> None:
    """A follower that has asked for everything sends nothing more; it must not wait for ever for an answer."""
    asyncio.run(story())
