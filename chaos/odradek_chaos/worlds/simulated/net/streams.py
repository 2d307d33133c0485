"""One end of a simulated stream: an inbox, a window towards the other end, and a pipe that leads there."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from odradek_proto.transport.ports import StreamClosed

from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.net.links import Arrival, Pipe

MAX_MESSAGE_BYTES = 16 * 1024 * 1024  # as the gRPC adapter


class SimStream:
    """`Stream` of a simulated node. `other` is the far end; both know each other from the start."""

    other: SimStream

    def __init__(
        self, loop: SimLoop, machine: str, peer: str, out: Pipe, window_bytes: int, is_off: Callable[[str], bool]
    ) -> None:
        self._loop = loop
        self.machine = machine
        self._peer = peer
        self._out = out
        self._window_bytes = window_bytes
        self._is_off = is_off  # whether a machine has no power
        self._unread_bytes = 0  # sent by us and not yet taken out of the other end's inbox
        self._inbox: deque[bytes] = deque()
        self._receiver: asyncio.Future[None] | None = None
        self._sender: asyncio.Future[None] | None = None
        self._end: StreamClosed | None = None
        self._closed = False
        self.opened_here = False
        self.on_end: Callable[[], None] | None = None
        self.is_gone = False  # the machine lost power: nothing here answers any more
        self.owes_reset = False  # something arrived while it was off

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def is_over(self) -> bool:
        return self._closed or self._end is not None or self.is_gone

    @property
    def untaken_bytes(self) -> int:
        """What either end has sent and the other's program has not taken yet."""
        return self._unread_bytes + self.other._unread_bytes

    async def send(self, message: bytes) -> None:
        if self._closed or self._end is not None:
            self._check_sendable()
        if len(message) > MAX_MESSAGE_BYTES:
            self.abandon()
            raise StreamClosed(f"{self._peer}: message of {len(message)} bytes is larger than {MAX_MESSAGE_BYTES}")
        while self._unread_bytes and self._unread_bytes + len(message) > self._window_bytes:
            self._sender = self._loop.create_future()
            try:
                await self._sender
            except asyncio.CancelledError:
                self.close()
                raise
            finally:
                self._sender = None
            self._check_sendable()
        self._unread_bytes += len(message)
        self._out.push(self.other.arrive, message)

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
        other = self.other
        if self._out.link.is_cut or other._sender is not None:
            self._return_credit(len(message))
        else:
            other._unread_bytes -= len(message)
        return message

    def close(self) -> None:
        self._leave(clean=True)

    def abandon(self) -> None:
        """End the stream without telling the other side, as a cancelled call does."""
        self._leave(clean=False)

    # --- what happens to it

    def arrive(self, message: bytes) -> None:
        if self.is_gone:
            self._answer_for_the_dead()
        elif self._closed:
            self._return_credit(len(message))
        else:
            self._loop.observe(self._out.link.number, len(message))
            self._inbox.append(message)
            receiver = self._receiver
            if receiver is not None and not receiver.done():
                receiver.set_result(None)

    def arrive_end(self, clean: bool) -> None:
        if self._end is None and not self.is_gone:
            self._end = StreamClosed(f"{self._peer}: {'closed by' if clean else 'lost'} the other side", clean=clean)
            _wake(self._receiver)
            _wake(self._sender)
            if self.on_end is not None:
                self.on_end()

    def killed(self, lose_suffix: bool) -> None:
        """The process died and its kernel closes the connection; what it last sent may never have left."""
        if lose_suffix and not self.is_over:
            self._out.lose_suffix()
        self._leave(clean=False)

    def vanished(self) -> None:
        """The machine lost power. Nothing leaves any more; what is under way still arrives over there."""
        self.is_gone = self._closed = True
        _wake(self._receiver)
        _wake(self._sender)

    def push(self, arrival: Arrival, *args: Any) -> None:
        """Have something else arrive at the other end, in order with the messages."""
        self._out.push(arrival, *args)

    def _answer_for_the_dead(self) -> None:
        """The machine crashed: it says nothing while it is off, and a reset once it is up again."""
        if self._is_off(self.machine):
            self.owes_reset = True
        else:
            self.answer_reset()

    def answer_reset(self) -> None:
        """The machine is up again and knows nothing of this connection: it says so."""
        self._out.push(self.other.arrive_end, False)

    def reset(self) -> None:
        """The connection breaks, for both ends at once, and any unseen suffix of either direction is lost."""
        for end in (self, self.other):
            end._out.lose_suffix()
            end._out.flush()
        for end in (self, self.other):
            end.arrive_end(False)

    def _leave(self, clean: bool) -> None:
        if self._closed:
            return
        self._closed = True
        for message in self._inbox:
            self._return_credit(len(message))
        self._inbox.clear()
        _wake(self._receiver)
        _wake(self._sender)
        if self._end is None:
            self._out.push(self.other.arrive_end, clean)

    def _return_credit(self, length: int) -> None:
        if self._out.link.is_cut:
            self._out.push(self.other.arrive_credit, length)
        else:
            self.other.arrive_credit(length)

    def arrive_credit(self, length: int) -> None:
        self._unread_bytes -= length
        _wake(self._sender)

    def _check_sendable(self) -> None:
        if self._closed:
            raise StreamClosed(f"{self._peer}: stream closed here", clean=True)
        if self._end is not None:
            raise self._ended()

    def _ended(self) -> StreamClosed:
        assert self._end is not None
        return StreamClosed(str(self._end), clean=self._end.clean)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
