"""The listener of one node: started before its logs are opened, stopped last, so that probes see all of its life."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from odradek_broker.config.log_levels import METRICS
from odradek_broker.metrics.http import HttpServer
from odradek_broker.metrics.observed import ObservedNode
from odradek_broker.metrics.pages import Pages
from odradek_broker.metrics.process import ProcessMetrics
from odradek_broker.metrics.times import RequestTimes
from odradek_broker.runtime.counters import Durations

logger = logging.getLogger(METRICS)

TICK_S: Final = 0.25  # how often the loop's lag is looked at


class MetricsListener:
    """Made by `start`. From then on the node's counters measure times as well."""

    def __init__(self, node: ObservedNode) -> None:
        timer = node.counters.timer = time.perf_counter
        self._lag = Durations()
        self._pages = Pages(node, RequestTimes(node.counters, timer), ProcessMetrics(node.counters, self._lag))
        self._server: HttpServer | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._due = 0.0

    @classmethod
    async def start(cls, node: ObservedNode, address: str) -> MetricsListener:
        """Listen on `host:port`. Raises `OSError` when it cannot be had."""
        self = cls(node)
        self._server = await HttpServer.listen(address, self._pages.answer, _on_error)
        self._wind(asyncio.get_running_loop())
        return self

    @property
    def address(self) -> str:
        """`host:port`, with the port that the system gave."""
        return "" if self._server is None else self._server.address

    async def stop(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        if self._server is not None:
            await self._server.stop()

    def _wind(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = loop.time() + TICK_S
        self._tick = loop.call_at(self._due, self._on_tick, loop)

    def _on_tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._lag.observe(max(0.0, loop.time() - self._due))
        self._wind(loop)


def _on_error(error: BaseException) -> None:
    logger.error("a page of the metrics listener failed", exc_info=error)
