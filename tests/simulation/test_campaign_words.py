"""What a campaign says of itself to people."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields

import pytest
from odradek_chaos.cli.commands import app
from odradek_chaos.worlds.simulated.campaign.campaign import REPORTS_KEPT, Campaign, SeedSummary
from odradek_chaos.worlds.simulated.plan.buggify import BRANCHES, POINTS
from odradek_chaos.worlds.simulated.plan.options import Options
from typer.testing import CliRunner


def test_what_was_reached_is_listed_and_what_was_not_stands_in_one_line() -> None:
    """Nothing is listed with a count of zero; JSON has all names with their counts."""
    campaign = Campaign(Options(nemeses=("kill", "pause", "cut")))
    campaign.faults = Counter({"pause": 3, "machine-gone": 1})
    lines = [*campaign.lines()]
    assert "4 faults: 3 pause, 1 machine-gone" in lines
    assert "0 chance points" in lines
    assert "0 rare branches" in lines
    (missed,) = [line for line in lines if line.startswith("not reached by these seeds: ")]
    assert missed.startswith("not reached by these seeds: kill, cut, ")
    assert campaign.reach()["faults"] == {"kill": 0, "pause": 3, "cut": 0, "machine-gone": 1}


def test_a_campaign_of_one_of_each_says_so() -> None:
    """One fault, one rare branch: a campaign of one short seed under one kind of faults."""
    campaign = Campaign(Options(nemeses=("kill",)), seeds=1, virtual_ms=1_000, events=1, acknowledged=1)
    campaign.faults = Counter({"kill": 1})
    point, branch = next(iter(POINTS)), next(iter(BRANCHES))
    campaign.points[point] = campaign.branches[branch] = 1
    lines = [*campaign.lines()]
    assert lines[:4] == [
        "1 seed, 1 virtual second, 1 event",
        "1 fault: 1 kill",
        f"1 chance point: 1 {point}",
        f"1 rare branch: 1 {branch}",
    ]
    assert "1 record acknowledged, 0 compared between replicas" in lines


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


USUAL = Options()
UNUSUAL = Options(
    faults_ms=148_500,
    min_insync_replicas=1,
    acks="1",
    truncation_mode="high-watermark",
    fsync="before-ack",
    fast_restart_keeps_isr=True,
    nemeses=("kill", "cut"),
    chance="all",
    core="never",
    strict=True,
    checks=("lost", "skipped"),
    partitions=5,
    writers=3,
    members=2,
    metadata_snapshots="small",
    elr="off",
    shape="observers",
    compaction=True,
)


@pytest.mark.parametrize("options", [USUAL, UNUSUAL], ids=["usual", "unusual"])
def test_the_command_that_repeats_a_failure_runs_it_under_the_same_options(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every option that the commands have is given by the name that it has there."""
    assert all(getattr(UNUSUAL, item.name) != item.default for item in fields(Options))
    told: list[tuple[list[int], Options]] = []

    def run(seeds: Iterable[int], options: Options, **_: object) -> Campaign:
        told.append(([*seeds], options))
        return Campaign(options)

    monkeypatch.setattr("odradek_chaos.worlds.simulated.campaign.campaign.run_campaign", run)
    words = shlex.split(options.command(7))
    assert words[:3] == ["odradek", "chaos", "run"]
    CliRunner().invoke(app, words[2:], catch_exceptions=False)
    assert told == [([7], options)]
