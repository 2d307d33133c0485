"""`--script FILE` of `odradek chaos trace`: the faults and records of a file, under its options or under others.

Rules of this module. Strikes, records and their times are the script's, so what would draw others is refused. What the
brokers and writers are set to, and how they are judged, is the script's unless the command line says otherwise.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from odradek.cli.terminal.options import is_given
from odradek_proto.command_line import USAGE, CommandFailed

from odradek_chaos.cli.simulation import OPTIONS

if TYPE_CHECKING:
    from odradek_chaos.worlds.simulated.plan.options import Options
    from odradek_chaos.worlds.simulated.plan.script import Script

REFUSED = {
    "faults_ms": ("--faults", "leave it out: the script says how long there are faults"),
    "nemeses": ("--nemeses", "leave it out: the script says what strikes, and when"),
    "shrink": (
        "--shrink",
        "a script is what --shrink has left of a seed: leave --script out, and give the seed's own options",
    ),
}


@dataclass(frozen=True, slots=True)
class Replay:
    """What is run. `script_says` has what its options were before the command line."""

    options: Options
    script: Script | None = None
    script_says: dict[str, object] = field(default_factory=dict)


def replay_of(file: Path, seed: int, given: Options, context: typer.Context) -> Replay:
    """The run that a script and the words of the command line make. Raises `CommandFailed`."""
    from odradek_chaos.worlds.simulated.campaign.script_reading import read_script

    for parameter, (option, reason) in REFUSED.items():
        if is_given(context, parameter):
            raise CommandFailed(f"{option} does not go with --script", hint=reason, exit_code=USAGE)
    try:
        script, own = read_script(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CommandFailed(f"{file}: {error}", hint="--shrink writes such files", exit_code=USAGE) from error
    if script.seed not in (None, seed):
        raise CommandFailed(
            f"{file} is a script of seed {script.seed}, not {seed}",
            hint=f"`odradek chaos trace {script.seed} --script {shlex.quote(str(file))}`",
            exit_code=USAGE,
        )
    names = [name for name in OPTIONS if is_given(context, name)]
    options = replace(own, **{name: getattr(given, name) for name in names})
    differing = {name: getattr(own, name) for name in names if getattr(own, name) != getattr(options, name)}
    return Replay(options, script, differing)
