"""What lies between two simulated machines: directed links, and pipes that carry messages over them in order.

A pipe is one direction of a connection. As TCP does, it loses nothing and keeps the order: when its link is cut, what
is under way waits, and what waits behind it waits too. Loss is made above, by resetting a connection.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from odradek_chaos.worlds.simulated.kernel.loop import SimLoop

Arrival = Callable[..., None]
Delay = Callable[[random.Random], float]  # milliseconds


def uniform(low_ms: float, high_ms: float) -> Delay:
    span_ms = high_ms - low_ms
    return lambda rng: low_ms + span_ms * rng.random()


LAN = uniform(0.05, 0.5)


class Link:
    """One direction between two machines. Set its fields at any time."""

    def __init__(self, source: str, target: str, number: int) -> None:
        self.number = number
        self.source = source
        self.target = target
        self.delay: Delay = LAN
        self.is_cut = False
        self.refuses_connections = False  # what the source opened is cut; what the target opened is not
        self.for_ever = False  # no fault's end mends it, only the end of all faults
        self.lose_requests = 0.0  # probability that a unary call is lost before it acted
        self.lose_replies = 0.0  # probability that it is lost after it acted
        self.duplicate_requests = 0.0  # probability that a unary call is delivered twice
        self.duplicate_late_ms = 0.0  # how much later the second time
        self.waiting: dict[Pipe, None] = {}  # in the order in which they came to a halt

    def heal(self) -> None:
        if self.for_ever:
            return
        self.is_cut = self.refuses_connections = False
        waiting, self.waiting = self.waiting, {}
        for pipe in waiting:
            pipe.retry()


class Pipe:
    """Arrivals under way on a link, each at its time and none before the one in front of it."""

    __slots__ = ("_in_flight", "_loop", "_opened", "_rng", "_scheduled", "link")

    def __init__(self, loop: SimLoop, rng: random.Random, link: Link, opened: bool) -> None:
        """`opened`: by the link's source, which is to say that it carries no answers to what the target asked."""
        self.link = link
        self._opened = opened
        self._loop = loop
        self._rng = rng
        self._in_flight: deque[tuple[int, Arrival, tuple[Any, ...]]] = deque()
        self._scheduled = False

    def push(self, arrival: Arrival, *args: Any) -> None:
        """Have `arrival(*args)` called at the other end."""
        due_us = self._loop.now_us + (int(self.link.delay(self._rng) * 1000) or 1)
        self._in_flight.append((due_us, arrival, args))
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_world_at(due_us, self._deliver)

    def lose_suffix(self) -> int:
        """Forget a random number of the last messages under way; returns how many."""
        lost = self._rng.randint(0, len(self._in_flight))
        for _ in range(lost):
            self._in_flight.pop()
        return lost

    def flush(self) -> None:
        """Let everything under way arrive now, in order."""
        while self._in_flight:
            _, arrival, args = self._in_flight.popleft()
            arrival(*args)

    def retry(self) -> None:
        """The link works again: what waited is sent anew."""
        if self._in_flight and not self._scheduled:
            self._scheduled = True
            due_us = self._loop.now_us + (int(self.link.delay(self._rng) * 1000) or 1)
            self._loop.call_world_at(due_us, self._deliver)

    def _deliver(self) -> None:
        self._scheduled = False
        now_us = self._loop.now_us
        in_flight = self._in_flight
        while in_flight:
            if self.link.is_cut or (self.link.refuses_connections and self._opened):
                self.link.waiting[self] = None
                return
            due_us, arrival, args = in_flight[0]
            if due_us > now_us:
                self._scheduled = True
                self._loop.call_world_at(due_us, self._deliver)
                return
            in_flight.popleft()
            arrival(*args)
