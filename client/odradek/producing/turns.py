"""Callers that wait for the same thing and go on in the order of their calls."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Turns:
    """A queue of callers. False while nobody waits."""

    def __init__(self) -> None:
        self._waiting: deque[Turn] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def next(self) -> Turn:
        """The place of a new caller, behind all others: to be used with `with`."""
        return Turn(self._waiting)

    def look(self) -> None:
        """What the first one waits for may have come."""
        if self._waiting:
            self._waiting[0].event.set()


class Turn:
    """The place of one caller in a queue. Whoever leaves it, for whatever reason, has the next one look."""

    __slots__ = ("_queue", "event")

    def __init__(self, queue: deque[Turn]) -> None:
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
        if self._queue:
            self._queue[0].event.set()
