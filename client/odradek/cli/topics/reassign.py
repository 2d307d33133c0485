"""`odradek topic reassign`: other replicas for partitions, as kafka-reassign-partitions has it.

Rules of this module. What is on its way is never changed without an order for that very partition. The state of before
is shown before anything happens, in the form that takes it back.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from odradek_proto.command_line import FAILED, FINE, USAGE, CommandFailed, OutputFormat
from odradek_proto.words import noun

from odradek.cli.clusters.asking import ask
from odradek.cli.terminal.grouping import SCREEN, QuietScreen
from odradek.cli.terminal.options import DEFAULT_TIMEOUT_S, addresses, seconds
from odradek.cli.terminal.screen import Screen
from odradek.cli.topics.plan import Plan, as_line, current_plan, parse_brokers, plan_as_json, read_plan, select, spread

if TYPE_CHECKING:
    from odradek_proto.topics import TopicPartition

    from odradek import Admin, BrokerError


Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC[-PARTITION]", help="A topic or one partition. May be repeated."),
]
Servers = Annotated[str | None, addresses("-b", "--bootstrap-server")]  # --brokers is of ids here, as in Kafka's tool


def reassign(
    topics: Topics = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="ID,...",
            help="The replicas, preferred leader first. In a whole topic the first goes round.",
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="PLAN", help="A plan in Kafka's JSON, for several partitions.")
    ] = None,
    generate: Annotated[
        bool, typer.Option("--generate", help="Only print a plan for --brokers, and the present state.")
    ] = False,
    brokers: Annotated[
        str | None,
        typer.Option("--brokers", "--broker-list", metavar="ID,...", help="For --generate: who gets the replicas."),
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option("-r", "--replication-factor", min=1, help="For --generate. Default: as it is.")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it: what --to and --file do anyway.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Report progress of --file, or of --topic and --to; change nothing.")
    ] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel ongoing reassignments: those of --topic or --file, otherwise all.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return when it is complete, and show what is left.")] = False,
    bootstrap: Servers = None,
    screen: QuietScreen = SCREEN,
    timeout: Annotated[
        float | None, seconds("--timeout", "Give up after so long (exit code 5). [default: 15; --wait: no]")
    ] = None,
) -> None:
    """Give partitions other replicas, or more, or fewer.

    The present state is printed as a plan on standard error: with it, --file goes back. Throttles are settings:
    docs/administration.md.
    """
    limit = timeout if timeout is not None else (None if wait else DEFAULT_TIMEOUT_S)
    _check(topics, to, file, brokers, generate=generate, execute=execute, verify=verify, cancel=cancel)
    wanted = read_plan(file) if file is not None else None
    if generate:
        ids = parse_brokers(brokers or "", "--brokers")
        _show_generated(screen, *ask(bootstrap, limit, lambda admin: _generate(admin, topics, ids, replication_factor)))
        return
    target = parse_brokers(to, "--to") if to is not None else None

    async def work(admin: Admin) -> int:
        if cancel:
            return await _cancel(admin, screen, topics, wanted, wait)
        plan = wanted if wanted is not None else await _direct(admin, topics or [], target)
        if verify:
            return await _verify(admin, screen, plan)
        return await _execute(admin, screen, plan, wait)

    raise typer.Exit(ask(bootstrap, limit, work))


def _check(
    topics: list[str] | None,
    to: str | None,
    file: Path | None,
    brokers: str | None,
    *,
    generate: bool,
    execute: bool,
    verify: bool,
    cancel: bool,
) -> None:
    """What goes together. Raises `CommandFailed` (2)."""
    if sum((generate, execute, verify, cancel)) > 1:
        raise CommandFailed("--generate, --execute, --verify and --cancel exclude each other", exit_code=USAGE)
    if file is not None and (to is not None or topics or generate):
        raise CommandFailed("--file says everything: no --topic, --to or --generate beside it", exit_code=USAGE)
    if generate != (brokers is not None):
        raise CommandFailed("--generate and --brokers 1,2,3 belong together", exit_code=USAGE)
    if generate or cancel:
        if to is not None:
            raise CommandFailed("--to is for carrying out", exit_code=USAGE)
    elif verify and file is None and (not topics or to is None):
        hint = "odradek topic reassign --verify --topic orders-0 --to 1,2,3, or --verify --file PLAN"
        raise CommandFailed("--verify compares with what was ordered: give that once more", hint=hint, exit_code=USAGE)
    elif file is None and (not topics or to is None):
        hint = "odradek topic reassign --topic orders-0 --to 1,2,3; --file PLAN for many; --generate makes a plan"
        raise CommandFailed("which partitions, and to whom?", hint=hint, exit_code=USAGE)


# --- plans -----------------------------------------------------------------------------------------------------------


async def _generate(
    admin: Admin, topics: list[str] | None, brokers: tuple[int, ...], factor: int | None
) -> tuple[Plan, Plan]:
    known = {broker.broker_id for broker in (await admin.describe_cluster()).brokers}
    unknown = sorted(set(brokers) - known)
    if unknown:
        names, there = ", ".join(map(str, unknown)), ", ".join(map(str, sorted(known)))
        hint = "`odradek cluster describe` lists the brokers"
        raise CommandFailed(f"there is no broker {names}; there are {there}", hint=hint)
    descriptions = await admin.describe_topics()
    current = current_plan(descriptions)
    if topics:
        current = {partition: current[partition] for partition in select(topics, descriptions)}
    return current, spread(current, brokers, factor)


def _show_generated(screen: Screen, current: Plan, proposed: Plan) -> None:
    data = {"current": plan_as_json(current), "proposed": plan_as_json(proposed)}
    screen.show(
        data,
        lambda: (
            f"Current partition replica assignment\n{as_line(current)}\n\n"
            f"Proposed partition reassignment configuration\n{as_line(proposed)}"
        ),
    )


async def _direct(admin: Admin, topics: list[str], target: tuple[int, ...] | None) -> Plan:
    """--to for the named partitions; in a topic that is named as a whole each partition begins one further."""
    assert target is not None
    partitions = select(topics, await admin.describe_topics())
    plan: Plan = {}
    for partition in partitions:
        named = not set(topics).isdisjoint((str(partition), f"{partition.topic}/{partition.partition}"))
        turn = 0 if named else partition.partition % len(target)
        plan[partition] = (*target[turn:], *target[:turn])
    return plan


async def _known(admin: Admin, plan: Plan) -> Plan:
    """Who the replicas of the plan's partitions are. Raises `CommandFailed` for one that is not there."""
    descriptions = await admin.describe_topics()
    words = [f"{partition.topic}/{partition.partition}" for partition in plan]
    current = current_plan(descriptions)
    return {partition: current[partition] for partition in select(words, descriptions)}


# --- acts ------------------------------------------------------------------------------------------------------------


async def _execute(admin: Admin, screen: Screen, plan: Plan, wait: bool) -> int:
    before = await _known(admin, plan)
    ongoing = await admin.list_partition_reassignments(plan)
    stable = {
        partition: tuple(ongoing[partition].original) if partition in ongoing else replicas
        for partition, replicas in before.items()
    }
    if screen.for_people:
        screen.say(f"to go back: {as_line(stable)}")
    refused = {
        partition: error
        for partition, error in (await admin.alter_partition_reassignments(plan)).items()
        if error is not None
    }
    accepted = {partition: to for partition, to in plan.items() if partition not in refused}
    if wait:
        await follow(admin, screen, accepted)
    moment = await look(admin, plan, accepted)
    show(screen, [row(partition, plan, refused, moment) for partition in sorted(plan)], stable)
    return FAILED if refused else FINE


async def _verify(admin: Admin, screen: Screen, plan: Plan) -> int:
    await _known(admin, plan)
    moment = await look(admin, plan)
    rows = [row(partition, plan, {}, moment) for partition in sorted(plan)]
    show(screen, rows, None)
    return FINE if all(each["state"] == "complete" for each in rows) else FAILED


async def _cancel(admin: Admin, screen: Screen, topics: list[str] | None, plan: Plan | None, wait: bool) -> int:
    ongoing = await admin.list_partition_reassignments()
    if plan is not None or topics:
        named = plan if plan is not None else select(topics or [], await admin.describe_topics())
        ongoing = {partition: found for partition, found in ongoing.items() if partition in named}
    if not ongoing:
        screen.say("nothing is on its way")
        show(screen, [], None)
        return FINE
    answers = await admin.alter_partition_reassignments(dict.fromkeys(ongoing))
    refused = {partition: error for partition, error in answers.items() if error is not None}
    back: Plan = {partition: tuple(found.original) for partition, found in ongoing.items()}
    accepted = {partition: to for partition, to in back.items() if partition not in refused}
    if wait:
        await follow(admin, screen, accepted)
    moment = await look(admin, back, accepted)
    rows = [row(partition, back, refused, moment) for partition in sorted(back)]
    show(screen, [each if each["error"] else each | {"state": "cancelled"} for each in rows], None)
    return FAILED if refused else FINE


POLL_S = 0.1
PATIENCE = 20  # looks
SAY_EVERY_S = 2.0
HEADINGS = {"partition": "PARTITION", "replicas": "REPLICAS", "target": "TARGET", "state": "STATE"}


class PlanProgress:
    """The partitions of a plan at one moment: replicas, what is on its way, and how many records are to be copied."""

    def __init__(self, replicas: Plan, ongoing: set[TopicPartition], left: dict[TopicPartition, int]) -> None:
        self.replicas, self.ongoing, self.left = replicas, ongoing, left


async def look(admin: Admin, plan: Plan, accepted: Plan | None = None) -> PlanProgress:
    """How far a plan is. What was just accepted is either on its way or done; the broker that is asked may be a moment
    behind the controller, so it is asked again for a while."""
    import asyncio

    for _ in range(PATIENCE):
        moment = await _look_once(admin, plan)
        behind = [partition for partition in accepted or () if partition not in moment.ongoing]
        if all(moment.replicas[partition] == plan[partition] for partition in behind):
            break
        await asyncio.sleep(POLL_S)
    return moment


async def _look_once(admin: Admin, plan: Plan) -> PlanProgress:
    topics = sorted({partition.topic for partition in plan})
    current = current_plan(await admin.describe_topics(topics))
    ongoing = await admin.list_partition_reassignments(plan)
    left: dict[TopicPartition, int] = {}
    if ongoing:
        described = await admin.describe_replicas(topics)
        for leader in described.replicas:
            moving = ongoing.get(leader.topic_partition)
            if moving is not None and leader.role == "leader":
                ends = {remote.broker_id: remote.log_end_offset for remote in leader.remote_replicas}
                left[leader.topic_partition] = sum(
                    leader.log_end_offset - max(ends.get(replica, -1), leader.log_start_offset)
                    for replica in moving.adding_replicas
                )
    return PlanProgress({partition: current.get(partition, ()) for partition in plan}, set(ongoing), left)


async def follow(admin: Admin, screen: Screen, plan: Plan) -> None:
    """Return when nothing of the plan is on its way; say now and then what is left."""
    import asyncio

    said, now = "", asyncio.get_running_loop().time
    due = now()
    while (moment := await look(admin, plan)).ongoing:
        words = ", ".join(
            f"{partition}: {moment.left.get(partition, '?')}" for partition in sorted(moment.ongoing)[:10]
        )
        text = f"{len(moment.ongoing)} on their way; records still to copy: {words}"
        if text != said and now() >= due and screen.for_people:
            screen.say(text)
            said, due = text, now() + SAY_EVERY_S
        await asyncio.sleep(POLL_S)


def row(
    partition: TopicPartition, plan: Plan, refused: dict[TopicPartition, BrokerError], moment: PlanProgress
) -> dict[str, Any]:
    replicas, error, state = moment.replicas[partition], refused.get(partition), "different"
    if error is not None:
        state = error.message.partition(": ")[2]  # the partition stands in the first column
    elif partition in moment.ongoing:
        state, left = "on its way", moment.left.get(partition)
        state += f", {left} {noun(left, 'record')} to copy" if left is not None else ""
    elif replicas == plan[partition]:
        state = "complete"
    return {
        "partition": str(partition),
        "replicas": list(replicas),
        "target": list(plan[partition]),
        "state": state,
        "records_to_copy": moment.left.get(partition, 0),
        "error": error.code.name if error is not None else None,
    }


def show(screen: Screen, rows: list[dict[str, Any]], before: Plan | None) -> None:
    if screen.output is OutputFormat.JSON:
        data: dict[str, Any] = {"partitions": rows}
        screen.show(data if before is None else {"rollback": plan_as_json(before), **data}, str)
    else:
        screen.show_rows(rows, HEADINGS)
