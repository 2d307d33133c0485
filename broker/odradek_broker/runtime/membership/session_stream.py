"""One stream of heartbeats to one controller, from its opening to its end.

Rules of this module. At most one heartbeat is unanswered; further ones wait for the response. A stream that stays open
but does not respond within the session timeout is given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek_proto.errors import ErrorCode
from odradek_proto.transport.chance import chance
from odradek_proto.transport.ports import Clock, Stream, StreamClosed
from odradek_proto.transport.wakeup import WakeupSignal
from odradek_proto.v1 import controller_messages

Answer = controller_messages.HeartbeatAnswer


class SessionStream:
    """`on_answer` gets each answer without an error, and when its heartbeat had been sent, in milliseconds."""

    def __init__(
        self,
        stream: Stream,
        *,
        clock: Clock,
        timeout_ms: int,
        interval_ms: Callable[[], int],
        heartbeat: Callable[[], controller_messages.Heartbeat],
        on_answer: Callable[[Answer, int], None],
    ) -> None:
        self.served = False  # an answer without an error has come
        self._stream = stream
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._interval_ms = interval_ms
        self._heartbeat = heartbeat
        self._on_answer = on_answer
        self._wake = WakeupSignal()
        self._next_ms = clock.now_ms()
        self._sent_ms: int | None = None  # set while a heartbeat is unanswered
        self._refusal: Answer | None = None

    @property
    def peer(self) -> str:
        return self._stream.peer

    def close(self) -> None:
        """End it: `run` returns."""
        self._stream.close()

    def beat_by(self, at_ms: int) -> None:
        """Send the next heartbeat no later than that."""
        if at_ms < self._next_ms:
            self._next_ms = at_ms
            self._wake.set()

    async def run(self) -> Answer | None:
        """Heartbeats until the stream ends; returns the answer with an error that ended it, if one did."""
        reader = asyncio.get_running_loop().create_task(self._read())
        reader.add_done_callback(lambda _: self._wake.set())
        try:
            await self._write(reader)
        except StreamClosed:
            pass
        finally:
            self._stream.close()
            if not reader.done():
                reader.cancel()
                await asyncio.wait((reader,))
        if not reader.cancelled() and (failure := reader.exception()) is not None:
            raise failure
        return self._refusal

    async def _write(self, reader: asyncio.Task[None]) -> None:
        while not reader.done():
            now_ms = self._clock.now_ms()
            if self._sent_ms is None and now_ms >= self._next_ms:
                self._sent_ms = now_ms
                self._next_ms = now_ms + self._interval_ms()
                if chance("session-redials", 0.01):
                    return
                await self._stream.send(self._heartbeat().SerializeToString())
            if self._sent_ms is None:
                until_ms = self._next_ms
            else:
                until_ms = self._sent_ms + self._timeout_ms
                if now_ms > until_ms:
                    return
            timer = self._clock.call_later(max(until_ms + 1 - now_ms, 0), self._wake.set)
            try:
                await self._wake.wait()
            finally:
                timer.cancel()

    async def _read(self) -> None:
        while True:
            try:
                answer = Answer.FromString(await self._stream.recv())
            except StreamClosed:
                return
            if answer.error_code != ErrorCode.NONE:
                self._refusal = answer
                return
            assert self._sent_ms is not None, answer
            sent_ms, self._sent_ms = self._sent_ms, None
            self.served = True
            self._on_answer(answer, sent_ms)
            self._wake.set()
