"""Options that the commands on simulated clusters share: `odradek chaos run`, `trace` and `pairs`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from odradek.cli.terminal.options import seconds
from odradek_proto.command_line import USAGE, CommandFailed

if TYPE_CHECKING:
    from odradek_chaos.worlds.simulated.plan.options import Options

FOUND = 3  # exit code of a run with findings
MOST_JOBS = 256
SEEDS_HINT = "1..100, or a single seed: 7"

Seeds = Annotated[
    str,
    typer.Option("--seeds", metavar="A..B", help="The seeds, both ends included, the smaller first, or one: 7."),
]
FaultsSeconds = Annotated[float, seconds("--faults", "How long there are faults, in virtual seconds.", least=0.1)]
Nemeses = Annotated[
    str | None,
    typer.Option(
        "--nemeses", metavar="NAME,...", help="Which nemeses strike. Default: each seed takes three, and kills."
    ),
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
Checks = Annotated[
    str | None,
    typer.Option(
        "--checks",
        metavar="NAME,...",
        help="Only these checks count, and end a run: names, or the specification's, as W-1. Default: all.",
    ),
]
FastRestart = Annotated[
    bool,
    typer.Option(
        "--fast-restart-keeps-isr/--no-fast-restart-keeps-isr",
        help="odradek.legacy.fast.restart.keeps.isr of the brokers.",
    ),
]
ShrinkTo = Annotated[
    Path | None,
    typer.Option("--shrink", metavar="FILE", help="Make a failing seed small and write what is left of it to a file."),
]


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
    checks: str | None = None,
    fast_restart: bool = False,
) -> Options:
    """Raises `CommandFailed` for what there is not."""
    from odradek_chaos.worlds.simulated.checks.names import checks_for
    from odradek_chaos.worlds.simulated.plan.options import Options

    for option, names in (("--nemeses", nemeses), ("--checks", checks)):
        if names is not None and not names.strip():  # a variable of a shell that was not set
            hint = "leave it out for its default, or give names with commas between them"
            raise CommandFailed(f"{option} names nothing", hint=hint, exit_code=USAGE)
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
            fast_restart_keeps_isr=fast_restart,
            checks=tuple(dict.fromkeys(name for word in checks.split(",") for name in checks_for(word)))
            if checks
            else (),
        )
    except ValueError as error:
        # A wrong value of another option has been told all that there are.
        hint = "docs/simulation.md describes them" if str(error).startswith(("no nemesis", "no check")) else ""
        raise CommandFailed(str(error), hint=hint, exit_code=USAGE) from error


def range_of(text: str) -> tuple[int, int]:
    """The first and the last seed of `A..B`, or of one number. Raises `CommandFailed`."""
    match = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", text)
    if match is None:
        raise CommandFailed(f"--seeds: {text!r} is no range of seeds", hint=SEEDS_HINT, exit_code=USAGE)
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        said = f"--seeds {text}: the first seed is larger than the last"
        raise CommandFailed(said, hint=SEEDS_HINT, exit_code=USAGE)
    return first, last
