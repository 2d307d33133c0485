"""One direction between two ends: order is kept and nothing is lost, as with TCP; what may not pass waits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol


class ActiveFaults(Protocol):
    """What a link has to ask: which faults are on. Ends are brokers, by their ids, and clients."""

    loop: asyncio.AbstractEventLoop
    is_calm: bool

    def passes_at_once(self, source: int, target: int) -> bool: ...

    def holds(self, source: int, target: int) -> bool: ...

    def delay_ms(self, source: int, target: int) -> float: ...


class BrokerLink:
    """One direction between two brokers, or a broker and its clients."""

    def __init__(self, faults: ActiveFaults, source: int, target: int) -> None:
        self._faults = faults
        self._source = source
        self._target = target
        self._waiting: deque[tuple[float, Callable[[], None]]] = deque()  # and when it is due, by the loop's clock
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_clear(self) -> bool:
        """Whether what is delivered arrives at once."""
        return not self._waiting and (self._faults.is_calm or self._faults.passes_at_once(self._source, self._target))

    def deliver(self, arrive: Callable[[], None]) -> None:
        """Have `arrive` called: at once, or when everything before it has arrived and faults let it pass."""
        if self.is_clear:
            arrive()
            return
        due = self._faults.loop.time() + self._faults.delay_ms(self._source, self._target) / 1000
        self._waiting.append((due, arrive))
        self.look()

    async def passage(self) -> None:
        """Return when a message that is sent now has arrived."""
        if not self.is_clear:
            arrived = self._faults.loop.create_future()
            self.deliver(lambda: None if arrived.done() else arrived.set_result(None))
            await arrived

    def look(self) -> None:
        """Deliver what may pass by now. Called when a fault has begun or ended, too."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting and not self._faults.holds(self._source, self._target):
            due, arrive = self._waiting[0]
            if due > self._faults.loop.time():
                self._timer = self._faults.loop.call_at(due, self.look)
                return
            self._waiting.popleft()
            arrive()
