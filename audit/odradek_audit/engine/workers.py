"""Runs a function over many tasks in several processes, for the local engine.

The processes are forked, so that they need no import; they leave Ctrl-C to their parent,
which then takes back what has not begun and waits for what has: a second, mostly.

Beside gRPC there are none: its threads hold locks that a forked child finds held for ever, and its own handlers
end one child in four with an abort. A program that has a client or a cluster in it audits in its own process.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import Protocol, TypeVar

GRPC = "grpc._cython.cygrpc"

T = TypeVar("T")
R = TypeVar("R")

AHEAD = 4
"""Tasks for each process that are handed out before one comes back: results that wait are memory."""


class Run(Protocol):
    """Results of a function over some tasks, in any order."""

    def __call__(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterable[R]: ...


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def workers(jobs: int) -> Iterator[Run]:
    """A way to run tasks in `jobs` processes: one means this one, and so does any number where gRPC is loaded.

    Ends them when the block ends, however it does.
    """
    if jobs <= 1 or GRPC in sys.modules:
        yield _run_here
        return
    context = multiprocessing.get_context("fork")
    executor = ProcessPoolExecutor(jobs, mp_context=context, initializer=_leave_interrupts)

    def run(function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        remaining = iter(tasks)
        running: set[Future[R]] = set()
        for task in remaining:
            running.add(executor.submit(function, task))
            if len(running) >= jobs * AHEAD:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        for future in list(running):
            yield future.result()

    try:
        executor.submit(_nothing).result()  # fork now, while little is in memory
        yield run
    finally:
        executor.shutdown(cancel_futures=True)


def _run_here(function: Callable[[T], R], tasks: Sequence[T]) -> Iterable[R]:
    return map(function, tasks)


def _nothing() -> None:
    """The first task: it makes the executor start its processes."""


def _leave_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
