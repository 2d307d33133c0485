"""The background loop of a process: one event loop in a thread, for all that is asynchronous behind ordinary functions.

Rule of this module: there is one such loop per process, since two event loops that both use gRPC make its poller log
errors. So the synchronous clients and a cluster inside the process share it. Everybody may call from any thread but
that one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class BackgroundLoop:
    """An event loop in a daemon thread. Coroutines are run there and their results returned here."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._spawned: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="odradek", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine. A `KeyboardInterrupt` here cancels it there."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(
                "synchronous calls cannot be made on their own background loop; use the asynchronous ones there"
            )
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
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
        self._loop.call_soon_threadsafe(self._spawn, function)

    def _spawn(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = self._loop.create_task(function())
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
            if close is not None:
                self.run(close())


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


_background: BackgroundLoop | None = None
_background_lock = threading.Lock()


def background_loop() -> BackgroundLoop:
    """The loop of this process, started when it is first asked for."""
    global _background
    with _background_lock:
        if _background is None:
            _background = BackgroundLoop()
        return _background
