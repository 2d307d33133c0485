"""The small HTTP server: what it answers, and whom it cuts off."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import cast

import pytest
from odradek_broker.metrics import http
from odradek_broker.metrics.http import MAX_CONNECTIONS, MAX_REQUEST_BYTES, HttpRequest, HttpResponse, HttpServer

from tests.playing import plays

WAIT_S = 60
SHORT_S = 0.2
LARGE = 64 << 20  # more than the sockets of both sides hold


async def echo(request: HttpRequest) -> HttpResponse:
    if request.path == "/large":
        return HttpResponse(200, "text/plain", bytes(LARGE))
    if request.path == "/fails":
        raise RuntimeError("on purpose")
    return HttpResponse(200, "text/plain", f"{request.path} {request.query} {request.accept}".encode())


def run(story: Callable[[HttpServer], Awaitable[None]], *, patience_s: float = WAIT_S) -> list[BaseException]:
    """Serve while the story is told; returns what handlers raised."""
    errors: list[BaseException] = []

    async def main() -> None:
        server = await HttpServer.listen("127.0.0.1:0", echo, errors.append, patience_s=patience_s)
        try:
            async with asyncio.timeout(WAIT_S):
                await story(server)
        finally:
            await server.stop()
        assert not server.connections

    asyncio.run(main())
    return errors


async def open_to(server: HttpServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = server.address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def say(server: HttpServer, request: bytes) -> bytes:
    """Everything that comes back until the connection ends."""
    reader, writer = await open_to(server)
    writer.write(request)
    try:
        return await rest_of(reader)
    finally:
        writer.close()


async def begun(server: HttpServer, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which an answer has begun; where patience is short, a slow one is cut before that."""
    while True:
        reader, writer = await open_to(server)
        writer.write(get(path))
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            assert await reader.readexactly(8) == b"HTTP/1.1"
            return reader, writer


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """What comes until the end, which may be a reset, or a broken pipe where something was still to be written."""
    received = bytearray()
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            received += data
    return bytes(received)


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "host: here", *headers, "", ""]).encode()


def test_a_request_is_answered_and_the_connection_ends() -> None:
    """Path, query and Accept reach the handler; the answer has a length and says that it was the last."""

    async def story(server: HttpServer) -> None:
        answer = await say(server, get("/metrics?view=cluster", "accept: text/plain", "accept: other"))
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert body == b"/metrics view=cluster text/plain,other"
        assert b"content-length: 38\r\n" in head
        assert b"connection: close" in head

    assert run(story) == []


@plays(run)
async def test_a_request_may_come_byte_by_byte(server: HttpServer) -> None:
    """However a request is cut into packets, it is the same request."""
    reader, writer = await open_to(server)
    for byte in get("/slowly"):
        writer.write(bytes([byte]))
        await writer.drain()
    assert (await reader.read()).endswith(b"/slowly  ")
    writer.close()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"HEAD /metrics HTTP/1.1\r\nhost: here\r\n\r\n", b"200"),
        (b"DELETE /metrics HTTP/1.1\r\nhost: here\r\n\r\n", b"405"),
        (b"POST /metrics HTTP/1.1\r\nhost: here\r\ncontent-length: 3\r\n\r\nabc", b"400"),
        (b"GET /fails HTTP/1.1\r\nhost: here\r\n\r\n", b"500"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET //[ HTTP/1.1\r\nhost: here\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nhost: here\r\nx: " + b"x" * (2 * MAX_REQUEST_BYTES), b"431"),
    ],
)
def test_what_is_no_plain_get_gets_its_status(request_bytes: bytes, status: bytes) -> None:
    """Other methods, bodies, malformed and oversized requests, and a handler that fails."""

    async def story(server: HttpServer) -> None:
        answer = await say(server, request_bytes)
        assert answer.split()[1] == status, answer
        if request_bytes.startswith(b"HEAD"):
            assert answer.endswith(b"\r\n\r\n")

    errors = run(story)
    assert [str(error) for error in errors] == (["on purpose"] if status == b"500" else [])


@pytest.mark.parametrize("piece", [1 << 20, 1000, 1024])
@pytest.mark.parametrize(("surplus", "status"), [(0, b"200"), (1, b"431"), (MAX_REQUEST_BYTES // 2, b"431")])
def test_a_request_has_so_many_bytes_and_no_more(piece: int, surplus: int, status: bytes) -> None:
    """The bound holds to the byte, whether the request comes at once or in pieces."""
    frame = b"GET / HTTP/1.1\r\nhost: here\r\nx: %b\r\n\r\n"
    request = frame % (b"x" * (MAX_REQUEST_BYTES + surplus - len(frame) + 2))

    async def story(server: HttpServer) -> None:
        reader, writer = await open_to(server)
        for place in range(0, len(request), piece):
            writer.write(request[place : place + piece])
            await writer.drain()
        assert (await rest_of(reader)).split()[1] == status
        writer.close()

    assert len(request) == MAX_REQUEST_BYTES + surplus
    run(story)


@plays(run)
async def test_a_second_request_on_a_connection_is_not_answered(server: HttpServer) -> None:
    """One request to a connection: what comes behind it is not read."""
    answer = await say(server, get("/one") + get("/two"))
    assert answer.count(b"HTTP/1.1") == 1
    assert answer.endswith(b"/one  ")


@pytest.mark.parametrize("said", [b"", b"GET /metrics HTTP/1.1\r\n"])
@plays(partial(run, patience_s=SHORT_S))
async def test_whoever_does_not_finish_a_request_is_cut_off(server: HttpServer, said: bytes) -> None:
    """A silent connection and half a request end when the patience does, without an answer."""
    assert await say(server, said) == b""


@plays(partial(run, patience_s=SHORT_S))
async def test_whoever_does_not_read_the_answer_is_cut_off(server: HttpServer) -> None:
    """An answer that nobody takes is held no longer than the patience, then others are answered again."""
    reader, writer = await begun(server, "/large")
    cast(asyncio.Transport, writer.transport).pause_reading()
    assert await say(server, b"") == b""  # cut when its patience ended, so that of the other one has ended, too
    cast(asyncio.Transport, writer.transport).resume_reading()
    assert len(await rest_of(reader)) < LARGE
    server.patience_s = WAIT_S
    assert (await say(server, get("/small"))).endswith(b"/small  ")
    writer.close()


@plays(run)
async def test_answers_that_nobody_reads_are_bounded_together(server: HttpServer) -> None:
    """While more than the bound waits for a client, the next ones are told so; once it is taken, they are answered."""
    reader, writer = await open_to(server)
    writer.write(get("/large"))
    assert await reader.readexactly(8) == b"HTTP/1.1"
    assert (await say(server, get("/small"))).split()[1] == b"503"
    assert len(await rest_of(reader)) > LARGE
    assert (await say(server, get("/small"))).split()[1] == b"200"
    writer.close()


@plays(run)
async def test_more_connections_than_the_bound_are_refused_at_once(server: HttpServer) -> None:
    """The connection beyond the bound ends before it has said anything; when one of the others goes, there is room."""
    idle = [await open_to(server) for _ in range(MAX_CONNECTIONS)]
    assert await say(server, get("/full")) == b""
    idle.pop()[1].close()
    answer = b""
    while not answer:  # the server may hear of the new one before it hears of the end of the old
        answer = await say(server, get("/room"))
    assert answer.endswith(b"/room  ")
    for _, writer in idle:
        writer.close()


@plays(run)
async def test_a_crowd_of_idle_connections_is_refused_at_once(server: HttpServer) -> None:
    """Of three hundred silent ones only those within the bound stay, and none of the others waits to be accepted."""
    crowd = await asyncio.gather(*(open_to(server) for _ in range(300)))
    ends = [asyncio.ensure_future(rest_of(reader)) for reader, _ in crowd]
    refused = asyncio.Event()

    def count(_: object) -> None:
        if sum(end.done() for end in ends) == 300 - MAX_CONNECTIONS:
            refused.set()

    for end in ends:
        end.add_done_callback(count)
    async with asyncio.timeout(WAIT_S / 2):
        await refused.wait()
    assert len(server.connections) == MAX_CONNECTIONS
    for _, writer in crowd:
        writer.close()
    await asyncio.gather(*ends)


@plays(run)
async def test_stop_ends_whoever_is_connected(server: HttpServer) -> None:
    """A server that stops waits for nobody; its port is free at once."""
    reader, writer = await open_to(server)
    assert (await say(server, get("/here"))).endswith(b"/here  ")
    assert len(server.connections) == 1
    await server.stop()
    assert await rest_of(reader) == b""
    writer.close()
    again = await HttpServer.listen(server.address, echo, lambda error: None)
    await again.stop()


@plays(run)
async def test_a_taken_port_is_named(server: HttpServer) -> None:
    """Whoever starts a second server there reads which address it was."""
    with pytest.raises(OSError, match=f"cannot listen on HTTP://{server.address}"):
        await HttpServer.listen(server.address, echo, lambda error: None)


def test_the_bounds_are_those_of_the_page() -> None:
    """docs/metrics.md names them."""
    assert (http.MAX_CONNECTIONS, http.MAX_REQUEST_BYTES, http.PATIENCE_S) == (64, 16 * 1024, 10.0)
    assert http.MAX_UNREAD_BYTES == 16 << 20
