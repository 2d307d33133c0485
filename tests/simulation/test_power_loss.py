"""Machines that lose power: what `odradek.fsync=before-ack` owes when all do, and what its absence costs.

The last replica standing takes records with it only without eligible leader replicas (KIP-966).
"""

from __future__ import annotations

from random import Random

import pytest
from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.plan.script import Injection, Script
from odradek_chaos.worlds.simulated.run.expansion import expand
from odradek_chaos.worlds.simulated.run.result import SeedResult
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


# Two brokers are asked to stop, one after the other; then the power of the third fails, and it is back first.
LAST_STANDING = Script(
    (
        Injection(2_000_000, "stop", {"broker": 3, "down_ms": 4_000}),
        Injection(3_500_000, "stop", {"broker": 1, "down_ms": 3_500}),
        Injection(5_000_000, "power", {"broker": 2, "dark_ms": 500}),
    )
)
SEEDS = (1, 3, 8, 10)  # which lose records without eligible leader replicas


def last_standing(seed: int, elr: str) -> SeedResult:
    options = Options(elr=elr, nemeses=("stop", "power"), chance="none", core="never", strict=True)
    return run_seed(seed, options, script=LAST_STANDING)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_who_was_stopped_in_peace_saves_what_the_last_one_lost(seed: int) -> None:
    """R-139, R-141: it is waited for, and has everything that was acknowledged; all is well again afterwards."""
    result = last_standing(seed, "on")
    assert not result.findings, result.report()
    assert result.acknowledged
    assert dict(result.faults) == {"stop": 2, "power": 1}


def test_without_eligible_leader_replicas_the_last_one_leads_and_records_are_lost() -> None:
    """R-135: the very same runs; so the checks would see a loss, and the rule is what prevents it."""
    found = [{finding.check for finding in last_standing(seed, "off").findings} for seed in SEEDS[:1]]
    assert all(each & {"committed-prefix-immutable", "leader-completeness", "lost"} for each in found), found


@pytest.mark.parametrize("elr", ["on", "off"])
def test_eligible_leader_replicas_shift_no_other_choice_of_a_seed(elr: str) -> None:
    """The same seed meets the same faults with and without them: whatever is drawn besides is the same."""
    drawn, chosen = (expand(Random(1), Options(elr=each)).describe() for each in ("drawn", elr))
    different = {name for name in drawn if drawn[name] != chosen[name]}
    assert different <= {"elr", "settings"}
