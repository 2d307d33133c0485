"""How the story of a run waits: in virtual time, with a limit, and no longer than until the first finding."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from odradek_chaos.worlds.simulated.world.world import World

POLL_US = 20_000


class Stopped(Exception):
    """There is a finding: the run ends here."""


async def until(world: World, condition: Callable[[], bool], limit_ms: int | None = None) -> None:
    """Wait in virtual time. Raises `Stopped` at a finding, `TimeoutError` at the limit."""
    end_ms = None if limit_ms is None else world.now_ms + limit_ms
    while not condition():
        if world.findings.end_the_run:
            raise Stopped
        if end_ms is not None and world.now_ms >= end_ms:
            raise TimeoutError
        await world.loop.sleep_us(POLL_US)
    if world.findings.end_the_run:
        raise Stopped


async def within(world: World, work: Coroutine[Any, Any, None], limit_ms: int, otherwise: str) -> None:
    task = asyncio.ensure_future(work)
    try:
        await until(world, task.done, limit_ms)
    except TimeoutError:
        world.findings.report("stuck", f"{otherwise} within {limit_ms} ms")
        raise Stopped from None
    task.result()
