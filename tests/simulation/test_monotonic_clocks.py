"""Monotonic clocks of machines that go at different rates."""

from __future__ import annotations

import asyncio
from random import Random

from odradek_chaos.worlds.simulated.kernel.clock import Monotonic, SimClock
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop


def test_a_clock_at_another_rate_is_consistent_with_itself() -> None:
    """Whoever sleeps a second finds a second passed, half of one for the others at a rate of 2. It never jumps."""
    loop = SimLoop(1)
    monotonic = Monotonic(loop)
    clock = SimClock(loop, Random(1), monotonic=monotonic)
    seen: list[int] = []

    async def story() -> None:
        for rate, lasts_ms in ((1.0, 1_000), (2.0, 500), (0.8, 1_250), (1.0, 1_000)):
            before, began_us = clock.now_ms(), loop.now_us
            monotonic.go_at(rate)
            assert clock.now_ms() == before
            await clock.sleep(1_000)
            assert (clock.now_ms() - before, (loop.now_us - began_us) // 1000) == (1_000, lasts_ms)
            rung = asyncio.Event()
            clock.call_later(1_000, rung.set)
            await rung.wait()
            seen.append(clock.now_ms() - before)

    loop.run(story())
    loop.close()
    assert seen == [2_000] * 4
