"""`odradek topic`: create, list, describe; offsets, delete, alter, reassign and elect have files of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from odradek_proto.command_line import USAGE, CommandFailed
from odradek_proto.setting_units import WITHOUT_UNITS

from odradek.cli.clusters.asking import ASKING, QuietAsking, ToAsking, ask
from odradek.cli.terminal.grouping import SCREEN, CommandGroup, ToScreen
from odradek.cli.terminal.options import DEFAULT_TIMEOUT_S, LARGEST_INT32, Bootstrap, Timeout
from odradek.cli.terminal.parsing import bounded, check_new_topics, parse_settings
from odradek.cli.terminal.screen import Screen
from odradek.cli.topics.alter import alter
from odradek.cli.topics.delete import delete, named_topics
from odradek.cli.topics.elect import elect
from odradek.cli.topics.min_isr import MIN_ISR, default_min_isr, min_isr_warning
from odradek.cli.topics.offsets import offsets, trim
from odradek.cli.topics.reassign import reassign
from odradek.cli.topics.settling import wait_for_leaders

if TYPE_CHECKING:
    from odradek import Admin, ConfigEntry, TopicDescription

app = CommandGroup("Create, list, describe, change and delete topics.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The topic.")]
BROKERS_DEFAULT = -1  # as in CreateTopics of Kafka's protocol


@app.command("create")
def create(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="The topics.")],
    partitions: Annotated[
        int | None, typer.Option("-p", "--partitions", help="[default: num.partitions of the brokers]")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("-r", "--replication-factor", help="[default: default.replication.factor of the brokers]"),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("-X", "--config", metavar="KEY=VALUE", help=f"A topic setting. {WITHOUT_UNITS} May be repeated."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the topic already exists.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only ask whether it could be created.")] = False,
    screen: QuietAsking = ASKING,
) -> None:
    """Create topics.

    Returns when each partition has a leader that has made its log, or when for --timeout no more of them have one.
    """
    for value, what in ((partitions, "-p"), (replication_factor, "-r")):
        if value is not None and value < 1:
            raise CommandFailed(f"{what} {value}: at least 1", exit_code=USAGE)
        if value is not None:
            bounded(str(value), LARGEST_INT32, what)
    settings = parse_settings(config or [], "--config")
    check_new_topics(names)
    rows: list[dict[str, Any]] = []
    left = list(names)
    min_isr = settings.get(MIN_ISR, "")

    async def work(admin: Admin) -> None:
        from odradek import NewTopic, broker_errors

        nonlocal min_isr
        min_isr = min_isr or await default_min_isr(admin)
        while left:
            name = left.pop(0)
            wanted = NewTopic(
                name,
                BROKERS_DEFAULT if partitions is None else partitions,
                BROKERS_DEFAULT if replication_factor is None else replication_factor,
                settings,
            )
            try:
                created = (await admin.create_topics([wanted], timeout=screen.timeout, validate_only=dry_run))[0]
            except broker_errors.TopicAlreadyExists:
                if not if_not_exists:
                    raise
                screen.say(f"{name} is there already")
                continue
            rows.append({"topic": name, "topic_id": created.topic_id, "partitions": created.partitions,
                         "replication_factor": created.replication_factor})  # fmt: skip

    try:
        screen.ask(work)
    except Exception:
        if rows:  # those stay, whatever became of the next one
            _show_created(screen, rows, dry_run, min_isr)
        if left and len(left) < len(names):
            screen.say(f"not tried: {', '.join(left)}")
        raise
    _show_created(screen, rows, dry_run, min_isr)
    made = {} if dry_run else {row["topic"]: row["partitions"] for row in rows}
    wait_for_leaders(screen.bootstrap, screen, made, screen.timeout)


def _show_created(screen: Screen, rows: list[dict[str, Any]], dry_run: bool, min_isr: str) -> None:
    warnings = [min_isr_warning(row["topic"], row["replication_factor"], min_isr) for row in rows]
    if not screen.for_people:
        screen.say_each(filter(None, warnings))
        screen.show_rows(rows, {})
        return
    for row in rows:
        verb = "could be created" if dry_run else "created"
        screen.say(f"{row['topic']} {verb}: partitions {row['partitions']}, replicas {row['replication_factor']}")
    screen.say_each(filter(None, warnings))


@app.command("list")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Internal topics, too.")] = False,
    bootstrap: Bootstrap = None,
    screen: ToScreen = SCREEN,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Names only.")] = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """List topics."""
    found = ask(bootstrap, timeout, lambda admin: admin.describe_topics())
    rows = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "replication_factor": max((len(partition.replicas) for partition in topic.partitions), default=0),
            "under_replicated": sum(len(partition.isr) < len(partition.replicas) for partition in topic.partitions),
            "topic_id": topic.topic_id,
        }
        for topic in sorted(found, key=lambda topic: topic.name)
        if internal or not topic.internal
    ]
    if quiet and screen.for_people:
        for row in rows:
            print(row["topic"])
        return
    headings = {"topic": "TOPIC", "partitions": "PARTITIONS", "replication_factor": "REPLICAS",
                "under_replicated": "UNDER-REPLICATED"}  # fmt: skip
    screen.show_rows(rows, headings)
    if not rows and screen.for_people:
        screen.say("no topics yet: odradek topic create NAME")


@app.command("describe")
def describe(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="The topics. Default: all.")] = None,
    under_replicated: Annotated[
        bool,
        typer.Option(
            "--under-replicated",
            "--under-replicated-partitions",
            help="Only partitions with fewer in-sync replicas than replicas.",
        ),
    ] = False,
    unavailable: Annotated[
        bool, typer.Option("--unavailable", "--unavailable-partitions", help="Only partitions without a leader.")
    ] = False,
    under_min_isr: Annotated[
        bool,
        typer.Option(
            "--under-min-isr",
            "--under-min-isr-partitions",
            help="Only partitions with fewer in-sync replicas than min.insync.replicas.",
        ),
    ] = False,
    configs: Annotated[bool, typer.Option("--configs", help="Settings of the topics instead.")] = False,
    screen: ToAsking = ASKING,
) -> None:
    """Show partitions with leader, replicas and in-sync replicas; or settings."""

    async def work(admin: Admin) -> tuple[list[TopicDescription], dict[str, list[ConfigEntry]]]:
        topics = await named_topics(admin, names)
        needed = topics if configs or under_min_isr else []
        return topics, {topic.name: await admin.describe_configs("topic", topic.name) for topic in needed}

    topics, settings = screen.ask(work)
    if configs:
        rows = [
            {"topic": topic, "name": entry.name, "value": entry.value, "source": entry.source}
            for topic, entries in settings.items()
            for entry in entries
        ]
        screen.show_rows(rows, {"topic": "TOPIC", "name": "SETTING", "value": "VALUE", "source": "SOURCE"})
        return
    minimum = {topic: _min_isr(entries) for topic, entries in settings.items()}
    rows = [
        row
        for topic in sorted(topics, key=lambda topic: topic.name)
        for row in _partition_rows(topic)
        if not under_replicated or len(row["isr"]) < len(row["replicas"])
        if not unavailable or row["leader"] < 0
        if not under_min_isr or len(row["isr"]) < min(minimum[topic.name], len(row["replicas"]))
    ]
    headings = {"topic": "TOPIC", "partition": "PARTITION", "leader": "LEADER", "leader_epoch": "EPOCH",
                "replicas": "REPLICAS", "isr": "ISR"}  # fmt: skip
    if any(row["elr"] or row["last_known_elr"] for row in rows):
        headings |= {"elr": "ELR", "last_known_elr": "LAST KNOWN ELR"}
    screen.show_rows(rows, headings)


app.command("offsets")(offsets)
app.command("trim")(trim)
app.command("delete")(delete)
app.command("alter")(alter)
app.command("reassign")(reassign)
app.command("elect")(elect)


def _partition_rows(topic: TopicDescription) -> list[dict[str, Any]]:
    return [
        {
            "topic": topic.name,
            "partition": partition.partition,
            "leader": partition.leader_id,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "replicas": list(partition.replicas),
            "isr": list(partition.isr),
            "offline_replicas": list(partition.offline_replicas),
            "elr": list(partition.elr),
            "last_known_elr": list(partition.last_known_elr),
        }
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition)
    ]


def _min_isr(entries: list[ConfigEntry]) -> int:
    return next((int(entry.value) for entry in entries if entry.name == "min.insync.replicas"), 1)
