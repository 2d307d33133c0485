"""`odradek consume`: read records and print them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.cli.current import bootstrap_servers
from odradek.cli.failures import TIMED_OUT, USAGE, CommandFailed
from odradek.cli.options import Bootstrap, Json, Quiet
from odradek.cli.parsing import Start, parse_start
from odradek.cli.running import run
from odradek.cli.screen import Screen

if TYPE_CHECKING:
    from odradek import Consumer, TopicPartition
    from odradek.cli.record_format import Part, Record

app = typer.Typer(help="Read records.", add_completion=False, rich_markup_mode=None)


@app.command()
def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="What to read.")],
    offset: Annotated[
        str,
        typer.Option(
            "-o",
            "--offset",
            metavar="WHERE",
            help="beginning, end, an offset, -N (the last N of each partition), @TIME (ISO or ms).",
        ),
    ] = "end",
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Short for -o beginning.")] = False,
    exit_at_end: Annotated[bool, typer.Option("-e", "--exit", help="Stop at the end of what is there now.")] = False,
    count: Annotated[
        int | None, typer.Option("-c", "--count", metavar="N", min=1, help="Stop after N records.")
    ] = None,
    partitions: Annotated[
        list[int] | None, typer.Option("-p", "--partition", metavar="N", min=0, help="Only this one. May be repeated.")
    ] = None,
    record_format: Annotated[
        str,
        typer.Option(
            "-f",
            "--format",
            metavar="FORMAT",
            help="%t topic, %p partition, %o offset, %k key, %v value, %h headers, %T timestamp, %e leader epoch.",
        ),
    ] = r"%v\n",
    json_lines: Annotated[bool, typer.Option("-J", help="One JSON object per record.")] = False,
    as_json: Json = False,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", metavar="SECONDS", min=0.001, help="Stop when no record came for so long (exit 5)."),
    ] = None,
    bootstrap: Bootstrap = None,
    quiet: Quiet = False,
) -> None:
    """Read records.

    Prints them until Ctrl-C, or until -e or -c say enough.
    Only records below the high watermark are read: what a failure could still take back is not shown.
    """
    from odradek.cli.parsing import check_topic_name
    from odradek.cli.record_format import compile_format, json_line

    check_topic_name(topic)
    start = Start("beginning") if from_beginning else parse_start(offset)
    if start.kind == "end" and exit_at_end:
        raise CommandFailed("-o end -e reads nothing", hint="-o beginning, or -o -10 for the last ten", exit_code=USAGE)
    show = json_line if json_lines or as_json else compile_format(record_format)
    reading = Reading(bootstrap_servers(bootstrap), topic, start, show)
    seen = run(reading.run(partitions, exit_at_end=exit_at_end, count=count, patience=timeout))
    if exit_at_end and not seen:
        Screen(quiet=quiet).say("no records there")


class Reading:
    """One run of `odradek consume`."""

    def __init__(self, servers: str, topic: str, start: Start, show: Part) -> None:
        self._servers = servers
        self._topic = topic
        self._start = start
        self._show = show

    async def run(
        self, numbers: list[int] | None, *, exit_at_end: bool, count: int | None, patience: float | None
    ) -> int:
        """Read and print; returns how many records."""
        from odradek import Consumer

        settings = {"bootstrap.servers": self._servers, "auto.offset.reset": "earliest"}
        async with Consumer[bytes | None, bytes | None].from_config(settings) as consumer:
            chosen = await self._choose(consumer, numbers)
            ends = await self._go_to_start(consumer, chosen)
            wanted = {tp: end for tp, end in ends.items() if await consumer.position(tp) < end}
            if exit_at_end and not wanted:
                return 0
            return await self._print(consumer, wanted if exit_at_end else None, count, patience)

    async def _choose(
        self, consumer: Consumer[bytes | None, bytes | None], numbers: list[int] | None
    ) -> list[TopicPartition]:
        from odradek import TopicPartition
        from odradek.cli.produce import partitions_of

        known = await partitions_of(self._servers, self._topic, consumer.partitions_for)
        for number in numbers or ():
            if number not in known:
                raise CommandFailed(f"{self._topic} has no partition {number}; it has {len(known)}, from 0 on")
        chosen = [TopicPartition(self._topic, number) for number in numbers or known]
        consumer.assign(chosen)
        return chosen

    async def _go_to_start(
        self, consumer: Consumer[bytes | None, bytes | None], chosen: list[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Seek; returns where each partition ends now."""
        ends = await consumer.end_offsets(chosen)
        begins = await consumer.beginning_offsets(chosen)
        number = self._start.number
        match self._start.kind:
            case "beginning":
                places = dict(begins)
            case "end":
                places = dict(ends)
            case "offset":
                places = dict.fromkeys(chosen, number)
            case "last":
                places = {tp: max(begins[tp], ends[tp] - number) for tp in chosen}
            case _:
                found = await consumer.offsets_for_times(dict.fromkeys(chosen, number))
                places = {tp: place.offset if place is not None else ends[tp] for tp, place in found.items()}
        for tp, place in places.items():
            if self._start.kind == "offset" and not begins[tp] <= place <= ends[tp]:
                raise CommandFailed(f"{tp} has offsets {begins[tp]} to {ends[tp]}, not {place}")
            consumer.seek(tp, place)
        return ends

    async def _print(
        self,
        consumer: Consumer[bytes | None, bytes | None],
        ends: dict[TopicPartition, int] | None,
        count: int | None,
        patience: float | None,
    ) -> int:
        """Poll until the ends are reached, `count` records are printed, or nothing came within `patience`."""
        seen = 0
        while count is None or seen < count:
            records = await consumer.poll(patience if patience is not None else 1.0)
            if not records and patience is not None:
                raise CommandFailed(f"no record for {patience:g} seconds", exit_code=TIMED_OUT)
            if ends is not None:
                records = [record for record in records if record.offset < ends.get(record.topic_partition, 0)]
            if count is not None:
                records = records[: count - seen]
            seen += len(records)
            self._write(records)
            if ends is not None:
                for tp in [tp for tp, end in ends.items() if await consumer.position(tp) >= end]:
                    del ends[tp]
                if not ends:
                    break
        return seen

    def _write(self, records: list[Record]) -> None:
        out = sys.stdout.buffer
        out.write(b"".join([self._show(record) for record in records]))
        out.flush()
