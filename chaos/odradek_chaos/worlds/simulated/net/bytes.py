"""Byte streams between simulated machines: the simulated streams, with their links' faults, cut into other pieces.

What is written travels as messages of a stream, so that it stalls, breaks and loses its unseen end as every other. TCP
keeps no boundaries: what arrives is given to the receiver in pieces of any size, now and then byte by byte.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from odradek_proto.transport.ports import Accept, Buffer, ByteReceiver, CallContext, Stream, StreamClosed

BYTES = "/bytes"  # what a stream of bytes is opened as
FULL_BYTES = 64 * 1024  # unsent, as the real one
LARGEST_WRITE = 64 * 1024

ONE_BY_ONE, IN_PIECES = 0.02, 0.3  # how often a message arrives in bytes, or in parts


class SimBytes:
    """`ByteConnection` over one end of a stream. `run` reads and writes until the stream ends."""

    def __init__(self, stream: Stream, rng: random.Random) -> None:
        self._stream = stream
        self._rng = rng
        self._unsent = bytearray()
        self._closing = self._paused = self._told_full = False
        self._changed = asyncio.Event()
        self._resumed = asyncio.Event()
        self._resumed.set()

    @property
    def peer(self) -> str:
        return self._stream.peer

    @property
    def certificate(self) -> None:
        """There is no TLS in this world."""

    @property
    def unsent_bytes(self) -> int:
        return len(self._unsent)

    def write(self, buffers: Sequence[Buffer]) -> None:
        if not self._closing:
            for buffer in buffers:
                self._unsent += buffer
            self._changed.set()

    def pause(self) -> None:
        self._resumed.clear()

    def resume(self) -> None:
        self._resumed.set()

    def close(self) -> None:
        self._closing = True
        self._changed.set()

    def abort(self) -> None:
        self._closing = True
        self._unsent.clear()
        self._stream.close()
        self._changed.set()
        self._resumed.set()

    async def run(self, receiver: ByteReceiver) -> None:
        """Until either side has ended it; `on_lost` is the last call."""
        writing = asyncio.get_running_loop().create_task(self._write(receiver))
        try:
            await self._read(receiver)
        except StreamClosed:
            pass
        finally:
            self.abort()
            writing.cancel()
            receiver.on_lost()

    async def _read(self, receiver: ByteReceiver) -> None:
        while True:
            left = memoryview(await self._stream.recv())
            while left:
                await self._resumed.wait()
                if self._closing:
                    return
                room = receiver.room()
                count = min(len(room), len(left), self._most())
                room[:count] = left[:count]
                left = left[count:]
                receiver.on_bytes(count)

    def _most(self) -> int:
        """How many bytes arrive together at most."""
        drawn = self._rng.random()
        if drawn < ONE_BY_ONE:
            return 1
        return self._rng.randrange(1, LARGEST_WRITE) if drawn < IN_PIECES else LARGEST_WRITE

    async def _write(self, receiver: ByteReceiver) -> None:
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                while self._unsent:
                    if not self._told_full and len(self._unsent) > FULL_BYTES:
                        self._told_full = True
                        receiver.on_full()
                    piece = bytes(self._unsent[:LARGEST_WRITE])
                    await self._stream.send(piece)
                    del self._unsent[: len(piece)]
                if self._told_full:
                    self._told_full = False
                    receiver.on_drained()
                if self._closing and not self._unsent:
                    self._stream.close()
                    return
        except StreamClosed:
            return  # the reader hears of it as well


async def serve_bytes(accept: Accept, rng: random.Random, stream: Stream, context: CallContext) -> None:
    """What answers `BYTES` on a listener of a simulated node."""
    connection = SimBytes(stream, rng)
    receiver = accept(connection)
    if receiver is not None:
        await connection.run(receiver)
