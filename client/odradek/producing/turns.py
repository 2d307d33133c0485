"""Callers that wait for the same thing and go on in the order of their calls."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Turns(deque["Turn"]):
    """A queue of callers. A deque, since every record asks whether anybody waits."""

    def next(self) -> Turn:
        """The place of a new caller, behind all others: to be used with `with`."""
        return Turn(self)

    def look(self) -> None:
        """What the first one waits for may have come."""
        if self:
            self[0].event.set()


class Turn:
    """The place of one caller in a queue. Whoever leaves it, for whatever reason, has the next one look."""

    __slots__ = ("_queue", "event")

    def __init__(self, queue: Turns) -> None:
        self._queue = queue
        self.event = asyncio.Event()

    @property
    def is_first(self) -> bool:
        return self._queue[0] is self

    async def until(self, ready: Callable[[], bool]) -> None:
        """Return when all who came before have left and `ready` is true; does not suspend if that is so already."""
        while not self.is_first or not ready():
            self.event.clear()
            await self.event.wait()

    def __enter__(self) -> Self:
        self._queue.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.remove(self)
        self._queue.look()
