"""The port of byte streams keeps the same promises over TCP and in the simulated world."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import pytest
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.net.bytes import BYTES, SimBytes
from odradek_chaos.worlds.simulated.net.fabric import SimFabric
from odradek_chaos.worlds.simulated.net.network import SimNetwork
from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.transport.ports import ByteConnection, Network, StreamClosed

from tests.playing import plays

SIZE = 3_000_000


class Echo:
    """Sends back what comes; reads no further while the other side does not take it."""

    def __init__(self, connection: ByteConnection) -> None:
        self.connection = connection
        self.got = 0
        self.full = self.lost = 0
        self.missing = 0
        self._room = memoryview(bytearray(10_000))
        self.ended = asyncio.Event()

    def room(self) -> memoryview:
        return self._room

    def on_bytes(self, count: int) -> None:
        self.got += count
        self.connection.write([bytes(self._room[:count])])

    def on_full(self) -> None:
        self.full += 1
        self.connection.pause()

    def on_drained(self) -> None:
        self.connection.resume()

    def on_lost(self) -> None:
        self.lost += 1
        self.ended.set()


class Peer(Protocol):
    """The dialling side."""

    async def send(self, data: bytes) -> None: ...

    async def receive(self) -> bytes:
        """Some bytes; none at the end."""
        ...

    def hang_up(self) -> None: ...


Dial = Callable[[str], Coroutine[Any, Any, Peer]]
Story = Callable[[Network, Dial], Coroutine[Any, Any, None]]


class TcpPeer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def receive(self) -> bytes:
        return await self._reader.read(5_000)

    def hang_up(self) -> None:
        self._writer.close()


def over_tcp(story: Story) -> None:
    async def dial(address: str) -> Peer:
        host, _, port = address.rpartition(":")
        return TcpPeer(*await asyncio.open_connection(host, int(port)))

    async def main() -> None:
        network = GrpcNetwork()
        async with asyncio.timeout(60):
            await story(network, dial)
        await network.close()

    asyncio.run(main())


class SimPeer:
    """Takes and sends the messages of which a simulated byte stream is made."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def send(self, data: bytes) -> None:
        for start in range(0, len(data), 50_000):
            await self._stream.send(data[start : start + 50_000])

    async def receive(self) -> bytes:
        try:
            return bytes(await self._stream.recv())
        except StreamClosed:
            return b""

    def hang_up(self) -> None:
        self._stream.close()


def simulated(story: Story) -> None:
    loop = SimLoop(seed=7)
    fabric = SimFabric(loop, random.Random(7))
    client, server = SimNetwork(fabric, "client"), SimNetwork(fabric, "server")

    async def dial(address: str) -> Peer:
        return SimPeer(await client.open(address, BYTES))

    loop.run_until_complete(story(server, dial))


worlds = pytest.mark.parametrize("world", [over_tcp, simulated])


@worlds
@plays("world")
async def test_bytes_arrive_whole_and_in_order_and_go_back(network: Network, dial: Dial) -> None:
    """However they are cut up; a receiver that is full is told, and goes on later."""
    accepted: list[Echo] = []

    def accept(connection: ByteConnection) -> Echo:
        accepted.append(Echo(connection))
        return accepted[-1]

    server = await network.listen_bytes("127.0.0.1:0", accept)
    peer = await dial(server.address)
    data = random.Random(1).randbytes(SIZE)
    sending = asyncio.ensure_future(peer.send(data))
    back = bytearray()
    while len(back) < SIZE:
        piece = await peer.receive()
        assert piece
        back += piece
    await sending
    assert bytes(back) == data
    peer.hang_up()
    await accepted[0].ended.wait()
    assert (accepted[0].got, accepted[0].lost) == (SIZE, 1)
    await server.stop()


@worlds
@plays("world")
async def test_a_closed_connection_sends_what_was_written_and_an_aborted_one_ends(network: Network, dial: Dial) -> None:
    """So an answer can be the last thing that a client hears."""

    def accept(connection: ByteConnection) -> Echo | None:
        connection.write([b"good", memoryview(b"bye" * 10_000)])
        connection.close()
        return Echo(connection)

    server = await network.listen_bytes("127.0.0.1:0", accept)
    peer = await dial(server.address)
    heard = b""
    while piece := await peer.receive():
        heard += piece
    assert heard == b"good" + b"bye" * 10_000
    await server.stop()


@worlds
@plays("world")
async def test_who_is_not_taken_and_who_is_still_there_at_the_end_is_hung_up_on(network: Network, dial: Dial) -> None:
    """The first connection is taken, the second is not; the listener's end ends the first."""
    accepted: list[Echo] = []

    def accept(connection: ByteConnection) -> Echo | None:
        if accepted:
            return None
        accepted.append(Echo(connection))
        return accepted[0]

    server = await network.listen_bytes("127.0.0.1:0", accept)
    first, second = await dial(server.address), await dial(server.address)
    await first.send(b"hello")
    assert await first.receive()
    assert not await ended(second)
    await server.stop()
    assert not await ended(first)
    await accepted[0].ended.wait()


async def ended(peer: Peer) -> bytes:
    """What else comes before the end: nothing, or the connection was reset."""
    try:
        return await peer.receive()
    except ConnectionError:
        return b""


def test_a_simulated_stream_arrives_in_small_pieces() -> None:
    """A message of the link is no boundary: receivers see single bytes, parts and wholes."""
    sizes: set[int] = set()

    class Measuring(Echo):
        def on_bytes(self, count: int) -> None:
            sizes.add(count)

    async def story(network: Network, dial: Dial) -> None:
        server = await network.listen_bytes("127.0.0.1:0", Measuring)
        peer = await dial(server.address)
        await peer.send(bytes(2_000_000))
        peer.hang_up()
        await server.stop(60_000)

    simulated(story)
    assert 1 in sizes
    assert len(sizes) > 20


def test_a_simulated_connection_that_is_aborted_drops_what_it_has() -> None:
    """As a reset does."""

    class Silent:
        peer = "b:1"

        def __init__(self) -> None:
            self.closed = False

        async def send(self, message: bytes) -> None:
            raise AssertionError(message)

        async def recv(self) -> bytes:
            raise StreamClosed

        def close(self) -> None:
            self.closed = True

    stream = Silent()
    connection = SimBytes(stream, random.Random(1))
    connection.write([b"never"])
    assert connection.unsent_bytes == 5
    connection.abort()
    assert connection.unsent_bytes == 0
    assert stream.closed
