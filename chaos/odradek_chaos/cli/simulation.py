"""What the commands on simulated clusters share: `odradek chaos run`, `trace`, `pairs`.

A command of `simulates` has a parameter `screen`, and may have one `options`. On the command line stand in their places
the options of a run, each named as its field of `Options`, and those of how data is printed.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from odradek.cli.terminal.options import Json, Output, Quiet, seconds
from odradek.cli.terminal.screen import Screen
from odradek_proto.command_line import USAGE, CommandFailed, OutputFormat

from odradek_chaos.worlds.simulated.plan.options import CHOICES, Options, option_of

FOUND = 3  # exit code of a run with findings
MOST_JOBS = 256
SEEDS_HINT = "1..100, or a single seed: 7"
FAULTS_S = Options().faults_ms / 1000

Seeds = Annotated[
    str,
    typer.Option("--seeds", metavar="A..B", help="The seeds, both ends included, the smaller first, or one: 7."),
]
ShrinkTo = Annotated[
    Path | None,
    typer.Option("--shrink", metavar="FILE", help="Make a failing seed small and write what is left of it to a file."),
]


def _option(name: str, text: str, metavar: str | None = None, *, taken_back: bool = False, **bounds: Any) -> Any:
    """A field of `Options`. One that can be `taken_back` has a word beside a script that has set it."""
    option, usual = option_of(name), getattr(Options(), name)
    if isinstance(usual, tuple):
        return name, (Annotated[str | None, typer.Option(option, metavar="NAME,...", help=text)], None)
    if taken_back:
        option += f"/--no-{option.removeprefix('--')}"
    metavar = metavar or "|".join(CHOICES.get(name, ())) or None
    return name, (Annotated[type(usual), typer.Option(option, metavar=metavar, help=text, **bounds)], usual)


FAULTS = seconds("--faults", "How long there are faults, in virtual seconds.", least=0.1)
OPTIONS: dict[str, tuple[Any, object]] = dict(  # fields of `Options`, each with its option and what it is left out
    [
        ("faults_ms", (Annotated[float, FAULTS], FAULTS_S)),
        _option("nemeses", "Which nemeses strike. Default: each seed takes three, and kills."),
        _option("truncation_mode", "odradek.truncation.mode of the brokers.", "MODE"),
        _option("fsync", "odradek.fsync of the brokers.", "WHEN"),
        _option("min_insync_replicas", "min.insync.replicas of the brokers.", min=1, max=3),
        _option("acks", "What the writers wait for."),
        _option("chance", "Which chance points of the product fire."),
        _option("core", "Whether one machine stays broken and the others must be well."),
        _option("metadata_snapshots", "Whether nodes are sent snapshots of the metadata."),
        _option("elr", "Eligible leader replicas (KIP-966)."),
        _option("shape", "Three nodes with both roles, two more brokers that do not vote, or controllers apart."),
        _option("compaction", "A compacted topic beside, whose cleaners are busy.", taken_back=True),
        _option("partitions", "Of the topic that is written to.", min=1, max=100),
        _option("writers", "How many clients write.", min=1, max=100),
        _option(
            "members", "Of a classic consumer group on Kafka's listener, and as many of one of KIP-848.", min=0, max=100
        ),
        _option("strict", "Report what is not owed under the faults, too."),
        _option(
            "checks", "Only these checks count, and end a run: names, or the specification's, as W-1. Default: all."
        ),
        _option("fast_restart_keeps_isr", "odradek.legacy.fast.restart.keeps.isr of the brokers.", taken_back=True),
    ]
)
SCREEN: dict[str, tuple[Any, object]] = {
    "output": (Output, OutputFormat.TABLE),
    "as_json": (Json, False),
    "quiet": (Quiet, False),
}


def simulates(command: Callable[..., None], *, faults_s: float = FAULTS_S) -> Callable[..., None]:
    """What typer makes a command of. `faults_s` is how long there are faults by default."""
    hints = get_type_hints(command, include_extras=True, localns={"Options": Options})
    parameters: list[inspect.Parameter] = []

    def add(name: str, kind: Any, default: object) -> None:
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind))

    for name, parameter in inspect.signature(command).parameters.items():
        shared = OPTIONS if name == "options" else SCREEN if name == "screen" else {}
        for each, (kind, default) in shared.items():
            add(each, kind, faults_s if each == "faults_ms" else default)
        if not shared:
            add(name, hints[name], parameter.default)

    def called(**given: Any) -> None:
        if "options" in hints:
            given["options"] = options_of({name: given.pop(name) for name in OPTIONS})
        given["screen"] = Screen(*(given.pop(name) for name in SCREEN))
        command(**given)

    called.__doc__ = command.__doc__
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    return called


def options_of(given: dict[str, Any]) -> Options:
    """From what a command line says of them, by field. Raises `CommandFailed` for what there is not."""
    from odradek_chaos.worlds.simulated.checks.names import checks_for
    from odradek_chaos.worlds.simulated.run.expansion import check

    nemeses, checks = given["nemeses"], given["checks"]
    for option, names in (("--nemeses", nemeses), ("--checks", checks)):
        if names is not None and not names.strip():  # a variable of a shell that was not set
            hint = "leave it out for its default, or give names with commas between them"
            raise CommandFailed(f"{option} names nothing", hint=hint, exit_code=USAGE)
    try:
        named = dict.fromkeys(name for word in checks.split(",") for name in checks_for(word)) if checks else ()
        made = Options(
            **{
                **given,
                "faults_ms": round(given["faults_ms"] * 1000),
                "nemeses": tuple(nemeses.split(",")) if nemeses else (),
                "checks": tuple(named),
            }
        )
        return check(made)
    except ValueError as error:
        # A wrong value of another option has been told all that there are.
        hint = "`odradek docs simulation` describes them" if str(error).startswith(("no nemesis", "no check")) else ""
        raise CommandFailed(str(error), hint=hint, exit_code=USAGE) from error


def parse(words: list[str]) -> Options:
    """Options of a run from words of a command line, for programs."""
    found: list[Options] = []

    def keep(*, options: Options, screen: Screen) -> None:
        found.append(options)

    app = typer.Typer(add_completion=False)
    app.command()(simulates(keep))
    app(words, standalone_mode=False)
    return found[0]


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
