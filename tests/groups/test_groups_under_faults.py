"""Groups whose members crash, come back, say old things, and whose coordinator is lost, by many seeds (K-64)."""

from __future__ import annotations

import pytest

from tests.groups.group_world import GroupWorld
from tests.seeds import seeds

STEPS = 400


@pytest.mark.parametrize("seed", seeds(40, every_day=15))
def test_a_group_is_what_its_log_says(seed: int) -> None:
    """The invariants hold after every step; when the faults are over, all members are in, and gone when they go."""
    world = GroupWorld(seed)
    for _ in range(STEPS):
        world.step()
    world.run_dry(world.everybody_is_in, world.let_clients_go_on)
    assert len({client.member_id for client in world.clients}) == len(world.clients)
    world.take_over(kept=1.0)
    world.run_dry(world.everybody_is_gone, lambda: None)
    assert world.answers > STEPS / 2, "the story has to have calls"
