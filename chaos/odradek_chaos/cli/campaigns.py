"""`odradek chaos run`: campaigns of the simulated world, seed by seed, and their sums.

Exit codes: 0 no finding, 3 findings, 2 usage, 130 interrupted: the sum is that of the seeds that were done.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from odradek.cli.terminal.screen import Screen
from odradek_proto.output_places import check_output_file
from odradek_proto.words import noun

from odradek_chaos.cli.interrupting import terminable
from odradek_chaos.cli.shrinking import shrink_to
from odradek_chaos.cli.simulation import FOUND, MOST_JOBS, Seeds, ShrinkTo, range_of, simulates

if TYPE_CHECKING:
    from odradek_chaos.cli.campaign_progress import CampaignProgress
    from odradek_chaos.worlds.simulated.campaign.campaign import Campaign, SeedSummary
    from odradek_chaos.worlds.simulated.plan.options import Options


@simulates
def run(
    *,
    seeds: Seeds = "1..100",
    jobs: Annotated[int, typer.Option("-j", "--jobs", min=1, max=MOST_JOBS, help="Processes at the same time.")] = 2,
    minutes: Annotated[
        float | None, typer.Option("--minutes", min=0.01, help="Begin no more seeds after so long.")
    ] = None,
    options: Options,
    shrink: ShrinkTo = None,
    screen: Screen,
) -> None:
    """Run many seeds: three brokers, writers and a reader under several kinds of faults at once."""
    from odradek_chaos.cli.campaign_progress import CampaignProgress
    from odradek_chaos.worlds.simulated.campaign.campaign import run_campaign

    first, last = range_of(seeds)
    check_output_file("--shrink", shrink)
    progress = CampaignProgress(sys.stderr, last - first + 1, enabled=screen.for_people and not screen.quiet)
    telling = _Telling(screen, progress, last - first + 1, shrink)
    with terminable():
        campaign = run_campaign(
            range(first, last + 1),
            options,
            jobs=jobs,
            seconds=None if minutes is None else minutes * 60,
            on_seed=telling.on_seed,
            on_interrupt=telling.on_interrupt,
        )
    progress.clear()
    not_begun = last - first + 1 - campaign.seeds
    screen.show(_data(campaign, not_begun), lambda: "\n".join(_lines(campaign, not_begun)))
    if shrink is not None and campaign.failed_seeds:
        shrink_to(shrink, campaign.failed_seeds[0], options, screen)
    raise typer.Exit(FOUND if campaign.failed_seeds else 0)


class _Telling:
    """Says how far a campaign is, and what it has done when it is interrupted."""

    def __init__(self, screen: Screen, progress: CampaignProgress, total: int, shrink: Path | None) -> None:
        self._screen = screen
        self._progress = progress
        self._total = total
        self._shrink = shrink  # which an interrupted campaign does not write
        self._done = 0

    def on_seed(self, summary: SeedSummary) -> None:
        self._done += 1
        if summary.report:
            self._progress.clear()
            from odradek_chaos.worlds.simulated.world.board import fitted

            self._screen.say(fitted(summary.report, sys.stderr))
        elif self._done % 10 == 0 and not self._progress.is_shown:
            self._screen.say(f"{self._done} of {self._total} {noun(self._total, 'seed')} done")
        self._progress.add(summary)

    def on_interrupt(self, campaign: Campaign) -> None:
        self._progress.clear()
        if campaign.seeds:
            self._screen.show(_data(campaign), lambda: "\n".join(campaign.lines()))
        self._screen.say(f"interrupted after {campaign.seeds} of {self._total} {noun(self._total, 'seed')}")
        if self._shrink is not None:
            self._screen.say(f"{self._shrink} was not written")


def _lines(campaign: Campaign, not_begun: int) -> list[str]:
    """A campaign as people read it; what it found stands at the end."""
    lines = [*campaign.lines()]
    if not_begun:
        lines.insert(-1, f"{not_begun} {noun(not_begun, 'seed was', 'seeds were')} not begun in time")
    return lines


def _data(campaign: Campaign, not_begun: int | None = None) -> dict[str, object]:
    """A campaign as `--json` shows it; one that was interrupted does not say what it had begun."""
    return {
        "seeds": campaign.seeds,
        "not_begun": not_begun,
        "interrupted": not_begun is None,
        "virtual_seconds": round(campaign.virtual_ms / 1000),
        "events": campaign.events,
        **{title.replace(" ", "_"): counted for title, counted in campaign.reach().items()},
        "not_reached": campaign.unreached(),
        "not_counted": dict(sorted(campaign.costs.items())),
        "records_acknowledged": campaign.acknowledged,
        "records_compared": campaign.compared,
        "worst_recovery_ms": campaign.worst_recovery_ms,
        "wall_seconds": round(campaign.wall_s, 1),
        "cpu_seconds": round(campaign.cpu_s, 1),
        "times_real_time_per_core": round(campaign.speed, 1),
        "findings": dict(sorted(campaign.checks.items())),
        "failed_seeds": campaign.failed_seeds,
    }
