"""One end of a bidirectional gRPC stream, the same class on both sides.

A pump task reads ahead, a little. It makes `recv` safe to cancel (cancelling a read of gRPC itself would end the call),
and it sees the end of the stream while nobody is in `recv`. Reading ahead stops at `READ_AHEAD_BYTES`, so that a slow
receiver still fills the windows and makes the other side's `send` wait.

A `send` that is cancelled closes the stream: nobody could say whether its message went out.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from odradek_proto.transport.ports import StreamClosed

logger = logging.getLogger("odradek.network")

READ_AHEAD_BYTES = 32 * 1024  # per stream: a thousand clients that send and never read must stay cheap
READ_AHEAD_MESSAGES = 64

ACCEPTED = ("odradek-stream", "accepted")  # first metadata of a stream that has a handler; a rejection has none

Read = Callable[[], Awaitable[bytes | None]]  # the next message; None at a clean end; raises StreamClosed at another
Write = Callable[[bytes], Awaitable[None]]


class GrpcStream:
    """`Stream` over a pair of read and write functions.

    `on_close` is called once, synchronously, when this side closes the stream.
    """

    def __init__(self, peer: str, read: Read, write: Write, on_close: Callable[[], None]) -> None:
        self._peer = peer
        self._read = read
        self._write = write
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._inbox: deque[bytes] = deque()
        self._inbox_bytes = 0
        self._receiver: asyncio.Future[None] | None = None
        self._space: asyncio.Future[None] | None = None
        self._end: StreamClosed | None = None
        self._closed = False
        self._pump = self._loop.create_task(self._read_ahead())

    @property
    def peer(self) -> str:
        return self._peer

    async def send(self, message: bytes) -> None:
        if self._closed:
            raise StreamClosed(f"{self._peer}: stream closed here", clean=True)
        if self._end is not None and not self._end.clean:
            raise self._ended()
        try:
            await self._write(message)
        except asyncio.CancelledError:
            self.close()
            raise
        except StreamClosed:
            if self._end is not None:
                raise self._ended() from None
            raise

    async def recv(self) -> bytes:
        while not self._inbox:
            if self._closed:
                raise StreamClosed(f"{self._peer}: stream closed here", clean=True)
            if self._end is not None:
                raise self._ended()
            self._receiver = self._loop.create_future()
            try:
                await self._receiver
            finally:
                self._receiver = None
        message = self._inbox.popleft()
        self._inbox_bytes -= len(message)
        if self._space is not None and not self._space.done():
            self._space.set_result(None)
        return message

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._inbox.clear()
        self._inbox_bytes = 0
        self._wake()
        self._on_close()

    def break_off(self, reason: str) -> None:
        """The stream is gone, the other side untold: what has arrived may still be received, then `StreamClosed`."""
        self._finish(StreamClosed(f"{self._peer}: {reason}"))
        self._pump.cancel()

    def when_ended(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when nothing more will arrive."""
        self._pump.add_done_callback(lambda _: callback())

    async def drained(self) -> None:
        """Return when nothing more will arrive."""
        await asyncio.wait((self._pump,))

    def _ended(self) -> StreamClosed:
        assert self._end is not None
        return StreamClosed(str(self._end), clean=self._end.clean)  # a new one each time: tracebacks grow otherwise

    def _finish(self, end: StreamClosed) -> None:
        if self._end is None:
            self._end = end
            self._wake()

    def _wake(self) -> None:
        for waiter in (self._receiver, self._space):
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    async def _read_ahead(self) -> None:
        try:
            while (message := await self._read()) is not None:
                if self._closed:
                    continue  # drained, so that the other side's sends come to an end
                self._inbox.append(message)
                self._inbox_bytes += len(message)
                if self._receiver is not None and not self._receiver.done():
                    self._receiver.set_result(None)
                while self._is_full():
                    self._space = self._loop.create_future()
                    await self._space
                    self._space = None
            self._finish(StreamClosed(f"{self._peer}: closed by the other side", clean=True))
        except StreamClosed as end:
            self._finish(end)
        except asyncio.CancelledError:
            self._finish(StreamClosed(f"{self._peer}: call cancelled"))
            raise
        except Exception as error:
            logger.exception("%s: reading a stream failed", self._peer)
            self._finish(StreamClosed(f"{self._peer}: {error!r}"))

    def _is_full(self) -> bool:
        return not self._closed and (self._inbox_bytes > READ_AHEAD_BYTES or len(self._inbox) > READ_AHEAD_MESSAGES)
