"""`odradek topic delete`: nothing is deleted that was not named twice, or meant by --yes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from odradek_proto.command_line import CommandFailed
from odradek_proto.words import noun

from odradek.cli.clusters.asking import ASKING, QuietAsking
from odradek.cli.terminal.failures import did_you_mean
from odradek.cli.terminal.options import Yes, confirm
from odradek.cli.terminal.parsing import refuse_twice

if TYPE_CHECKING:
    from odradek import Admin, TopicDescription


def delete(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="The topics.")],
    yes: Yes = False,
    screen: QuietAsking = ASKING,
) -> None:
    """Delete topics and their records. On a terminal it asks for the name again; elsewhere it needs --yes."""
    refuse_twice(names)
    if not yes:
        count = len(names)
        what, wanted = (f"{count} {noun(count, 'topic')}", str(count)) if count > 1 else (names[0], names[0])
        confirm(f"deleting {what}", f"deletes {', '.join(names)} with all records", wanted)

    async def work(admin: Admin) -> list[TopicDescription]:
        found = await named_topics(admin, names)
        for topic in found:
            if topic.internal:
                raise CommandFailed(
                    f"{topic.name} is an internal topic: consumer groups keep their offsets in it",
                    hint="nothing deletes it; `odradek topic list --internal` shows such topics",
                )
        await admin.delete_topics(names, timeout=screen.timeout)
        return found

    deleted = screen.ask(work)
    screen.done(f"deleted {', '.join(names)}", [{"topic": topic.name, "topic_id": topic.topic_id} for topic in deleted])


async def named_topics(admin: Admin, names: list[str] | None) -> list[TopicDescription]:
    """The topics of these names, or all. Raises `CommandFailed` with the nearest name for one that is not there."""
    topics = await admin.describe_topics()
    known = [topic.name for topic in topics if not topic.internal]
    for name in names or []:
        if name not in [topic.name for topic in topics]:
            raise CommandFailed(
                f"there is no topic {name!r}{did_you_mean(name, known)}",
                hint=f"`odradek topic list` shows what is there; `odradek topic create {name}` makes it",
            )
    return [topic for topic in topics if topic.name in names] if names else topics
