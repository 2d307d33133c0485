"""`odradek group`: consumer groups, of Kafka's clients and of odradek's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from odradek_proto.command_line import USAGE, CommandFailed
from odradek_proto.words import noun

from odradek.cli.clusters.asking import ASKING, QuietAsking, ToAsking
from odradek.cli.groups.view import chosen, described, group_text
from odradek.cli.terminal.grouping import CommandGroup
from odradek.cli.terminal.options import Yes, confirm
from odradek.cli.terminal.parsing import Start, check_group, parse_start
from odradek.cli.topics.offsets import places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek_proto.topics import TopicPartition

    from odradek import Admin


app = CommandGroup("Consumer groups: members, lag, and where they go on.")

HEADINGS = {"group": "GROUP", "type": "TYPE", "state": "STATE", "protocol_type": "PROTOCOL"}


@app.command("list")
def list_groups(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only in this state: Stable, Empty, ... May be repeated."),
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Only classic ones, or only consumer (KIP-848).")
    ] = None,
    screen: ToAsking = ASKING,
) -> None:
    """List all groups with their state."""
    found = screen.ask(lambda admin: admin.list_consumer_groups(states=state or (), types=kind or ()))
    rows = [
        {"group": each.group_id, "type": each.type, "state": each.state, "protocol_type": each.protocol_type}
        for each in found
    ]
    screen.show_rows(rows, HEADINGS)
    if screen.for_people and not rows:
        screen.say("no groups")


@app.command("describe")
def describe(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...", help="The groups.")], screen: ToAsking = ASKING
) -> None:
    """Show members, and for each partition what is committed, where it ends, and the lag between them.

    A partition without a committed offset has no lag; one whose leader does not answer has no end.
    """

    for each in groups:
        check_group(each)

    async def work(admin: Admin) -> list[dict[str, Any]]:
        return [await described(admin, screen.bootstrap, each) for each in groups]

    found = screen.ask(work)
    if screen.for_people:
        print("\n\n".join(map(group_text, found)))
    else:
        screen.show_rows(found, {})


@app.command("delete")
def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...", help="The groups.")],
    yes: Yes = False,
    screen: QuietAsking = ASKING,
) -> None:
    """Delete groups without members, with all that they have committed. Elsewhere than on a terminal it needs --yes."""
    if not yes:
        confirm("deleting groups", f"deletes {', '.join(groups)} with all committed offsets", groups[0])
    screen.ask(lambda admin: admin.delete_consumer_groups(groups))
    screen.done(f"deleted {', '.join(groups)}", [{"group": each} for each in groups])


@app.command("delete-offsets")
def delete_offsets(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Whose.")],
    words: Annotated[list[str], typer.Argument(metavar="TOPIC[-PARTITION]...", help="Of what.")],
    yes: Yes = False,
    screen: QuietAsking = ASKING,
) -> None:
    """Forget what a group has committed for topics that its members do not read."""
    if not yes:
        confirm("deleting offsets", f"forgets what {group} has committed for {', '.join(words)}", group)

    async def work(admin: Admin) -> list[TopicPartition]:
        partitions = await chosen(admin, words)
        await admin.delete_consumer_group_offsets(group, partitions)
        return partitions

    gone = screen.ask(work)
    said = f"forgot {len(gone)} {noun(len(gone), 'partition')} of {group}"
    screen.done(said, [{"topic": tp.topic, "partition": tp.partition} for tp in gone])


RESET_HEADINGS = {"topic": "TOPIC", "partition": "PARTITION", "committed": "COMMITTED", "new": "NEW"}


@app.command("reset-offsets")
def reset_offsets(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Which group; one that is not there is made.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC[-PARTITION]]...", help="Of what. Default: all that it has committed."),
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option(
            "-o", "--offset", metavar="WHERE", help="beginning, end, an offset, -N (the last N), @TIME (ISO or ms)."
        ),
    ] = None,
    shift: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="So many offsets on; below 0, so many back.")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show it: the default.")] = False,
    screen: QuietAsking = ASKING,
) -> None:
    """Move what a group has committed. Shows what it would do; --execute does it, for a group without members.

    An offset that the log does not have becomes the nearest one that it has.
    """
    check_group(group)
    if offset is not None and shift is not None:
        raise CommandFailed("-o and --shift-by exclude each other", hint="-o WHERE, or --shift-by N", exit_code=USAGE)
    if offset is None and shift is None:
        raise CommandFailed("where to?", hint="-o WHERE, or --shift-by N", exit_code=USAGE)
    if execute and dry_run:
        raise CommandFailed("--execute and --dry-run: only one of them", exit_code=USAGE)
    place = None if offset is None else parse_start(offset)

    async def work(admin: Admin) -> tuple[list[dict[str, Any]], list[str]]:
        rows, notes = await _plan(admin, screen.bootstrap, group, words, place, shift)
        if execute:
            from odradek_proto.topics import TopicPartition

            moved = {TopicPartition(row["topic"], row["partition"]): row["new"] for row in rows}
            await admin.alter_consumer_group_offsets(group, moved)
        return rows, notes

    rows, notes = screen.ask(work)
    screen.show_rows(rows, RESET_HEADINGS)
    for note in notes:
        screen.say(note)
    if not execute:
        screen.say("nothing was changed: --execute does it")


async def _plan(
    admin: Admin, bootstrap: str | None, group: str, words: Sequence[str] | None, place: Start | None, shift: int | None
) -> tuple[list[dict[str, Any]], list[str]]:
    """A row per partition, and a note for each whose log does not have the offset."""
    committed = await admin.list_consumer_group_offsets(group)
    partitions = await chosen(admin, words) if words else sorted(committed)
    if not partitions:
        raise CommandFailed(f"group {group!r} has committed nothing", hint="name topics: it begins with them then")
    rows, notes = [], []
    for tp, (begin, end, there) in (await places(bootstrap, partitions, place or Start("end"))).items():
        before = committed[tp].offset if tp in committed else None
        if shift is not None:
            if before is None:
                raise CommandFailed(f"{tp}: nothing is committed that could be shifted", hint="-o says a place")
            there = before + shift
        new = min(max(there, begin), end)
        if new != there:
            notes.append(f"{tp}: the log has no offset {there}, only {begin} to {end}: {new} instead")
        rows.append({"topic": tp.topic, "partition": tp.partition, "committed": before, "new": new})
    return rows, notes
