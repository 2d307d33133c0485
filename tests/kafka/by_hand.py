"""What a connection of a Kafka client stands on, turned by hand: its clock, the other end, the loop."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable, Sequence

from odradek_proto.transport.ports import Buffer, ByteReceiver, TimerHandle
from odradek_proto.transport.tcp import FULL_BYTES


class Timer:
    def __init__(self, at_ms: float, call: Callable[[], None]) -> None:
        self.at_ms, self.call, self.cancelled = at_ms, call, False

    def cancel(self) -> None:
        self.cancelled = True


class HandClock:
    """A clock that is turned by hand."""

    def __init__(self) -> None:
        self.rng = random.Random(1)
        self._now_ms = 0
        self._timers: list[Timer] = []

    def now_ms(self) -> int:
        return self._now_ms

    def wall_ms(self) -> int:
        return self._now_ms

    async def sleep(self, delay_ms: float) -> None:
        raise NotImplementedError

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> TimerHandle:
        self._timers.append(Timer(self._now_ms + delay_ms, callback))
        return self._timers[-1]

    def turn(self, by_ms: int) -> None:
        end_ms = self._now_ms + by_ms
        while due := [timer for timer in self._timers if timer.at_ms <= end_ms and not timer.cancelled]:
            first = min(due, key=lambda timer: timer.at_ms)
            self._timers.remove(first)
            self._now_ms = int(first.at_ms)
            first.call()
        self._now_ms = end_ms


class Wire:
    """The other end of a connection: a `ByteConnection` that keeps what was written."""

    peer = "127.0.0.1:40000"
    certificate = None

    def __init__(self) -> None:
        self.written = bytearray()
        self.writes = 0
        self.paused = self.closed = self.aborted = self.full = self.broken = False
        self.unsent_bytes = 0
        self.on_full: Callable[[], None] | None = None  # set: the client reads nothing

    def write(self, buffers: Sequence[Buffer]) -> None:
        self.writes += 1
        for buffer in buffers:
            self.written += buffer
            if self.on_full is not None:  # as asyncio's transport: in the middle, the rest is written all the same
                self.unsent_bytes += len(buffer)
                if self.unsent_bytes > FULL_BYTES and not self.full:
                    self.full = True
                    self.on_full()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        if self.broken:
            raise RuntimeError("a bug")
        self.paused = False

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def correlation_ids(self) -> list[int]:
        """Of the answers so far, in order."""
        found, rest = [], bytes(self.written)
        while rest:
            size, correlation_id = struct.unpack_from(">ii", rest)
            found.append(correlation_id)
            rest = rest[4 + size :]
        return found


def feed(receiver: ByteReceiver, data: bytes) -> None:
    """Bytes of the client arrive."""
    while data:
        room = receiver.room()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        data = data[count:]
        receiver.on_bytes(count)


async def turns(count: int = 5) -> None:
    """Let everything that is due on the loop happen."""
    loop = asyncio.get_running_loop()
    for _ in range(count):
        turn = loop.create_future()
        loop.call_soon(turn.set_result, None)
        await turn
