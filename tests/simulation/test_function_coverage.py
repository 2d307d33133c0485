"""Which functions of the broker a seed calls."""

from __future__ import annotations

import pytest
from odradek_chaos.worlds.simulated.campaign.functions import CalledFunctions, coverage_of, functions_of, run_counting
from odradek_chaos.worlds.simulated.plan.options import Options


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
