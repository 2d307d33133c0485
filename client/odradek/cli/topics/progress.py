"""How far reassignments are: what is on its way, how many records are still to be copied, and the table of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek_proto.command_line import OutputFormat
from odradek_proto.words import noun

from odradek.cli.terminal.screen import Screen
from odradek.cli.topics.plan import Plan, current_plan, plan_as_json

if TYPE_CHECKING:
    from odradek_proto.topics import TopicPartition

    from odradek import Admin, BrokerError

POLL_S = 0.1
PATIENCE = 20  # looks
SAY_EVERY_S = 2.0
HEADINGS = {"partition": "PARTITION", "replicas": "REPLICAS", "target": "TARGET", "state": "STATE"}


class Look:
    """The partitions of a plan at one moment: replicas, what is on its way, and how many records are to be copied."""

    def __init__(self, replicas: Plan, ongoing: set[TopicPartition], left: dict[TopicPartition, int]) -> None:
        self.replicas, self.ongoing, self.left = replicas, ongoing, left


async def look(admin: Admin, plan: Plan, accepted: Plan | None = None) -> Look:
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


async def _look_once(admin: Admin, plan: Plan) -> Look:
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
    return Look({partition: current.get(partition, ()) for partition in plan}, set(ongoing), left)


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
    partition: TopicPartition, plan: Plan, refused: dict[TopicPartition, BrokerError], moment: Look
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
