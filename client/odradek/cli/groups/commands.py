"""`odradek group`: consumer groups, of Kafka's clients and of odradek's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from odradek_proto.words import noun

from odradek.cli.clusters.asking import ASKING, QuietAsking, ToAsking
from odradek.cli.groups.reset import reset_offsets
from odradek.cli.groups.view import described, group_text
from odradek.cli.terminal.confirming import confirm
from odradek.cli.terminal.grouping import CommandGroup
from odradek.cli.terminal.options import Yes
from odradek.cli.terminal.parsing import check_group

if TYPE_CHECKING:
    from odradek_proto.topics import TopicPartition

    from odradek import Admin

app = CommandGroup("Consumer groups: members, lag, and where they go on.")
app.command("reset-offsets")(reset_offsets)

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
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...", help="The groups.")],
    screen: ToAsking = ASKING,
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
    from odradek.cli.groups.view import chosen

    if not yes:
        confirm("deleting offsets", f"forgets what {group} has committed for {', '.join(words)}", group)

    async def work(admin: Admin) -> list[TopicPartition]:
        partitions = await chosen(admin, words)
        await admin.delete_consumer_group_offsets(group, partitions)
        return partitions

    gone = screen.ask(work)
    said = f"forgot {len(gone)} {noun(len(gone), 'partition')} of {group}"
    screen.done(said, [{"topic": tp.topic, "partition": tp.partition} for tp in gone])
