"""What goes over the wire between brokers and clients, observed at its two ends.

A request to a broker is observed when its process takes it, an answer when the process hands it to the network; at a
client it is the other way round. Nothing is changed, delayed or left out. Only calls are tapped of which
`taps.py` has something to tell the invariants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from google.protobuf.message import DecodeError
from odradek_proto.transport.ports import (
    Accept,
    CallContext,
    DialResult,
    Handlers,
    Network,
    Server,
    Stream,
    StreamHandler,
    UnaryHandler,
)

from odradek_chaos.worlds.simulated.cluster.cluster import SimCluster
from odradek_chaos.worlds.simulated.cluster.node import NodePorts
from odradek_chaos.worlds.simulated.observe.taps import TAPPED_AT_BROKERS, BrokerTaps, ClientTaps
from odradek_chaos.worlds.simulated.observe.watcher import Watcher
from odradek_chaos.worlds.simulated.world.world import World

OnMessage = Callable[[bytes], None]


class WireTaps:
    """Hands out tapped networks to the incarnations of brokers and clients."""

    def __init__(self, cluster: SimCluster, watcher: Watcher) -> None:
        self._cluster = cluster
        self._watcher = watcher
        self.epoch_starts: dict[tuple[str, int], int] = {}  # (partition, leader epoch) to where it began

    def network_of_broker(self, broker_id: int, ports: NodePorts) -> Network:
        return TappedBrokerNetwork(
            ports.network, BrokerTaps(self._cluster, self._watcher, self.epoch_starts, broker_id)
        )

    def network_of_client(self, ports: NodePorts) -> Network:
        return TappedClientNetwork(ports.network, ClientTaps(self._watcher, self.epoch_starts, ports.node))


class Observers(NamedTuple):
    """Of one world: who compares its brokers after each step, and who hands out tapped networks."""

    watcher: Watcher
    wire_taps: WireTaps


def observe(world: World) -> Observers:
    """Hang observers on a world's cluster before anything happens in it."""
    watcher = Watcher(world)
    cluster, wire_taps = world.cluster, WireTaps(world.cluster, watcher)
    cluster.after_step, cluster.on_end = watcher.after_step, watcher.end
    cluster.network_of = wire_taps.network_of_broker
    return Observers(watcher, wire_taps)


class TappedNetwork:
    """A network that passes everything on; the subclasses tap what they have to."""

    def __init__(self, network: Network) -> None:
        self._network = network

    async def call(self, peer: str, method: str, request: bytes, timeout_ms: float) -> bytes:
        return await self._network.call(peer, method, request, timeout_ms)

    async def open(self, peer: str, method: str, timeout_ms: float = 5000) -> Stream:
        return await self._network.open(peer, method, timeout_ms)

    async def dial(self, peer: str, timeout_ms: float) -> DialResult:
        return await self._network.dial(peer, timeout_ms)

    async def serve(self, address: str, handlers: Handlers) -> Server:
        return await self._network.serve(address, handlers)

    async def listen_bytes(self, address: str, accept: Accept) -> Server:
        return await self._network.listen_bytes(address, accept)

    async def close(self) -> None:
        await self._network.close()


class TappedBrokerNetwork(TappedNetwork):
    """Taps the requests to a broker and its answers."""

    def __init__(self, network: Network, taps: BrokerTaps) -> None:
        super().__init__(network)
        self._taps = taps

    async def serve(self, address: str, handlers: Handlers) -> Server:
        unary = {method: self._unary(method, handler) for method, handler in handlers.unary.items()}
        streams = {method: self._stream(method, handler) for method, handler in handlers.streams.items()}
        return await self._network.serve(address, Handlers(unary, streams, handlers.services))

    def _unary(self, method: str, handler: UnaryHandler) -> UnaryHandler:
        if method not in TAPPED_AT_BROKERS:
            return handler
        taps = self._taps

        async def tapped(request: bytes, context: CallContext) -> bytes:
            tap = taps.of(method)
            try:
                tap.asked(request)
            except DecodeError:
                return await handler(request, context)  # a stranger's: what is said of it says nothing of the protocol
            answer = await handler(request, context)
            tap.answered(answer)
            return answer

        return tapped

    def _stream(self, method: str, handler: StreamHandler) -> StreamHandler:
        if method not in TAPPED_AT_BROKERS:
            return handler
        taps = self._taps

        async def tapped(stream: Stream, context: CallContext) -> None:
            tap = taps.of(method)
            await handler(TappedStream(stream, on_send=tap.answered, on_receive=tap.asked), context)

        return tapped


class TappedClientNetwork(TappedNetwork):
    """Taps the requests of a client and the answers."""

    def __init__(self, network: Network, taps: ClientTaps) -> None:
        super().__init__(network)
        self._taps = taps

    async def call(self, peer: str, method: str, request: bytes, timeout_ms: float) -> bytes:
        tap = self._taps.of(method)
        if tap is None:
            return await self._network.call(peer, method, request, timeout_ms)
        tap.asked(request)
        answer = await self._network.call(peer, method, request, timeout_ms)
        tap.answered(answer)
        return answer

    async def open(self, peer: str, method: str, timeout_ms: float = 5000) -> Stream:
        stream = await self._network.open(peer, method, timeout_ms)
        tap = self._taps.of(method)
        return stream if tap is None else TappedStream(stream, on_send=tap.asked, on_receive=tap.answered)


class TappedStream:
    """A stream as it is; what is sent is shown to a tap before, and what is received as soon as it has come."""

    def __init__(self, stream: Stream, *, on_send: OnMessage, on_receive: OnMessage) -> None:
        self._stream = stream
        self._on_send = on_send
        self._on_receive = on_receive

    @property
    def peer(self) -> str:
        return self._stream.peer

    async def send(self, message: bytes) -> None:
        self._on_send(message)
        await self._stream.send(message)

    async def recv(self) -> bytes:
        message = await self._stream.recv()
        self._on_receive(message)
        return message

    def close(self) -> None:
        self._stream.close()
