"""`odradek bench`: how many records a second a running cluster takes and gives, and how late.

`bench produce` is `odradek produce` with records that it makes up; `bench consume` reads what is there, or what comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from odradek_proto.command_line import FAILED, FINE, INTERRUPTED
from odradek_proto.words import noun

from odradek.cli.clusters.current import bootstrap_servers
from odradek.cli.records.produce import SENDER, Partition, ProduceOptions, partitions_of, send
from odradek.cli.terminal.grouping import SCREEN, CommandGroup, QuietScreen
from odradek.cli.terminal.options import Bootstrap, seconds
from odradek.cli.terminal.parsing import check_topic_name, parse_size
from odradek.cli.terminal.running import run
from odradek.cli.terminal.screen import Screen, human_bytes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from odradek.cli.records.outgoing import Portion

app = CommandGroup("Measure a cluster.")

DEFAULT_COUNT: Final = 100_000
READ_AT_ONCE: Final = 5_000  # records of a poll
LOOK_EVERY_S: Final = 0.1  # whether it is time to stop
LATENCIES: Final = ("p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms")
Seconds = Annotated[float | None, seconds("--seconds", "Stop after so long.")]


@app.command("produce")
def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where to write.")],
    count: Annotated[
        int | None,
        typer.Option(
            "--count", metavar="N", min=1, help=f"How many. Default: {DEFAULT_COUNT:,}, with --seconds no limit."
        ),
    ] = None,
    for_seconds: Seconds = None,
    size: Annotated[str, typer.Option("--size", metavar="BYTES", help="Size of the values.")] = "100",
    partition: Partition = None,
    sender: ProduceOptions = SENDER,
    bootstrap: Bootstrap = None,
    screen: QuietScreen = SCREEN,
) -> None:
    """Write records as fast as the cluster takes them, or at --rate: records/s, bytes/s, latencies.

    A latency is from handing a record over to its acknowledgement. Without --rate that is above all the time in the
    producer's own buffer: --rate below what the cluster takes shows what a record costs by itself.
    """
    from odradek.cli.records.outgoing import generated_records, until

    check_topic_name(topic)
    limit = DEFAULT_COUNT if count is None and for_seconds is None else count or 0
    settings = sender.settings()
    source: AsyncIterator[Portion] = generated_records(limit, parse_size(size), (), partition)
    if for_seconds is not None:
        source = until(for_seconds, source)
    sent = run(send(bootstrap_servers(bootstrap), topic, screen, source, settings, rate=sender.rate, total=limit))
    _show(screen, sent.summary(), "written")
    raise typer.Exit(FAILED if sent.failed or sent.unknown else INTERRUPTED if sent.interrupted else FINE)


@app.command("consume")
def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="What to read.")],
    live: Annotated[
        bool, typer.Option("--live", help="Read what is written from now on instead, and measure how late it comes.")
    ] = False,
    count: Annotated[int | None, typer.Option("--count", metavar="N", min=1, help="Stop after N records.")] = None,
    for_seconds: Seconds = None,
    bootstrap: Bootstrap = None,
    screen: QuietScreen = SCREEN,
) -> None:
    """Read a topic from its beginning to its end, as fast as it comes: records/s, bytes/s.

    With --live latencies, too: from a record's timestamp, which its producer has set, until it is read here. Two
    machines need clocks that agree for it.
    """
    check_topic_name(topic)
    facts = run(_read(bootstrap_servers(bootstrap), topic, screen, live=live, count=count, for_seconds=for_seconds))
    _show(screen, facts, "read")
    raise typer.Exit(INTERRUPTED if facts["interrupted"] else FINE)


def _show(screen: Screen, facts: dict[str, Any], what: str) -> None:
    def text() -> str:
        latencies = "  ".join(
            f"{name.removesuffix('_ms').replace('p999', 'p99.9')} {facts[name]}" for name in LATENCIES
        )
        pace = f"{facts['records_per_second']:,.0f}/s, {human_bytes(facts['bytes_per_second'])}/s"
        return (
            f"{facts['records']} {noun(facts['records'], 'record')} {what}, {human_bytes(facts['bytes'])} in "
            f"{facts['seconds']:.1f} s: {pace}"
        ) + (f"\nlatency in ms: {latencies}" if facts[LATENCIES[0]] is not None else "")

    screen.show(facts, text)


async def _read(
    servers: str, topic: str, screen: Screen, *, live: bool, count: int | None, for_seconds: float | None
) -> dict[str, Any]:
    """Read up to the end, or `count` records, or so long, or until told to stop."""
    import asyncio

    from odradek import Consumer
    from odradek.cli.records.measures import ReceiveStatistics, tell
    from odradek.cli.terminal.stopping import told_to_stop

    stopped = asyncio.Event()
    settings = {"bootstrap.servers": servers, "auto.offset.reset": "latest" if live else "earliest"}
    async with Consumer[bytes | None, bytes | None].from_config(settings) as consumer:
        await partitions_of(servers, topic, consumer.partitions_for)
        consumer.subscribe(topic)
        got = ReceiveStatistics(stamped=live)
        news = asyncio.create_task(tell(screen, topic, count or 0, lambda: (got.records, "read"), got.pace))
        batches = consumer.batches(max_records=READ_AT_ONCE, max_wait=LOOK_EVERY_S, until=None if live else "end")
        try:
            with told_to_stop(stopped.set):
                async for records in batches:
                    got.take(records if count is None else records[: count - got.records])
                    late = for_seconds is not None and got.seconds >= for_seconds
                    if late or stopped.is_set() or got.records == count:
                        break
        finally:
            news.cancel()
    return {**got.summary(), "interrupted": stopped.is_set()}
