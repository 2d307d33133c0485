"""Whose callback it is: the processes of the simulated loop, and what each of them has to run.

Rules of this module. The process of a callback is read from the context that the callback runs in; tasks, timers and
future callbacks inherit it. What is in no process belongs to the world. A process is in `_ready`, once, exactly while
it has something to run and may run it.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack

from odradek_chaos.worlds.simulated.kernel.process import PROCESS, FinalHandle, Process, SimHandle, Step
from odradek_chaos.worlds.simulated.kernel.unthreaded import UnthreadedLoop

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Context = contextvars.Context

FINAL = FinalHandle()


class LoopOfProcesses(UnthreadedLoop):
    """A loop that keeps the callbacks of each process in a queue of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["create_future"] = partial(asyncio.Future, loop=self)
        self._world = Process("world", 0)
        self._processes = [self._world]
        self._ready: list[Process] = []
        self._task_number = 0

    def new_process(self, name: str) -> Process:
        process = Process(name, len(self._processes))
        self._processes.append(process)
        return process

    def current_process(self) -> Process:
        return PROCESS.get(self._world)

    def context_of(self, process: Process | None) -> Context:
        """A context whose callbacks belong to `process`, or to the world."""
        context = contextvars.Context()
        if process is not None:
            context.run(PROCESS.set, process)
        return context

    def spawn(self, process: Process, work: Coroutine[Any, Any, T], name: str = "main") -> asyncio.Task[T]:
        return self.create_task(work, name=f"{process.name}/{name}", context=self.context_of(process))

    def pause(self, process: Process) -> None:
        process.paused = True
        process.idle = False
        if process in self._ready:
            self._ready.remove(process)

    def resume(self, process: Process) -> None:
        if process.paused and process.alive:
            process.paused = False
            process.idle = not process.queue
            if process.queue:
                self._ready.append(process)

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        if context is None:
            context, one = contextvars.copy_context(), SimHandle(callback, args)
            handle: asyncio.Handle = one
            step: Step = (context, one.fire, ())
        else:
            handle, step = FINAL, (context, callback, args)
        process = context.get(PROCESS, self._world)
        process.queue.append(step)
        if process.idle:
            process.idle = False
            self._ready.append(process)
        return handle

    if TYPE_CHECKING:  # set at the start: made without a frame in between

        def create_future(self) -> asyncio.Future[Any]: ...

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        process = self.current_process() if context is None else context.get(PROCESS, self._world)
        if name is None:
            self._task_number += 1
            name = f"{process.name}/{self._task_number}"
        task = asyncio.Task(coro, loop=self, name=str(name), context=context)
        process.remember(task)
        return task

    def dump(self) -> str:
        """Every process and where each unfinished task waits."""
        lines = [repr(process) for process in self._processes if process.alive]
        for task in sorted(asyncio.all_tasks(self), key=lambda task: task.get_name()):
            frames = task.get_stack(limit=1)
            where = f"{frames[-1].f_code.co_filename}:{frames[-1].f_lineno}" if frames else "?"
            lines.append(f"  {task.get_name()} in {where}")
        return "\n".join(lines)
