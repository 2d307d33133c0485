"""The background loop of a process: one event loop in a thread, for all that is asynchronous behind ordinary functions.

Rules of this module. There is one such loop per process, since two event loops that both use gRPC make its poller log
errors. So the synchronous clients and a cluster inside the process share it. Everybody may call from any thread but
that one. Nobody waits for a loop that does not run any more: in a process that was forked from one that used it, and
while the interpreter takes itself apart.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class BackgroundLoop:
    """An event loop in a daemon thread, started by its first use. Coroutines run there, their results are returned."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._spawned: set[asyncio.Task[None]] = set()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._is_forked = False

    @property
    def is_gone(self) -> bool:
        """Nothing runs there any more, or ever again."""
        return self._is_forked or sys.is_finalizing()

    def after_fork(self) -> None:
        """In the child: threads are not copied, and gRPC does not outlive that it was used before."""
        self._starting = threading.Lock()
        self._is_forked = self._thread is not None

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._is_forked:
            raise RuntimeError(
                "odradek was used in this process before it was forked, and cannot be used in the child: begin to use "
                "it after the fork, or start the child by multiprocessing's 'spawn'"
            )
        if sys.is_finalizing():
            raise RuntimeError("the process ends: its background loop does not run any more")
        if self._loop is None:
            with self._starting:
                if self._loop is None:
                    loop = _new_event_loop()
                    self._thread = threading.Thread(target=loop.run_forever, name="odradek", daemon=True)
                    self._thread.start()
                    self._loop = loop
        return self._loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine. A `KeyboardInterrupt` here cancels it there."""
        try:
            if threading.current_thread() is self._thread:
                raise RuntimeError(
                    "synchronous calls cannot be made on their own background loop; use the asynchronous ones there"
                )
            loop = self._running()
        except BaseException:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, loop)  # an interrupt in it leaves the work to the loop
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        """The result of a function that runs on the loop."""

        async def work() -> T:
            return function()

        return self.run(work())

    def soon(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine there, and wait for nothing; what it raises goes to the loop's exception handler."""
        self._running().call_soon_threadsafe(self._spawn, function)

    def _spawn(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.get_running_loop().create_task(function())
        self._spawned.add(task)  # the loop itself holds tasks weakly
        task.add_done_callback(self._spawned.discard)

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items of an asynchronous iterator; it is closed when the iteration ends here."""
        try:
            while True:
                try:
                    yield self.run(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            close = getattr(items, "aclose", None)
            if close is not None and not self.is_gone:
                self.run(close())


def _new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed, as in a broker's own process: a turn takes it less CPU."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return _SteadyEventLoop()
    return new_event_loop()


class _SteadyEventLoop(asyncio.SelectorEventLoop):
    """Keeps the clock that the process began with, as uvloop does: its timers go on in a test that freezes time.

    freezegun replaces `time.monotonic` in every module, and does not look into classes. Brokers that share the process
    would wait for each other's time-outs for ever.
    """

    _monotonic = staticmethod(time.monotonic)

    def time(self) -> float:
        return self._monotonic()


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


_background: BackgroundLoop | None = None
_background_lock = threading.Lock()


def background_loop() -> BackgroundLoop:
    """The loop of this process."""
    global _background
    with _background_lock:
        if _background is None:
            _background = BackgroundLoop()
        return _background


def _after_fork() -> None:
    global _background_lock
    _background_lock = threading.Lock()
    if _background is not None:
        _background.after_fork()


os.register_at_fork(after_in_child=_after_fork)
