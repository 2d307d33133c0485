"""The load of a simulated run: waves of records, and lulls in which nobody writes."""

from __future__ import annotations

from random import Random

import pytest
from odradek_chaos.worlds.simulated.options import Options, expand


@pytest.mark.parametrize("seed", range(20))
def test_a_lull_ends_with_the_next_wave_and_not_before(seed: int) -> None:
    """A microsecond too early would be the same lull again: all that may be in flight was handed over at once."""
    plan = expand(Random(seed), Options())
    now_us = 0
    while now_us < 20_000_000:
        passed_ms = now_us / 1000 % plan.wave_ms
        assert passed_ms < plan.wave_ms * plan.wave_share, now_us
        pause_us = round(plan.pause_ms(now_us) * 1000)
        assert pause_us >= min(plan.write_pause_ms, plan.wave_ms * (1 - plan.wave_share)) * 1000 - 1, now_us
        now_us += pause_us
