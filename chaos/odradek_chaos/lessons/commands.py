"""`odradek demo lost-write` and the other lessons. Nothing of a lesson is imported before it is played."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from odradek.cli.terminal.options import seconds
from odradek_proto.command_line import FAILED, FINE, USAGE, CommandFailed

from odradek_chaos.lessons.catalogue import SHOWN, lesson

if TYPE_CHECKING:
    from odradek_chaos.lessons.lesson import LessonRun
    from odradek_chaos.lessons.verdict import LessonVerdict

DEFAULT_PACE_S = 6.0

Auto = Annotated[bool, typer.Option("--auto", help="Turn the pages without being asked.")]
Pace = Annotated[float, seconds("--pace", "How long --auto shows a page.", least=0.0)]
Data = Annotated[
    str | None,
    typer.Option("--data", metavar="DIR", help="Leave the log directories and histories in this new one."),
]
JsonLines = Annotated[bool, typer.Option("--json", help="One JSON object a line: each step, at last the verdict.")]


def _command(name: str, shows: str) -> Callable[..., None]:
    """The command of one lesson."""

    def command(auto: Auto = False, pace: Pace = DEFAULT_PACE_S, data: Data = None, as_json: JsonLines = False) -> None:
        _play(name, auto, pace, data, as_json)

    command.__doc__ = f"""Lesson: {shows}.

    Step by step: Enter goes on, b goes back, q quits. Without a terminal all steps are printed. At the end the brokers'
    logs are audited. Exit code 0: it ended as the protocol says; 1: not.
    """
    return command


def mount(app: typer.Typer) -> None:
    """Hang the lessons below a command."""
    for name, (_, shows) in SHOWN.items():
        app.command(name, short_help=f"Lesson: {shows}")(_command(name, shows))


def _play(name: str, auto: bool, pace_s: float, data: str | None, as_json: bool) -> None:
    from odradek_chaos.cli.places import place_for_another
    from odradek_chaos.lessons.lesson import play
    from odradek_chaos.lessons.verdict import judge

    place = None if data is None else place_for_another(data)
    if place is not None and place.exists():
        raise CommandFailed(f"--data {data} is there already", hint="name a new directory", exit_code=USAGE)
    played = play(lesson(name))
    verdict = judge(played, place)
    if as_json:
        _print_json(played, verdict)
    else:
        _show(played, verdict, auto, pace_s)
    if place is not None:
        _say_where(place, played)
    raise typer.Exit(FAILED if verdict.unmet else FINE)


def _print_json(played: LessonRun, verdict: LessonVerdict) -> None:
    from odradek.cli.terminal.screen import as_line

    for frame in played.frames:
        print(as_line(frame.as_json(played.lesson)))
    print(as_line(verdict.as_json(played.lesson.name)))


def _show(played: LessonRun, verdict: LessonVerdict, auto: bool, pace_s: float) -> None:
    from odradek_chaos.lessons.pages import pages, summary
    from odradek_chaos.lessons.terminal import print_all, show_on_terminal

    drawn = pages(played, verdict)
    if sys.stdout.isatty() and (auto or sys.stdin.isatty()):
        if show_on_terminal(drawn, auto=auto, pace_s=pace_s):  # who leaves before does not want to know yet
            print(summary(played.lesson, verdict))
    else:
        print_all(drawn, sys.stdout)


def _say_where(data: Path, played: LessonRun) -> None:
    from odradek_chaos.lessons.verdict import place_of

    print("the log directories are kept; the audit again:", file=sys.stderr)
    for world in played.worlds:
        place = data / place_of(world.setting)
        replicas = "".join(f" --replica {number}={place}/broker-{number}" for number in world.stage.nodes)
        print(f"  odradek audit run --settled --history {place}/history.jsonl{replicas}", file=sys.stderr)
