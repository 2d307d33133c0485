"""A small HTTP server for scrapers and probes, on the broker's own loop: GET and HEAD, one request to a connection.

Rules of this module. Nothing that a client does may cost the broker more than a bound: connections, bytes of a request,
and the time from connecting to the last byte of the answer each have one, so a client that dribbles its request, or
never reads its answer, is cut off. h11 reads and writes the bytes; here is only when.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, cast
from urllib.parse import urlsplit

import h11

MAX_CONNECTIONS: Final = 64  # at the same time; more are closed at once
MAX_REQUEST_BYTES: Final = 16 * 1024  # request line and headers
MAX_UNREAD_BYTES: Final = 16 * 1024 * 1024  # of answers that clients have not taken, all together
PATIENCE_S: Final = 10.0  # from the connection to the last byte of the answer
BACKLOG: Final = 1024  # a crowd is accepted and refused at once, not left in the kernel's queue for seconds
REASONS: Final = {
    200: b"OK",
    400: b"Bad Request",
    404: b"Not Found",
    405: b"Method Not Allowed",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    503: b"Service Unavailable",
}
TEXT: Final = "text/plain; charset=utf-8"


class HttpRequest(NamedTuple):
    path: str
    query: str
    accept: str


class HttpResponse(NamedTuple):
    status: int
    content_type: str
    body: bytes


Answer = Callable[[HttpRequest], Awaitable[HttpResponse]]
OnError = Callable[[BaseException], None]


class HttpServer:
    """Made by `listen`. `answer` is called for each request; what it raises is a 500, and told to `on_error`."""

    def __init__(self, answer: Answer, on_error: OnError, patience_s: float) -> None:
        self.answer = answer
        self.on_error = on_error
        self.patience_s = patience_s
        self.connections: dict[_Connection, None] = {}
        self.address = ""
        self._server: asyncio.Server | None = None

    @classmethod
    async def listen(
        cls, address: str, answer: Answer, on_error: OnError, *, patience_s: float = PATIENCE_S
    ) -> HttpServer:
        """Listen on `host:port`; with port 0 the system chooses, and `address` says what. Raises `OSError`."""
        self = cls(answer, on_error, patience_s)
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                lambda: _Connection(self), host.strip("[]"), int(port), backlog=BACKLOG, reuse_address=True
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise OSError(error.errno or errno.EADDRINUSE, f"cannot listen on HTTP://{address}: {reason}") from None
        self._server = server
        self.address = f"{host}:{server.sockets[0].getsockname()[1]}"
        return self

    def unread_bytes(self) -> int:
        """What has been written for clients that have not taken it yet."""
        return sum(connection.unread_bytes() for connection in self.connections)

    async def stop(self) -> None:
        """Refuse new connections and cut those that are open: whoever is being answered asks again later."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        open_ones = tuple(self.connections)
        for connection in open_ones:
            connection.cut()
        await asyncio.gather(*(connection.ended.wait() for connection in open_ones))
        await server.wait_closed()


class _Connection(asyncio.Protocol):
    """One request and its answer."""

    def __init__(self, server: HttpServer) -> None:
        self.ended = asyncio.Event()
        self._server = server
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_REQUEST_BYTES)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._request: h11.Request | None = None
        self._task: asyncio.Task[None] | None = None
        self._received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclasses of it
        if len(self._server.connections) >= MAX_CONNECTIONS:
            self._transport.abort()
            return
        self._server.connections[self] = None
        self._timer = asyncio.get_running_loop().call_later(self._server.patience_s, self.cut)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()
        self._server.connections.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def eof_received(self) -> bool:
        """A client that has said all may still wait for the answer."""
        return self._task is not None

    def data_received(self, data: bytes) -> None:
        room = max(0, MAX_REQUEST_BYTES - self._received)
        self._received += len(data)
        if self._task is not None or self not in self._server.connections:
            if self._received > 2 * MAX_REQUEST_BYTES:
                self.cut()
            return  # one request to a connection
        try:
            if room:  # to h11 no bytes are the end of the connection
                self._http.receive_data(data[:room])
                self._read()
            if self._task is None and self._received > MAX_REQUEST_BYTES:
                self._write(HttpResponse(431, TEXT, b"a request has at most %d bytes\n" % MAX_REQUEST_BYTES))
        except h11.RemoteProtocolError as error:
            self._write(HttpResponse(error.error_status_hint, TEXT, f"{error}\n".encode()))

    def _read(self) -> None:
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                self._request = event
            elif isinstance(event, h11.EndOfMessage):
                assert self._request is not None
                self._task = asyncio.get_running_loop().create_task(self._answer(self._request))
                return
            elif isinstance(event, h11.Data):
                self._write(HttpResponse(400, TEXT, b"a request has no body here\n"))
                return
            else:
                return  # more has to come, or nothing will

    async def _answer(self, request: h11.Request) -> None:
        if request.method not in (b"GET", b"HEAD"):
            self._write(HttpResponse(405, TEXT, b"only GET and HEAD\n"))
            return
        if self._server.unread_bytes() > MAX_UNREAD_BYTES:
            self._write(HttpResponse(503, TEXT, b"too many answers that nobody reads\n"))
            return
        try:
            target = urlsplit(request.target.decode("ascii", "replace"))
        except ValueError as error:
            self._write(HttpResponse(400, TEXT, f"{error}\n".encode()))
            return
        accept = b",".join(value for name, value in request.headers if name == b"accept").decode("latin-1")
        try:
            response = await self._server.answer(HttpRequest(target.path, target.query, accept))
        except Exception as error:
            self._server.on_error(error)
            response = HttpResponse(500, TEXT, f"{type(error).__name__}\n".encode())
        self._write(response, with_body=request.method == b"GET")

    def _write(self, response: HttpResponse, *, with_body: bool = True) -> None:
        """Write it all and close; whoever does not read it in time is cut by the timer."""
        transport = self._transport
        states = (h11.IDLE, h11.SEND_RESPONSE)  # of a connection that has not answered yet
        if transport is None or transport.is_closing() or self._http.our_state not in states:
            return
        headers = [
            ("content-type", response.content_type),
            ("content-length", str(len(response.body))),
            ("cache-control", "no-store"),
            ("connection", "close"),
        ]
        head = h11.Response(status_code=response.status, headers=headers, reason=REASONS.get(response.status, b""))
        transport.write(self._http.send(head) or b"")
        if with_body:
            transport.write(response.body)
        transport.close()

    def unread_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def cut(self) -> None:
        """End it now, whatever is still to be said."""
        if self._transport is not None:
            self._transport.abort()
