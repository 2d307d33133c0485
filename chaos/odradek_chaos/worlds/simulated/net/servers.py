"""The serving side of a simulated node."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

from odradek_proto.transport.ports import (
    CallContext,
    CallRejected,
    Handlers,
    NetworkError,
    PeerUnavailable,
    StreamClosed,
    StreamHandler,
    UnaryHandler,
)
from odradek_proto.transport.refusals import refusal_of

from odradek_chaos.worlds.simulated.net.fabric import CallReply, SimFabric
from odradek_chaos.worlds.simulated.net.streams import MAX_MESSAGE_BYTES, SimStream


class SimServer:
    """`Server` of a simulated node. Its handlers run as tasks of that node, which is to `adopt` what it accepts."""

    def __init__(
        self, fabric: SimFabric, node: str, adopt: Callable[[SimStream], None], handlers: Handlers, address: str
    ) -> None:
        self._fabric = fabric
        self._node = node
        self._adopt = adopt
        self._context = contextvars.copy_context()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._callers: dict[CallReply, None] = {}
        self._streams: dict[SimStream, None] = {}
        self._handlers = handlers
        self.serving = True
        self._address = fabric.listen(self, address, node)

    @property
    def handlers(self) -> Handlers:
        return self._handlers

    @property
    def address(self) -> str:
        return self._address

    def set_serving(self, serving: bool) -> None:
        self.serving = serving

    async def stop(self, grace_ms: float = 0) -> None:
        if self._fabric.listeners.get(self._address) is not self:
            return
        del self._fabric.listeners[self._address]
        if grace_ms and self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=grace_ms / 1000)
        for stream in tuple(self._streams):
            stream.close()
        await asyncio.sleep(0)  # a closed stream lets a well-behaved handler return by itself
        for task in tuple(self._tasks):
            task.cancel()
        for reply in tuple(self._callers):
            reply.fail(PeerUnavailable(f"{self._address}: server stopped"))

    # --- for the world

    def answer(self, method: str, handler: UnaryHandler, request: bytes, call: CallContext, reply: CallReply) -> None:
        """A request arrived: run its handler as a task of the node."""
        self._callers[reply] = None
        task = self._spawn(self._answer(method, handler, request, call, reply), method)
        reply.on_abandoned = task.cancel

    def accept(
        self, method: str, handler: StreamHandler, stream: SimStream, call: CallContext, accepted: Callable[[], None]
    ) -> None:
        self._streams[stream] = None
        self._adopt(stream)
        self._spawn(self._converse(method, handler, stream, call, accepted), method)

    def process_died(self, silent: bool) -> None:
        """The node was killed, or lost power (`silent`)."""
        self._fabric.listeners.pop(self._address, None)
        for reply in tuple(self._callers):
            if silent:
                reply.silence()
            else:
                reply.fail(PeerUnavailable(f"{self._address}: connection lost"))

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = self._fabric.loop.create_task(work, name=f"{self._node}{name}", context=self._context.copy())
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task

    async def _answer(
        self, method: str, handler: UnaryHandler, request: bytes, call: CallContext, reply: CallReply
    ) -> None:
        try:
            answer = await handler(request, call)
            if len(answer) > MAX_MESSAGE_BYTES:
                reply.fail(CallRejected(f"{method}: answer too large", status="RESOURCE_EXHAUSTED"))
            else:
                reply.succeed(answer)
        except Exception as error:
            reply.fail(_as_received(method, refusal_of(method, call, error)))
        finally:
            self._callers.pop(reply, None)

    async def _converse(
        self, method: str, handler: StreamHandler, stream: SimStream, call: CallContext, accepted: Callable[[], None]
    ) -> None:
        accepted()
        try:
            await handler(stream, call)
            stream.close()
        except StreamClosed:
            stream.close()
        except Exception as error:
            refusal_of(method, call, error)
            stream.abandon()
        finally:
            stream.abandon()  # when the handler was cancelled
            self._streams.pop(stream, None)


def _as_received(method: str, refusal: CallRejected) -> NetworkError:
    """What a caller sees of it: the gRPC adapter cannot tell a handler's UNAVAILABLE from that of a connection."""
    message = f"{method}: {refusal}"
    if refusal.status == "UNAVAILABLE":
        return PeerUnavailable(message)
    return CallRejected(message, status=refusal.status)
