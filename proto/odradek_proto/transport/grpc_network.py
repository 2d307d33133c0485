"""The network port over gRPC: one channel per peer, raw bytes, no serialisers.

What gRPC says is turned into the port's own errors here and nowhere else. A channel whose last attempt to connect
failed is put aside when it is next asked for: gRPC would answer with the old failure until its back-off is over,
while a new channel asks the peer itself. So a refusal is always a fresh one, and a restarted peer is found at once.
A channel that was put aside is closed when the last call on it has ended: closing it would end the others' calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from odradek_proto.security.tls import NO_CLIENT_AUTH, TlsSource
from odradek_proto.transport.grpc_credentials import TOKEN_KEY, channel_credentials, server_credentials
from odradek_proto.transport.grpc_login import AUTHENTICATE, Login, log_in
from odradek_proto.transport.grpc_options import TIMEOUT_KEY, GrpcOptions
from odradek_proto.transport.grpc_stream import ACCEPTED, GrpcStream
from odradek_proto.transport.ports import (
    Accept,
    CallRejected,
    DeadlineExceeded,
    DialResult,
    Handlers,
    NetworkError,
    NotAuthenticated,
    PeerUnavailable,
    Server,
    Stream,
    StreamClosed,
)

if TYPE_CHECKING:  # generic only in the stubs
    Unary = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
    Streaming = grpc.aio.StreamStreamMultiCallable[bytes, bytes]
    StreamCall = grpc.aio.StreamStreamCall[bytes, bytes]

CLOSE_GRACE_S = 0.5  # how long the other side may take to answer the end of a stream before the call is cancelled
RENEWED_AFTER = 0.85  # of a session: Kafka's clients authenticate again between that and 0.95 of it (KIP-368)
LEAST_PAUSE_S = 1.0  # between two conversations, however short a session the server names; Kafka's refuse more
UNRESOLVED = re.compile(r"(?:errors resolving|DNS resolution failed for) (\S+):\d+")
NO_SUCH_NAME = ("Domain name not found", "Name or service not known")  # as c-ares and libc report it
NEVER_SENT = ("failed to connect to all addresses", "errors resolving", "DNS resolution failed")  # how gRPC says it


class GrpcNetwork:
    """`Network` over grpc.aio. One event loop per process: gRPC's poller serves one.

    With `tls` everything that is dialled or served speaks TLS, and what is dialled shows a certificate for its host;
    `client_auth` says whether whoever dials here has to show one, too. With `login` each channel authenticates before
    its first call, again before its session is over, and when the peer does not know it any more.
    """

    def __init__(
        self,
        options: GrpcOptions | None = None,
        *,
        tls: TlsSource | None = None,
        client_auth: str = NO_CLIENT_AUTH,
        login: Login | None = None,
    ) -> None:
        self._login = login
        self._options = options or GrpcOptions()
        self._tls = tls
        self._client_auth = client_auth
        self._peers: dict[str, _Peer] = {}
        self._put_aside: set[_Peer] = set()
        self._streams: set[GrpcStream] = set()
        self._closing: set[asyncio.Task[None]] = set()

    async def call(self, peer: str, method: str, request: bytes, timeout_ms: float) -> bytes:
        try:
            with self._used(peer) as channel:
                said = ((TIMEOUT_KEY, f"{timeout_ms:.0f}"), *(await self._metadata(channel) or ()))
                async with asyncio.timeout(timeout_ms / 1000):
                    return await channel.unary(method)(request, wait_for_ready=False, metadata=grpc.aio.Metadata(*said))
        except TimeoutError:
            raise DeadlineExceeded(f"{peer} {method}: no answer within {timeout_ms} ms") from None
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAUTHENTICATED and self._login is not None:
                channel.token = ""  # the connection is another one than it was given on, or the session is over
                raise PeerUnavailable(f"{peer}: has to authenticate again", undelivered=True) from None
            raise _translate(peer, method, error.code(), error.details() or "") from None
        except grpc.aio.UsageError:
            raise PeerUnavailable(f"{peer}: closed here", undelivered=True) from None
        except asyncio.CancelledError:
            if _cancelled_from_outside():
                raise
            raise PeerUnavailable(f"{peer} {method}: closed here") from None

    async def open(self, peer: str, method: str, timeout_ms: float = 5000) -> Stream:
        with contextlib.ExitStack() as use:
            channel = use.enter_context(self._used(peer))
            metadata = None if method == AUTHENTICATE else await self._metadata(channel)
            try:
                call = channel.stream(method)(wait_for_ready=False, metadata=metadata)
            except grpc.aio.UsageError:
                raise PeerUnavailable(f"{peer}: closed here", undelivered=True) from None
            await self._accepted(peer, method, call, timeout_ms)
            stream = GrpcStream(
                peer, _reader(channel, call), _writer(peer, call), lambda: self._close_gracefully(stream, call)
            )
            self._streams.add(stream)
            stream.when_ended(lambda: self._streams.discard(stream))
            stream.when_ended(use.pop_all().close)
        return stream

    async def _metadata(self, channel: _Peer) -> grpc.aio.Metadata | None:
        """Who calls. All calls of a channel wait for one conversation."""
        if self._login is None:
            return None
        async with channel.logging_in:
            if not channel.token:
                await self._log_in(self._login, channel)
        return grpc.aio.Metadata((TOKEN_KEY, channel.token))

    async def _log_in(self, login: Login, channel: _Peer) -> None:
        session = await log_in(login, lambda method: self.open(channel.address, method))
        channel.token = session.token
        channel.renew_no_more()
        if session.lifetime_ms > 0:
            delay_s = max(LEAST_PAUSE_S, session.lifetime_ms * RENEWED_AFTER / 1000)
            channel.renewal = asyncio.get_running_loop().call_later(delay_s, self._renew, login, channel)

    def _renew(self, login: Login, channel: _Peer) -> None:
        """A session is over soon: those of streams go on if there is another conversation; a call can wait for one."""

        async def renew() -> None:
            async with channel.logging_in:
                try:
                    await self._log_in(login, channel)
                except NetworkError:
                    channel.token = ""  # the next call tries again, and its caller hears of it

        if channel.calls:
            self._in_background(renew())
        else:
            channel.token = ""

    async def _accepted(self, peer: str, method: str, call: StreamCall, timeout_ms: float) -> None:
        """Wait for the peer to take a stream. Raises what `open` does."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                if ACCEPTED not in tuple(await call.initial_metadata()):  # then there is nothing but a status to come
                    raise _translate(peer, method, await call.code(), await call.details())
        except TimeoutError:
            call.cancel()
            raise DeadlineExceeded(f"{peer} {method}: not accepted within {timeout_ms} ms") from None
        except asyncio.CancelledError:
            call.cancel()
            raise

    async def dial(self, peer: str, timeout_ms: float) -> DialResult:
        """Connect and hang up. Only a refusal by the peer's kernel is `REFUSED`; all other failures prove nothing.

        A name may stand for several addresses (`localhost` for two): one that listens is enough, and all must refuse.
        """
        host, _, port = peer.rpartition(":")
        loop = asyncio.get_running_loop()
        result = DialResult.REFUSED
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                for found in await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM):
                    try:
                        await _connect(found)
                    except ConnectionRefusedError:
                        continue
                    except OSError:
                        result = DialResult.SILENT
                    else:
                        return DialResult.LISTENING
        except (OSError, TimeoutError, ValueError):  # the last: no port, or a name that no DNS could have
            return DialResult.SILENT
        return result

    async def serve(self, address: str, handlers: Handlers) -> Server:
        from odradek_proto.transport.grpc_server import serve  # clients need not load health and reflection

        credentials = None if self._tls is None else server_credentials(self._tls, self._client_auth)
        return await serve(address, handlers, self._options, credentials)

    async def listen_bytes(self, address: str, accept: Accept) -> Server:
        from odradek_proto.transport.tcp import listen  # clients only dial

        return await listen(address, accept, self._tls, self._client_auth)

    async def close(self) -> None:
        for stream in tuple(self._streams):
            stream.close()
        if self._closing:
            await asyncio.wait(tuple(self._closing))
        peers = (*self._peers.values(), *self._put_aside)
        self._peers, self._put_aside = {}, set()
        for peer in peers:
            peer.renew_no_more()
        for peer in peers:
            await peer.channel.close()

    @contextlib.contextmanager
    def _used(self, address: str) -> Iterator[_Peer]:
        """The channel to a peer, for a call; one that was put aside meanwhile is closed after its last call."""
        peer = self._peer(address)
        peer.calls += 1
        try:
            yield peer
        finally:
            peer.calls -= 1
            if peer in self._put_aside:
                self._close_if_unused(peer)

    def _peer(self, address: str) -> _Peer:
        peer = self._peers.get(address)
        if peer is not None:
            if peer.channel.get_state() is not grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                return peer
            self._put_aside.add(peer)
            self._close_if_unused(peer)
        credentials = None if self._tls is None else channel_credentials(self._tls)
        peer = self._peers[address] = _Peer(address, self._options, credentials)
        return peer

    def _close_if_unused(self, peer: _Peer) -> None:
        if not peer.calls:
            self._put_aside.discard(peer)
            peer.renew_no_more()
            self._in_background(peer.channel.close())

    def _close_gracefully(self, stream: GrpcStream, call: StreamCall) -> None:
        self._in_background(_end_of(stream, call))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _connect(found: tuple[Any, ...]) -> None:
    """Open and close a connection to what `getaddrinfo` found."""
    family, kind, protocol, _, where = found
    with socket.socket(family, kind, protocol) as probe:
        probe.setblocking(False)
        await asyncio.get_running_loop().sock_connect(probe, where)


class _Peer:
    """The channel to one peer and its methods, each looked up once."""

    def __init__(self, address: str, options: GrpcOptions, credentials: grpc.ChannelCredentials | None) -> None:
        self.address = address
        self.token = ""  # of this channel; empty: has to authenticate
        self.logging_in = asyncio.Lock()
        self.renewal: asyncio.TimerHandle | None = None  # when the next conversation is due
        if credentials is None:
            self.channel = grpc.aio.insecure_channel(address, options=options.client())
        else:
            self.channel = grpc.aio.secure_channel(address, credentials, options=options.client())
        self.calls = 0  # and streams, that have not ended
        self._unary: dict[str, Unary] = {}
        self._streaming: dict[str, Streaming] = {}

    def renew_no_more(self) -> None:
        if self.renewal is not None:
            self.renewal.cancel()

    def unary(self, method: str) -> Unary:
        found = self._unary.get(method)
        if found is None:
            found = self._unary[method] = self.channel.unary_unary(method)
        return found

    def stream(self, method: str) -> Streaming:
        found = self._streaming.get(method)
        if found is None:
            found = self._streaming[method] = self.channel.stream_stream(method)
        return found


async def _end_of(stream: GrpcStream, call: StreamCall) -> None:
    """Close our direction, so that all we sent arrives before the end, and read off what still comes."""
    try:
        async with asyncio.timeout(CLOSE_GRACE_S):
            await call.done_writing()
            await stream.drained()
    except (TimeoutError, grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
        pass  # the call is over or will not end by itself
    finally:
        call.cancel()


def _reader(peer: _Peer, call: StreamCall) -> Callable[[], Coroutine[Any, Any, bytes | None]]:
    messages = call.__aiter__()  # unlike `call.read()` it hands out what arrived before a failure

    async def read() -> bytes | None:
        try:
            return await anext(messages, None)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                peer.token = ""
            raise StreamClosed(f"{peer.address}: {error.code().name}: {error.details()}") from None

    return read


def _writer(peer: str, call: StreamCall) -> Callable[[bytes], Coroutine[Any, Any, None]]:
    async def write(message: bytes) -> None:
        try:
            await call.write(message)
        except grpc.aio.AioRpcError as error:
            raise StreamClosed(f"{peer}: {error.code().name}: {error.details()}") from None
        except asyncio.InvalidStateError:
            raise StreamClosed(f"{peer}: call has ended") from None
        except asyncio.CancelledError:
            if _cancelled_from_outside():
                raise
            raise StreamClosed(f"{peer}: call cancelled") from None

    return write


def _cancelled_from_outside() -> bool:
    """Whether somebody cancelled our task. gRPC raises `CancelledError` by itself when a call was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def plain(details: str) -> str:
    """Why a connection failed, without gRPC's story around it."""
    if "before receiving SETTINGS frame" in details:
        return "it takes the connection and says nothing"
    if "(ping timeout)" in details:
        return "it has the connection and says nothing any more"
    if "recvmsg:Connection reset by peer" in details:
        return "it closes the connection: a server of another kind?"
    if unresolved := UNRESOLVED.search(details):
        if any(sign in details for sign in NO_SUCH_NAME):
            return f"unknown host {unresolved[1]}"
        return f"{unresolved[1]} cannot be resolved: {details.rpartition(': ')[2].rstrip(']')}"
    _, is_found, last = details.rpartition("last error: ")
    return re.sub(r"^[A-Z]+: (ipv[46]:\S+: )?", "", last) if is_found else details


def _translate(peer: str, method: str, code: grpc.StatusCode, details: str) -> NetworkError:
    message = f"{peer} {method}: {plain(details) or code.name}"
    if code is grpc.StatusCode.UNAVAILABLE:
        undelivered = details.startswith(NEVER_SENT)  # elsewhere in the details a broker may speak of its own peers
        refused = undelivered and "Connection refused" in details
        return PeerUnavailable(message, refused=refused, undelivered=undelivered)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceeded(message)
    if code is grpc.StatusCode.CANCELLED or "RST_STREAM" in details:
        return PeerUnavailable(message)  # the connection or the server went away under the call
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return NotAuthenticated(message)
    return CallRejected(message, status=code.name)
