"""`odradek topic elect`: preferred and unclean elections by command (KIP-460)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from odradek_proto.command_line import FAILED, FINE, USAGE, CommandFailed

from odradek.cli.clusters.asking import ASKING, ToAsking
from odradek.cli.terminal.options import Yes, confirm
from odradek.cli.terminal.parsing import parse_partition
from odradek.cli.topics.plan import select

if TYPE_CHECKING:
    from odradek_proto.topics import TopicPartition

    from odradek import Admin, BrokerError


def elect(
    partitions: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC-PARTITION]...", help="Default: all.")
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC[-PARTITION]", help="A whole topic or one partition. May be repeated."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All partitions: the default.")] = False,
    preferred: Annotated[
        bool, typer.Option("--preferred", help="The first replica of the list leads again: the default.")
    ] = False,
    unclean: Annotated[
        bool, typer.Option("--unclean", help="Let a replica lead that is not in sync: records may be lost.")
    ] = False,
    yes: Yes = False,
    screen: ToAsking = ASKING,
) -> None:
    """Give leadership back to the preferred replica.

    That is the first of each partition's list. --unclean on a terminal asks first; elsewhere it needs --yes.
    """
    if preferred and unclean:
        raise CommandFailed("--preferred and --unclean exclude each other", exit_code=USAGE)
    if everything and (partitions or topics):
        raise CommandFailed("--all and named partitions exclude each other", exit_code=USAGE)
    if unclean and not yes:
        confirm("what an unclean election loses", "may lose records", "unclean")
    chosen = [parse_partition(text) for text in partitions or ()]

    async def work(admin: Admin) -> dict[TopicPartition, BrokerError | None]:
        named = [*chosen, *select(topics, await admin.describe_topics())] if topics else chosen
        return await admin.elect_leaders("unclean" if unclean else "preferred", named or None)

    found = screen.ask(work)
    rows = [
        {"partition": str(partition), "result": _words(partition, error)} for partition, error in sorted(found.items())
    ]
    screen.show_rows(rows, {"partition": "PARTITION", "result": "RESULT"})
    if not rows and screen.for_people:
        screen.say(
            "nothing to do: every partition has a leader" if unclean else "nothing to do: every preferred replica leads"
        )
    raise typer.Exit(FAILED if any(_is_failure(error) for error in found.values()) else FINE)


def _words(partition: TopicPartition, error: BrokerError | None) -> str:
    """The partition stands in front already, written as this command takes it."""
    return "elected" if error is None else str(error).removeprefix(f"{partition.topic}-{partition.partition}: ")


def _is_failure(error: BrokerError | None) -> bool:
    """That a partition needs no election is what was wanted."""
    return error is not None and error.code.name != "ELECTION_NOT_NEEDED"
