"""The real and the simulated adapters keep the same promises of the ports."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.net.fabric import SimFabric
from odradek_chaos.worlds.simulated.net.network import SimNetwork
from odradek_proto.transport.files import OsFiles
from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.transport.grpc_options import GrpcOptions
from odradek_proto.transport.ports import (
    CallContext,
    CallRejected,
    DeadlineExceeded,
    DialResult,
    Files,
    Handlers,
    Network,
    NetworkError,
    PeerUnavailable,
    Server,
    Stream,
    StreamClosed,
    StreamHandler,
)

from tests.playing import plays

ANY_PORT = "127.0.0.1:0"
STREAM = "/odradek.test.Port/Stream"
LONG_MS = 15_000  # for what succeeds, however slow this machine is
WIRE_ROUNDING_MS = 100  # gRPC sends three digits, rounded up: from ten seconds on in steps of 100 ms
UNARY = "/odradek.test.Port/Unary"

Story = Callable[[Network, Network], Coroutine[Any, Any, None]]
World = Callable[[Story], None]


class TidyNetwork(GrpcNetwork):
    """Remembers its servers, so that a story that fails leaves none behind."""

    def __init__(self) -> None:
        super().__init__(GrpcOptions(connect_timeout_ms=LONG_MS))  # a machine that stands still is no silent peer
        self.servers: list[Server] = []

    async def serve(self, address: str, handlers: Handlers) -> Server:
        server = await super().serve(address, handlers)
        self.servers.append(server)
        return server


def real_world(story: Story) -> None:
    async def main() -> None:
        client, server = TidyNetwork(), TidyNetwork()
        try:
            async with asyncio.timeout(60):
                await story(client, server)
        finally:
            for listening in server.servers + client.servers:
                await listening.stop()
            await client.close()
            await server.close()

    asyncio.run(main())


def simulated_world(story: Story) -> None:
    loop = SimLoop(seed=7)
    fabric = SimFabric(loop, loop.fork_rng("fabric"))
    loop.run(story(SimNetwork(fabric, "client"), SimNetwork(fabric, "server")), limit_s=20)
    assert loop.unhandled == []


@pytest.fixture(params=[real_world, simulated_world], ids=["real", "simulated"])
def world(request: pytest.FixtureRequest) -> World:
    chosen: World = request.param
    return chosen


def streams(handler: StreamHandler) -> Handlers:
    return Handlers(streams={STREAM: handler})


async def echo(stream: Stream, _: CallContext) -> None:
    while True:
        await stream.send(await stream.recv())


async def ending(stream: Stream) -> StreamClosed:
    """Receive until the stream ends."""
    while True:
        try:
            await stream.recv()
        except StreamClosed as end:
            return end


async def until_refused(attempt: Callable[[], Awaitable[object]]) -> None:
    """Ask until the peer's kernel refuses; before that one may meet the connection that is about to end."""
    while True:
        with pytest.raises(PeerUnavailable) as failed:
            await attempt()
        if failed.value.refused:
            return


@plays("world")
async def test_unary_call_carries_bytes_and_deadline(client: Network, server: Network) -> None:
    """A handler gets the request's bytes and the time that the caller leaves it."""
    seen: list[CallContext] = []

    async def handler(request: bytes, call: CallContext) -> bytes:
        seen.append(call)
        return request[::-1]

    listening = await server.serve(ANY_PORT, Handlers(unary={UNARY: handler}))
    assert await client.call(listening.address, UNARY, b"abc", LONG_MS) == b"cba"
    assert await client.call(listening.address, UNARY, b"", LONG_MS) == b""
    assert seen[0].deadline_ms is not None
    assert 0 < seen[0].deadline_ms <= LONG_MS + WIRE_ROUNDING_MS
    await listening.stop()


@plays("world")
async def test_unary_failures_have_their_own_errors(client: Network, server: Network) -> None:
    """Unknown method, failing handler, late answer and refusal can be told apart."""

    async def fails(_: bytes, __: CallContext) -> bytes:
        raise ZeroDivisionError

    async def hangs(_: bytes, __: CallContext) -> bytes:
        await asyncio.Event().wait()
        return b""

    listening = await server.serve(ANY_PORT, Handlers(unary={"/t.T/Fails": fails, "/t.T/Hangs": hangs}))
    peer = listening.address
    with pytest.raises(CallRejected) as rejected:
        await client.call(peer, "/t.T/Unknown", b"", LONG_MS)
    assert rejected.value.status == "UNIMPLEMENTED"
    with pytest.raises(CallRejected) as rejected:
        await client.call(peer, "/t.T/Fails", b"", LONG_MS)
    assert rejected.value.status == "INTERNAL"
    with pytest.raises(CallRejected) as rejected:
        await client.call(peer, "/t.T/Fails", bytes(17 * 1024 * 1024), LONG_MS)
    assert rejected.value.status == "RESOURCE_EXHAUSTED"
    with pytest.raises(DeadlineExceeded):
        await client.call(peer, "/t.T/Hangs", b"", 100)
    await listening.stop()
    await until_refused(lambda: client.call(peer, "/t.T/Hangs", b"", LONG_MS))


@pytest.mark.parametrize(("status", "received"), [("UNAVAILABLE", PeerUnavailable), ("INVALID_ARGUMENT", CallRejected)])
def test_a_handler_refuses_with_a_status_of_its_own(
    world: World, status: str, received: type[NetworkError], caplog: pytest.LogCaptureFixture
) -> None:
    """A refusal on purpose reaches the caller as it was meant, and is not logged as a failure."""

    async def story(client: Network, server: Network) -> None:
        async def refuses(_: bytes, __: CallContext) -> bytes:
            raise CallRejected("not today", status=status)

        async def breaks_off(stream: Stream, _: CallContext) -> None:
            await stream.recv()
            raise CallRejected("not today", status=status)

        listening = await server.serve(ANY_PORT, Handlers(unary={UNARY: refuses}, streams={STREAM: breaks_off}))
        with pytest.raises(received, match="not today") as rejected:
            await client.call(listening.address, UNARY, b"", LONG_MS)
        assert getattr(rejected.value, "status", "UNAVAILABLE") == status
        stream = await client.open(listening.address, STREAM, LONG_MS)
        await stream.send(b"")
        assert not (await ending(stream)).clean
        await listening.stop()

    world(story)
    assert [record for record in caplog.records if record.exc_info] == []


@plays("world")
async def test_stream_keeps_the_order_of_messages(client: Network, server: Network) -> None:
    """Messages of any size come back in the order in which they were sent."""
    listening = await server.serve(ANY_PORT, streams(echo))
    stream = await client.open(listening.address, STREAM, LONG_MS)
    sent = [bytes([number % 251]) * (number * 997 % 70_000) for number in range(60)]
    sender = asyncio.ensure_future(send_all(stream, sent))
    assert [await stream.recv() for _ in sent] == sent
    await sender
    stream.close()
    await listening.stop()


async def send_all(stream: Stream, messages: list[bytes]) -> None:
    for message in messages:
        await stream.send(message)


@plays("world")
async def test_open_fails_as_calls_do(client: Network, server: Network) -> None:
    """A stream to an unknown method is rejected; one to nobody is refused."""
    listening = await server.serve(ANY_PORT, streams(echo))
    with pytest.raises(CallRejected) as rejected:
        await client.open(listening.address, "/t.T/Unknown", LONG_MS)
    assert rejected.value.status == "UNIMPLEMENTED"
    await listening.stop()
    await until_refused(lambda: client.open(listening.address, STREAM, LONG_MS))


@plays("world")
async def test_closing_delivers_what_was_sent_and_then_a_clean_end(client: Network, server: Network) -> None:
    """The other side receives every message and then `StreamClosed` with `clean`; here, `recv` ends too."""
    received: list[bytes] = []
    end: asyncio.Future[StreamClosed] = asyncio.get_running_loop().create_future()

    async def collect(stream: Stream, _: CallContext) -> None:
        try:
            while True:
                received.append(await stream.recv())
        except StreamClosed as closed:
            end.set_result(closed)

    listening = await server.serve(ANY_PORT, streams(collect))
    stream = await client.open(listening.address, STREAM, LONG_MS)
    receiver = asyncio.ensure_future(ending(stream))
    await send_all(stream, [b"1", b"2", b"3"])
    stream.close()
    stream.close()
    assert (await end).clean
    assert received == [b"1", b"2", b"3"]
    await receiver
    with pytest.raises(StreamClosed):
        await stream.send(b"4")
    with pytest.raises(StreamClosed):
        await stream.recv()
    await listening.stop()


@plays("world")
async def test_returning_handler_ends_the_stream_cleanly(client: Network, server: Network) -> None:
    """What a handler sent before it returned arrives, and then a clean end."""

    async def handler(stream: Stream, _: CallContext) -> None:
        await send_all(stream, [b"a", b"b"])

    listening = await server.serve(ANY_PORT, streams(handler))
    stream = await client.open(listening.address, STREAM, LONG_MS)
    assert [await stream.recv(), await stream.recv()] == [b"a", b"b"]
    assert (await ending(stream)).clean
    await listening.stop()


@plays("world")
async def test_failing_handler_ends_the_stream_uncleanly(client: Network, server: Network) -> None:
    """A handler that raises is no clean end."""

    async def handler(stream: Stream, _: CallContext) -> None:
        await stream.recv()
        raise ZeroDivisionError

    listening = await server.serve(ANY_PORT, streams(handler))
    stream = await client.open(listening.address, STREAM, LONG_MS)
    await stream.send(b"")
    assert not (await ending(stream)).clean
    await listening.stop()


@plays("world")
async def test_server_side_close_ends_both_sides_while_the_handler_goes_on(client: Network, server: Network) -> None:
    """`close` on the serving side works from anywhere and does not wait for the handler."""
    ends: list[Stream] = []
    opened, released = asyncio.Event(), asyncio.Event()

    async def handler(stream: Stream, _: CallContext) -> None:
        ends.append(stream)
        opened.set()
        await released.wait()

    listening = await server.serve(ANY_PORT, streams(handler))
    stream = await client.open(listening.address, STREAM, LONG_MS)
    await opened.wait()
    ends[0].close()
    assert (await ending(stream)).clean
    with pytest.raises(StreamClosed):
        await ends[0].recv()
    released.set()
    await listening.stop()


@plays("world")
async def test_send_waits_for_a_receiver_that_is_behind(client: Network, server: Network) -> None:
    """Flow control: not everything fits on the way, and everything arrives once somebody receives."""
    chunk, count = bytes(256 * 1024), 40
    go = asyncio.Event()
    arrived: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def slow(stream: Stream, _: CallContext) -> None:
        await go.wait()
        arrived.set_result(sum([len(await stream.recv()) for _ in range(count)]))

    listening = await server.serve(ANY_PORT, streams(slow))
    stream = await client.open(listening.address, STREAM, LONG_MS)
    sender = asyncio.ensure_future(send_all(stream, [chunk] * count))
    _, waiting = await asyncio.wait((sender,), timeout=0.5)
    assert waiting
    go.set()
    assert await arrived == count * len(chunk)
    await sender
    await listening.stop()


@plays("world")
async def test_cancelled_recv_loses_nothing(client: Network, server: Network) -> None:
    """A `recv` that timed out can be called again and gets the next message."""
    listening = await server.serve(ANY_PORT, streams(echo))
    stream = await client.open(listening.address, STREAM, LONG_MS)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(stream.recv(), 0.05)
    await stream.send(b"still there")
    assert await stream.recv() == b"still there"
    stream.close()
    await listening.stop()


@plays("world")
async def test_cancelled_send_closes_the_stream(client: Network, server: Network) -> None:
    """Nobody could say whether the message went out, so the stream ends."""

    async def deaf(_: Stream, __: CallContext) -> None:
        await asyncio.Event().wait()

    listening = await server.serve(ANY_PORT, streams(deaf))
    stream = await client.open(listening.address, STREAM, LONG_MS)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(send_all(stream, [bytes(1024 * 1024)] * 20), 0.3)
    with pytest.raises(StreamClosed):
        await stream.send(b"")
    await listening.stop()


@plays("world")
async def test_handler_outlives_its_caller(client: Network, server: Network) -> None:
    """A stream's handler is told of the end by `StreamClosed` and is not cancelled."""
    finished = asyncio.Event()

    async def handler(stream: Stream, _: CallContext) -> None:
        await ending(stream)
        await asyncio.wait_for(asyncio.sleep(0), 1)
        finished.set()

    listening = await server.serve(ANY_PORT, streams(handler))
    await client.open(listening.address, STREAM, LONG_MS)
    await client.close()
    await finished.wait()
    await listening.stop()


@plays("world")
async def test_stop_ends_streams_and_refuses_calls(client: Network, server: Network) -> None:
    """After `stop` nobody listens, streams have ended on purpose, and handlers that go on are cancelled."""
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def stubborn(_: Stream, __: CallContext) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    listening = await server.serve(ANY_PORT, streams(stubborn))
    assert await client.dial(listening.address, LONG_MS) is DialResult.LISTENING
    stream = await client.open(listening.address, STREAM, LONG_MS)
    await begun.wait()
    await listening.stop()
    assert (await ending(stream)).clean
    await cancelled.wait()
    assert await client.dial(listening.address, LONG_MS) is DialResult.REFUSED
    again = await server.serve(listening.address, streams(echo))
    assert again.address == listening.address
    await again.stop()


@plays("world")
async def test_a_stream_that_is_accepted_while_the_server_stops_ends_on_purpose(
    client: Network, server: Network
) -> None:
    """Whether its handler has begun or not: who is told that a stream broke off takes the other side for dead."""
    for _ in range(20):
        listening = await server.serve(ANY_PORT, streams(echo))
        stream = await client.open(listening.address, STREAM, LONG_MS)
        await listening.stop()
        assert (await ending(stream)).clean


@plays("world")
async def test_taken_address_is_named(client: Network, server: Network) -> None:
    """Two servers cannot share an address, and the error says which one."""
    listening = await server.serve(ANY_PORT, streams(echo))
    with pytest.raises(OSError, match=listening.address):
        await client.serve(listening.address, streams(echo))
    await listening.stop()


# --- files ---------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["real", "simulated"])
def files_and_root(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    if request.param == "real":
        return OsFiles(), str(tmp_path)
    files = SimFiles(SimDisk(random.Random(1)), SimLoop(), random.Random(2))
    files.makedirs("/data/dir")
    return files, "/data/dir"


def test_files_read_and_write_at_positions(files_and_root: tuple[Files, str]) -> None:
    """Writes of many buffers are whole, gaps are zeros, reads stop at the end of the file."""
    files, root = files_and_root
    file = files.open(f"{root}/log", create=True)
    parts = [bytes([number % 256]) * (number % 7) for number in range(3000)]
    whole = b"".join(parts)
    assert file.pwritev([*parts[:2999], memoryview(parts[2999])], 0) == len(whole)
    assert file.pread(0, len(whole) + 10) == whole
    assert file.pwritev([b"xyz", bytearray(b"!")], len(whole) + 5) == 4
    assert file.pread(len(whole), 100) == bytes(5) + b"xyz!"
    assert file.pwritev([], 0) == 0
    file.truncate(10)
    assert (file.size(), files.size(f"{root}/log")) == (10, 10)
    file.truncate(12)
    assert file.pread(8, 10) == whole[8:10] + bytes(2)
    file.fsync()
    file.close()
    file.close()
    with pytest.raises(OSError):
        file.pread(0, 1)


def test_files_have_the_errors_of_a_file_system(files_and_root: tuple[Files, str]) -> None:
    """What is absent, in the way or not empty is refused with the system's own error."""
    files, root = files_and_root
    with pytest.raises(FileNotFoundError):
        files.open(f"{root}/absent")
    with pytest.raises(FileNotFoundError):
        files.open(f"{root}/absent/log", create=True)
    with pytest.raises(FileNotFoundError):
        files.list(f"{root}/absent")
    with pytest.raises(FileNotFoundError):
        files.remove(f"{root}/absent")
    with pytest.raises(FileNotFoundError):
        files.size(f"{root}/absent")
    files.open(f"{root}/file", create=True).close()
    files.makedirs(f"{root}/a/b")
    files.makedirs(f"{root}/a/b")
    with pytest.raises(IsADirectoryError):
        files.rename(f"{root}/file", f"{root}/a")
    with pytest.raises(NotADirectoryError):
        files.list(f"{root}/file")
    with pytest.raises(OSError):
        files.rename(f"{root}/a/b", f"{root}/a")


def test_rename_replaces_and_moves_directories(files_and_root: tuple[Files, str]) -> None:
    """A renamed file replaces its target; a renamed directory takes its files along; open files stay what they are."""
    files, root = files_and_root
    files.makedirs(f"{root}/topic-0")
    old = files.open(f"{root}/topic-0/log", create=True)
    old.pwritev([b"old"], 0)
    new = files.open(f"{root}/topic-0/log.new", create=True)
    new.pwritev([b"new"], 0)
    files.rename(f"{root}/topic-0/log.new", f"{root}/topic-0/log")
    assert files.list(f"{root}/topic-0") == ["log"]
    assert old.pread(0, 9) == b"old"
    files.fsync_dir(f"{root}/topic-0")
    files.rename(f"{root}/topic-0", f"{root}/topic-0-delete")
    assert files.open(f"{root}/topic-0-delete/log").pread(0, 9) == b"new"
    assert (files.exists(f"{root}/topic-0"), files.is_dir(f"{root}/topic-0-delete")) == (False, True)
    files.remove_tree(f"{root}/topic-0-delete")
    assert files.list(root) == []
    assert files.free_bytes(root) > 0


def test_lock_excludes_until_it_is_closed(files_and_root: tuple[Files, str]) -> None:
    """The second taker of a lock gets `BlockingIOError`, until the first lets go."""
    files, root = files_and_root
    first = files.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        files.lock(f"{root}/.lock")
    first.close()
    files.lock(f"{root}/.lock").close()


def test_offloaded_work_returns_and_raises() -> None:
    """`offload` hands back the result, or the exception, of the work."""

    async def story(files: Files) -> None:
        assert await files.offload(lambda: 6 * 7) == 42
        with pytest.raises(ZeroDivisionError):
            await files.offload(lambda: 1 // 0)

    asyncio.run(story(OsFiles()))
    loop = SimLoop()
    loop.run(story(SimFiles(SimDisk(random.Random(1)), loop, random.Random(2))))
    assert loop.now_us > 0
