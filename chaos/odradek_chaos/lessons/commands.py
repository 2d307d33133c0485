"""`odradek demo lost-write` and the other lessons. Nothing of a lesson is imported before it is played."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from odradek.cli.terminal.options import seconds
from odradek_proto.command_line import FAILED, FINE, USAGE, CommandFailed

if TYPE_CHECKING:
    from odradek_chaos.lessons.lesson import Played
    from odradek_chaos.lessons.verdict import Verdict

DEFAULT_PACE_S = 6.0

Auto = Annotated[bool, typer.Option("--auto", help="Turn the pages without being asked.")]
Pace = Annotated[float, seconds("--pace", "How long --auto shows a page.", least=0.0)]
Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Leave both worlds' log directories and histories in this new one."),
]
JsonLines = Annotated[bool, typer.Option("--json", help="One JSON object a line: each step, at last the verdict.")]


def lost_write(auto: Auto = False, pace: Pace = DEFAULT_PACE_S, data: Data = None, as_json: JsonLines = False) -> None:
    """Lesson: an acknowledged record is lost by a restart, before Kafka 0.11 and not today.

    Two worlds side by side, step by step: Enter goes on, b goes back, q quits. Without a terminal all steps are
    printed. At the end both worlds' logs are audited. Exit code 0: it ended as the protocol says; 1: not.
    """
    _play("lost-write", auto, pace, data, as_json)


def divergence(auto: Auto = False, pace: Pace = DEFAULT_PACE_S, data: Data = None, as_json: JsonLines = False) -> None:
    """Lesson: two replicas differ for ever after a power loss, before Kafka 0.11 and not today.

    Two worlds side by side, step by step: Enter goes on, b goes back, q quits. Without a terminal all steps are
    printed. At the end both worlds' logs are audited. Exit code 0: it ended as the protocol says; 1: not.
    """
    _play("divergence", auto, pace, data, as_json)


def offsets_go_backwards(
    auto: Auto = False, pace: Pace = DEFAULT_PACE_S, data: Data = None, as_json: JsonLines = False
) -> None:
    """Lesson: one offset comes twice in a log, before Kafka 0.11 and not today.

    Two worlds side by side, step by step: Enter goes on, b goes back, q quits. Without a terminal all steps are
    printed. At the end both worlds' logs are audited. Exit code 0: it ended as the protocol says; 1: not.
    """
    _play("offsets-go-backwards", auto, pace, data, as_json)


def fast_leader_change(
    auto: Auto = False, pace: Pace = DEFAULT_PACE_S, data: Data = None, as_json: JsonLines = False
) -> None:
    """Lesson: leader epochs asked only once miss a divergence, in Kafka 0.11 and not today.

    Two worlds side by side, step by step: Enter goes on, b goes back, q quits. Without a terminal all steps are
    printed. At the end both worlds' logs are audited. Exit code 0: it ended as the protocol says; 1: not.
    """
    _play("fast-leader-change", auto, pace, data, as_json)


def mount(app: typer.Typer) -> None:
    """Hang the lessons below a command."""
    app.command("lost-write", short_help="Lesson: a restart loses an acknowledged record")(lost_write)
    app.command("divergence", short_help="Lesson: replicas that differ for ever")(divergence)
    app.command("offsets-go-backwards", short_help="Lesson: one offset twice in a log")(offsets_go_backwards)
    app.command("fast-leader-change", short_help="Lesson: one look at the epochs is not enough")(fast_leader_change)


def _play(name: str, auto: bool, pace_s: float, data: Path | None, as_json: bool) -> None:
    from odradek_chaos.lessons.catalogue import LESSONS
    from odradek_chaos.lessons.lesson import play
    from odradek_chaos.lessons.verdict import judge

    if data is not None and data.exists():
        raise CommandFailed(f"{data} is there already", hint="name a new directory", exit_code=USAGE)
    played = play(LESSONS[name])
    verdict = judge(played, data)
    if as_json:
        _print_json(played, verdict)
    else:
        _show(played, verdict, auto, pace_s)
    if data is not None:
        _say_where(data, verdict)
    raise typer.Exit(FAILED if verdict.unmet else FINE)


def _print_json(played: Played, verdict: Verdict) -> None:
    from odradek.cli.terminal.screen import as_line

    for frame in played.frames:
        print(as_line(frame.as_json(played.lesson)))
    print(as_line(verdict.as_json(played.lesson.name)))


def _show(played: Played, verdict: Verdict, auto: bool, pace_s: float) -> None:
    from odradek_chaos.lessons.pages import pages, summary
    from odradek_chaos.lessons.terminal import print_all, show_on_terminal

    drawn = pages(played, verdict)
    if sys.stdout.isatty() and (auto or sys.stdin.isatty()):
        show_on_terminal(drawn, auto=auto, pace_s=pace_s)
        print(summary(played.lesson, verdict))
    else:
        print_all(drawn, sys.stdout)


def _say_where(data: Path, verdict: Verdict) -> None:
    print("the log directories are kept; the audit again:", file=sys.stderr)
    for world in (verdict.old, verdict.new):
        place = data / world.mode
        print(
            f"  odradek audit run --settled --history {place}/history.jsonl"
            f" --replica 1={place}/broker-1 --replica 2={place}/broker-2",
            file=sys.stderr,
        )
