"""A client of Kafka's protocol on a simulated machine: one connection, over the byte streams."""

from __future__ import annotations

import struct
from typing import Any

from odradek_broker.kafka.messages.codec import REQUEST, RESPONSE, definition, reader_of, writer_of
from odradek_broker.kafka.messages.primitives import MessageReader, MessageWriter
from odradek_proto.transport.ports import Network, Stream

from odradek_chaos.worlds.simulated.net.bytes import BYTES

_HEADER = struct.Struct(">hhi")


class KafkaClientConnection:
    """Raises what the network raises, and TimeoutError; then it is closed. An answer that is none is a mistake."""

    def __init__(self, stream: Stream, client_id: str) -> None:
        self._stream = stream
        self._client_id = client_id.encode()
        self._correlation_id = 0
        self._received = bytearray()

    @classmethod
    async def open(cls, network: Network, address: str, client_id: str, timeout_ms: float) -> KafkaClientConnection:
        return cls(await network.open(address, BYTES, timeout_ms), client_id)

    def close(self) -> None:
        self._stream.close()

    async def ask(self, key: int, version: int, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request; whoever limits the time closes the connection behind it."""
        flexible = version >= definition(key).flexible_from
        writer = MessageWriter()
        writer_of(key, REQUEST, version)(writer, request)
        number = await self.send(key, version, b"".join(writer.buffers()), flexible=flexible)
        return reader_of(key, RESPONSE, version)(MessageReader(await self.receive(number), 1 if flexible else 0))

    async def send(self, key: int, version: int, body: bytes, *, flexible: bool = False) -> int:
        """Ask without waiting for the answer, which `receive` with the number that this returns reads."""
        self._correlation_id += 1
        name = struct.pack(">h", len(self._client_id)) + self._client_id
        header = _HEADER.pack(key, version, self._correlation_id) + name + (b"\0" if flexible else b"")
        await self._stream.send((len(header) + len(body)).to_bytes(4, "big") + header + body)
        return self._correlation_id

    async def receive(self, number: int) -> memoryview:
        """The next answer, behind its correlation id. Answers come in the order of the requests (K-8)."""
        frame = await self._frame()
        answered = int.from_bytes(frame[:4], "big")
        assert answered == number, f"the answer to request {number} is to {answered}"
        return memoryview(frame)[4:]

    async def _frame(self) -> bytes:
        while len(self._received) < 4 or len(self._received) < 4 + int.from_bytes(self._received[:4], "big"):
            self._received += await self._stream.recv()
        end = 4 + int.from_bytes(self._received[:4], "big")
        frame = bytes(self._received[4:end])
        del self._received[:end]
        return frame
