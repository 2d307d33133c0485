"""Whole clusters whose machines lose power: what `odradek.fsync=before-ack` owes, and what its absence costs."""

from __future__ import annotations

import pytest
from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.plan.script import Injection, Script
from odradek_chaos.worlds.simulated.run.run import run_seed

from tests.seeds import seeds


@pytest.mark.parametrize("seed", seeds(3, every_day=1, first=2000))
def test_flushed_acknowledgements_survive_a_blackout_of_all_machines(seed: int) -> None:
    """With odradek.fsync=before-ack any number of machines may lose power in any order (B.2).

    A replica that finds unflushed records at its start flushes them, or else it would never ask its leader again.
    """
    options = Options(faults_ms=3_000, fsync="before-ack", nemeses=("blackout", "kill"))
    result = run_seed(seed, options)
    assert not result.findings, result.report()
    assert result.faults["blackout"]
    assert result.acknowledged


def test_without_flush_a_correlated_power_loss_is_reported() -> None:
    """When all machines lose power and nothing was flushed, acknowledged records are gone, and the checks say so."""
    options = Options(faults_ms=2_000, nemeses=("blackout",))
    results = (run_seed(seed, options) for seed in range(20))
    found = next((set(result.costs) for result in results if result.costs), set())
    assert found & {"committed-prefix-immutable", "lost", "skipped"}, found


def test_nobody_loses_its_power_when_the_faults_are_over() -> None:
    """A blackout that strikes at the end takes those whose moment comes in time, so that what follows is peace."""
    options = Options(faults_ms=300, nemeses=("blackout",), core="never", fsync="before-ack")
    end_us = run_seed(1, options, script=Script(())).faults_began_us + options.faults_ms * 1_000
    off_ms, on_ms = {"1": 10.0, "2": 90.0, "3": 290.0}, {"1": 400, "2": 500, "3": 600}
    injection = Injection(end_us - 100_000, "blackout", {"off_ms": off_ms, "on_ms": on_ms})
    result = run_seed(1, options, script=Script((injection,)))
    assert not result.findings, result.report()
    back = [each.broker_id for each in result.timeline.moments if each.event == "!start" and each.time_us >= end_us]
    assert sorted(back) == [1, 2]
