"""`odradek topic offsets` and `odradek topic trim`: where the logs of partitions begin and end, and to begin later."""

from __future__ import annotations

from operator import methodcaller
from typing import TYPE_CHECKING, Annotated, Any

import typer
from odradek_proto.command_line import USAGE, CommandFailed

from odradek.cli.clusters.asking import ASKING, ToAsking
from odradek.cli.terminal.options import Yes, confirm
from odradek.cli.terminal.parsing import Start, parse_start, parse_time
from odradek.cli.topics.plan import select

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from odradek_proto.topics import TopicPartition

    from odradek import Admin, OdradekError
    from odradek.shared.results import OffsetAndTimestamp

HEADINGS = {"topic": "TOPIC", "partition": "PARTITION", "leader": "LEADER", "log_start_offset": "LOG START",
            "high_watermark": "HIGH WATERMARK", "log_end_offset": "LOG END"}  # fmt: skip
TRIMMED_AT_ONCE = 50  # partitions, one after the other
TIME_HEADINGS = {"offset": "OFFSET", "timestamp": "TIMESTAMP"}


def offsets(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC[-PARTITION]]...", help="Default: all topics.")
    ] = None,
    time: Annotated[
        str | None,
        typer.Option("--time", metavar="TIME", help="The first offset at or after this time, too (ISO or ms)."),
    ] = None,
    screen: ToAsking = ASKING,
) -> None:
    """Show where logs begin and end: log start offset, high watermark and log end offset, as the leaders know them.

    With --time also the first record at or after it (-: none is so late). Exit code 1 when a leader does not answer.
    """
    time_ms = None if time is None else parse_time(time.removeprefix("@"), "--time")

    async def work(admin: Admin) -> list[dict[str, Any]]:
        chosen = await _chosen(admin, words)
        rows = await _ends(admin, chosen)
        if time_ms is not None:
            at_time = await listed(screen.bootstrap, chosen, [time_ms])
            for tp, row in rows.items():
                answer = at_time[tp][time_ms]
                row["offset"] = row["timestamp"] = None
                if not isinstance(answer, Exception) and answer.offset >= 0:
                    row["offset"], row["timestamp"] = answer.offset, answer.timestamp
        return list(rows.values())

    rows = screen.ask(work)
    screen.show_rows(rows, HEADINGS if time is None else HEADINGS | TIME_HEADINGS)
    silent = [f"{row['topic']}-{row['partition']}" for row in rows if row["log_end_offset"] is None]
    if silent:
        raise CommandFailed(
            f"no leader answers for {', '.join(silent)}", hint="`odradek cluster health` says what is wrong"
        )


def trim(
    words: Annotated[list[str], typer.Argument(metavar="TOPIC[-PARTITION]...", help="Whose records.")],
    offset: Annotated[
        str,
        typer.Option(
            "-o", "--offset", metavar="WHERE", help="Below this: an offset, end, -N (all but the last N), @TIME."
        ),
    ],
    yes: Yes = False,
    screen: ToAsking = ASKING,
) -> None:
    """Delete the oldest records of partitions (DeleteRecords). It asks on a terminal; elsewhere it needs --yes.

    Nothing above the high watermark is deleted. Returns when all live replicas have deleted them, with their smallest
    log start offset.
    """
    place = parse_start(offset)
    if place.kind == "beginning":
        raise CommandFailed("-o beginning deletes nothing", hint="-o end deletes all records", exit_code=USAGE)
    if not yes:
        confirm("deleting records", f"deletes records of {', '.join(words)} below {offset}", words[0])

    async def look(admin: Admin) -> dict[TopicPartition, int]:
        return await _below(screen.bootstrap, await _chosen(admin, words), place)

    below = [*screen.ask(look).items()]
    moved: dict[TopicPartition, int] = {}
    for at in range(0, len(below), TRIMMED_AT_ONCE):  # each portion has its time
        if at:
            screen.say(f"{at} of {len(below)} partitions")
        portion = dict(below[at : at + TRIMMED_AT_ONCE])
        moved |= screen.ask(methodcaller("delete_records", portion))
    rows = [{"topic": tp.topic, "partition": tp.partition, "log_start_offset": at} for tp, at in moved.items()]
    screen.show_rows(rows, {key: HEADINGS[key] for key in ("topic", "partition", "log_start_offset")})


async def _chosen(admin: Admin, words: Sequence[str] | None) -> list[TopicPartition]:
    topics = [topic for topic in await admin.describe_topics() if words or not topic.internal]
    return select(words or [topic.name for topic in topics], topics)


async def _ends(admin: Admin, chosen: Sequence[TopicPartition]) -> dict[TopicPartition, dict[str, Any]]:
    """A row for each partition, with what its leader says now; None where none answers."""
    found = await admin.describe_replicas(dict.fromkeys(tp.topic for tp in chosen))
    newest = {  # the last one counts: whoever led before and does not know it yet has a smaller epoch
        each.topic_partition: each
        for each in sorted(found.replicas, key=lambda each: each.leader_epoch)
        if each.role == "leader"
    }
    rows = {}
    for tp in chosen:
        leader = newest.get(tp)
        rows[tp] = {
            "topic": tp.topic,
            "partition": tp.partition,
            "leader": leader.broker_id if leader else None,
            "log_start_offset": leader.log_start_offset if leader else None,
            "high_watermark": leader.high_watermark if leader else None,
            "log_end_offset": leader.log_end_offset if leader else None,
        }
    return rows


async def _below(bootstrap: str | None, chosen: Sequence[TopicPartition], place: Start) -> dict[TopicPartition, int]:
    """Up to where each partition is to be trimmed. Raises what a leader that cannot say so raises."""
    found: dict[TopicPartition, int] = {}
    for tp, (first, end, there) in (await places(bootstrap, chosen, place)).items():
        if place.kind == "offset" and not first <= place.number <= end:
            hint = f"-o beginning, -o end or an offset between; `odradek topic offsets {tp}` shows them"
            raise CommandFailed(f"{tp} has offsets {first} to {end}, not {place.number}", hint=hint)
        found[tp] = there
    return found


async def places(
    bootstrap: str | None, chosen: Sequence[TopicPartition], place: Start
) -> dict[TopicPartition, tuple[int, int, int]]:
    """Where each log begins and ends, and where a place is in it. Raises what a leader that cannot say so raises."""
    from odradek.cli.records.reading import place_of
    from odradek.core.fetch_state import EARLIEST, LATEST

    times = [EARLIEST, LATEST, *([place.number] if place.kind == "time" else [])]
    found: dict[TopicPartition, tuple[int, int, int]] = {}
    for tp, answers in (await listed(bootstrap, chosen, times)).items():
        offsets = {}
        for time, answer in answers.items():
            if isinstance(answer, Exception):
                raise answer
            offsets[time] = answer.offset
        found[tp] = (offsets[EARLIEST], offsets[LATEST], place_of(place, offsets))
    return found


async def listed(
    bootstrap: str | None, chosen: Sequence[TopicPartition], times: Sequence[int]
) -> Mapping[TopicPartition, dict[int, OffsetAndTimestamp | OdradekError]]:
    """What the leaders say of each time: milliseconds since 1970, or one that has a meaning of its own."""
    from odradek import Consumer
    from odradek.cli.clusters.current import bootstrap_servers

    found: dict[TopicPartition, dict[int, OffsetAndTimestamp | OdradekError]] = {tp: {} for tp in chosen}
    async with Consumer.from_config({"bootstrap.servers": bootstrap_servers(bootstrap)}) as consumer:
        for topic in dict.fromkeys(tp.topic for tp in chosen):
            await consumer.partitions_for(topic)
        for time in times:
            for tp, answer in (await consumer.offsets_or_errors(dict.fromkeys(chosen, time))).items():
                found[tp][time] = answer
    return found
