"""The load of a simulated run: waves of records, and lulls in which nobody writes."""

from __future__ import annotations

from random import Random

import pytest
from odradek_chaos.worlds.simulated.observe.tapped_network import observe
from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.run.expansion import expand
from odradek_chaos.worlds.simulated.run.load import Load
from odradek_chaos.worlds.simulated.world.unavailability import Unavailability
from odradek_chaos.worlds.simulated.world.world import TOPIC

from tests.simulation.worlds import new_world


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


def test_nobody_waits_for_a_client_that_died() -> None:
    """What it had in flight would make a silence of every lull that follows; what another one has still does."""
    world = new_world()
    load = Load(world, observe(world))
    load.start_writers()
    for client in ("w1", "w2", "w1"):
        load.ledger.send(TOPIC, 0, b"a record", client, "all")
    load.crash("w1", 1_000)
    assert load.ledger.in_flight == {(TOPIC, 0): 1}
    load.ledger.error(TOPIC, 0, b"a record", "w1", definite=False)  # the last that is heard of it
    load.ledger.ack(TOPIC, 0, b"a record", "w2", "all", 0)
    assert load.ledger.in_flight == {(TOPIC, 0): 0}
    world.loop.close()


def test_a_lull_is_no_silence() -> None:
    """Only while somebody waits for an acknowledgement does its absence count."""
    silences = Unavailability()
    silences.awaited(0, "orders", 0)
    silences.acknowledged(5_000, "orders", 0)
    silences.struck(6_000, "kill")
    silences.awaited(2_000_000, "orders", 0)
    silences.acknowledged(2_005_000, "orders", 0)
    assert silences.longest_ms == {}
    silences.acknowledged(2_105_000, "orders", 0)
    assert silences.longest_ms == {}  # the strike was long before
    silences.struck(2_106_000, "kill")
    silences.acknowledged(2_405_000, "orders", 0)
    assert silences.longest_ms == {"kill": 300}
