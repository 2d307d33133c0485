"""The network of one broker in a process that it shares with other brokers.

What brokers say to each other goes over links without sockets, what they say to clients over real ones. Faults act on
both (`fabric`). A killed broker is cut off first, at once and between two steps of its loop, and only then are its
listeners and connections closed.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Container
from dataclasses import replace

from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.transport.ports import (
    Accept,
    CallContext,
    CallRejected,
    DeadlineExceeded,
    DialResult,
    Handlers,
    NetworkError,
    PeerUnavailable,
    Server,
    Stream,
)

from odradek_broker.testing.doors import GONE, ServingState, guarded_accept, guarded_stream, guarded_unary
from odradek_broker.testing.fabric import Fabric
from odradek_broker.testing.links import BrokerLink
from odradek_broker.testing.local_calls import LocalServer, LocalStream, PendingReply


class BrokerNetwork:
    """`Network` of one life of one broker; `cut` and `end` when it is killed."""

    def __init__(self, fabric: Fabric, broker: int) -> None:
        self.voice = ServingState(fabric, broker)
        self._fabric = fabric
        self._broker = broker
        self._name = f"broker {broker}"
        self._sockets = GrpcNetwork()
        self._servers: list[Server] = []
        self._local: list[LocalServer] = []
        self._late: list[LateServer] = []
        self._streams: set[LocalStream] = set()
        self._replies: set[PendingReply] = set()

    @property
    def is_cut(self) -> bool:
        return self.voice.is_silent

    def cut(self) -> None:
        """Say and hear nothing from this moment on; whoever has a connection is told that it is lost."""
        self.voice.is_silent = True
        for server in self._local:
            server.end()
        for stream in tuple(self._streams):
            stream.break_off("connection lost")

    async def end(self) -> None:
        """Close listeners and connections of a broker that was cut off."""
        for server in self._servers:
            await server.stop(0)
        await self._sockets.close()

    # --- Network ----------------------------------------------------------------------------------------------------

    async def call(self, peer: str, method: str, request: bytes, timeout_ms: float) -> bytes:
        there, back = self._links(peer)
        reply = PendingReply(timeout_ms, lambda: DeadlineExceeded(f"{peer} {method}: no answer within {timeout_ms} ms"))

        def arrive() -> None:
            server = self._serving(peer, method, lambda handlers: handlers.unary, back, reply)
            if server is not None:
                server.take_call(method, request, CallContext(self._name, timeout_ms), back, reply)

        there.deliver(arrive)
        return await self._outcome(reply)

    def _serving(
        self, peer: str, method: str, kind: Callable[[Handlers], Container[str]], back: BrokerLink, reply: PendingReply
    ) -> LocalServer | None:
        """The listener that takes this method, None when nobody waits for it; without one the caller is told why."""
        server = self._fabric.listeners.get(peer)
        if server is None:
            back.deliver(lambda: reply.fail(_refused(peer)))
        elif method not in kind(server.handlers):
            back.deliver(lambda: reply.fail(_unknown(peer, method)))
        elif not reply.is_over:
            return server
        return None

    async def open(self, peer: str, method: str, timeout_ms: float = 5000) -> Stream:
        there, back = self._links(peer)
        here, far = LocalStream(peer, there), LocalStream(self._name, back)
        here.other, far.other = far, here
        accepted = PendingReply(
            timeout_ms, lambda: DeadlineExceeded(f"{peer} {method}: not accepted in {timeout_ms} ms")
        )

        def arrive() -> None:
            server = self._serving(peer, method, lambda handlers: handlers.streams, back, accepted)
            if server is not None:
                server.take_stream(method, far, CallContext(self._name))
                back.deliver(lambda: accepted.answer(b""))

        there.deliver(arrive)
        try:
            await self._outcome(accepted)
        except BaseException:
            here.close()
            raise
        self._streams = {stream for stream in self._streams if not stream.is_over}
        self._streams.add(here)
        return here

    async def dial(self, peer: str, timeout_ms: float) -> DialResult:
        """The kernel of a frozen broker takes connections, and what is cut hears nothing."""
        if self.is_cut:
            return DialResult.SILENT
        if self._fabric.is_cut(self._broker, self._fabric.owners[peer]):
            await asyncio.sleep(timeout_ms / 1000)
            return DialResult.SILENT
        return DialResult.LISTENING if peer in self._fabric.listeners else DialResult.REFUSED

    async def serve(self, address: str, handlers: Handlers) -> Server:
        if address in self._fabric.owners:
            return self._serve_brokers(address, handlers)
        own = self._serve_brokers(admin_address(self._broker), handlers)
        server = LateServer(address, own, lambda: self._sockets.serve(address, self._guarded(handlers)))
        self._late.append(server)
        self._servers.append(server)
        if self._fabric.doors_are_open:
            await server.open()
        return server

    def _guarded(self, handlers: Handlers) -> Handlers:
        voice = self.voice
        return replace(
            handlers,
            unary={path: guarded_unary(voice, _api(path), each) for path, each in handlers.unary.items()},
            streams={path: guarded_stream(voice, _api(path), each) for path, each in handlers.streams.items()},
        )

    async def open_doors(self) -> None:
        """Listen for gRPC clients."""
        for server in self._late:
            await server.open()

    def _serve_brokers(self, address: str, handlers: Handlers) -> Server:
        listeners = self._fabric.listeners
        if address in listeners:
            raise OSError(errno.EADDRINUSE, f"cannot listen on {address}: Address already in use")

        def gone() -> None:
            if listeners.get(address) is server:
                del listeners[address]

        listeners[address] = server = LocalServer(address, handlers, gone)
        self._local.append(server)
        return server

    async def listen_bytes(self, address: str, accept: Accept) -> Server:
        server = await self._sockets.listen_bytes(address, guarded_accept(self.voice, accept))
        self._servers.append(server)
        return server

    async def close(self) -> None:
        if not self.is_cut:
            for stream in tuple(self._streams):
                stream.close()
            for reply in tuple(self._replies):
                reply.fail(PeerUnavailable("closed here"))
            await self._sockets.close()

    def _links(self, peer: str) -> tuple[BrokerLink, BrokerLink]:
        """To a peer and back. Raises `PeerUnavailable` for a killed broker."""
        if self.is_cut:
            raise PeerUnavailable(GONE)
        owner = self._fabric.owners[peer]
        return self._fabric.link(self._broker, owner), self._fabric.link(owner, self._broker)

    async def _outcome(self, reply: PendingReply) -> bytes:
        self._replies.add(reply)
        try:
            answer = await reply.wait()
        finally:
            self._replies.discard(reply)
        if self.is_cut:
            raise PeerUnavailable(GONE)
        return answer


class LateServer:
    """`Server` for gRPC clients that begins to listen when `open` is called: most tests never want it."""

    def __init__(self, address: str, own: Server, start: Callable[[], Awaitable[Server]]) -> None:
        self.address = address
        self._own = own  # the same without a socket, for this process
        self._start = start
        self._server: Server | None = None
        self._opening = asyncio.Lock()
        self._is_serving = False
        self._is_stopped = False

    async def open(self) -> None:
        async with self._opening:
            if self._server is None and not self._is_stopped:
                self._server = await self._start()
                self._server.set_serving(self._is_serving)

    def set_serving(self, serving: bool) -> None:
        self._is_serving = serving
        if self._server is not None:
            self._server.set_serving(serving)

    async def stop(self, grace_ms: float = 0) -> None:
        self._is_stopped = True
        await self._own.stop(grace_ms)
        async with self._opening:
            if self._server is not None:
                await self._server.stop(grace_ms)


def admin_address(broker: int) -> str:
    """Where a broker takes gRPC calls of clients of this process, without a socket."""
    return f"broker-{broker}:0"


def _api(path: str) -> str:
    """The name that an API has in Kafka: of /odradek.v1.Broker/ProduceStream it is Produce."""
    return path.rpartition("/")[2].removesuffix("Stream")


def _refused(peer: str) -> NetworkError:
    return PeerUnavailable(f"{peer}: Connection refused", refused=True)


def _unknown(peer: str, method: str) -> NetworkError:
    return CallRejected(f"{peer} {method}: unknown method", status="UNIMPLEMENTED")
