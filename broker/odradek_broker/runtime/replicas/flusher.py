"""Makes logs durable away from the event loop: one flusher per log directory, group commit.

With `odradek.fsync=before-ack` every append asks for a flush, and all appends that came while one was running share
the next. Otherwise a log is flushed when `flush.messages` or `flush.ms` say so. A failed fsync takes the directory
offline and is never retried: the kernel may have dropped the pages, and a second fsync would lie.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek_proto.transport.chance import chance
from odradek_proto.transport.ports import Clock, Files

from odradek_broker.runtime.counters import Counters, measured
from odradek_broker.runtime.offloading import finish
from odradek_broker.runtime.replicas.replica import HostedReplica


class Flusher:
    """Flushes hosted replicas. `run` is its task."""

    def __init__(
        self,
        *,
        files: Files,
        clock: Clock,
        before_ack: bool,
        on_failed: Callable[[HostedReplica, Exception], None],
        counters: Counters,
    ) -> None:
        self._counters = counters
        self._files = files
        self._clock = clock
        self._before_ack = before_ack
        self._on_failed = on_failed
        self._dirty: dict[HostedReplica, None] = {}
        self._wakeup = asyncio.Event()

    def after_append(self, hosted: HostedReplica) -> None:
        """Called after each append; cheap when nothing has to be flushed."""
        if self._before_ack or hosted.log.needs_flush(self._clock.now_ms()):
            self._dirty[hosted] = None
            self._wakeup.set()

    def forget(self, hosted: HostedReplica) -> None:
        self._dirty.pop(hosted, None)

    async def run(self) -> None:
        """Flush what is dirty, again and again; ends by cancellation."""
        counters = self._counters
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            if chance("flush-late", 0.05):
                await self._clock.sleep(50)
            batch, self._dirty = list(self._dirty), {}
            for hosted in batch:
                try:
                    await finish(self._files, measured(hosted.log.flush, counters.data_fsyncs, counters.timer))
                except Exception as error:
                    self._on_failed(hosted, error)
                else:
                    hosted.log.close_indexes()
                    hosted.on_flushed(hosted.log.recovery_point)  # not what flush said: the log may have been cut since
