"""`odradek topic delete`: nothing is deleted that was not named twice, or meant by --yes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer
from odradek_proto.command_line import USAGE, CommandFailed, OutputFormat

from odradek.cli.clusters.commands import ask
from odradek.cli.terminal.failures import did_you_mean
from odradek.cli.terminal.options import DEFAULT_TIMEOUT_S, Bootstrap, Json, Output, Quiet, Timeout
from odradek.cli.terminal.screen import Screen

if TYPE_CHECKING:
    from odradek import Admin, TopicDescription


def delete(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="The topics.")],
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    confirmed: Annotated[
        str | None, typer.Option("--confirm", metavar="NAME", help="The name once more, instead of --yes.")
    ] = None,
    bootstrap: Bootstrap = None,
    output: Output = OutputFormat.TABLE,
    as_json: Json = False,
    quiet: Quiet = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Delete topics and their records. On a terminal it asks for the name again; elsewhere it needs --yes."""
    if confirmed is not None:
        _check_confirmed(confirmed, names)
    elif not yes:
        _ask_again(names)

    async def work(admin: Admin) -> list[TopicDescription]:
        found = await named_topics(admin, names)
        await admin.delete_topics(names, timeout=timeout)
        return found

    deleted = ask(bootstrap, timeout, work)
    screen = Screen(output, as_json, quiet)
    if screen.for_people:
        screen.say(f"deleted {', '.join(names)}")
    else:
        screen.show_rows([{"topic": topic.name, "topic_id": topic.topic_id} for topic in deleted], {})


async def named_topics(admin: Admin, names: list[str] | None) -> list[TopicDescription]:
    """The topics of these names, or all. Raises `CommandFailed` with the nearest name for one that is not there."""
    known = await admin.list_topics()
    for name in names or []:
        if name not in known:
            raise CommandFailed(
                f"there is no topic {name!r}{did_you_mean(name, known)}",
                hint=f"`odradek topic list` shows what is there; `odradek topic create {name}` makes it",
            )
    return list(await admin.describe_topics(names or None))


def _check_confirmed(confirmed: str, names: list[str]) -> None:
    """Raises `CommandFailed` (2) when it is not the name of what is to be deleted: one of the two is a slip."""
    if len(names) > 1:
        raise CommandFailed(
            f"--confirm is for one topic, not for {len(names)}", hint="add --yes instead", exit_code=USAGE
        )
    if confirmed != names[0]:
        raise CommandFailed(
            f"--confirm names {confirmed!r}, not {names[0]!r}", hint=f"--confirm {names[0]}", exit_code=USAGE
        )


def _ask_again(names: list[str]) -> None:
    """Have the name typed again. Raises `CommandFailed` where nobody can be asked, or for another answer."""
    what = names[0] if len(names) == 1 else f"{len(names)} topics"
    if not sys.stdin.isatty():
        raise CommandFailed(f"deleting {what} cannot be undone", hint="add --yes", exit_code=USAGE)
    wanted = names[0] if len(names) == 1 else str(len(names))
    print(
        f"This deletes {', '.join(names)} with all records. Type {wanted!r} to go on: ",
        end="",
        file=sys.stderr,
        flush=True,
    )
    if sys.stdin.readline().strip() != wanted:
        raise CommandFailed("not deleted: the answer was another one")
