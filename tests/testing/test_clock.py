"""The time of a cluster that starts inside of the tests' process."""

from __future__ import annotations

from odradek_broker.testing.clock import HASTE_S, Pace
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop


def test_only_the_beginning_is_fast() -> None:
    """A period of five minutes that begins then, such as that of retention, takes five minutes all the same."""
    loop = SimLoop()

    async def delays() -> tuple[float, float]:
        pace = Pace()
        return pace.world_ms(500), pace.world_ms(300_000)

    async def delays_later() -> float:
        pace = Pace()
        pace.slow_down()
        return pace.world_ms(500)

    assert loop.run_until_complete(delays()) == (50, 299_000 + HASTE_S * 1000)
    assert loop.run_until_complete(delays_later()) == 500
