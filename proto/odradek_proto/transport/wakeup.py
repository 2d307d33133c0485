"""A wake-up signal with a single waiter, for a task that works in batches.

An `asyncio.Event` keeps a queue of waiters, asks for its loop at every wait, and stays set until it is cleared. Streams
have one task for each direction, which waits again after every message: without all that a wake takes an eighth less.
"""

from __future__ import annotations

import asyncio


class WakeupSignal:
    """Set by anybody, any number of times; one task at a time waits. It stays set until somebody has waited."""

    __slots__ = ("_is_set", "_waiter")

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake who waits, or let the next `wait` return at once."""
        if not self._is_set:
            self._is_set = True
            waiter = self._waiter
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    def clear(self) -> None:
        """Forget that it was set: the caller has just looked at everything."""
        self._is_set = False

    async def wait(self) -> None:
        """Return once it was set since the last `wait` or `clear`; it is clear again then."""
        if not self._is_set:
            assert self._waiter is None or self._waiter.done(), "one task at a time waits"
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._is_set = False
