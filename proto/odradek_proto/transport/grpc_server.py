"""The serving side of the gRPC adapter: raw bytes in and out, no serialisers.

A handler of a stream is never cancelled because its peer went away: `recv` and `send` tell it. Only `stop` cancels what
is still running when its grace is over. What a caller is told of a handler that raises is in `refusals`.
"""

from __future__ import annotations

import asyncio
import errno
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from odradek_proto.security.tls import PeerCertificate
from odradek_proto.transport.grpc_admission import StreamAdmission, UnreadResponses
from odradek_proto.transport.grpc_credentials import TOKEN_KEY
from odradek_proto.transport.grpc_options import LARGE_RESPONSE_BYTES, TIMEOUT_KEY, GrpcOptions
from odradek_proto.transport.grpc_stream import ACCEPTED, GrpcStream
from odradek_proto.transport.ports import CallContext, Handlers, StreamClosed, StreamHandler, UnaryHandler
from odradek_proto.transport.refusals import refusal_of

Refusal = tuple[grpc.StatusCode, str]

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[bytes, bytes]
AnyHandler = Callable[[Any, Any], Any]  # gRPC's types know synchronous handlers only

END_MS = 200  # how long `stop` waits for the ends of streams to be written out
BREAK_OR_END_MS = 5  # gRPC reports a broken stream as an end first and as broken in the same breath


class GrpcServer:
    """`Server` over one listening gRPC server; made by `serve`."""

    def __init__(self, server: grpc.aio.Server, calls: _Calls, address: str, handlers: Handlers) -> None:
        self._server = server
        self._calls = calls
        self._address = address
        self._services = tuple(handlers.services)
        self._health = health.aio.HealthServicer()
        self._health_updates: set[asyncio.Task[None]] = set()
        self._stopped = False
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        if handlers.reflection:
            from grpc_reflection.v1alpha import reflection  # brokers without it need not load it

            reflection.enable_server_reflection((*self._services, health.SERVICE_NAME, reflection.SERVICE_NAME), server)

    @property
    def address(self) -> str:
        return self._address

    def set_serving(self, serving: bool) -> None:
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        task = asyncio.get_running_loop().create_task(self._publish(status))
        self._health_updates.add(task)
        task.add_done_callback(self._health_updates.discard)

    async def _publish(self, status: int) -> None:
        for service in ("", *self._services):
            await self._health.set(service, status)

    async def stop(self, grace_ms: float = 0) -> None:
        if self._stopped:
            return
        self._stopped = True
        stopping = asyncio.get_running_loop().create_task(self._server.stop((grace_ms + END_MS) / 1000))
        await self._calls.finish(grace_ms)
        await stopping


async def serve(
    address: str, handlers: Handlers, options: GrpcOptions, credentials: grpc.ServerCredentials | None = None
) -> GrpcServer:
    """Listen on `host:port`. Raises `OSError` with the address when it cannot be had."""
    host, _, port = address.rpartition(":")
    await _probe(host, port, address)
    calls = _Calls(handlers, options)
    server = grpc.aio.server(
        handlers=(calls,), options=options.server(), maximum_concurrent_rpcs=options.max_concurrent_calls
    )
    try:
        bound = (
            server.add_insecure_port(address) if credentials is None else server.add_secure_port(address, credentials)
        )
    except RuntimeError as error:
        raise OSError(errno.EADDRINUSE, f"cannot listen on {address}: {error}") from None
    if bound == 0:
        raise OSError(errno.EADDRINUSE, f"cannot listen on {address}")
    result = GrpcServer(server, calls, f"{host}:{bound}", handlers)
    await server.start()
    return result


async def _probe(host: str, port: str, address: str) -> None:
    """Bind and let go, for the kernel's own error: gRPC's says no more than that it failed."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, where = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except ValueError:
        raise OSError(errno.EINVAL, f"cannot listen on {address!r}: not host:port") from None
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on {address}: {error.strerror}") from None


class _Calls(grpc.GenericRpcHandler):
    """Answers gRPC's question who handles a method, and knows what is running."""

    def __init__(self, handlers: Handlers, options: GrpcOptions) -> None:
        self._admission = StreamAdmission(options.max_streams)
        self._unread = UnreadResponses(options.unread_response_bytes, LARGE_RESPONSE_BYTES)
        self._methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {}
        self._streams: dict[GrpcStream, asyncio.Task[Refusal | None]] = {}
        self._workers: set[asyncio.Task[Refusal | None]] = set()
        self._finishing = False
        for method, unary in handlers.unary.items():
            self._methods[method] = grpc.unary_unary_rpc_method_handler(_unary(method, unary, self._unread))
        for method, stream in handlers.streams.items():
            self._methods[method] = grpc.stream_stream_rpc_method_handler(self._streaming(method, stream))

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        return self._methods.get(handler_call_details.method)

    async def finish(self, grace_ms: float) -> None:
        """Let streams end by themselves within the grace, then close them and cancel handlers that go on."""
        self._finishing = True
        if grace_ms and self._workers:
            await asyncio.wait(tuple(self._workers), timeout=grace_ms / 1000)
        for stream in tuple(self._streams):
            stream.close()
        if self._workers:  # a closed stream lets a well-behaved handler return by itself
            await asyncio.wait(tuple(self._workers), timeout=END_MS / 1000)
        for worker in tuple(self._workers):
            worker.cancel()

    def _streaming(self, method: str, handler: StreamHandler) -> AnyHandler:
        async def run(_requests: object, context: Context) -> None:
            call = _call_context(context)
            if not self._admission.admit(call.peer):
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many streams")
            try:
                await serve_stream(context, call)
            finally:
                self._admission.release(call.peer)

        async def serve_stream(context: Context, call: CallContext) -> None:
            loop = asyncio.get_running_loop()
            closed: asyncio.Future[None] = loop.create_future()
            await context.send_initial_metadata((ACCEPTED,))
            if self._finishing:
                return  # its caller may know already that it was accepted, and hears of an end on purpose
            stream = GrpcStream(
                call.peer, _reader(context, call.peer), _writer(context, call.peer), lambda: _set(closed)
            )
            worker = loop.create_task(_guarded(method, handler, stream, call))
            self._streams[stream] = worker
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
            try:
                await asyncio.wait((worker, closed), return_when=asyncio.FIRST_COMPLETED)
                if not closed.done() and not worker.cancelled() and (failure := worker.result()) is not None:
                    await context.abort(*failure)
            finally:
                del self._streams[stream]
                stream.break_off("connection lost")

        return run


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _guarded(method: str, handler: StreamHandler, stream: GrpcStream, call: CallContext) -> Refusal | None:
    """Run a stream's handler; what went wrong in it, for the caller, or None."""
    try:
        await handler(stream, call)
    except StreamClosed:
        return None  # the stream ended under the handler's hands, which is how most of them end
    except Exception as error:
        return _refusal(method, call, error)
    return None


def _refusal(method: str, call: CallContext, error: Exception) -> Refusal:
    """What a caller is told of a handler that raised."""
    refusal = refusal_of(method, call, error)
    return getattr(grpc.StatusCode, refusal.status, grpc.StatusCode.UNKNOWN), str(refusal)


def _unary(method: str, handler: UnaryHandler, unread: UnreadResponses) -> AnyHandler:
    async def run(request: bytes, context: Context) -> bytes:
        call = _call_context(context)
        try:
            response = await handler(request, call)
        except Exception as error:
            return await context.abort(*_refusal(method, call, error))
        counted = unread.admit(len(response))
        if counted is None:
            return await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many responses that nobody reads")
        if counted:
            _when_over(context, lambda: unread.release(counted))
        return response

    return run


def _when_over(context: Any, callback: Callable[[], None]) -> None:
    """Call back when gRPC has nothing of a call left. (The stubs want a class there that they alone have.)"""
    context.add_done_callback(lambda _: callback())


def _reader(context: Context, peer: str) -> Callable[[], Awaitable[bytes | None]]:
    async def read() -> bytes | None:
        try:
            message: object = await context.read()
        except grpc.aio.BaseError as error:
            raise StreamClosed(f"{peer}: {error}") from None
        if isinstance(message, bytes):
            return message
        await asyncio.sleep(BREAK_OR_END_MS / 1000)  # if it was a break, this task is cancelled meanwhile
        return None

    return read


def _writer(context: Context, peer: str) -> Callable[[bytes], Awaitable[None]]:
    async def write(message: bytes) -> None:
        try:
            await context.write(message)
        except grpc.aio.BaseError as error:
            raise StreamClosed(f"{peer}: {error}") from None

    return write


def _call_context(context: Context) -> CallContext:
    said = {key: str(value) for key, value in context.invocation_metadata() or ()}
    remaining: float | None = context.time_remaining()
    return CallContext(
        peer=_address(context.peer()),
        deadline_ms=_milliseconds(said.get(TIMEOUT_KEY, "")) or (None if remaining is None else remaining * 1000),
        certificate=_certificate(context.auth_context()),
        token=said.get(TOKEN_KEY, ""),
    )


def _milliseconds(said: str) -> int | None:
    """Of what anybody may have sent: nothing, unless it is a time."""
    return int(said) if re.fullmatch("[0-9]{1,12}", said) else None


def _certificate(said: Mapping[str, Iterable[bytes]]) -> PeerCertificate | None:
    """From what gRPC says of a connection."""
    subject = [*said.get("x509_subject", ())]
    if not subject:
        return None
    names = (*said.get("x509_common_name", ()), *said.get("x509_subject_alternative_name", ()))
    return PeerCertificate(subject[0].decode(), tuple(name.decode() for name in names))


def _address(peer: str) -> str:
    """`host:port` of gRPC's `ipv4:host:port` or `ipv6:%5Bhost%5D:port`."""
    return unquote(peer.partition(":")[2])
