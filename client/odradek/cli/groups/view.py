"""One group as it is shown: members, and a row for each partition that somebody has or that has a committed offset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek_proto.words import noun

from odradek.cli.terminal.screen import table
from odradek.cli.topics.delete import named_topics
from odradek.cli.topics.offsets import listed
from odradek.cli.topics.plan import select

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from odradek_proto.topics import TopicPartition

    from odradek import Admin, GroupDescription

HEADINGS = {"topic": "TOPIC", "partition": "PARTITION", "committed": "COMMITTED", "end": "END", "lag": "LAG",
            "member": "MEMBER", "client": "CLIENT", "host": "HOST"}  # fmt: skip


async def chosen(admin: Admin, words: Sequence[str]) -> list[TopicPartition]:
    """The partitions that these words name. Raises `CommandFailed` for what is not there."""
    return select(words, await named_topics(admin, None))


async def described(admin: Admin, bootstrap: str | None, group_id: str) -> dict[str, Any]:
    """What `--json` shows of a group."""
    [group] = await admin.describe_consumer_groups([group_id])
    committed = await admin.list_consumer_group_offsets(group_id)
    owners = {tp: member for member in group.members for tp in member.assignment}
    shown = sorted({*committed, *owners, *await _beside(admin, {tp.topic for tp in committed})})
    ends = await _ends(admin, bootstrap, shown)
    rows = []
    for tp in shown:
        offset = committed[tp].offset if tp in committed else None
        end, owner = ends.get(tp), owners.get(tp)
        rows.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "committed": offset,
                "end": end,
                "lag": None if end is None or offset is None else max(end - offset, 0),
                "member": None if owner is None else owner.member_id,
                "client": None if owner is None else owner.client_id,
                "host": None if owner is None else owner.host,
            }
        )
    return {
        "group": group_id,
        "type": group.type,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "epoch": None if group.epoch < 0 else group.epoch,
        "members": _members(group),
        "partitions": rows,
    }


def _members(group: GroupDescription) -> list[dict[str, Any]]:
    return [
        {
            "member": each.member_id,
            "instance": each.instance_id or None,
            "client": each.client_id,
            "host": each.host,
            "epoch": None if each.epoch < 0 else each.epoch,
            "assignment": [str(tp) for tp in each.assignment],
            "target": [str(tp) for tp in each.target],
        }
        for each in group.members
    ]


async def _beside(admin: Admin, topics: Collection[str]) -> list[TopicPartition]:
    """All partitions of topics of which the group has committed something, those that still are there."""
    there = [topic for topic in await admin.describe_topics() if topic.name in topics]
    return select([topic.name for topic in there], there)


async def _ends(
    admin: Admin, bootstrap: str | None, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """High watermarks; of what was deleted, or has no leader that answers, there is none."""
    from odradek.core.fetch_state import LATEST

    topics = await admin.list_topics(internal=True)
    known = [tp for tp in partitions if tp.topic in topics]
    found = await listed(bootstrap, known, [LATEST]) if known else {}
    return {tp: answer.offset for tp, answers in found.items() if not isinstance(answer := answers[LATEST], Exception)}


def group_text(found: dict[str, Any]) -> str:
    """What people read."""
    members, rows = found["members"], found["partitions"]
    known = [row["lag"] for row in rows if row["lag"] is not None]
    behind = f"lag {sum(known) if known else 'unknown'}" if rows else "no offset is committed"
    without = sum(row["committed"] is None for row in rows)
    if known and without:
        behind += f" where it has committed; {without} {noun(without, 'partition')} without a committed offset"
    count = len(members)
    assignor = f", {found['assignor']}" if found["assignor"] else ""
    head = f"{found['group']}: {found['state']} ({found['type']}{assignor}), {count} {noun(count, 'member')}, {behind}"
    lines = [head]
    if rows:
        lines.append(table([*HEADINGS.values()], ([row[key] for key in HEADINGS] for row in rows)))
    idle = [each for each in members if not each["assignment"]]
    lines += [f"{each['member']} ({each['client']}, {each['host']}) has no partitions" for each in idle]
    return "\n".join(lines)
