"""Calls and streams between the brokers of one process: what gRPC does between processes, over links without sockets.

A stream's message is delivered whole and in order. Back-pressure is one window for each direction. When a broker is
killed its streams break and its callers hear that the connection is lost, as from the kernel of a killed process.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from odradek_proto.transport.ports import CallContext, Handlers, NetworkError, PeerUnavailable, StreamClosed
from odradek_proto.transport.refusals import refusal_of

from odradek_broker.testing.links import BrokerLink

WINDOW_BYTES = 256 * 1024  # sent and not received; then a send waits
END_S = 0.2  # what a handler has to come to its end when its stream is closed


class LocalStream:
    """`Stream`: one end; `other` is the other one. Links are those from this end and to it."""

    def __init__(self, peer: str, link: BrokerLink) -> None:
        self.peer = peer
        self.other: LocalStream
        self._link = link  # from this end to the other
        self._loop = asyncio.get_running_loop()
        self._inbox: deque[bytes] = deque()
        self._underway_bytes = 0  # sent from here and not received there
        self._receiver: asyncio.Future[None] | None = None
        self._space: asyncio.Future[None] | None = None
        self._end: str | None = None  # nothing more will come, and why
        self._ended_cleanly = False
        self._closed = False

    @property
    def is_over(self) -> bool:
        return self._closed or self._end is not None

    async def send(self, message: bytes) -> None:
        self._check_open()
        self._underway_bytes += len(message)
        self._link.deliver(lambda: self.other._arrive(message))
        while self._underway_bytes > WINDOW_BYTES:
            self._space = self._loop.create_future()
            try:
                await self._space
            except asyncio.CancelledError:
                self.close()
                raise
            finally:
                self._space = None
            self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise StreamClosed(f"{self.peer}: stream closed here", clean=True)
        if self._end is not None:
            raise StreamClosed(self._end, clean=self._ended_cleanly)

    async def recv(self) -> bytes:
        while not self._inbox:
            self._check_open()
            self._receiver = self._loop.create_future()
            try:
                await self._receiver
            finally:
                self._receiver = None
        if self._closed:
            raise StreamClosed(f"{self.peer}: stream closed here", clean=True)
        message = self._inbox.popleft()
        self.other._taken(len(message))
        return message

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._inbox.clear()
            self._wake()
            self._link.deliver(lambda: self.other._finish("closed by the other side", cleanly=True))

    def break_off(self, reason: str) -> None:
        """The process of this end is gone."""
        self._finish(reason, cleanly=False)
        self._link.deliver(lambda: self.other._finish(reason, cleanly=False))

    def _arrive(self, message: bytes) -> None:
        if self._closed:
            self.other._taken(len(message))
        elif self._end is None:
            self._inbox.append(message)
            self._wake_one(self._receiver)

    def _taken(self, size: int) -> None:
        self._underway_bytes -= size
        if self._underway_bytes <= WINDOW_BYTES:
            self._wake_one(self._space)

    def _finish(self, reason: str, *, cleanly: bool) -> None:
        if self._end is None:
            self._end, self._ended_cleanly = f"{self.peer}: {reason}", cleanly
            self._wake()

    def _wake(self) -> None:
        self._wake_one(self._receiver)
        self._wake_one(self._space)

    @staticmethod
    def _wake_one(waiter: asyncio.Future[None] | None) -> None:
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class PendingReply:
    """What the caller of a unary call waits for. The first outcome counts."""

    def __init__(self, timeout_ms: float, late: Callable[[], NetworkError]) -> None:
        loop = asyncio.get_running_loop()
        self._outcome: asyncio.Future[bytes] = loop.create_future()
        self._deadline = loop.call_later(timeout_ms / 1000, lambda: self.fail(late()))

    @property
    def is_over(self) -> bool:
        return self._outcome.done()

    def answer(self, response: bytes) -> None:
        if not self._outcome.done():
            self._outcome.set_result(response)

    def fail(self, error: NetworkError) -> None:
        if not self._outcome.done():
            self._outcome.set_exception(error)

    async def wait(self) -> bytes:
        try:
            return await self._outcome
        finally:
            self._deadline.cancel()


class LocalServer:
    """`Server` at one of a broker's own addresses."""

    def __init__(self, address: str, handlers: Handlers, on_stop: Callable[[], None]) -> None:
        self.address = address
        self.handlers = handlers
        self._on_stop = on_stop
        self._workers: set[asyncio.Task[None]] = set()
        self._streams: set[LocalStream] = set()
        self._abandon: set[Callable[[], None]] = set()  # tells the caller of a call that it is not answered

    def set_serving(self, serving: bool) -> None:
        """Nobody asks for the health of a listener between brokers."""

    def take_call(
        self, method: str, request: bytes, context: CallContext, back: BrokerLink, reply: PendingReply
    ) -> None:
        """Work on a call; its answer goes back over a link."""

        def abandon() -> None:
            lost = PeerUnavailable(f"{self.address} {method}: connection lost")
            back.deliver(lambda: reply.fail(lost))

        async def work() -> None:
            self._abandon.add(abandon)
            try:
                response = await self.handlers.unary[method](request, context)
            except Exception as error:
                refusal = refusal_of(method, context, error)
                back.deliver(lambda: reply.fail(refusal))
            else:
                back.deliver(lambda: reply.answer(response))
            finally:
                self._abandon.discard(abandon)

        self._spawn(work())

    def take_stream(self, method: str, stream: LocalStream, context: CallContext) -> None:
        """Run a stream's handler until it ends, or the stream does."""

        async def work() -> None:
            self._streams.add(stream)
            try:
                await self.handlers.streams[method](stream, context)
            except StreamClosed:
                pass
            except Exception as error:
                stream.break_off(str(refusal_of(method, context, error)))
            finally:
                self._streams.discard(stream)
                stream.close()

        self._spawn(work())

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._workers.add(task)
        task.add_done_callback(self._workers.discard)

    async def stop(self, grace_ms: float = 0) -> None:
        self._on_stop()
        if grace_ms and self._workers:
            await asyncio.wait(tuple(self._workers), timeout=grace_ms / 1000)
        for stream in tuple(self._streams):
            stream.close()
        if self._workers:
            await asyncio.wait(tuple(self._workers), timeout=END_S)
        self.end()

    def end(self) -> None:
        """As the kernel ends a killed process's connections."""
        self._on_stop()
        for stream in tuple(self._streams):
            stream.break_off("connection lost")
        for abandon in tuple(self._abandon):
            abandon()
        for worker in tuple(self._workers):
            worker.cancel()
