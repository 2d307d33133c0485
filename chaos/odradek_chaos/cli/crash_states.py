"""`odradek chaos crash-states`: the disks that a power loss could leave of one broker of a seed, opened and judged.

Exit codes: 0 no finding, 3 findings, 2 usage, 130 interrupted.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from odradek.cli.terminal.screen import Screen
from odradek_proto.command_line import FINE, USAGE, CommandFailed
from odradek_proto.output_places import check_output_file
from odradek_proto.words import noun

from odradek_chaos.cli.interrupting import terminable
from odradek_chaos.cli.simulation import FOUND

if TYPE_CHECKING:
    from odradek_chaos.worlds.simulated.disk.recording import Operation


def crash_states(
    *,
    seed: Annotated[int, typer.Argument(help="The seed.")],
    broker: Annotated[int, typer.Option("--broker", min=1, max=3, help="Whose disk is recorded.")] = 1,
    points: Annotated[int, typer.Option("--points", min=1, help="Moments at which the power goes.")] = 200,
    per_point: Annotated[int, typer.Option("--per-point", min=1, help="Disks of one moment, about.")] = 30,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Write the recording to this file.")
    ] = None,
    load: Annotated[
        Path | None,
        typer.Option(
            "--load",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Take a recording from this file, run nothing.",
        ),
    ] = None,
    screen: Screen,
) -> None:
    """Run a seed with a recorder on one broker's disk, and open what power losses could have left of it."""
    from odradek_chaos.worlds.simulated.crash.checks import Bench
    from odradek_chaos.worlds.simulated.crash.explorer import INSIDE_SHARE, Explorer
    from odradek_chaos.worlds.simulated.crash.runs import record_seed
    from odradek_chaos.worlds.simulated.disk import recording

    check_output_file("--save", save)
    with terminable():
        if load is not None:
            operations, bench = _recording(load), Bench(node_id=broker)
        else:
            operations, bench = record_seed(seed, broker_id=broker)
        if save is not None:
            save.write_bytes(recording.save(operations))
        explorer = Explorer(bench, seed=seed, per_point=per_point, inside=INSIDE_SHARE)
        found = explorer.explore(operations, points)
    lines = [
        *map(str, found.findings),
        f"seed {seed}: {len(operations)} operations on the disk of b{broker}; {found.states} crash states tried at "
        f"{found.points} moments, {found.recoveries} recoveries interrupted; "
        f"{len(found.findings)} {noun(len(found.findings), 'finding')}",
    ]
    facts = {"operations": len(operations), "points": found.points, "states": found.states}
    told = {"seed": seed, **facts, "recoveries": found.recoveries, "findings": list(map(str, found.findings))}
    screen.show(told, lambda: "\n".join(lines))
    raise typer.Exit(FOUND if found.findings else FINE)


def _recording(file: Path) -> list[Operation]:
    """What --save has written there. Raises `CommandFailed` (2) for a file that holds something else."""
    import msgspec

    from odradek_chaos.worlds.simulated.disk import recording

    try:
        return recording.load(file.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        said = f"--load {file}: not a recording of a disk: {error}"
        raise CommandFailed(said, hint="--save writes such files", exit_code=USAGE) from error
