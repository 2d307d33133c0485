"""Byte streams over TCP: `listen_bytes` of the network port.

The event loop reads into the receiver's own buffer (asyncio's BufferedProtocol), so that nothing is copied on the
way; asyncio and uvloop set TCP_NODELAY by themselves. What a peer does not take stays in the transport's buffer; the
receiver is told when that is full and when it is empty again, and stops making more.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Sequence
from typing import Any, cast

from odradek_proto.security.tls import NO_CLIENT_AUTH, PeerCertificate, TlsSource, listening_context, peer_certificate
from odradek_proto.transport.ports import Accept, Buffer, ByteReceiver

FULL_BYTES = 64 * 1024  # unsent: beyond it the receiver is asked to stop; it goes on when everything has left
HANDSHAKE_TIMEOUT_S = 5.0  # a connection that does not get through with TLS, or does not end it, is dropped after this
BACKLOG = 128  # connections that the kernel keeps before they are accepted
OWN_WRITE_BYTES = 16 * 1024  # buffers from this size on are handed over as they are, smaller ones are joined
LEAST_AWAITED_BYTES = 4 * 1024  # fewer missing bytes are read as they come
MOST_AWAITED_BYTES = 32 * 1024  # at once: a slow peer is seen to send now and then
TLS_RECORD_BYTES = (
    17 * 1024
)  # at most, so much of what is missing may have been read, and wait for the rest of its record


class TcpConnection(asyncio.BufferedProtocol):
    """`ByteConnection` over one accepted socket."""

    def __init__(self, server: TcpServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._receiver: ByteReceiver | None = None
        self._socket: socket.socket | None = None
        self._unawaited = 0  # of the missing bytes, that may be in this process already
        self.low_water = 1  # SO_RCVLOWAT of the socket: bytes that wake us
        self.peer = ""
        self.certificate: PeerCertificate | None = None

    # --- ByteConnection ---------------------------------------------------------------------------------------------

    @property
    def unsent_bytes(self) -> int:
        transport = self._transport
        return 0 if transport is None else transport.get_write_buffer_size()

    def write(self, buffers: Sequence[Buffer]) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        small: list[Buffer] = []
        for buffer in buffers:
            if len(buffer) < OWN_WRITE_BYTES:
                small.append(buffer)
                continue
            if small:
                transport.write(b"".join(small))
                small = []
            transport.write(buffer)
        if small:
            transport.write(b"".join(small))

    def pause(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio's protocol -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername") or ("?", 0)
        self.peer = f"{name[0]}:{name[1]}"
        self.certificate = peer_certificate(transport.get_extra_info("peercert"))
        self._transport.set_write_buffer_limits(high=FULL_BYTES, low=0)
        self._socket = transport.get_extra_info("socket")
        self._unawaited = TLS_RECORD_BYTES if transport.get_extra_info("ssl_object") is not None else 0
        self._receiver = self._server.accept(self)
        if self._receiver is None:
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(bytearray(1)) if self._receiver is None else self._receiver.room()

    def buffer_updated(self, nbytes: int) -> None:
        if self._receiver is not None:
            self._receiver.on_bytes(nbytes)
            self._await(self._receiver.missing)

    def _await(self, missing: int) -> None:
        """Be woken once so many bytes are there, and not for each piece of them.

        Clients that write a record at a time (librdkafka with TLS) woke us twenty times for a frame of 64 KiB.
        """
        low_water = min(missing - self._unawaited, MOST_AWAITED_BYTES)
        if low_water < LEAST_AWAITED_BYTES:
            low_water = 1
        if low_water != self.low_water and self._socket is not None:
            self.low_water = low_water
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_water)

    def pause_writing(self) -> None:
        if self._receiver is not None:
            self._receiver.on_full()

    def resume_writing(self) -> None:
        if self._receiver is not None:
            self._receiver.on_drained()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._server.forget(self)
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.on_lost()


class TcpServer:
    """`Server` of a byte-stream listener; made by `listen`."""

    def __init__(self, accept: Accept) -> None:
        self._accept = accept
        self._connections: dict[TcpConnection, None] = {}
        self._server: asyncio.Server | None = None
        self._empty: asyncio.Event = asyncio.Event()
        self._address = ""

    @property
    def address(self) -> str:
        return self._address

    def set_serving(self, serving: bool) -> None:
        """Byte streams have no health service: a broker that is not ready lets its clients wait for Metadata."""

    async def start(self, address: str, tls: TlsSource | None, client_auth: str) -> None:
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        bound: socket.socket | None = None
        try:
            bound = _bind(host.strip("[]"), int(port))
            where: dict[str, Any] = {"sock": bound} if bound is not None else {"host": host, "port": int(port)}
            self._server = await loop.create_server(
                lambda: TcpConnection(self),
                **where,
                backlog=BACKLOG,
                ssl=None if tls is None else listening_context(tls, client_auth),
                ssl_handshake_timeout=None if tls is None else HANDSHAKE_TIMEOUT_S,
                ssl_shutdown_timeout=None if tls is None else HANDSHAKE_TIMEOUT_S,
            )
        except OSError as error:
            if bound is not None:
                bound.close()
            reason = error.strerror or error
            raise OSError(error.errno or errno.EADDRINUSE, f"cannot listen on {address}: {reason}") from None
        self._address = f"{host}:{self._server.sockets[0].getsockname()[1]}"

    def accept(self, connection: TcpConnection) -> ByteReceiver | None:
        receiver = self._accept(connection)
        if receiver is not None:
            self._connections[connection] = None
        return receiver

    def forget(self, connection: TcpConnection) -> None:
        self._connections.pop(connection, None)
        if not self._connections:
            self._empty.set()

    async def stop(self, grace_ms: float = 0) -> None:
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.close()
        if grace_ms and self._connections:
            self._empty.clear()
            try:
                async with asyncio.timeout(grace_ms / 1000):
                    await self._empty.wait()
            except TimeoutError:
                pass
        for connection in tuple(self._connections):
            connection.abort()


def _bind(host: str, port: int) -> socket.socket | None:
    """A socket at a numeric address; None for a name, which has to be looked up. Raises `OSError`.

    The loop would look up numbers as well, in a thread that the start has to wait for.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.inet_pton(family, host)
    except OSError:
        return None
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((host, port))
    except BaseException:
        bound.close()
        raise
    return bound


async def listen(
    address: str, accept: Accept, tls: TlsSource | None = None, client_auth: str = NO_CLIENT_AUTH
) -> TcpServer:
    """Listen on `host:port`. Raises `OSError` when the address is taken."""
    server = TcpServer(accept)
    await server.start(address, tls, client_auth)
    return server
