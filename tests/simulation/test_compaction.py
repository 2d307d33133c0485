"""A compacted topic in the simulated world: cleaners at work while brokers die, and what each key has at the end."""

from __future__ import annotations

from typing import Any

import pytest
from odradek_broker.core.cleaning import Revision, revise
from odradek_broker.storage.cleaning import round as cleaning_round
from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.run.result import SeedResult
from odradek_chaos.worlds.simulated.run.run import run_seed
from odradek_proto.records import OpenBatch

OPTIONS = Options(faults_ms=4_000, compaction=True)


def cleanings(result: SeedResult) -> int:
    return sum(moment.event == "log_cleaned" for moment in result.timeline.moments)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [13, 2])
def test_cleaners_lose_no_newest_value_under_faults(seed: int) -> None:
    """One seed wipes disks and tears tails, so that followers begin anew at leaders whose logs have gaps."""
    result = run_seed(seed, OPTIONS)
    assert not result.findings, "\n".join(map(str, result.findings))
    assert cleanings(result) > 50


@pytest.mark.slow
@pytest.mark.parametrize("seed", [32_134, 34_306])
def test_a_replica_that_was_behind_for_longer_than_the_tombstones_stay_may_have_missed_one(seed: int) -> None:
    """As in Kafka: a cleaner removed a tombstone that it had not fetched while its disk was broken, or while no write
    ended since there was no leader.
    """
    result = run_seed(seed, Options())
    assert not result.findings, result.report()
    assert cleanings(result) > 10
    assert result.compared


def test_a_cleaner_that_drops_newest_values_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By whoever reads at the end: it is what the check is for."""

    def lose(batch: OpenBatch, newest: object, *more: Any, **named: Any) -> Revision:
        return revise(batch, lambda key: 1 << 60, *more, **named)

    monkeypatch.setattr(cleaning_round, "revise", lose)
    result = run_seed(13, Options(faults_ms=1_000, compaction=True), to_the_end=True)
    assert "compact-last-value" in {finding.check for finding in result.findings}
