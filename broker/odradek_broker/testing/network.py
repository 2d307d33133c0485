"""The network of one broker in a process that outlives it.

A killed process says nothing more: no answer, no end of a stream. So a killed broker is first cut off, at once and
between two steps of its loop, and only then are its listeners and connections closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from odradek_proto.security.tls import PeerCertificate
from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.transport.ports import (
    Accept,
    Buffer,
    ByteConnection,
    ByteReceiver,
    CallContext,
    DialResult,
    Handlers,
    PeerUnavailable,
    Server,
    Stream,
    StreamClosed,
    StreamHandler,
    UnaryHandler,
)

GONE = "this broker was killed"


class BrokerStream:
    """One end of a stream that falls silent when its broker is killed."""

    def __init__(self, network: BrokerNetwork, stream: Stream) -> None:
        self._network = network
        self._stream = stream

    @property
    def peer(self) -> str:
        return self._stream.peer

    async def send(self, message: bytes) -> None:
        if self._network.is_cut:
            raise StreamClosed(GONE)
        await self._stream.send(message)

    async def recv(self) -> bytes:
        message = await self._stream.recv()
        if self._network.is_cut:
            raise StreamClosed(GONE)
        return message

    def close(self) -> None:
        self._stream.close()


class BrokerReceiver:
    """What takes the bytes of one connection, until its broker is killed: then they go nowhere."""

    def __init__(self, network: BrokerNetwork, receiver: ByteReceiver) -> None:
        self._network = network
        self._receiver = receiver

    def room(self) -> memoryview:
        return self._receiver.room()

    def on_bytes(self, count: int) -> None:
        if not self._network.is_cut:
            self._receiver.on_bytes(count)

    def on_full(self) -> None:
        self._receiver.on_full()

    def on_drained(self) -> None:
        if not self._network.is_cut:
            self._receiver.on_drained()

    def on_lost(self) -> None:
        self._receiver.on_lost()


class BrokerConnection:
    """One accepted connection, on which nothing is said any more once its broker is killed."""

    def __init__(self, network: BrokerNetwork, connection: ByteConnection) -> None:
        self._network = network
        self._connection = connection

    @property
    def peer(self) -> str:
        return self._connection.peer

    @property
    def certificate(self) -> PeerCertificate | None:
        return self._connection.certificate

    @property
    def unsent_bytes(self) -> int:
        return self._connection.unsent_bytes

    def write(self, buffers: Sequence[Buffer]) -> None:
        if not self._network.is_cut:
            self._connection.write(buffers)

    def pause(self) -> None:
        self._connection.pause()

    def resume(self) -> None:
        self._connection.resume()

    def close(self) -> None:
        self._connection.close()

    def abort(self) -> None:
        self._connection.abort()


class BrokerNetwork:
    """`Network` of one life of one broker, over gRPC; `cut` and `end` when it is killed."""

    def __init__(self) -> None:
        self.is_cut = False
        self._grpc = GrpcNetwork()
        self._servers: list[Server] = []

    def cut(self) -> None:
        """Say and hear nothing from this moment on."""
        self.is_cut = True

    async def end(self) -> None:
        """Close listeners and connections of a broker that was cut off."""
        for server in self._servers:
            await server.stop(0)
        await self._grpc.close()

    # --- Network ----------------------------------------------------------------------------------------------------

    async def call(self, peer: str, method: str, request: bytes, timeout_ms: float) -> bytes:
        self._unless_cut()
        answer = await self._grpc.call(peer, method, request, timeout_ms)
        self._unless_cut()
        return answer

    async def open(self, peer: str, method: str, timeout_ms: float = 5000) -> Stream:
        self._unless_cut()
        return BrokerStream(self, await self._grpc.open(peer, method, timeout_ms))

    async def dial(self, peer: str, timeout_ms: float) -> DialResult:
        return DialResult.SILENT if self.is_cut else await self._grpc.dial(peer, timeout_ms)

    async def serve(self, address: str, handlers: Handlers) -> Server:
        guarded = replace(
            handlers,
            unary={method: self._unary(handler) for method, handler in handlers.unary.items()},
            streams={method: self._streaming(handler) for method, handler in handlers.streams.items()},
        )
        server = await self._grpc.serve(address, guarded)
        self._servers.append(server)
        return server

    async def listen_bytes(self, address: str, accept: Accept) -> Server:
        def guarded(connection: ByteConnection) -> ByteReceiver | None:
            receiver = None if self.is_cut else accept(BrokerConnection(self, connection))
            return None if receiver is None else BrokerReceiver(self, receiver)

        server = await self._grpc.listen_bytes(address, guarded)
        self._servers.append(server)
        return server

    async def close(self) -> None:
        if not self.is_cut:
            await self._grpc.close()

    def _unless_cut(self) -> None:
        if self.is_cut:
            raise PeerUnavailable(GONE)

    def _unary(self, handler: UnaryHandler) -> UnaryHandler:
        async def answer(request: bytes, context: CallContext) -> bytes:
            response = b"" if self.is_cut else await handler(request, context)
            if self.is_cut:
                await asyncio.get_running_loop().create_future()  # until the server's end ends this call, too
            return response

        return answer

    def _streaming(self, handler: StreamHandler) -> StreamHandler:
        async def serve(stream: Stream, context: CallContext) -> None:
            if not self.is_cut:
                await handler(BrokerStream(self, stream), context)

        return serve
