"""What of the product a seed reaches: rare branches, the chance points that it draws, and functions."""

from __future__ import annotations

from typing import Any

import pytest
from odradek_chaos.worlds.simulated.campaign.functions import CalledFunctions, coverage_of, functions_of, run_counting
from odradek_chaos.worlds.simulated.cluster.timeline import TimelineEvent
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.observe.coverage import BranchCoverage
from odradek_chaos.worlds.simulated.plan.buggify import POINTS, Buggify
from odradek_chaos.worlds.simulated.plan.options import Options

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


def test_a_seed_draws_some_points_and_always_the_same() -> None:
    """Another seed draws others; over a few seeds every point is drawn."""
    drawn = [Buggify(SimLoop(seed), "drawn").drawn() for seed in range(30)]
    assert drawn[0] == Buggify(SimLoop(0), "drawn").drawn()
    assert drawn[0] != drawn[1]
    assert 0 < len(drawn[0]) < len(POINTS)
    assert {point for points in drawn for point in points} == set(POINTS)


def test_a_point_strikes_as_often_as_it_says_and_never_in_peace() -> None:
    """What is owed cleanly is owed by the product as it is."""
    buggify = Buggify(SimLoop(1), "all")
    struck = sum(buggify.fires("cache-forgets", 0.3) for _ in range(2_000))
    assert 500 < struck < 700
    assert buggify.points["cache-forgets"] == struck
    buggify.fires_now = False
    assert not any(buggify.fires("cache-forgets", 1.0) for _ in range(10))


def test_no_point_strikes_when_none_may() -> None:
    """The option for whoever wants to see the faults alone."""
    buggify = Buggify(SimLoop(1), "none")
    assert buggify.drawn() == []
    assert not any(buggify.fires(point, 1.0) for point in POINTS)


@pytest.mark.slow
def test_what_a_seed_calls_is_told_from_what_it_does_not() -> None:
    """A leader is made in every run, a topic deleted in none without an administrator; no function counts twice."""
    called = CalledFunctions()
    assert run_counting([1], Options(faults_ms=200, nemeses=("kill",), chance="none"), called) == 0
    parts = {each.part: each for each in coverage_of(called)}
    assert [*parts] == ["core", "runtime", "storage"]
    assert "core/partition/leader.py: LeaderPartition.start" not in parts["core"].missing
    assert "core/controller/topics.py: delete_topics" in parts["core"].missing
    known = {place for part in parts for place in functions_of(part)}
    assert sum(each.functions for each in parts.values()) == len(known)
    assert all(0 < each.reached < each.functions for each in parts.values())
    assert sum(each.reached for each in parts.values()) == len(known & called.places.keys())
