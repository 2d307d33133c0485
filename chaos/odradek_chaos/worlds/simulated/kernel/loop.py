"""An asyncio event loop with virtual time, for whole clusters in one thread.

Rules of this loop:
- Time stands still while anything can run, and then jumps to the next timer (`timers`).
- Inside a node callbacks run first in, first out, as asyncio promises; only which of several runnable nodes goes next
  is left to chance, and chance is seeded. What ran, and when, is the trace of a run (`trace`).
- Whose callback it is, is read from the context that the callback runs in (`spawn` puts it there, and tasks, timers and
  future callbacks inherit it). A callback of no node belongs to the world: links, disks, nemeses. A process is in
  `_ready`, once, exactly while it has something to run and may run it.
- A paused node's callbacks and due timers pile up and run at resume. A killed node's tasks unwind at once and alone
  (`deaths`).
- Nothing runnable and no timer is an error with a dump, and so is a node that runs forever without letting time pass
  (`housekeeping`).
- Threads do not exist: `run_in_executor` and `call_soon_threadsafe` raise. An error that reaches the loop is logged and
  kept in `unhandled`, where a run looks for it at its end.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import logging
import random
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack

from odradek_chaos.worlds.simulated.kernel.deaths import KilledProcesses, forget
from odradek_chaos.worlds.simulated.kernel.housekeeping import INTERVAL_EVENTS, MAX_EVENTS_AT_ONE_INSTANT, Housekeeping
from odradek_chaos.worlds.simulated.kernel.process import (
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
from odradek_chaos.worlds.simulated.kernel.timers import Sleeper, Timers, wake
from odradek_chaos.worlds.simulated.kernel.trace import Trace

if TYPE_CHECKING:  # the stubs call every method abstract; at run time those that we lack raise NotImplementedError
    EventLoop = asyncio.BaseEventLoop
else:
    EventLoop = asyncio.AbstractEventLoop

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Context = contextvars.Context

MICROSECONDS = 1_000_000
FINAL = FinalHandle()
logger = logging.getLogger(__name__)


class SimLoop(EventLoop):
    """Seeded loop with virtual time; see the module for its rules. Times of its own methods are microseconds."""

    get_debug = staticmethod(bool)  # no; asked for each future and task, and answered without a frame

    def __init__(self, seed: int | str = 0, most_at_one_instant: int = MAX_EVENTS_AT_ONE_INSTANT) -> None:
        self.__dict__["create_future"] = partial(asyncio.Future, loop=self)  # without a frame in between
        self.seed = seed
        self.now_us = 0
        self.events = 0  # callbacks that ran
        self.unhandled: list[dict[str, Any]] = []  # what reached `call_exception_handler`; a sound run has none
        self._running = False
        self._closed = False
        self._rng = self.fork_rng("loop")
        self._timers = Timers()
        self._world = Process("world", 0)
        self._processes = [self._world]
        self._ready: list[Process] = []
        self._task_number = 0
        self._world_context = contextvars.Context()
        self._deaths = KilledProcesses(self._report)
        self._trace = Trace()
        self._steps = self._trace.steps
        self._limit_us: int | None = None
        self._housekeeping = Housekeeping(most_at_one_instant)
        self._look_up_at = INTERVAL_EVENTS
        self._stopping = False
        self._interrupted = False

    def fork_rng(self, name: str) -> random.Random:
        """A generator of its own for one part of the world, so that parts do not disturb each other's chance."""
        return random.Random(f"{self.seed}/{name}")

    def trace(self, label: str) -> None:
        """Mix an observation of the world (a delivery, a flush) into the trace."""
        self._trace.label(label)

    def observe(self, *numbers: int) -> None:
        """The same for numbers, cheaper."""
        self._steps += numbers

    def trace_digest(self) -> str:
        """Digest of every (time, process) that ran and of all labels. Same seed, same digest, in every process."""
        return self._trace.digest(self.now_us)

    # --- processes

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

    def kill(self, process: Process) -> None:
        """Let `process` run no further. The caller has already cut it off from its disk and network.

        Its tasks are cancelled and unwind before anything else runs, so that no `finally` block is left to the garbage
        collector. What they wait for after that never comes.
        """
        if not process.alive or process in self._deaths.dying:
            return
        self.pause(process)
        self._deaths.dying.append(process)
        self._look_up_at = 0

    def dump(self) -> str:
        """Every process and where each unfinished task waits."""
        lines = [repr(process) for process in self._processes if process.alive]
        for task in sorted(asyncio.all_tasks(self), key=lambda task: task.get_name()):
            frames = task.get_stack(limit=1)
            where = f"{frames[-1].f_code.co_filename}:{frames[-1].f_lineno}" if frames else "?"
            lines.append(f"  {task.get_name()} in {where}")
        return "\n".join(lines)

    # --- callbacks, tasks and timers

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

    if TYPE_CHECKING:  # set at the start

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

    async def sleep(self, delay_ms: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(delay_ms / 1000)

    def time(self) -> float:
        return self.now_us / MICROSECONDS

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
        self._timers.add(when_us, None, callback)

    async def sleep_us(self, delay_us: int) -> None:
        """Let the node that asks sleep; `asyncio.sleep` does the same with more callbacks."""
        sleeper: Sleeper = asyncio.Future(loop=self)
        self._timers.add(self.now_us + delay_us, PROCESS.get(self._world), sleeper)
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
        timer = SimTimer(when_us, callback, args, context, self._timers.on_cancelled)
        self._timers.add(when_us, context.get(PROCESS, self._world), timer)
        return timer

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
            if self._interrupted:
                self._interrupted = False
                raise KeyboardInterrupt
            raise RuntimeError("the loop was stopped before its main task was done")
        return main.result()

    def run_forever(self) -> None:
        if self._running or self._closed:
            raise RuntimeError("the loop runs already or is closed")
        hooks = sys.get_asyncgen_hooks()
        collecting = gc.isenabled()
        gc.disable()
        self._running, self._stopping = True, self._interrupted
        asyncio._set_running_loop(self)
        sys.set_asyncgen_hooks(finalizer=self._finalize_generator)
        try:
            self._run()
        except SimulationError:
            self._deaths.end_all(self._processes)  # whatever still waits will never go on
            self._closed = True
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
        self._look_up_at = self.events + INTERVAL_EVENTS
        if self._deaths.dying:
            self._deaths.reap()
        self._housekeeping.collect_garbage(self.events)
        self._timers.forget_cancelled()
        if self._housekeeping.is_stuck(self.events, self.now_us):
            raise Livelock(f"{self._housekeeping.most_at_one_instant} callbacks at {self.now_us} us\n{self.dump()}")

    def _advance(self) -> None:
        """Let time jump to the next instant that has a timer.

        Timers of nodes go to the queues of their processes. What merely wakes a sleeper does so at once, since it runs
        nothing: the sleeper itself is queued. In a paused process it waits among the other timers, as after a SIGSTOP.
        The world's own timers go first, nothing else being able to run yet.
        """
        self._trace.mix(self.now_us)
        timers, world, pop = self._timers.heap, self._world, heapq.heappop
        if timers and timers[0][2] is None:  # a timer of the world cannot be cancelled
            now_us: int | None = timers[0][0]
        else:
            now_us = self._timers.next_us()
        if now_us is None:
            raise Deadlock(f"nothing can run and no timer is set at {self.now_us} us\n{self.dump()}")
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
                    process.queue.append((self._world_context, wake, (what,)))
                elif process.alive:
                    wake(what)
            elif what._cancelled:
                self._timers.cancelled -= 1
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

    def stop(self) -> None:
        self._stopping = True
        self._look_up_at = 0

    def interrupt(self) -> None:
        """End between two callbacks, by `KeyboardInterrupt` out of `run`: whoever runs can still be killed and unwound.

        From the middle of a callback it would come anywhere, and leave tasks that are neither done nor waiting.
        """
        self._interrupted = True
        self.stop()

    def close(self) -> None:
        """Forget everything that has not happened. Tasks that never began are told so, the others simply end here."""
        self._closed = True
        self._timers.heap.clear()
        for process in self._processes:
            forget(process)
        self._deaths.bury(self)

    def _finalize_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """An async generator was dropped half-way: close it in the context that it was dropped in."""
        if not self._closed:
            self.create_task(generator.aclose())

    # --- what one thread without sockets answers once and for all

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._closed:
            logger.error("%s", context.get("message"), exc_info=context.get("exception"))
            self.unhandled.append(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def _report(self, callback: Callable[..., object], error: BaseException) -> None:
        """A callback raised."""
        self.call_exception_handler({"message": f"Exception in callback {callback!r}", "exception": error})

    def call_soon_threadsafe(
        self, callback: object, *args: object, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        raise SimulationError("there are no threads in the simulated world")

    def run_in_executor(self, executor: Any, func: object, *args: object) -> asyncio.Future[Any]:
        raise SimulationError("there are no executors in the simulated world: use Files.offload")

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do: generators are closed when they are dropped."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Nothing to do: there is none."""
