"""`odradek topic alter`: settings of a topic, and more partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from odradek_proto.command_line import USAGE, CommandFailed
from odradek_proto.setting_units import WITHOUT_UNITS
from odradek_proto.words import noun

from odradek.cli.clusters.asking import ASKING, QuietAsking
from odradek.cli.terminal.failures import no_such_topic
from odradek.cli.terminal.options import LARGEST_INT32
from odradek.cli.terminal.parsing import parse_settings
from odradek.cli.topics.min_isr import warnings_for_topic
from odradek.cli.topics.settling import wait_for_leaders

if TYPE_CHECKING:
    from odradek import Admin


def alter(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The topic.")],
    config: Annotated[
        list[str] | None,
        typer.Option("-X", "--config", metavar="KEY=VALUE", help=f"Set a setting. {WITHOUT_UNITS} May be repeated."),
    ] = None,
    delete_config: Annotated[
        list[str] | None, typer.Option("--delete-config", metavar="KEY", help="Back to the default. May be repeated.")
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            "-p", "--partitions", min=1, max=LARGEST_INT32, help="So many partitions in all: more than there are."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only ask whether the settings could be.")] = False,
    screen: QuietAsking = ASKING,
) -> None:
    """Change settings while the topic is used, or add partitions.

    With more partitions, new records of a key may go to another partition than the old ones.
    """
    values, unset = parse_settings(config or [], "--config"), list(delete_config or [])
    if both := [key for key in unset if key in values]:
        raise CommandFailed(f"--config and --delete-config both name {both[0]}", exit_code=USAGE)
    if not values and not unset and partitions is None:
        raise CommandFailed("nothing to change", hint="--config, --delete-config or --partitions", exit_code=USAGE)
    if dry_run and partitions is not None:
        raise CommandFailed("--dry-run asks about settings, not about --partitions", exit_code=USAGE)

    warnings: list[str] = []

    async def work(admin: Admin) -> None:
        await check_topic(admin, name)
        if values or unset:
            await admin.incremental_alter_configs("topic", name, set=values, unset=unset, validate_only=dry_run)
            warnings.extend(await warnings_for_topic(admin, name, values))
        if partitions is not None:
            await admin.create_partitions(name, partitions, timeout=screen.timeout)

    screen.ask(work)
    screen.say_each(warnings)
    if screen.for_people:
        changes = [f"{key}={value}" for key, value in values.items()] + [f"{key} is the default again" for key in unset]
        changes += [f"{partitions} {noun(partitions, 'partition')}"] if partitions is not None else []
        screen.say(f"{name}{' could be changed' if dry_run else ''}: {', '.join(changes)}")
    else:
        changed = {"topic": name, "set": values, "unset": unset, "partitions": partitions, "dry_run": dry_run}
        screen.show(changed, str)
    if partitions is not None:
        wait_for_leaders(screen.bootstrap, screen, {name: partitions}, screen.timeout)


async def check_topic(admin: Admin, name: str) -> None:
    """Raises `CommandFailed` with the nearest name for one that is not there."""
    known = await admin.list_topics(internal=True)
    if name not in known:
        raise no_such_topic(name, known)
