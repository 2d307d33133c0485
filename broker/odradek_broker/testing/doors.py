"""What a broker in this process hears from its clients and says to them, over real sockets, with faults in between.

A killed process says nothing more: no answer, no end of a stream. So a killed broker is silenced first, at once and
between two steps of its loop, and only then are its listeners and connections closed.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Iterator, Sequence

from odradek_proto.security.tls import PeerCertificate
from odradek_proto.transport.ports import (
    Accept,
    Buffer,
    ByteConnection,
    ByteReceiver,
    CallContext,
    Stream,
    StreamClosed,
    StreamHandler,
    UnaryHandler,
)

from odradek_broker.kafka.messages.schemas import DEFINITIONS
from odradek_broker.testing.fabric import OUTSIDE, Fabric
from odradek_broker.testing.links import BrokerLink

API_NAMES = {0: "Produce", 1: "Fetch", **{key: text.split(maxsplit=1)[0] for key, text in DEFINITIONS.items()}}
GONE = "this broker was killed"
_HEAD = struct.Struct(">ihhi")  # a request of Kafka's protocol: size, API key, version, correlation id
_SIZE_BYTES = 4


class ServingState:
    """One life of a broker, towards its clients: whether it still speaks, and which answers it is to lose."""

    def __init__(self, fabric: Fabric, broker: int) -> None:
        self.is_silent = False
        self.heard: BrokerLink = fabric.link(OUTSIDE, broker)
        self.said: BrokerLink = fabric.link(broker, OUTSIDE)
        self.losing: set[str] = set()  # names of APIs whose next answer is lost

    def loses(self, api: str) -> bool:
        """Whether an answer of this API is the one to be lost; it is, once."""
        if api not in self.losing:
            return False
        self.losing.discard(api)
        return True


class ClientStream:
    """The broker's end of a client's gRPC stream."""

    def __init__(self, voice: ServingState, stream: Stream, api: str) -> None:
        self._voice = voice
        self._stream = stream
        self._api = api

    @property
    def peer(self) -> str:
        return self._stream.peer

    async def send(self, message: bytes) -> None:
        await self._voice.said.passage()
        if self._voice.is_silent:
            raise StreamClosed(GONE)
        if self._voice.loses(self._api):
            self._stream.close()
        await self._stream.send(message)

    async def recv(self) -> bytes:
        message = await self._stream.recv()
        await self._voice.heard.passage()
        if self._voice.is_silent:
            raise StreamClosed(GONE)
        return message

    def close(self) -> None:
        self._stream.close()


def guarded_unary(voice: ServingState, api: str, handler: UnaryHandler) -> UnaryHandler:
    """A handler of gRPC calls that passes the broker's links."""

    async def answer(request: bytes, context: CallContext) -> bytes:
        await voice.heard.passage()
        response = b"" if voice.is_silent else await handler(request, context)
        await voice.said.passage()
        if voice.is_silent or voice.loses(api):
            await asyncio.get_running_loop().create_future()  # until the caller's deadline or the server's end
        return response

    return answer


def guarded_stream(voice: ServingState, api: str, handler: StreamHandler) -> StreamHandler:
    """The same for streams."""

    async def serve(stream: Stream, context: CallContext) -> None:
        if not voice.is_silent:
            await handler(ClientStream(voice, stream, api), context)

    return serve


def guarded_accept(voice: ServingState, accept: Accept) -> Accept:
    """The same for connections of Kafka's clients."""

    def guarded(connection: ByteConnection) -> ByteReceiver | None:
        if voice.is_silent:
            return None
        guard = KafkaGuard(voice, connection)
        receiver = accept(guard)
        if receiver is None:
            return None
        guard.receiver = receiver
        return guard

    return guarded


class FrameHeads:
    """The first bytes of each frame in a stream of bytes that comes in pieces."""

    def __init__(self, size: int) -> None:
        self._size = size  # of a head, with the four bytes of the frame's size
        self._head = bytearray()
        self._skip = 0  # bytes of the frame under way that are still to come

    def feed(self, data: Buffer) -> Iterator[bytes]:
        """The heads that are complete by now."""
        data, at = memoryview(data).cast("B"), 0
        while at < len(data):
            if self._skip:
                step = min(self._skip, len(data) - at)
                self._skip -= step
                at += step
                continue
            step = min(self._size - len(self._head), len(data) - at)
            self._head += data[at : at + step]
            at += step
            if len(self._head) == self._size:
                head = bytes(self._head)
                self._head.clear()
                self._skip = max(0, int.from_bytes(head[:_SIZE_BYTES]) + _SIZE_BYTES - self._size)
                yield head


class KafkaGuard:
    """Between one Kafka client's connection and the broker: `ByteConnection` to one, `ByteReceiver` to the other."""

    def __init__(self, voice: ServingState, connection: ByteConnection) -> None:
        self.receiver: ByteReceiver
        self._voice = voice
        self._connection = connection
        self._room = memoryview(b"")
        self._is_waiting = False  # bytes are in the room and may not arrive yet
        self._is_paused = False  # by the broker
        self._requests = FrameHeads(_HEAD.size)
        self._answers = FrameHeads(2 * _SIZE_BYTES)
        self._asked: deque[tuple[bytes, str]] = deque()  # correlation ids of what is not answered, and their APIs

    # --- ByteReceiver -----------------------------------------------------------------------------------------------

    def room(self) -> memoryview:
        self._room = self.receiver.room()
        return self._room

    def on_bytes(self, count: int) -> None:
        for head in self._requests.feed(self._room[:count]):
            self._asked.append((head[-_SIZE_BYTES:], API_NAMES.get(_HEAD.unpack(head)[1], "")))
        if self._voice.heard.is_clear:
            if not self._voice.is_silent:
                self.receiver.on_bytes(count)
            return
        kept = bytes(self._room[:count])  # other connections are read into the same room meanwhile
        self._is_waiting = True
        self._connection.pause()
        self._voice.heard.deliver(lambda: self._arrive(kept))

    def _arrive(self, data: bytes) -> None:
        if self._voice.is_silent:
            return
        self._is_waiting = False
        while data:
            room = self.receiver.room()
            step = min(len(room), len(data))
            room[:step] = data[:step]
            self.receiver.on_bytes(step)
            data = data[step:]
        if not self._is_paused:
            self._connection.resume()

    @property
    def missing(self) -> int:
        return 0  # bytes that are delayed have come, and the receiver does not know it

    def on_full(self) -> None:
        self.receiver.on_full()

    def on_drained(self) -> None:
        if not self._voice.is_silent:
            self.receiver.on_drained()

    def on_lost(self) -> None:
        self.receiver.on_lost()

    # --- ByteConnection ---------------------------------------------------------------------------------------------

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
        if self._voice.is_silent:
            return
        if self._is_to_be_lost(buffers):
            self._connection.abort()
        elif self._voice.said.is_clear:
            self._connection.write(buffers)
        else:
            kept = [bytes(buffer) for buffer in buffers]
            self._voice.said.deliver(lambda: None if self._voice.is_silent else self._connection.write(kept))

    def _is_to_be_lost(self, buffers: Sequence[Buffer]) -> bool:
        """Whether one of these answers is. Answers come in the order of the requests, of which some have none."""
        for buffer in buffers:
            for head in self._answers.feed(buffer):
                correlation_id = head[_SIZE_BYTES:]
                while self._asked and self._asked[0][0] != correlation_id:
                    self._asked.popleft()
                if self._asked and self._voice.loses(self._asked.popleft()[1]):
                    return True
        return False

    def pause(self) -> None:
        self._is_paused = True
        self._connection.pause()

    def resume(self) -> None:
        self._is_paused = False
        if not self._is_waiting:
            self._connection.resume()

    def close(self) -> None:
        self._voice.said.deliver(self._connection.close)

    def abort(self) -> None:
        self._connection.abort()
