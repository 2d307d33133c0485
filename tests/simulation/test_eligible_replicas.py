"""The last replica standing loses its power: without eligible leader replicas records go, with them none (KIP-966)."""

from __future__ import annotations

from random import Random

import pytest
from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.plan.script import Injection, Script
from odradek_chaos.worlds.simulated.run.expansion import expand
from odradek_chaos.worlds.simulated.run.result import SeedResult
from odradek_chaos.worlds.simulated.run.run import run_seed

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
