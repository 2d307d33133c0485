"""How processes of the simulated loop end.

Rules of this module. A killed node's tasks are cancelled, run to their end at once and alone, and whatever they ask
for after that is dropped. No `finally` block is left to the garbage collector: what waits for ever is kept until the
loop is closed, and unwound then.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from odradek_chaos.worlds.simulated.kernel.process import Process

MAX_EVENTS_OF_THE_DYING = 100_000  # a task that ignores its cancellation is dropped after so many


class KilledProcesses:
    """Those that were killed and have not ended yet, and the tasks that never will. Tells `report` what they raise."""

    def __init__(self, report: Callable[[Callable[..., object], BaseException], None]) -> None:
        self.dying: deque[Process] = deque()
        self._report = report
        self._graveyard: list[asyncio.Task[Any]] = []  # waits for ever; kept, so that the collector leaves it alone

    def reap(self) -> None:
        """Cancel and unwind the tasks of killed processes, in the order of their deaths."""
        while self.dying:
            process = self.dying[0]
            for task in process.tasks:
                task.cancel()
            self._let_die(process)
            process.drop()
            for task in process.tasks:
                if not task.done():
                    self._graveyard.append(task)
                elif not task.cancelled():
                    task.exception()  # nobody is left to be told
            process.tasks.clear()
            self.dying.popleft()

    def end_all(self, processes: Iterable[Process]) -> None:
        """The world has got stuck: end all that there is, so that nothing is left to the garbage collector half-way."""
        self.dying.extend(process for process in processes if process.alive and process not in self.dying)
        self.reap()

    def _let_die(self, process: Process) -> None:
        """Run what is left of a process, and nothing else."""
        for _ in range(MAX_EVENTS_OF_THE_DYING):
            if not process.queue:
                break
            context, callback, args = process.queue.popleft()
            try:
                context.run(callback, *args)
            except Exception as error:
                self._report(callback, error)

    def bury(self, loop: asyncio.AbstractEventLoop) -> None:
        """Unwind what waited for ever, here and not when the collector comes by."""
        asyncio._set_running_loop(loop)
        try:
            for task in self._graveyard:
                work = task.get_coro()
                if inspect.iscoroutine(work):
                    with contextlib.suppress(RuntimeError):  # it awaits even now
                        work.close()
        finally:
            asyncio._set_running_loop(None)
        self._graveyard.clear()


def forget(process: Process) -> None:
    """The loop is closed: nothing of a process happens any more. Tasks that never began are told so."""
    process.queue.clear()
    process.idle = False
    for task in process.tasks:
        work = task.get_coro()
        if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
            work.close()
    process.tasks.clear()
