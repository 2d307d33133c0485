"""The network port of a simulated node.

A network belongs to one incarnation of its node. When that is killed, its listeners are gone at once and every
connection it had ends at the other side after the link's delay, as a kernel does it; when its machine loses power,
the other side hears nothing. A paused node stays silent by itself: its tasks do not run, while its kernel goes on
accepting connections and bytes.
"""

from __future__ import annotations

import asyncio
import errno
from functools import partial

from odradek_proto.transport.ports import (
    Accept,
    CallContext,
    CallRejected,
    DeadlineExceeded,
    DialResult,
    Handlers,
    PeerUnavailable,
    Server,
    Stream,
)

from odradek_chaos.worlds.simulated.net.bytes import BYTES, serve_bytes
from odradek_chaos.worlds.simulated.net.fabric import CallReply, Listener, SimFabric
from odradek_chaos.worlds.simulated.net.servers import SimServer
from odradek_chaos.worlds.simulated.net.streams import MAX_MESSAGE_BYTES, SimStream

CONNECT_TIMEOUT_MS = 500  # as the gRPC adapter
# A commit has no number, in Kafka neither: one that is repeated behind a later one of the same member epoch counts.
NEVER_REPEATED = ("/odradek.v1.Groups/OffsetCommit",)


class SimNetwork:
    """`Network` of one incarnation of the node `node`."""

    def __init__(self, fabric: SimFabric, node: str) -> None:
        self.fabric = fabric
        self.node = node
        self._servers: list[SimServer] = []
        self._streams: dict[SimStream, None] = {}
        self._streams_limit = 64
        self._calls: dict[CallReply, None] = {}
        self._dead = False

    async def call(self, peer: str, method: str, request: bytes, timeout_ms: float) -> bytes:
        machine, outcome, reply = self._prepare(peer)
        if len(request) > MAX_MESSAGE_BYTES:
            raise CallRejected(f"{peer} {method}: request too large", status="RESOURCE_EXHAUSTED")

        def arrive() -> None:
            server = self._listener(peer, machine, reply)
            if server is None or outcome.done():
                return
            handler = server.handlers.unary.get(method)
            if handler is None:
                reply.fail(CallRejected(f"{peer} {method}: unknown method", status="UNIMPLEMENTED"))
                return
            self.fabric.loop.observe(len(request))
            server.answer(method, handler, request, CallContext(self.node, timeout_ms), reply)

        link = self.fabric.link(self.node, machine)
        if self.fabric.held.get(self.node) == method:
            reply.silence()
        elif link.lose_requests and self.fabric.rng.random() < link.lose_requests:
            reply.lose()
        else:
            self.fabric.send(self.node, machine, arrive)
            repeated = link.duplicate_requests and self.fabric.rng.random() < link.duplicate_requests
            if repeated and method not in NEVER_REPEATED:
                self._repeat(peer, method, request, timeout_ms, link.duplicate_late_ms)
        return await self._wait(outcome, reply, f"{peer} {method}", machine, timeout_ms)

    def _repeat(self, peer: str, method: str, request: bytes, timeout_ms: float, late_ms: float) -> None:
        """The same request once more, later; nobody waits for what it is answered."""
        fabric = self.fabric
        at_us = fabric.loop.now_us + int(late_ms * 1000)
        fabric.loop.call_world_at(at_us, lambda: fabric.tell(self.node, peer, method, request, timeout_ms))

    async def open(self, peer: str, method: str, timeout_ms: float = 5000) -> Stream:
        machine, outcome, reply = self._prepare(peer)
        stream = self.fabric.connect(self.node, machine, self.node, peer)

        def arrive() -> None:
            server = self._listener(peer, machine, reply)
            if server is None or outcome.done():
                return
            handler = server.handlers.streams.get(method)
            if handler is None:
                reply.fail(CallRejected(f"{peer} {method}: unknown method", status="UNIMPLEMENTED"))
            else:
                server.accept(method, handler, stream.other, CallContext(self.node), lambda: accepted(stream.other))

        def accepted(far_end: SimStream) -> None:
            far_end.push(lambda: None if outcome.done() else outcome.set_result(b""))

        stream.on_end = lambda: reply.fail_here(PeerUnavailable(f"{peer} {method}: connection lost"))
        stream.push(arrive)
        self._remember(stream)
        try:
            await self._wait(outcome, reply, f"{peer} {method}", machine, timeout_ms)
        except BaseException:
            stream.abandon()
            raise
        finally:
            stream.on_end = None
        return stream

    async def dial(self, peer: str, timeout_ms: float) -> DialResult:
        if self._dead:
            return DialResult.SILENT
        machine = self.fabric.machine_of(peer)
        answer: asyncio.Future[DialResult] = self.fabric.loop.create_future()

        def knock() -> None:
            if not self.fabric.is_off(machine):
                found = DialResult.LISTENING if peer in self.fabric.listeners else DialResult.REFUSED
                self.fabric.send_back(machine, self.node, lambda: None if answer.done() else answer.set_result(found))

        self.fabric.send(self.node, machine, knock)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await answer
        except TimeoutError:
            return DialResult.SILENT

    async def serve(self, address: str, handlers: Handlers) -> Server:
        if self._dead:
            raise OSError(errno.ENETDOWN, f"cannot listen on {address}: process is dead")
        if address in self.fabric.listeners:
            raise OSError(errno.EADDRINUSE, f"cannot listen on {address}: Address already in use")
        server = SimServer(self.fabric, self.node, self._remember, handlers, address)
        self._servers.append(server)
        return server

    async def listen_bytes(self, address: str, accept: Accept) -> Server:
        return await self.serve(address, Handlers(streams={BYTES: partial(serve_bytes, accept, self.fabric.rng)}))

    @property
    def untaken_bytes(self) -> int:
        """What stands in all streams of this process, on its way or unread, in both directions."""
        return sum([stream.untaken_bytes for stream in self._streams if not stream.is_over])

    async def close(self) -> None:
        for stream in tuple(self._streams):
            if stream.opened_here:
                stream.close()
        for reply in tuple(self._calls):
            reply.fail_here(PeerUnavailable("closed here"))

    def killed(self) -> None:
        """The process is gone and its kernel closes what it had open."""
        self._dead = True
        for server in self._servers:
            server.process_died(silent=False)
        for stream in self._streams:
            stream.killed(lose_suffix=self.fabric.rng.random() < 0.5)
        for reply in self._calls:
            reply.abandoned()

    def vanished(self) -> None:
        """The machine is gone: nobody is told anything."""
        self._dead = True
        for server in self._servers:
            server.process_died(silent=True)
        for stream in self._streams:
            stream.vanished()

    def _prepare(self, peer: str) -> tuple[str, asyncio.Future[bytes], CallReply]:
        if self._dead:
            raise PeerUnavailable(f"{peer}: process is dead")
        machine = self.fabric.machine_of(peer)
        outcome: asyncio.Future[bytes] = self.fabric.loop.create_future()
        return machine, outcome, CallReply(self.fabric, machine, self.node, outcome)

    def _listener(self, peer: str, machine: str, reply: CallReply) -> Listener | None:
        """Who answers at `peer` now. Nobody: the machine refuses, unless it is off."""
        server = self.fabric.listeners.get(peer)
        if server is None and not self.fabric.is_off(machine):
            reply.fail(PeerUnavailable(f"{peer}: Connection refused", refused=True))
        return server

    async def _wait(
        self, outcome: asyncio.Future[bytes], reply: CallReply, what: str, machine: str, timeout_ms: float
    ) -> bytes:
        """The outcome of a call. A peer that cannot be reached fails the connection or the deadline, by chance."""
        limit_ms = timeout_ms
        if timeout_ms > CONNECT_TIMEOUT_MS and self._is_unreachable(machine) and self.fabric.rng.random() < 0.5:
            limit_ms = CONNECT_TIMEOUT_MS
        self._calls[reply] = None
        deadline = self.fabric.loop.call_later(limit_ms / 1000, _time_out, outcome)
        try:
            return await outcome
        except TimeoutError:
            reply.abandoned()
            if limit_ms < timeout_ms:
                raise PeerUnavailable(f"{what}: no connection within {limit_ms} ms") from None
            raise DeadlineExceeded(f"{what}: no answer within {timeout_ms} ms") from None
        except asyncio.CancelledError:
            reply.abandoned()
            raise
        finally:
            deadline.cancel()
            self._calls.pop(reply, None)

    def _is_unreachable(self, machine: str) -> bool:
        fabric = self.fabric
        there, back = fabric.link(self.node, machine), fabric.link(machine, self.node)
        return there.is_cut or back.is_cut or there.refuses_connections or fabric.is_off(machine)

    def _remember(self, stream: SimStream) -> None:
        """A stream that was opened or accepted here dies with this incarnation."""
        if len(self._streams) >= self._streams_limit:
            self._streams = {known: None for known in self._streams if not known.is_over}
            self._streams_limit = 64 + 2 * len(self._streams)
        self._streams[stream] = None


def _time_out(outcome: asyncio.Future[bytes]) -> None:
    if not outcome.done():
        outcome.set_exception(TimeoutError())
