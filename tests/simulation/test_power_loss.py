"""Whole clusters whose machines lose power: what `odradek.fsync=before-ack` owes, and what its absence costs."""

from __future__ import annotations

import pytest
from odradek_chaos.worlds.simulated.options import Options
from odradek_chaos.worlds.simulated.run import run_seed


@pytest.mark.parametrize("seed", [2000, 2001, 2002])
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
