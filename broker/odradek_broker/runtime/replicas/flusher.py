"""Makes logs durable away from the event loop: one flusher per log directory, group commit.

With `odradek.fsync=before-ack` every append requests a flush, and all appends that arrived while one was running share
the next. Otherwise a log is flushed by `flush.messages` or `flush.ms`. A failed fsync takes the directory offline and
is never retried: the kernel may have dropped the pages, and a second fsync would report success wrongly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek_proto.transport.chance import chance
from odradek_proto.transport.ports import Clock, Files

from odradek_broker.runtime.counters import Counters, measured
from odradek_broker.runtime.offloading import finish
from odradek_broker.runtime.replicas.replica import Replica


class Flusher:
    """Flushes hosted replicas. `run` is its task."""

    def __init__(
        self,
        *,
        files: Files,
        clock: Clock,
        before_ack: bool,
        on_failed: Callable[[Replica, Exception], None],
        counters: Counters,
    ) -> None:
        self._counters = counters
        self._files = files
        self._clock = clock
        self._before_ack = before_ack
        self._on_failed = on_failed
        self._dirty: dict[Replica, None] = {}
        self._wakeup = asyncio.Event()

    def after_append(self, replica: Replica) -> None:
        """Called after each append; cheap when nothing has to be flushed."""
        if self._before_ack or replica.log.needs_flush(self._clock.now_ms()):
            self._dirty[replica] = None
            self._wakeup.set()

    def forget(self, replica: Replica) -> None:
        self._dirty.pop(replica, None)

    async def run(self) -> None:
        """Flush what is dirty, again and again; ends by cancellation."""
        counters = self._counters
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            if chance("flush-late", 0.05):
                await self._clock.sleep(50)
            batch, self._dirty = list(self._dirty), {}
            for replica in batch:
                try:
                    await finish(self._files, measured(replica.log.flush, counters.data_fsyncs, counters.timer))
                except Exception as error:
                    self._on_failed(replica, error)
                else:
                    replica.log.close_indexes()
                    replica.on_flushed(
                        replica.log.recovery_point
                    )  # not what flush said: the log may have been cut since
