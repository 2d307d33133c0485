"""`odradek chaos run` and `odradek chaos ledger`: campaigns of the simulated world, seed by seed, and their sums.

Exit codes: 0 no finding, 3 findings, 2 usage, 130 interrupted: the sum is that of the seeds that were done.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from odradek.cli.terminal.options import Json, Output, Quiet
from odradek.cli.terminal.screen import Screen
from odradek_proto.command_line import USAGE, CommandFailed, OutputFormat
from odradek_proto.words import noun

from odradek_chaos.cli.campaign_options import (
    FOUND,
    MOST_JOBS,
    Acks,
    Chance,
    Checks,
    Core,
    FastRestart,
    FaultsSeconds,
    Fsync,
    MinIsr,
    Nemeses,
    Seeds,
    ShrinkTo,
    Strict,
    Truncation,
    options_of,
    range_of,
)
from odradek_chaos.cli.interrupting import terminable
from odradek_chaos.cli.shrinking import shrink_to
from odradek_chaos.cli.writable import must_be_writable

if TYPE_CHECKING:
    from odradek_chaos.cli.campaign_ledger import Entry
    from odradek_chaos.cli.campaign_progress import Progress
    from odradek_chaos.worlds.simulated.campaign.campaign import Campaign, SeedSummary


class World(StrEnum):
    """Where a campaign runs."""

    SIMULATED = "simulated"


def run(
    world: Annotated[World, typer.Option("--world", help="Where the clusters run.")] = World.SIMULATED,
    seeds: Seeds = "1..100",
    jobs: Annotated[int, typer.Option("-j", "--jobs", min=1, max=MOST_JOBS, help="Processes at the same time.")] = 2,
    minutes: Annotated[
        float | None, typer.Option("--minutes", min=0.01, help="Begin no more seeds after so long.")
    ] = None,
    faults: FaultsSeconds = 8.0,
    nemeses: Nemeses = None,
    truncation: Truncation = "fetch",
    fsync: Fsync = "never",
    min_isr: MinIsr = 2,
    acks: Acks = "all",
    chance: Chance = "drawn",
    core: Core = "drawn",
    strict: Strict = False,
    checks: Checks = None,
    fast_restart: FastRestart = False,
    shrink: ShrinkTo = None,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", metavar="FILE", help="Append one line about this campaign to a file.")
    ] = None,
    output: Output = OutputFormat.TABLE,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run many seeds: three brokers, writers and a reader under several kinds of faults at once."""
    from odradek_chaos.cli.campaign_ledger import commit_here, core_digest, entry_of
    from odradek_chaos.cli.campaign_progress import Progress
    from odradek_chaos.worlds.simulated.campaign.campaign import run_campaign

    screen = Screen(output, as_json, quiet)
    options = options_of(faults, nemeses, truncation, fsync, min_isr, acks, chance, core, strict, checks, fast_restart)
    if checks is not None and ledger is not None:
        raise CommandFailed(
            "--ledger adds up campaigns in which every check counts", hint="leave --checks out", exit_code=USAGE
        )
    first, last = range_of(seeds)
    must_be_writable("--shrink", shrink)
    _must_be_ledger(ledger)
    progress = Progress(sys.stderr, last - first + 1, enabled=screen.for_people and not quiet)
    digest, commit = core_digest(), commit_here()  # of what runs, whatever becomes of it meanwhile
    telling = _Telling(world, screen, progress, last - first + 1, (shrink, ledger))
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
    if ledger is not None:
        _enter(ledger, entry_of(campaign, seeds, digest, commit))
    not_begun = last - first + 1 - campaign.seeds
    screen.show(_data(world, campaign, not_begun), lambda: "\n".join(_lines(campaign, not_begun)))
    if shrink is not None and campaign.failed_seeds:
        shrink_to(shrink, campaign.failed_seeds[0], options, screen)
    raise typer.Exit(FOUND if campaign.failed_seeds else 0)


class _Telling:
    """Says how far a campaign is, and what it has done when it is interrupted."""

    def __init__(
        self, world: World, screen: Screen, progress: Progress, total: int, files: tuple[Path | None, Path | None]
    ) -> None:
        self._world = world
        self._screen = screen
        self._progress = progress
        self._total = total
        self._shrink, self._ledger = files  # which an interrupted campaign does not write
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
            self._screen.show(_data(self._world, campaign), lambda: "\n".join(campaign.lines()))
        self._screen.say(f"interrupted after {campaign.seeds} of {self._total} {noun(self._total, 'seed')}")
        if self._shrink is not None:
            self._screen.say(f"{self._shrink} was not written")
        if self._ledger is not None:
            self._screen.say(f"no line was added to {self._ledger}: a ledger counts campaigns that ran to their end")


def _must_be_ledger(file: Path | None) -> None:
    """Raises `CommandFailed` for a file that cannot be written, and for one that holds something else."""
    from odradek_chaos.cli.campaign_ledger import check_end

    must_be_writable("--ledger", file)
    if file is None:
        return
    try:
        check_end(file)
    except OSError as error:
        message = f"--ledger: cannot read {file}: {error.strerror or error}"
        raise CommandFailed(message, hint="give a file that can be read and written", exit_code=USAGE) from error
    except ValueError as error:
        message = f"--ledger {file}: its last line is no campaign: {error}"
        hint = "name another file; one that is not there yet becomes a ledger"
        raise CommandFailed(message, hint=hint, exit_code=USAGE) from error


def _enter(file: Path, entry: Entry) -> None:
    """Append a campaign to a ledger. Raises `CommandFailed`."""
    from odradek_chaos.cli.campaign_ledger import append

    try:
        append(file, entry)
    except OSError as error:
        raise CommandFailed(f"--ledger: {error}", hint="give a file that can be written", exit_code=USAGE) from error


def _lines(campaign: Campaign, not_begun: int) -> list[str]:
    """A campaign as people read it; what it found stands at the end."""
    lines = [*campaign.lines()]
    if not_begun:
        lines.insert(-1, f"{not_begun} {noun(not_begun, 'seed was', 'seeds were')} not begun in time")
    return lines


def _data(world: World, campaign: Campaign, not_begun: int | None = None) -> dict[str, object]:
    """A campaign as `--json` shows it; one that was interrupted does not say what it had begun."""
    return {
        "world": world.value,
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


def ledger(
    file: Annotated[Path | None, typer.Argument(help="The ledger. Default: docs/campaigns.jsonl.")] = None,
    output: Output = OutputFormat.TABLE,
    as_json: Json = False,
) -> None:
    """Add up the campaigns of a ledger, by the core that they ran and by their options.

    A seed that ran twice under the same options counts once. What no campaign on the installed core has reached is
    named below the table, and which kinds of faults none could draw; with --json each row has the former.
    """
    from odradek_chaos.cli.campaign_ledger import LEDGER, core_digest, never_struck, read, sums

    screen, present = Screen(output, as_json), core_digest()
    try:
        found = sums(read(file or LEDGER), present)
    except OSError as error:
        message = f"cannot read {file or LEDGER}: {error.strerror or error}"
        raise CommandFailed(message, hint="`odradek chaos run --ledger FILE` writes one", exit_code=USAGE) from error
    except ValueError as error:
        hint = "mend or remove that line; `odradek chaos run --ledger FILE` writes such files"
        raise CommandFailed(str(error), hint=hint, exit_code=USAGE) from error
    rows = [
        {
            "core": each.core,
            "present": each.is_present,
            "campaigns": each.campaigns,
            "seeds": each.seeds,
            "virtual_hours": each.virtual_hours,
            "faults": each.faults,
            "records": each.records,
            "wall_seconds": each.wall_seconds,
            "findings": sum(each.findings.values()),
            "last": each.last,
            "options": each.command,
            "not_reached": each.not_reached,
        }
        for each in found
    ]
    columns = [name for name in (rows[0] if rows else {}) if name != "not_reached"]
    screen.show_rows(rows, {name: name.upper().replace("_", " ") for name in columns})
    for each in found:
        if each.is_present and each.not_reached:
            options = each.command or "the usual options"
            screen.say(f"NOT REACHED on {present} with {options}: {', '.join(each.not_reached)}")
    if any(each.is_present for each in found) and (kinds := never_struck(found)):
        screen.say(f"NOT DRAWN on {present} by any campaign: {', '.join(kinds)} (--nemeses names them)")
    if not found:
        screen.say(f"{file or LEDGER} is empty: no campaign ran")
    elif not any(each.is_present for each in found):
        screen.say(f"the core has changed since: no campaign ran on {present}")
