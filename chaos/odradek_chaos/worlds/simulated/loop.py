"""An asyncio event loop with virtual time, for whole clusters in one thread.

Rules of this loop:
- Time stands still while anything can run, and then jumps to the next timer. It is counted in whole microseconds.
- Inside a node callbacks run first in, first out, as asyncio promises; only which of several runnable nodes goes next
  is left to chance, and chance is seeded.
- Whose callback it is, is read from the context that the callback runs in (`spawn` puts it there, and tasks, timers and
  future callbacks inherit it). A callback of no node belongs to the world: links, disks, nemeses.
- A paused node's callbacks and due timers pile up and run at resume. A killed node's tasks are cancelled, run to their
  end at once and alone, and whatever they ask for after that is dropped.
- Nothing runnable and no timer is an error with a dump, and so is a node that runs forever without letting time pass.
- Threads do not exist: `run_in_executor` and `call_soon_threadsafe` raise.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import heapq
import inspect
import logging
import random
import sys
import zlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack

from odradek_chaos.worlds.simulated.process import (
    PROCESS,
    Deadlock,
    FinalHandle,
    Livelock,
    Process,
    SimHandle,
    SimTimer,
    SimulationError,
    Step,
    TimeLimit,
)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Context = contextvars.Context

if TYPE_CHECKING:  # the stubs call every method abstract; at run time those that we lack raise NotImplementedError
    EventLoop = asyncio.BaseEventLoop
else:
    EventLoop = asyncio.AbstractEventLoop

logger = logging.getLogger(__name__)

MICROSECONDS = 1_000_000
MAX_EVENTS_AT_ONE_INSTANT = 2_000_000
MAX_EVENTS_OF_THE_DYING = 100_000  # a task that ignores its cancellation is dropped after so many
HOUSEKEEPING_INTERVAL_EVENTS = 1_000
GC_INTERVAL_EVENTS = 200_000  # cyclic garbage is collected at places that a seed determines, and only there
OLD_GARBAGE_EVERY = 5  # so manyeth collection looks at what outlived one before, too
MANY_CANCELLED_TIMERS = 10_000
FINAL = FinalHandle()

Sleeper = asyncio.Future[None]
# When, a number that keeps the order of equal times, whose (None: the world's), and what: a timer of a node, a sleeper
# to wake, or a function of the world.
Entry = tuple[int, int, Process | None, Any]


class SimLoop(EventLoop):
    """Seeded loop with virtual time; see the module for its rules. Times of its own methods are microseconds."""

    def __init__(self, seed: int | str = 0) -> None:
        self.seed = seed
        self.now_us = 0
        self.events = 0
        self.unhandled: list[dict[str, Any]] = []  # what reached `call_exception_handler`; a sound run has none
        self.__dict__["create_future"] = partial(asyncio.Future, loop=self)
        self._rng = self.fork_rng("loop")
        self._world = Process("world", 0)
        self._world_context = contextvars.Context()
        self._processes = [self._world]
        self._ready: list[Process] = []
        self._dying: deque[Process] = deque()
        self._graveyard: list[asyncio.Task[Any]] = []  # waits for ever; kept, so that the collector leaves it alone
        self._timers: list[Entry] = []
        self._timer_number = 0
        self._task_number = 0
        self._cancelled_timers = 0
        self._collections = 0
        self._on_timer_cancelled = self._timer_cancelled
        self._trace = 0
        self._steps: list[int] = []  # what happened at this instant, and is not yet part of the trace
        self._running = False
        self._limit_us: int | None = None
        self._look_up_at, self._collect_at = HOUSEKEEPING_INTERVAL_EVENTS, GC_INTERVAL_EVENTS
        self._instant_us = self._instant_began_at = 0  # when the loop last looked up, and the events before that
        self._stopping = False
        self._closed = False

    # --- seeds, trace, processes

    def fork_rng(self, name: str) -> random.Random:
        """A generator of its own for one part of the world, so that parts do not disturb each other's chance."""
        return random.Random(f"{self.seed}/{name}")

    def trace(self, label: str) -> None:
        """Mix an observation of the world (a delivery, a flush) into the trace."""
        self._steps.append(zlib.crc32(label.encode()))

    def observe(self, *numbers: int) -> None:
        """The same for numbers, cheaper."""
        self._steps += numbers

    def trace_digest(self) -> str:
        """Digest of every (time, process) that ran and of all labels. Same seed, same digest, in every process."""
        self._mix()
        return f"{self._trace & 0xFFFF_FFFF_FFFF_FFFF:016x}"

    def _mix(self) -> None:
        """Make what happened at this instant part of the trace."""
        self._trace = hash((self._trace, self.now_us, *self._steps))
        self._steps.clear()

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
        if process.paused:
            process.paused = False
            process.idle = not process.queue
            if process.queue:
                self._ready.append(process)

    def kill(self, process: Process) -> None:
        """Let `process` run no further. The caller has already cut it off from its disk and network.

        Its tasks are cancelled and unwind before anything else runs, so that no `finally` block is left to the garbage
        collector. What they wait for after that never comes.
        """
        if not process.alive or process in self._dying:
            return
        self.pause(process)
        self._dying.append(process)
        self._look_up_at = 0

    def _reap(self) -> None:
        """Cancel and unwind the tasks of killed processes, in the order of their deaths."""
        while self._dying:
            process = self._dying[0]
            for task in process.tasks:
                task.cancel()
            for _ in range(MAX_EVENTS_OF_THE_DYING):
                if not process.queue:
                    break
                context, callback, args = process.queue.popleft()
                try:
                    context.run(callback, *args)
                except Exception as error:
                    self._report(callback, error)
            process.drop()
            for task in process.tasks:
                if not task.done():
                    self._graveyard.append(task)
                elif not task.cancelled():
                    task.exception()  # nobody is left to be told
            process.tasks.clear()
            self._dying.popleft()

    # --- running

    def run(self, work: Coroutine[Any, Any, T], limit_s: float | None = None) -> T:
        """Run `work` as the world's main task; `TimeLimit` when it takes more virtual seconds than the limit."""
        self._limit_us = None if limit_s is None else self.now_us + round(limit_s * MICROSECONDS)
        return self._complete(self.create_task(work, name="world/main"))

    def run_until_complete(self, future: Any) -> Any:
        return self._complete(asyncio.ensure_future(future, loop=self))

    def _complete(self, main: asyncio.Future[T]) -> T:
        main.add_done_callback(lambda _: self.stop())
        self.run_forever()
        if not main.done():
            raise RuntimeError("the loop was stopped before its main task was done")
        return main.result()

    def run_forever(self) -> None:
        if self._running or self._closed:
            raise RuntimeError("the loop runs already or is closed")
        hooks = sys.get_asyncgen_hooks()
        collecting = gc.isenabled()
        gc.disable()
        self._running, self._stopping = True, False
        asyncio._set_running_loop(self)
        sys.set_asyncgen_hooks(finalizer=self._finalize_generator)
        try:
            self._run()
        except SimulationError:
            self._closed = True  # whatever still waits will never go on, and need not be reported one by one
            raise
        finally:
            sys.set_asyncgen_hooks(*hooks)
            asyncio._set_running_loop(None)
            self._running = False
            if collecting:
                gc.enable()

    def _run(self) -> None:
        """Run all that can run at an instant, then let time jump to the next timer, until the loop is told to stop."""
        ready, steps, choose = self._ready, self._steps, self._rng.random
        while not self._stopping:
            while ready:
                count = len(ready)
                position = int(choose() * count) if count > 1 else 0
                process = ready[position]
                queue = process.queue
                context, callback, args = queue.popleft()
                if not queue:
                    process.idle = True
                    last = ready.pop()
                    if last is not process:
                        ready[position] = last
                self.events += 1
                steps.append(process.index)
                try:
                    context.run(callback, *args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self._report(callback, error)
                if process.after_step is not None:
                    process.after_step()
                if self.events >= self._look_up_at:
                    self._look_up()
                    if self._stopping:
                        return
            self._advance()

    def _look_up(self) -> None:
        """What is due now and then, or was asked for: the dead are reaped, garbage is collected, limits are judged."""
        self._look_up_at = self.events + HOUSEKEEPING_INTERVAL_EVENTS
        if self._dying:
            self._reap()
        if self.events >= self._collect_at:
            self._collect_at = self.events + GC_INTERVAL_EVENTS
            self._collections += 1
            gc.collect(2 if self._collections % OLD_GARBAGE_EVERY == 0 else 1)
        if self._cancelled_timers > MANY_CANCELLED_TIMERS and self._cancelled_timers * 2 > len(self._timers):
            self._timers[:] = [entry for entry in self._timers if not _is_cancelled(entry)]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0
        if self.now_us > self._instant_us:
            self._instant_us, self._instant_began_at = self.now_us, self.events
        elif self.events > self._instant_began_at + MAX_EVENTS_AT_ONE_INSTANT:
            raise Livelock(f"{MAX_EVENTS_AT_ONE_INSTANT} callbacks at {self.now_us} us\n{self.dump()}")

    def _report(self, callback: Callable[..., object], error: BaseException) -> None:
        """A callback raised."""
        self.call_exception_handler({"message": f"Exception in callback {callback!r}", "exception": error})

    def _advance(self) -> None:
        """Let time jump to the next instant that has a timer.

        Timers of nodes go to the queues of their processes. What merely wakes a sleeper does so at once, since it runs
        nothing: the sleeper itself is queued. In a paused process it waits among the other timers, as after a SIGSTOP.
        The world's own timers go first, nothing else being able to run yet.
        """
        self._mix()
        timers, world, pop = self._timers, self._world, heapq.heappop
        while timers and _is_cancelled(timers[0]):
            pop(timers)
            self._cancelled_timers -= 1
        if not timers:
            raise Deadlock(f"nothing can run and no timer is set at {self.now_us} us\n{self.dump()}")
        now_us = timers[0][0]
        if self._limit_us is not None and now_us > self._limit_us:
            raise TimeLimit(f"not done after {self._limit_us} us\n{self.dump()}")
        if now_us < self.now_us:
            now_us = self.now_us
        self.now_us = now_us
        while timers and timers[0][0] <= now_us:
            _, _, process, what = pop(timers)
            if process is None:
                if world.queue:
                    world.queue.append((self._world_context, what, ()))
                else:
                    self._run_for_the_world(what)
            elif type(what) is not SimTimer:
                if process.paused:
                    process.queue.append((self._world_context, _wake, (what,)))
                elif process.alive:
                    _wake(what)
            elif what._cancelled:
                self._cancelled_timers -= 1
            else:
                what.waiting = False
                process.queue.append((what._context, what.fire, ()))
                if process.idle:
                    process.idle = False
                    self._ready.append(process)

    def _run_for_the_world(self, callback: Callable[[], object]) -> None:
        self.events += 1
        self._steps.append(0)
        try:
            callback()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._report(callback, error)
        if self.events >= self._look_up_at:
            self._look_up()

    def dump(self) -> str:
        """Every process and where each unfinished task waits."""
        lines = [repr(process) for process in self._processes if process.alive]
        for task in sorted(asyncio.all_tasks(self), key=lambda task: task.get_name()):
            frames = task.get_stack(limit=1)
            where = f"{frames[-1].f_code.co_filename}:{frames[-1].f_lineno}" if frames else "?"
            lines.append(f"  {task.get_name()} in {where}")
        return "\n".join(lines)

    # --- what asyncio asks of a loop

    def time(self) -> float:
        return self.now_us / MICROSECONDS

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

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at_us(self.now_us + max(0, round(delay * MICROSECONDS)), callback, args, context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at_us(round(when * MICROSECONDS), callback, args, context)

    def call_world_at(self, when_us: int, callback: Callable[[], object]) -> None:
        """A timer of the world, whoever sets it: deliveries and faults go on while the node that sent is paused."""
        self._timer_number += 1
        heapq.heappush(self._timers, (when_us, self._timer_number, None, callback))

    async def sleep_us(self, delay_us: int) -> None:
        """Let the node that asks sleep; `asyncio.sleep` does the same with more callbacks."""
        sleeper: Sleeper = asyncio.Future(loop=self)
        self._timer_number += 1
        when_us = self.now_us + delay_us
        heapq.heappush(self._timers, (when_us, self._timer_number, PROCESS.get(self._world), sleeper))
        await sleeper

    def call_at_us(
        self,
        when_us: int,
        callback: Callable[..., object],
        args: tuple[Any, ...] = (),
        context: Context | None = None,
    ) -> SimTimer:
        """A timer of the node that asks."""
        if context is None:
            context = contextvars.copy_context()
        timer = SimTimer(when_us, callback, args, context, self._on_timer_cancelled)
        self._timer_number += 1
        heapq.heappush(self._timers, (when_us, self._timer_number, context.get(PROCESS, self._world), timer))
        return timer

    def _timer_cancelled(self) -> None:
        """A cancelled timer stays in the heap until many have gathered."""
        self._cancelled_timers += 1

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

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._closed:
            logger.error("%s", context.get("message"), exc_info=context.get("exception"))
            self.unhandled.append(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def call_soon_threadsafe(self, callback: object, *args: object, context: Context | None = None) -> asyncio.Handle:
        raise SimulationError("there are no threads in the simulated world")

    def run_in_executor(self, executor: Any, func: object, *args: object) -> asyncio.Future[Any]:
        raise SimulationError("there are no executors in the simulated world: use Files.offload")

    get_debug = staticmethod(bool)  # no; asked for each future and task, and answered without a frame

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def stop(self) -> None:
        self._stopping = True
        self._look_up_at = 0

    def close(self) -> None:
        """Forget everything that has not happened. Tasks that never began are told so, the others simply end here."""
        self._closed = True
        self._timers.clear()
        for process in self._processes:
            process.queue.clear()
            process.idle = False
            for task in process.tasks:
                work = task.get_coro()
                if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                    work.close()
            process.tasks.clear()
        self._bury()

    def _bury(self) -> None:
        """Unwind what waited for ever, here and not when the collector comes by."""
        asyncio._set_running_loop(self)
        try:
            for task in self._graveyard:
                work = task.get_coro()
                if inspect.iscoroutine(work):
                    with contextlib.suppress(RuntimeError):  # it awaits even now
                        work.close()
        finally:
            asyncio._set_running_loop(None)
        self._graveyard.clear()

    def _finalize_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """An async generator was dropped half-way: close it in the context that it was dropped in."""
        if not self._closed:
            self.create_task(generator.aclose())

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do: generators are closed when they are dropped."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Nothing to do: there is none."""


def _is_cancelled(entry: Entry) -> bool:
    return type(entry[3]) is SimTimer and entry[3]._cancelled


def _wake(sleeper: Sleeper) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
