"""The background loop that serves all synchronous clients of the process, and what they have in common.

Rules of this module. There is one thread with one event loop per process: two loops in one process would make gRPC's
poller log errors. Everybody may call from any thread but that one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class BackgroundLoop:
    """An event loop in a daemon thread. Coroutines are run there and their results returned here."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="odradek", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine. A `KeyboardInterrupt` here cancels it there."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("odradek.sync cannot be used from its own background loop; use odradek's async clients")
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


class Facade:
    """A client that lives on the background loop."""

    _loop: BackgroundLoop
    _client: Any

    def start(self) -> None:
        """Find the cluster. Raises `BootstrapError`."""
        self._loop.run(self._client.start())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._client.__aexit__(kind, error, trace))
