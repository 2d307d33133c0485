"""What a campaign says of itself to people."""

from __future__ import annotations

from collections import Counter

import pytest
from odradek_chaos.worlds.simulated.campaign import REPORTS_KEPT, Campaign, SeedSummary
from odradek_chaos.worlds.simulated.options import Options


def test_what_was_reached_is_listed_and_what_was_not_stands_in_one_line() -> None:
    """Nothing is listed with a count of zero; JSON has all names with their counts."""
    campaign = Campaign(Options(nemeses=("kill", "pause", "cut")))
    campaign.faults = Counter({"pause": 3, "machine-gone": 1})
    lines = [*campaign.lines()]
    assert "4 faults: 3 pause, 1 machine-gone" in lines
    assert "0 chance points" in lines
    assert "0 rare branches" in lines
    (missed,) = [line for line in lines if line.startswith("NOT REACHED: ")]
    assert missed.startswith("NOT REACHED: kill, cut, ")
    assert campaign.reach()["faults"] == {"kill": 0, "pause": 3, "cut": 0, "machine-gone": 1}


def summary(seed: int) -> SeedSummary:
    """Of a run with a finding."""
    return SeedSummary(seed, "", 0, 0.0, 0, {}, {}, {}, 0, 0, 0, {}, (), ("lost",), f"seed {seed}")


@pytest.mark.parametrize("order", [1, -1])
def test_the_failures_that_are_told_do_not_hang_on_what_was_done_first(order: int) -> None:
    """Several processes finish their seeds in any order: the first seeds are kept, and stand in their order."""
    campaign = Campaign(Options())
    for seed in range(REPORTS_KEPT + 5)[::order]:
        campaign.add(summary(seed))
    assert campaign.reports == [f"seed {seed}" for seed in range(REPORTS_KEPT)]


@pytest.mark.parametrize(
    ("options", "branch"),
    [(Options(core="never"), "core-phase"), (Options(metadata_snapshots="never"), "snapshot-installed")],
)
def test_what_the_options_rule_out_is_not_missed(options: Options, branch: str) -> None:
    """Nobody can reach it by more seeds."""
    assert branch in Campaign(Options()).unreached()
    assert branch not in Campaign(options).unreached()
