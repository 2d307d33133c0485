"""A connection that the other side has given up in silence: nothing comes any more, not even its end."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.transport.grpc_options import GrpcOptions
from odradek_proto.transport.ports import CallContext, Handlers, Stream, StreamClosed

STREAM = "/odradek.test.Peer/Stream"
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
