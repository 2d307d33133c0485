"""Which events count as a rare branch that was reached."""

from __future__ import annotations

from typing import Any

import pytest
from odradek_chaos.worlds.simulated.cluster.timeline import TimelineEvent
from odradek_chaos.worlds.simulated.observe.coverage import BranchCoverage

from tests.simulation.worlds import new_world


@pytest.mark.parametrize(
    ("event", "facts", "reached"),
    [
        ("leader_chosen", {"leader": 1, "isr": [1]}, {"isr-shrunk-to-one"}),
        ("leader_chosen", {"leader": -1, "isr": [1]}, {"no-leader"}),
        ("leader_chosen", {"leader": 1, "isr": [1, 2]}, set()),
        ("isr_decided", {"leader": 1, "isr": [1]}, {"isr-shrunk-to-one"}),
        ("isr_decided", {"leader": 1, "isr": [1, 2]}, set()),
        ("fenced", {"error": "FENCED_LEADER_EPOCH"}, {"fenced-by-epoch"}),
        ("fenced", {"error": "NOT_LEADER_OR_FOLLOWER"}, set()),
        ("leader_elected", {"node": 1, "epoch": 1}, set()),
        ("leader_elected", {"node": 1, "epoch": 2}, {"quorum-election"}),
        ("leader_elected", {"leader_epoch": 2}, set()),
        ("truncated", {"to": 3}, {"truncated"}),
        ("truncated", {"to": 3, "complete": False}, {"truncated", "divergence-of-several-rounds"}),
    ],
)
def test_an_event_counts_for_what_its_branch_says(event: str, facts: dict[str, Any], reached: set[str]) -> None:
    """A last member that nobody lets lead is no leader that was the whole ISR."""
    world = new_world()
    BranchCoverage(world.state, world.buggify.reached).on_event(TimelineEvent(0, 1, event, "t-0", facts))
    world.loop.close()
    assert {*world.buggify.branches} == reached
