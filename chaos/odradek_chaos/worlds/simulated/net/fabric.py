"""The network between all simulated machines: listeners, links, the faults of both, and the answers to calls."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from odradek_proto.transport.ports import (
    CallContext,
    Handlers,
    NetworkError,
    PeerUnavailable,
    StreamHandler,
    UnaryHandler,
)

from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.net.links import Arrival, Delay, Link, Pipe
from odradek_chaos.worlds.simulated.net.streams import SimStream

FIRST_PORT = 50_000
WINDOW_BYTES = 256 * 1024  # per direction of a stream, in flight and unread together


class Listener(Protocol):
    """Whoever serves at an address."""

    @property
    def handlers(self) -> Handlers: ...

    def answer(
        self, method: str, handler: UnaryHandler, request: bytes, call: CallContext, reply: CallReply
    ) -> None: ...

    def accept(
        self, method: str, handler: StreamHandler, stream: SimStream, call: CallContext, accepted: Callable[[], None]
    ) -> None: ...


class SimFabric:
    """Shared by the `SimNetwork`s of all nodes. Machines are named as their nodes are.

    `default_delay` is for links that are used for the first time afterwards.
    """

    def __init__(self, loop: SimLoop, rng: random.Random, window_bytes: int = WINDOW_BYTES) -> None:
        self.loop = loop
        self.rng = rng
        self.window_bytes = window_bytes
        self.default_delay: Delay | None = None
        self.listeners: dict[str, Listener] = {}
        self.held: dict[str, str] = {}  # machine to the method that none of its calls gets through
        self._owners: dict[str, str] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._machines_off: dict[str, None] = {}
        self._streams: list[tuple[str, str, SimStream]] = []
        self._streams_limit = 64
        self._next_port = FIRST_PORT

    # --- faults

    def link(self, source: str, target: str) -> Link:
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = Link(source, target, len(self._links))
            if self.default_delay is not None:
                link.delay = self.default_delay
        return link

    def links(self) -> list[Link]:
        return list(self._links.values())

    def cut(self, source: str, target: str, both_ways: bool = True) -> None:
        """Nothing sent from `source` arrives at `target` until `heal`; connections stay, and what was sent waits."""
        self.link(source, target).is_cut = True
        if both_ways:
            self.link(target, source).is_cut = True

    def make_unreachable(self, target: str, sources: Iterable[str], *, for_ever: bool = False) -> None:
        """Nothing gets through on connections that these machines opened to `target`; its own to them stand."""
        for source in sources:
            link = self.link(source, target)
            link.refuses_connections = True
            link.for_ever = link.for_ever or for_ever

    def cut_for_ever(self, source: str, target: str) -> None:
        """The same in one direction until `heal_all`: `heal` does not reach it."""
        link = self.link(source, target)
        link.is_cut = link.for_ever = True

    def heal(self, source: str, target: str, both_ways: bool = True) -> None:
        self.link(source, target).heal()
        if both_ways:
            self.link(target, source).heal()

    def heal_all(self) -> None:
        for link in self.links():
            link.for_ever = False
            link.heal()

    def stall(self, source: str, target: str, duration_ms: float) -> None:
        """Hold up one direction for a while."""
        self.cut(source, target, both_ways=False)
        until_us = self.loop.now_us + int(duration_ms * 1000)
        self.loop.call_world_at(until_us, lambda: self.heal(source, target, both_ways=False))

    def drop_calls(self, source: str, target: str, before: float = 0.0, after: float = 0.0) -> None:
        """Probabilities that a unary call from `source` to `target` is lost before, or after, it acted."""
        self.link(source, target).lose_requests = before
        self.link(target, source).lose_replies = after

    def reset(self, one: str, other: str) -> int:
        """Break every stream between two machines, with any unseen suffix lost; returns how many there were."""
        broken = 0
        for client, server, stream in list(self._streams):
            if {client, server} == {one, other} and not stream.is_over:
                stream.reset()
                broken += 1
        return broken

    def machine_off(self, node: str) -> None:
        """The machine lost its power: it answers nothing, not even that nobody listens."""
        self._machines_off[node] = None

    def machine_on(self, node: str) -> None:
        self._machines_off.pop(node, None)
        for _, _, stream in self._streams:
            for end in (stream, stream.other):
                if end.owes_reset and end.machine == node:
                    end.owes_reset = False
                    end.answer_reset()

    # --- for networks

    def is_off(self, node: str) -> bool:
        return node in self._machines_off

    def machine_of(self, address: str) -> str:
        """The node that listens, or last listened, at an address; an address of nobody is a machine of its own."""
        return self._owners.get(address, address)

    def listen(self, server: Listener, address: str, node: str) -> str:
        host, _, port = address.rpartition(":")
        if port == "0":
            address = f"{host}:{self._next_port}"
            self._next_port += 1
        self.listeners[address] = server
        self._owners[address] = node
        return address

    def pipe(self, source: str, target: str, *, opened: bool) -> Pipe:
        return Pipe(self.loop, self.rng, self.link(source, target), opened)

    def send(self, source: str, target: str, arrival: Arrival) -> None:
        """A request, outside of any stream."""
        self.pipe(source, target, opened=True).push(arrival)

    def send_back(self, source: str, target: str, arrival: Arrival) -> None:
        """The answer to one."""
        self.pipe(source, target, opened=False).push(arrival)

    def tell(self, source: str, peer: str, method: str, request: bytes, timeout_ms: float | None = None) -> None:
        """A unary request to whoever listens at `peer` when it arrives; nobody waits for what it is answered."""
        machine = self.machine_of(peer)
        nobody: asyncio.Future[bytes] = self.loop.create_future()
        nobody.add_done_callback(lambda done: done.cancelled() or done.exception())

        def arrive() -> None:
            server = self.listeners.get(peer)
            handler = server.handlers.unary.get(method) if server is not None else None
            if server is not None and handler is not None:
                reply = CallReply(self, machine, source, nobody)
                server.answer(method, handler, request, CallContext(source, timeout_ms), reply)

        self.send(source, machine, arrive)

    async def say(self, source: str, peer: str, method: str, message: bytes) -> SimStream:
        """The first message on a stream to whoever listens at `peer` when it arrives; nobody waits for answers."""
        machine = self.machine_of(peer)
        stream = self.connect(source, machine, source, peer)

        def arrive() -> None:
            server = self.listeners.get(peer)
            handler = server.handlers.streams.get(method) if server is not None else None
            if server is None or handler is None:
                stream.other.close()
            else:
                server.accept(method, handler, stream.other, CallContext(source), lambda: None)

        stream.push(arrive)
        await stream.send(message)
        return stream

    def connect(self, client: str, server: str, client_name: str, server_name: str) -> SimStream:
        """Two ends that know each other; returns the client's."""
        near = SimStream(
            self.loop, client, server_name, self.pipe(client, server, opened=True), self.window_bytes, self.is_off
        )
        far = SimStream(
            self.loop, server, client_name, self.pipe(server, client, opened=False), self.window_bytes, self.is_off
        )
        near.opened_here = True
        near.other, far.other = far, near
        if len(self._streams) >= self._streams_limit:
            self._streams = [entry for entry in self._streams if not (entry[2].is_over and entry[2].other.is_over)]
            self._streams_limit = 64 + 2 * len(self._streams)
        self._streams.append((client, server, near))
        return near


class CallReply:
    """Carries the outcome of one call back to its caller, at most once."""

    def __init__(self, fabric: SimFabric, server: str, client: str, outcome: asyncio.Future[Any]) -> None:
        self._fabric = fabric
        self._server = server
        self._client = client
        self._outcome = outcome
        self._sent = False
        self.on_abandoned: Callable[[], object] = lambda: None

    def succeed(self, answer: bytes) -> None:
        lost = self._fabric.link(self._server, self._client).lose_replies
        if lost and self._fabric.rng.random() < lost:
            self.lose()
        else:
            self._send(lambda: None if self._outcome.done() else self._outcome.set_result(answer))

    def fail(self, error: NetworkError) -> None:
        self._send(lambda: self._set_error(error))

    def fail_here(self, error: NetworkError) -> None:
        """The caller's own side gave up."""
        self.abandoned()
        self._set_error(error)

    def _set_error(self, error: NetworkError) -> None:
        """Whoever waits gets it. The process that waited may be dead by now: then it is nobody's, and no mistake."""
        if not self._outcome.done():
            self._outcome.set_exception(error)
            self._outcome.exception()

    def lose(self) -> None:
        """The connection broke under the call: the caller hears of it, or nothing until its deadline."""
        if self._fabric.rng.random() < 0.5:
            self.fail(PeerUnavailable(f"{self._server}: connection reset"))
        self._sent = True

    def silence(self) -> None:
        """The machine that would answer is off."""
        self._sent = True

    def abandoned(self) -> None:
        """The caller has given up; its cancellation reaches the server like any message."""
        if not self._sent:
            self._fabric.send(self._client, self._server, self._cancel)

    def _cancel(self) -> None:
        if not self._sent:
            self.on_abandoned()

    def _send(self, arrival: Callable[[], None]) -> None:
        if not self._sent:
            self._sent = True
            self._fabric.send_back(self._server, self._client, arrival)
