"""`odradek demo`: starts the story, shows it, and ends with its verdict."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from odradek.cli.terminal.grouping import SCREEN, CommandGroup, QuietScreen
from odradek.cli.terminal.options import is_given
from odradek.cli.terminal.screen import Screen, folded
from odradek_proto.command_line import FINE, USAGE, CommandFailed

from odradek_chaos.lessons.commands import mount

if TYPE_CHECKING:
    from odradek_chaos.demo.state import DemoEvent, DemoState

app = CommandGroup(
    "Three brokers, a killed leader, and an audit of what survived; and the lessons.", no_args_is_help=False
)
FRAMES_PER_S = 8
BROKERS = 3
OF_LESSONS = ("data", "as_json")  # options that lessons have as well


@app.callback(invoke_without_command=True)
def demo(
    context: typer.Context,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Chooses target and moment. Default: another each time.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the cluster's directory, and say where it is.")] = False,
    data: Annotated[
        str | None, typer.Option("--data", metavar="DIR", help="Use this new directory, and keep it.")
    ] = None,
    secure: Annotated[bool, typer.Option("--secure", help="With TLS, SASL and ACLs.")] = False,
    screen: QuietScreen = SCREEN,
) -> None:
    """Three brokers, a killed leader, and an audit of what survived; and the lessons.

    Starts three broker processes and a topic with six partitions, writes unique records with acks=all, kills the
    leader of a partition with kill -9 while it is written to, starts it again, reads every record back, and has the
    three log directories audited on Spark. Nothing of it is simulated. Exit code 0: everything that was acknowledged
    survived; 3: not; 1: it could not be found out.
    """
    if context.invoked_subcommand is not None:
        _refuse_options_before(context.invoked_subcommand, context)
        return
    import random

    from odradek_chaos.demo.state import DemoState

    state = DemoState(seed if seed is not None else random.SystemRandom().randrange(1000), BROKERS)
    where = _play(state, screen, data, keep=keep, secure=secure)
    if state.report:
        screen.say(f"the audit's report: {state.report}")
    if where:
        screen.say(where)
    screen.show(state.as_json(), lambda: "\n".join(map(folded, state.verdict())))  # the last line names the seed
    raise typer.Exit(state.exit_code)


def _play(state: DemoState, screen: Screen, data: str | None, *, keep: bool, secure: bool) -> str:
    """The story, to its end. No broker of it stays, nor its directory unless it is wanted or tells why it failed.

    Returns where the directory is and how its audit is repeated, if it stays.
    """
    from odradek_chaos.cli.interrupting import listening
    from odradek_chaos.cli.places import place_for_another
    from odradek_chaos.cli.room import room_needed
    from odradek_chaos.demo.story import Demo, DemoPlan, lay_out
    from odradek_chaos.harness.killing import kill_all, signal_all

    place = None if data is None else place_for_another(data)
    with listening() as told:
        directory = place if place is not None else Path(tempfile.mkdtemp(prefix="odradek-demo-"))
        kept = place is not None
        try:
            with room_needed(directory):
                story = Demo(lay_out(directory, BROKERS, secure=secure), DemoPlan(state.seed), state)
            told.when_told_again = partial(signal_all, story.cluster)
            try:
                with _showing(state, screen):
                    told.run(story.run())
            finally:
                kill_all(story.cluster)
                kept = keep or place is not None or (state.exit_code != FINE and not told.times)
                state.report = "" if told.times else _keep_report(story.report, kept)
                if kept and state.exit_code != FINE:
                    screen.say(f"the directory is kept: {directory}")
        finally:
            if not kept:
                shutil.rmtree(directory, ignore_errors=True)
            if told.times:
                screen.say(f"interrupted: no broker runs any more{'' if kept else ', and their data is removed'}")
    return f"the directory is {directory}; the audit again: {story.audit_command}" if kept else ""


def _refuse_options_before(lesson: str, context: typer.Context) -> None:
    """Raise `CommandFailed` (2) for options that were given before a lesson's name: the lesson would not see them."""
    behind = ""
    for each in context.command.params:
        name, option = each.name or "", each.opts[-1]
        if not is_given(context, name):
            continue
        if name not in OF_LESSONS:
            hint = f"`odradek demo {lesson} --help` shows what it takes"
            raise CommandFailed(f"a lesson takes no {option}", hint=hint, exit_code=USAGE)
        value = context.params[name]
        behind += f" {option}" if value is True else f" {option} {shlex.quote(str(value))}"
    if behind:
        hint = f"put them behind its name: `odradek demo {lesson}{behind}`"
        raise CommandFailed(f"{lesson} takes its options behind its name", hint=hint, exit_code=USAGE)


def _keep_report(report: Path | None, kept: bool) -> str:
    """Where the audit's page is to stay: beside the data, or alone when the data goes. Empty when there is none."""
    if report is None or kept:
        return str(report or "")
    target = Path(tempfile.mkdtemp(prefix="odradek-report-")) / report.name
    return str(shutil.move(report, target))


mount(app)


@contextlib.contextmanager
def _showing(state: DemoState, screen: Screen) -> Iterator[None]:
    """A screen on a terminal; a line for each happening elsewhere; nothing with --quiet or --json."""
    if screen.quiet or not screen.for_people:
        yield
        return
    if not sys.stderr.isatty():

        def print_line(happening: DemoEvent) -> None:
            screen.say(f"{happening.at_s:6.1f} s  {happening.text}")

        state.on_happening = print_line
        yield
        return
    from rich.console import Console
    from rich.live import Live

    from odradek_chaos.demo.view import DemoView

    with Live(DemoView(state), console=Console(stderr=True), refresh_per_second=FRAMES_PER_S):
        yield
