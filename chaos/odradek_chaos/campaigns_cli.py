"""`odradek chaos run` and `odradek chaos trace`: whole clusters in the simulated world, by seed.

`run`, `ledger` and `trace` are the functions of commands; `app` holds all, for whoever mounts them. Exit codes: 0 no
finding, 3 findings, 2 usage.
"""

from __future__ import annotations

import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from odradek.cli.failures import USAGE, CommandFailed
from odradek.cli.options import Json, Output, OutputFormat, Quiet
from odradek.cli.screen import Screen

if TYPE_CHECKING:
    from odradek_chaos.worlds.simulated.campaign import Campaign, SeedSummary
    from odradek_chaos.worlds.simulated.options import Options

FOUND = 3
MOST_JOBS = 256

app = typer.Typer(
    help="Run clusters in the simulated world.", no_args_is_help=True, add_completion=False, rich_markup_mode=None
)


class World(StrEnum):
    """Where a campaign runs."""

    SIMULATED = "simulated"


FaultsSeconds = Annotated[
    float, typer.Option("--faults", metavar="SECONDS", min=0.1, help="How long there are faults, in virtual seconds.")
]
Nemeses = Annotated[
    str | None,
    typer.Option("--nemeses", metavar="NAME,...", help="Which nemeses strike. Default: each seed takes three."),
]
Truncation = Annotated[
    str, typer.Option("--truncation", metavar="MODE", help="odradek.truncation.mode of the brokers.")
]
Fsync = Annotated[str, typer.Option("--fsync", metavar="WHEN", help="odradek.fsync of the brokers.")]
MinIsr = Annotated[int, typer.Option("--min-isr", min=1, max=3, help="min.insync.replicas of the brokers.")]
Acks = Annotated[str, typer.Option("--acks", metavar="all|1|0", help="What the writers wait for.")]
Chance = Annotated[
    str, typer.Option("--chance", metavar="drawn|all|none", help="Which chance points of the product strike.")
]
Core = Annotated[
    str,
    typer.Option(
        "--core", metavar="drawn|always|never", help="Whether one machine stays broken and the others must be well."
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Report what is not owed under the faults, too.")]
ShrinkTo = Annotated[
    Path | None,
    typer.Option("--shrink", metavar="FILE", help="Make a failing seed small and write what is left of it to a file."),
]


@app.command("run")
def run(
    world: Annotated[World, typer.Option("--world", help="Where the clusters run.")] = World.SIMULATED,
    seeds: Annotated[str, typer.Option("--seeds", metavar="A..B", help="The seeds, both ends included.")] = "1..100",
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
    shrink: ShrinkTo = None,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", metavar="FILE", help="Append one line about this campaign to a file.")
    ] = None,
    output: Output = OutputFormat.TABLE,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run many seeds: three brokers, writers and a reader under several kinds of faults at once."""
    from odradek_chaos.campaign_ledger import append, commit_here, core_digest, entry_of
    from odradek_chaos.campaign_progress import Progress
    from odradek_chaos.worlds.simulated.campaign import run_campaign

    screen = Screen(output, as_json, quiet)
    options = options_of(faults, nemeses, truncation, fsync, min_isr, acks, chance, core, strict)
    first, last = range_of(seeds)
    progress = Progress(sys.stderr, last - first + 1, enabled=screen.for_people and not quiet)
    digest, commit = core_digest(), commit_here()  # of what runs, whatever becomes of it meanwhile
    done = 0

    def on_seed(summary: SeedSummary) -> None:
        nonlocal done
        done += 1
        if summary.report:
            progress.clear()
            screen.say(summary.report)
        elif done % 10 == 0 and not progress.is_shown:
            screen.say(f"{done} of {last - first + 1} seeds done")
        progress.add(summary)

    campaign = run_campaign(
        range(first, last + 1),
        options,
        jobs=jobs,
        seconds=None if minutes is None else minutes * 60,
        on_seed=on_seed,
    )
    progress.clear()
    if ledger is not None:
        try:
            append(ledger, entry_of(campaign, seeds, digest, commit))
        except OSError as error:
            raise CommandFailed(
                f"--ledger: {error}", hint="give a file that can be written", exit_code=USAGE
            ) from error
    screen.show(_data(world, campaign), lambda: "\n".join(campaign.lines()))
    if shrink is not None and campaign.failed_seeds:
        _shrink(campaign.failed_seeds[0], options, shrink, screen)
    raise typer.Exit(FOUND if campaign.failed_seeds else 0)


def _data(world: World, campaign: Campaign) -> dict[str, object]:
    """A campaign as `--json` shows it."""
    return {
        "world": world.value,
        "seeds": campaign.seeds,
        "virtual_seconds": round(campaign.virtual_ms / 1000),
        "events": campaign.events,
        **{title.replace(" ", "_"): counted for title, counted in campaign.reach().items()},
        "not_reached": campaign.unreached(),
        "not_owed": dict(sorted(campaign.costs.items())),
        "records_acknowledged": campaign.acknowledged,
        "records_compared": campaign.compared,
        "worst_recovery_ms": campaign.worst_recovery_ms,
        "wall_seconds": round(campaign.wall_s, 1),
        "cpu_seconds": round(campaign.cpu_s, 1),
        "times_real_time_per_core": round(campaign.speed, 1),
        "findings": dict(sorted(campaign.checks.items())),
        "failed_seeds": campaign.failed_seeds,
    }


@app.command("ledger")
def ledger(
    file: Annotated[Path | None, typer.Argument(help="The ledger. Default: docs/campaigns.jsonl.")] = None,
    output: Output = OutputFormat.TABLE,
    as_json: Json = False,
) -> None:
    """Add up the campaigns of a ledger, by the core that they ran."""
    from odradek_chaos.campaign_ledger import LEDGER, core_digest, read, sums

    screen, present = Screen(output, as_json), core_digest()
    try:
        found = sums(read(file or LEDGER), present)
    except (OSError, ValueError) as error:
        raise CommandFailed(str(error), hint="odradek chaos run --ledger writes one", exit_code=USAGE) from error
    rows = [
        {
            "core": each.core,
            "present": each.is_present,
            "campaigns": each.campaigns,
            "seeds": each.runs,
            "virtual_hours": each.virtual_hours,
            "faults": each.faults,
            "records": each.records,
            "wall_seconds": each.wall_seconds,
            "findings": sum(each.findings.values()),
            "last": each.last,
        }
        for each in found
    ]
    screen.show_rows(rows, {name: name.upper().replace("_", " ") for name in (rows[0] if rows else {})})
    if not any(each.is_present for each in found):
        screen.say(f"the core has changed since: no campaign ran on {present}")


@app.command("trace")
def trace(
    seed: Annotated[int, typer.Argument(help="The seed.")],
    faults: FaultsSeconds = 8.0,
    nemeses: Nemeses = None,
    truncation: Truncation = "fetch",
    fsync: Fsync = "never",
    min_isr: MinIsr = 2,
    acks: Acks = "all",
    chance: Chance = "drawn",
    core: Core = "drawn",
    strict: Strict = False,
    to_the_end: Annotated[bool, typer.Option("--to-the-end", help="Go on after a finding.")] = False,
    shrink: ShrinkTo = None,
    script: Annotated[
        Path | None,
        typer.Option("--script", metavar="FILE", exists=True, dir_okay=False, help="Replay what --shrink has left."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Run one seed and print every event of the brokers, every fault and every finding, in the order of time."""
    from odradek_chaos.worlds.simulated.run import run_seed
    from odradek_chaos.worlds.simulated.script import Script

    screen, replayed = Screen(quiet=quiet), None
    options = options_of(faults, nemeses, truncation, fsync, min_isr, acks, chance, core, strict)
    if script is not None:
        try:
            replayed, given = Script.load(script.read_text())
            options = type(options)(**{**given, "nemeses": tuple(given.get("nemeses", ()))})
        except (TypeError, ValueError) as error:
            raise CommandFailed(str(error), hint="--shrink writes such files", exit_code=USAGE) from error
    if shrink is not None:
        raise typer.Exit(FOUND if _shrink(seed, options, shrink, screen) else 0)
    result = run_seed(seed, options, to_the_end=to_the_end, script=replayed)
    for moment in result.timeline.in_order():
        print(moment.line())
    screen.say(f"\n{result.report()}\ntrace hash: {result.trace_hash}")
    raise typer.Exit(FOUND if result.findings else 0)


def _shrink(seed: int, options: Options, file: Path, screen: Screen) -> bool:
    """Make a failing seed small; false when it finds nothing."""
    from dataclasses import asdict

    from odradek_chaos.worlds.simulated.shrink import Shrinker

    shrunk = Shrinker(seed, options, screen.say).run()
    if shrunk is None:
        screen.say(f"seed {seed} finds nothing")
        return False
    file.write_text(shrunk.script.dump(asdict(shrunk.result.plan.options)) + "\n")
    print(shrunk.result.report())
    screen.say(f"\n{shrunk.line()}\nagain: odradek chaos trace {seed} --script {file}")
    return True


def options_of(
    faults_s: float,
    nemeses: str | None,
    truncation: str,
    fsync: str = "never",
    min_isr: int = 2,
    acks: str = "all",
    chance: str = "drawn",
    core: str = "drawn",
    strict: bool = False,
) -> Options:
    """Raises `CommandFailed` for what there is not."""
    from odradek_chaos.worlds.simulated.options import Options

    try:
        return Options(
            faults_ms=round(faults_s * 1000),
            nemeses=tuple(nemeses.split(",")) if nemeses else (),
            truncation_mode=truncation,
            fsync=fsync,
            min_insync_replicas=min_isr,
            acks=acks,
            chance=chance,
            core=core,
            strict=strict,
        )
    except ValueError as error:
        raise CommandFailed(str(error), hint="docs/simulation.md describes them", exit_code=USAGE) from error


def range_of(text: str) -> tuple[int, int]:
    """The first and the last seed of `A..B`, or of one number. Raises `CommandFailed`."""
    match = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if last < first:
        raise CommandFailed(f"--seeds: {text!r} is no range of seeds", hint="for example 1..100", exit_code=USAGE)
    return first, last
