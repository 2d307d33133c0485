"""One incarnation of a node as the loop sees it, and the ways in which a simulation can get stuck."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from typing import Any


class SimulationError(RuntimeError):
    """The simulated program can never go on."""


class Deadlock(SimulationError):
    """Nothing can run and no timer is set."""


class Livelock(SimulationError):
    """Callbacks go on without end while no time passes."""


class TimeLimit(SimulationError):
    """The main task was not done within the virtual time that it was given."""


class Process:
    """One incarnation of a node, as the loop sees it: a run queue that can be parked or dropped."""

    __slots__ = ("after_step", "alive", "idle", "index", "name", "paused", "queue", "tasks", "tasks_limit")

    def __init__(self, name: str, index: int) -> None:
        self.name = name
        self.index = index
        self.queue: deque[Step] = deque()
        self.paused = False
        self.alive = True
        self.after_step: Callable[[], None] | None = None  # of whoever watches it
        self.idle = True  # not in the loop's list of runnable processes, and to be put there when it has something
        self.tasks: list[asyncio.Task[Any]] = []  # strong references; a task must not vanish while it waits
        self.tasks_limit = 64

    def __repr__(self) -> str:
        state = "dead" if not self.alive else "paused" if self.paused else "alive"
        return f"<{self.name} {state}, {len(self.queue)} parked>"

    def remember(self, task: asyncio.Task[Any]) -> None:
        if len(self.tasks) >= self.tasks_limit:
            self.tasks = [known for known in self.tasks if not known.done()]
            self.tasks_limit = 64 + 2 * len(self.tasks)
        self.tasks.append(task)

    def drop(self) -> None:
        """It is dead: what was queued is gone, and so is whatever anybody queues from now on."""
        self.alive = self.idle = False
        self.queue = deque(maxlen=0)


Step = tuple[contextvars.Context, Callable[..., object], tuple[Any, ...]]  # a callback that waits for its turn
PROCESS: contextvars.ContextVar[Process] = contextvars.ContextVar("process")


class SimHandle(asyncio.Handle):
    """A callback that may be taken back until it runs."""

    __slots__ = ()

    _callback: Callable[..., object]

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._callback = callback
        self._args = args
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._args = ()

    def fire(self) -> None:
        if not self._cancelled:
            self._callback(*self._args)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._callback!r}>"


class FinalHandle(asyncio.Handle):
    """The handle of every callback of a task or future: asyncio lets these handles drop, so one is enough for all."""

    __slots__ = ()

    def __init__(self) -> None:
        self._cancelled = False

    def cancel(self) -> None:
        raise SimulationError("call_soon with a context gives nothing that can be cancelled")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class SimTimer(asyncio.TimerHandle):
    """A callback at a time. It knows whether it still stands in the loop's heap."""

    __slots__ = ("_on_cancel", "_when_us", "waiting")

    _callback: Callable[..., object]
    _context: contextvars.Context

    def __init__(
        self,
        when_us: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
        on_cancel: Callable[[], None],
    ) -> None:
        self._when_us = when_us
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False
        self._on_cancel = on_cancel  # called when it is cancelled while it waits
        self.waiting = True

    def when(self) -> float:
        return self._when_us / 1_000_000

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._args = ()
            if self.waiting:
                self._on_cancel()

    def fire(self) -> None:
        if not self._cancelled:
            self._callback(*self._args)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._when_us} us: {self._callback!r}>"
