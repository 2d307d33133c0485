"""Probes the leaders that this broker follows when nothing else shows that they respond (R-147).

A fetch stream may be silent because nothing is written, or because nothing gets through any more. A leader that was
found unreachable is probed even after this broker no longer follows it, until it responds: a report must not end
because it took effect.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek_proto.transport.ports import Clock

from odradek_broker.core.reachability import FAILURES, LeaderReachability
from odradek_broker.runtime.events import EventLog
from odradek_broker.runtime.replicas.fetcher import Fetcher
from odradek_broker.runtime.services import Spawn

ANSWERED_WITHIN = 0.8  # of the interval: a question is over when the next one is due


class LeaderProbes:
    """Used from the event loop only. Who is cut off is found out within 5/4 of `session_timeout_ms`."""

    def __init__(
        self, fetchers: Mapping[int, Fetcher], *, clock: Clock, session_timeout_ms: int, spawn: Spawn, events: EventLog
    ) -> None:
        self._fetchers = fetchers
        self._clock = clock
        self._interval_ms = max(1, session_timeout_ms // (FAILURES + 1))  # in the first of them it was still heard
        self._spawn = spawn
        self._events = events
        self._reachability = LeaderReachability()
        self._asking: dict[int, None] = {}

    @property
    def unreachable(self) -> list[int]:
        """Ids of leaders that do not answer."""
        return self._reachability.unreachable

    async def run(self) -> None:
        while True:
            await self._clock.sleep(self._interval_ms)
            for leader, fetcher in list(self._fetchers.items()):
                self._look(leader, fetcher)

    def _look(self, leader: int, fetcher: Fetcher) -> None:
        heard = fetcher.take_heard()
        if not fetcher.has_address or not (fetcher or leader in self.unreachable):
            self._reachability.forget(leader)
        elif heard:
            self._answered(leader)
        elif leader not in self._asking:
            self._asking[leader] = None
            self._spawn(self._ask(leader, fetcher))

    async def _ask(self, leader: int, fetcher: Fetcher) -> None:
        try:
            answers = await fetcher.probe(self._interval_ms * ANSWERED_WITHIN) or fetcher.take_heard()
        finally:
            del self._asking[leader]
        if answers:
            self._answered(leader)
        elif self._reachability.failed(leader):
            self._events.write("leader_unreachable", "R-147", {"leader": leader})

    def _answered(self, leader: int) -> None:
        if self._reachability.answered(leader):
            self._events.write("leader_reachable", "R-147", {"leader": leader})
