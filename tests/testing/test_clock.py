"""The clocks of the brokers of a cluster inside of the tests' process."""

from __future__ import annotations

from odradek_broker.testing.clock import BrokerClock
from odradek_broker.testing.fabric import Fabric
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop


def test_only_the_first_timers_of_the_first_candidate_are_skipped() -> None:
    """Its clock goes on by what it skipped; what reaches beyond takes as long as everywhere."""
    loop = SimLoop()

    async def story() -> tuple[dict[int, int], int]:
        clock = BrokerClock(Fabric(), 1, skips_ms=150)
        began, begun = loop.time(), clock.now_ms()
        rung: dict[int, int] = {}

        def set_timer(delay_ms: int) -> None:
            clock.call_later(delay_ms, lambda: rung.update({delay_ms: round((loop.time() - began) * 1000)}))

        for delay_ms in (100, 500, 40, 20):  # the last one exceeds what is left
            set_timer(delay_ms)
        ahead_ms = clock.now_ms() - begun
        await clock.sleep(600)
        return rung, ahead_ms

    assert loop.run_until_complete(story()) == ({100: 0, 40: 0, 20: 20, 500: 500}, 140)
