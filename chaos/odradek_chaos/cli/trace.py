"""`odradek chaos trace`: one seed of the simulated world with all that happened in it, or what is left of it.

Exit codes: 0 no finding, 3 findings, 2 usage, 130 interrupted: nothing is shown of a run that did not end.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from odradek.cli.terminal.screen import Screen
from odradek_proto.command_line import USAGE, CommandFailed, OutputFormat
from odradek_proto.output_places import check_output_file

from odradek_chaos.cli.interrupting import terminable
from odradek_chaos.cli.replaying import Replay, replay_of
from odradek_chaos.cli.shrinking import shrink_to
from odradek_chaos.cli.simulation import FOUND, ShrinkTo, simulates

if TYPE_CHECKING:
    from odradek_chaos.worlds.simulated.campaign.shrink import ShrinkResult
    from odradek_chaos.worlds.simulated.cluster.timeline import TimelineEvent
    from odradek_chaos.worlds.simulated.plan.options import Options
    from odradek_chaos.worlds.simulated.run.result import SeedResult
    from odradek_chaos.worlds.simulated.world.findings import Violation


@simulates
def trace(
    *,
    context: typer.Context,
    seed: Annotated[int, typer.Argument(help="The seed.")],
    options: Options,
    to_the_end: Annotated[bool, typer.Option("--to-the-end", help="Go on after a finding.")] = False,
    shrink: ShrinkTo = None,
    script: Annotated[
        Path | None,
        typer.Option(
            "--script",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Replay what --shrink has left, with its own options where none are given here.",
        ),
    ] = None,
    screen: Screen,
) -> None:
    """Run one seed and print every event of the brokers, every fault and every finding, in the order of time.

    `--output jsonl` prints an event a line and at last the result, which `--json` prints with the events inside.
    """
    from odradek_chaos.worlds.simulated.run.run import run_seed

    replay = Replay(options) if script is None else replay_of(script, seed, options, context)
    if shrink is not None:
        if to_the_end:
            raise CommandFailed(
                "--to-the-end does not go with --shrink",
                hint="shrinking ends each run at its first finding; --to-the-end goes with the --script that is left",
                exit_code=USAGE,
            )
        check_output_file("--shrink", shrink)
        shrunk = shrink_to(shrink, seed, options, screen)
        if not screen.for_people:
            screen.show({"seed": seed, **(_of_shrunk(shrunk, shrink) if shrunk else {"findings": []})}, str)
        raise typer.Exit(FOUND if shrunk else 0)
    try:
        with terminable():
            result = run_seed(seed, replay.options, to_the_end=to_the_end, script=replay.script)
    except KeyboardInterrupt:
        screen.say(f"interrupted: seed {seed} did not run to its end")
        raise
    _show(result, screen, replay.script_says)
    raise typer.Exit(FOUND if result.findings else 0)


def _show(result: SeedResult, screen: Screen, script_says: Mapping[str, object]) -> None:
    """The events of a run, and what became of it."""
    moments = result.timeline.in_order()
    if screen.for_people:
        for moment in moments:
            print(moment.line())
        from odradek_chaos.worlds.simulated.world.board import fitted

        screen.say(f"\n{fitted(result.report(script_says), sys.stderr)}\n{result.summary()}")
    elif screen.output is OutputFormat.JSON:
        screen.show({**_of_result(result, script_says), "events": [_of_moment(moment) for moment in moments]}, str)
    else:
        screen.show_rows([*map(_of_moment, moments), _of_result(result, script_says)], {})


def _of_moment(moment: TimelineEvent) -> dict[str, object]:
    """An event. Broker 0 is none in particular; faults begin with `!`, findings with `?`."""
    return {
        "time_us": moment.time_us,
        "broker": moment.broker_id,
        "event": moment.event,
        "partition": moment.partition or None,
        "facts": moment.facts,
    }


def _of_result(result: SeedResult, script_says: Mapping[str, object]) -> dict[str, object]:
    options = result.plan.options
    return {
        "seed": result.seed,
        "instead_of_script": {
            name: {"script": value, "run": getattr(options, name)} for name, value in script_says.items()
        },
        "trace_hash": result.trace_hash,
        "virtual_ms": result.virtual_ms,
        "callbacks": result.events,
        "faults": result.faults,
        "records_acknowledged": result.acknowledged,
        "records_unknown": result.failed,
        "records_read": result.read,
        "records_compared": result.compared,
        "recovery_ms": None if result.recovered_ms < 0 else result.recovered_ms,
        "chance_points": list(result.chances),
        "findings": [_of_finding(finding) for finding in result.findings],
    }


def _of_shrunk(shrunk: ShrinkResult, file: Path) -> dict[str, object]:
    return {
        "script": str(file),
        "faults": len(shrunk.script.injections),
        "records": len(shrunk.script.sends or ()),
        "virtual_ms": shrunk.result.virtual_ms,
        "runs": shrunk.runs,
        "findings": [_of_finding(finding) for finding in shrunk.result.findings],
    }


def _of_finding(finding: Violation) -> dict[str, object]:
    return {
        "check": finding.check,
        "sentence": finding.sentence,
        "time_us": finding.time_us,
        "broker": finding.broker_id,
        "partition": finding.partition or None,
    }
