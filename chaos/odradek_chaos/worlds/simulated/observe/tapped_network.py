"""What goes over the wire between brokers and clients, overheard at its two ends.

A request to a broker is heard when its process takes it, an answer when the process hands it to the network; at a
client it is the other way round. Nothing is changed, delayed or left out. Only the calls are listened to of which
`ears.py` has something to tell the invariants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek_proto.transport.ports import (
    CallContext,
    DialResult,
    Handlers,
    Network,
    Server,
    Stream,
    StreamHandler,
    UnaryHandler,
)

from odradek_chaos.worlds.simulated.cluster.node import NodePorts
from odradek_chaos.worlds.simulated.observe.taps import ASKED_OF_BROKERS, BrokerEars, ClientEars, Ear

if TYPE_CHECKING:
    from odradek_chaos.worlds.simulated.world.world import World


class Overheard:
    """Hands out networks that listen, for the incarnations of brokers and clients."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.epoch_starts: dict[tuple[str, int], int] = {}  # (partition, leader epoch) to where it began

    def network_of_broker(self, broker_id: int, ports: NodePorts) -> Network:
        return BrokerNetwork(ports.network, BrokerEars(self._world, self.epoch_starts, broker_id))

    def network_of_client(self, ports: NodePorts) -> Network:
        return ClientNetwork(ports.network, ClientEars(self._world, self.epoch_starts, ports.node))


class ListeningNetwork:
    """A network as it is; those below listen where they have to."""

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

    async def close(self) -> None:
        await self._network.close()


class BrokerNetwork(ListeningNetwork):
    """Listens to what is asked of a broker."""

    def __init__(self, network: Network, ears: BrokerEars) -> None:
        super().__init__(network)
        self._ears = ears

    async def serve(self, address: str, handlers: Handlers) -> Server:
        unary = {method: self._unary(method, handler) for method, handler in handlers.unary.items()}
        streams = {method: self._stream(method, handler) for method, handler in handlers.streams.items()}
        return await self._network.serve(address, Handlers(unary, streams, handlers.services))

    def _unary(self, method: str, handler: UnaryHandler) -> UnaryHandler:
        if method not in ASKED_OF_BROKERS:
            return handler
        ears = self._ears

        async def listening(request: bytes, context: CallContext) -> bytes:
            ear = ears.of(method)
            ear.asked(request)
            answer = await handler(request, context)
            ear.answered(answer)
            return answer

        return listening

    def _stream(self, method: str, handler: StreamHandler) -> StreamHandler:
        if method not in ASKED_OF_BROKERS:
            return handler
        ears = self._ears

        async def listening(stream: Stream, context: CallContext) -> None:
            await handler(AskedStream(stream, ears.of(method)), context)

        return listening


class ClientNetwork(ListeningNetwork):
    """Listens to what a client asks."""

    def __init__(self, network: Network, ears: ClientEars) -> None:
        super().__init__(network)
        self._ears = ears

    async def call(self, peer: str, method: str, request: bytes, timeout_ms: float) -> bytes:
        ear = self._ears.of(method)
        if ear is None:
            return await self._network.call(peer, method, request, timeout_ms)
        ear.asked(request)
        answer = await self._network.call(peer, method, request, timeout_ms)
        ear.answered(answer)
        return answer

    async def open(self, peer: str, method: str, timeout_ms: float = 5000) -> Stream:
        stream = await self._network.open(peer, method, timeout_ms)
        ear = self._ears.of(method)
        return stream if ear is None else AskingStream(stream, ear)


class ListeningStream:
    """A stream as it is, and the ear at it."""

    def __init__(self, stream: Stream, ear: Ear) -> None:
        self._stream = stream
        self._ear = ear

    @property
    def peer(self) -> str:
        return self._stream.peer

    def close(self) -> None:
        self._stream.close()


class AskedStream(ListeningStream):
    """The end of whoever is asked."""

    async def recv(self) -> bytes:
        message = await self._stream.recv()
        self._ear.asked(message)
        return message

    async def send(self, message: bytes) -> None:
        self._ear.answered(message)
        await self._stream.send(message)


class AskingStream(ListeningStream):
    """The end of whoever asks."""

    async def send(self, message: bytes) -> None:
        self._ear.asked(message)
        await self._stream.send(message)

    async def recv(self) -> bytes:
        message = await self._stream.recv()
        self._ear.answered(message)
        return message
