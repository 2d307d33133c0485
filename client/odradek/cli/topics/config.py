"""`odradek config`: the settings of topics, brokers and groups, with their sources, and changes while they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from odradek_proto.command_line import USAGE, CommandFailed
from odradek_proto.errors import ErrorCode
from odradek_proto.setting_units import WITHOUT_UNITS

from odradek.cli.clusters.asking import ASKING, QuietAsking, ToAsking
from odradek.cli.terminal.failures import did_you_mean
from odradek.cli.terminal.grouping import CommandGroup
from odradek.cli.terminal.parsing import parse_settings
from odradek.cli.topics.alter import check_topic
from odradek.cli.topics.min_isr import warnings_for_brokers, warnings_for_topic

if TYPE_CHECKING:
    from odradek import Admin, ConfigEntry
    from odradek.administration.admin import ResourceType

app = CommandGroup("Show and change the settings of topics, brokers and groups.")

WORDS = {"topic": "topic", "broker": "broker", "broker-logger": "loggers of broker", "group": "group"}
HIDDEN = "(hidden)"


@dataclass(frozen=True, slots=True)
class Resource:
    """Options that say whose settings are meant."""

    topic: Annotated[str | None, typer.Option("--topic", metavar="NAME", help="The settings of this topic.")] = None
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker", metavar="ID|default", help="The settings of this broker; default: set for all brokers."
        ),
    ] = None
    broker_logger: Annotated[
        str | None, typer.Option("--broker-logger", metavar="ID", help="The levels of this broker's loggers.")
    ] = None
    group: Annotated[str | None, typer.Option("--group", metavar="NAME", help="The settings of this group alone.")] = (
        None
    )

    def kind_and_name(self) -> tuple[ResourceType, str]:
        """Which settings are meant. Raises `CommandFailed` (2)."""
        if (self.topic, self.broker, self.broker_logger, self.group).count(None) != 3:
            hint = "--topic NAME, or --broker ID, or --broker default, or --broker-logger ID, or --group NAME"
            raise CommandFailed("whose settings?", hint=hint, exit_code=USAGE)
        if self.topic is not None:
            return "topic", self.topic
        if self.group is not None:
            return "group", self.group
        if (logger := self.broker_logger) is not None:
            if not logger.isdecimal():
                raise CommandFailed(f"--broker-logger {logger!r}: a broker's id", exit_code=USAGE)
            return "broker-logger", logger
        broker = self.broker or ""
        if broker != "default" and not broker.isdecimal():
            raise CommandFailed(f"--broker {broker!r}: a broker's id, or default", exit_code=USAGE)
        return "broker", "" if broker == "default" else broker


NOTHING_NAMED = Resource()


@app.command("describe")
def describe(
    names: Annotated[list[str] | None, typer.Argument(metavar="[KEY]...", help="Only these settings.")] = None,
    resource: Resource = NOTHING_NAMED,
    everything: Annotated[bool, typer.Option("--all", help="Settings at their default, too.")] = False,
    screen: ToAsking = ASKING,
) -> None:
    """Show what holds, and where it comes from.

    Sources, the first that says something wins: DYNAMIC_TOPIC_CONFIG or DYNAMIC_GROUP_CONFIG, DYNAMIC_BROKER_CONFIG
    (one broker), DYNAMIC_DEFAULT_BROKER_CONFIG (all brokers), STATIC_BROKER_CONFIG (its file or environment),
    DEFAULT_CONFIG. The synonyms are what would hold in a value's place; JSON has them, too.
    """
    kind, name = resource.kind_and_name()
    entries = screen.ask(lambda admin: _entries(admin, kind, name))
    known = {entry.name for entry in entries}
    for wanted in names or ():
        if wanted not in known:
            raise CommandFailed(f"there is no {kind} setting {wanted!r}{did_you_mean(wanted, known)}", exit_code=USAGE)
    shown = [entry for entry in entries if (entry.name in names if names else everything or not entry.is_default)]
    screen.show_rows(
        [_row(entry, for_people=screen.for_people) for entry in shown],
        {"name": "SETTING", "value": "VALUE", "source": "SOURCE", "synonyms": "SYNONYMS"},
    )
    if not shown and screen.for_people:
        screen.say("everything is at its default: --all shows it")


@app.command("alter")
def alter(
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help=f"Set these. {WITHOUT_UNITS}")
    ] = None,
    resource: Resource = NOTHING_NAMED,
    delete: Annotated[
        list[str] | None, typer.Option("--delete", metavar="KEY", help="Take a value away. May be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only ask whether it could be.")] = False,
    screen: QuietAsking = ASKING,
) -> None:
    """Change settings while the cluster runs. All of it or, when something cannot be, nothing.

    Of brokers, the defaults of topics and the rates of replication can be changed; other settings are read once, at
    the start. Of groups of KIP-848, consumer.session.timeout.ms and consumer.heartbeat.interval.ms. Levels of loggers
    (odradek.quorum=DEBUG) hold until the broker ends; deleted, a logger goes by the one above it.
    """
    from odradek.broker_errors import InvalidRequest
    from odradek.shared.errors import HINTS

    kind, name = resource.kind_and_name()
    values, unset = parse_settings(settings or [], "KEY=VALUE"), list(delete or [])
    if not values and not unset:
        raise CommandFailed("nothing to change", hint="KEY=VALUE, or --delete KEY", exit_code=USAGE)

    warnings: list[str] = []

    async def work(admin: Admin) -> None:
        if kind == "topic":
            await check_topic(admin, name)
        try:
            await admin.incremental_alter_configs(kind, name, set=values, unset=unset, validate_only=dry_run)
        except InvalidRequest as error:  # for settings of brokers, as in Kafka; others are INVALID_CONFIG
            if kind == "broker":
                error.hint = HINTS[ErrorCode.INVALID_CONFIG]
                error.hint += ", `odradek cluster describe` the brokers" if name else ""
            raise
        if kind == "topic":
            warnings.extend(await warnings_for_topic(admin, name, values))
        elif kind == "broker":
            warnings.extend(await warnings_for_brokers(admin, values))

    screen.ask(work)
    screen.say_each(warnings)
    if not screen.for_people:
        changed = {"resource": kind, "name": name or "default", "set": values, "unset": unset, "dry_run": dry_run}
        screen.show(changed, str)
        return
    changes = [f"{key}={value}" for key, value in values.items()] + [f"{key} taken away" for key in unset]
    where = f"{WORDS[kind]} {name}" if name else "all brokers"
    screen.say(f"{where}{' could be changed' if dry_run else ''}: {', '.join(changes)}")


async def _entries(admin: Admin, kind: ResourceType, name: str) -> list[ConfigEntry]:
    if kind == "topic":
        await check_topic(admin, name)
    return sorted(await admin.describe_configs(kind, name), key=lambda entry: entry.name)


def _row(entry: ConfigEntry, *, for_people: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": entry.name,
        "value": HIDDEN if entry.sensitive else entry.value,
        "source": entry.source,
    }
    if for_people:
        others = entry.synonyms[1:]
        return row | {"synonyms": "; ".join(f"{other.source}:{other.name}={other.value}" for other in others)}
    synonyms = [{"name": other.name, "value": other.value, "source": other.source} for other in entry.synonyms]
    return row | {
        "type": entry.type, "read_only": entry.read_only, "sensitive": entry.sensitive, "synonyms": synonyms,
    }  # fmt: skip
