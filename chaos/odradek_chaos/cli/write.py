"""`odradek chaos write`: a bounded workload of unique records, and a ledger of what the writer was told.

The ledger is what `odradek audit run --history` takes. Exit codes: 0 every record was acknowledged, 1 some were not,
2 usage, 130 interrupted, and what was sent until then was acknowledged.
"""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer
from odradek.cli.clusters.current import bootstrap_servers
from odradek.cli.records.produce import DELIVERY_TIMEOUT_S, Acks, DeliveryTimeout, Whose
from odradek.cli.terminal.grouping import SCREEN, QuietScreen
from odradek.cli.terminal.options import DEFAULT_TIMEOUT_S, LARGEST_INT32, Bootstrap, seconds
from odradek.cli.terminal.screen import Screen
from odradek.cli.terminal.stopping import hear_no_more, say_what_is_waited_for, told_to_stop
from odradek_proto.command_line import FAILED, FINE, INTERRUPTED, USAGE, CommandFailed
from odradek_proto.output_places import check_output_file
from odradek_proto.words import noun

if TYPE_CHECKING:
    from odradek_chaos.harness.workload import WorkloadWriter

DEFAULT_COUNT = 10_000
Count = Annotated[
    int | None,
    typer.Option(
        "--count",
        metavar="N",
        min=1,
        help=f"How many records, over all partitions. Default: {DEFAULT_COUNT:,}, with --seconds no limit.",
    ),
]
Rate = Annotated[
    float | None,
    typer.Option("--rate", metavar="N", min=1, max=LARGEST_INT32, help="At most so many records a second."),
]
Seconds = Annotated[float | None, seconds("--seconds", "Stop after so long.")]
History = Annotated[
    Path | None, typer.Option("--history", metavar="FILE", help="Write down here what was sent and acknowledged.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is in --history.")]
Partitions = Annotated[int, typer.Option("-p", "--partitions", min=1, help="Of the topic, when it must be made.")]
InFlight = Annotated[int, typer.Option("--in-flight", min=1, help="Unacknowledged records of each partition.")]
MAX_BLOCK_MS = 60_000  # as in Kafka: so long a record waits at most before it is taken


class WriteLoad(NamedTuple):
    """What is written. `partitions` is of a topic that must be made; `limit` and `rate` are records and records/s."""

    topic: str
    partitions: int
    in_flight: int
    acks: Acks
    limit: int | None
    rate: float | None
    seconds: float | None


def write(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where to write. It is made when it is not there.")],
    count: Count = None,
    rate: Rate = None,
    for_seconds: Seconds = None,
    history: History = None,
    overwrite: Overwrite = False,
    partitions: Partitions = 3,
    in_flight: InFlight = 100,
    acks: Whose = Acks.ALL,
    delivery_timeout: DeliveryTimeout = DELIVERY_TIMEOUT_S,
    bootstrap: Bootstrap = None,
    screen: QuietScreen = SCREEN,
) -> None:
    """Write unique records, and keep a ledger for the audit. With acks=all the producer is idempotent.

    Ends after --count records, or --seconds, whichever comes first.

    Goes on through failures: a record whose fate nobody knows is in the ledger as such. Ctrl-C or SIGTERM: no more is
    sent, and what was sent is waited for as long as --timeout says; a second one does not wait. The ledger is whole in
    any case. It says with which acks each record went: the audit owes nobody those of acks=1 and 0.
    """
    import asyncio

    if history is not None and history.is_file() and not overwrite:
        raise CommandFailed(
            f"{history} is there already", hint="give --overwrite to replace it, or another --history", exit_code=USAGE
        )
    check_output_file("--history", history)
    servers = bootstrap_servers(bootstrap)
    limit = DEFAULT_COUNT if count is None and for_seconds is None else count
    load = WriteLoad(topic, partitions, in_flight, acks, limit, rate, for_seconds)
    try:
        facts = asyncio.run(_write(servers, load, history, delivery_timeout, screen))
    except OSError as error:
        if history is None or type(error).__module__.startswith("odradek"):  # a timeout of the client is one, too
            raise
        raise CommandFailed(
            f"cannot write the ledger {history}: {error.strerror or error}",
            hint="give another --history; what was acknowledged meanwhile is not all in this one",
        ) from error
    _show(screen, facts)
    if facts["acknowledged"] != facts["sent"]:
        raise typer.Exit(FAILED)
    raise typer.Exit(INTERRUPTED if facts["interrupted"] else FINE)


def _show(screen: Screen, facts: dict[str, int | str | bool]) -> None:
    place = f"; the history is {facts['history']}" if "history" in facts else ""
    sent = f"{facts['sent']} {noun(facts['sent'], 'record')}"
    they_are = noun(facts["sent"], "it is", "they are")
    told = (
        f"{sent} handed to {facts['topic']}; with acks=0 nobody says whether {they_are} there{place}"
        if facts["acks"] == Acks.NONE
        else f"{facts['acknowledged']} of {sent} acknowledged in topic {facts['topic']}, "
        f"the longest silence of a partition was {facts['longest_silence_ms']} ms{place}"
    )
    if facts["unknown"]:
        they = noun(facts["unknown"], "record nobody knows: it", "records nobody knows: they")
        told += f"\nof {facts['unknown']} {they} may be written or not"
    screen.show(facts, lambda: told)


async def _write(
    servers: str, load: WriteLoad, history: Path | None, timeout_s: float, screen: Screen
) -> dict[str, int | str | bool]:
    """Write, until all is written or it is told to stop; returns what became of it. Raises `OSError` of the ledger."""
    import asyncio

    from odradek import Producer
    from odradek_proto.transport.clock import LoopClock

    from odradek_chaos.harness.workload import Ledger, Pace, WorkloadWriter

    found = await _partitions(servers, load.topic, load.partitions)
    clock = LoopClock(random.Random())
    name = f"w{random.randrange(1 << 32):08x}"  # another run on the same topic writes other values
    ledger = Ledger(clock, history, keep=False)
    acks: Literal["all", 1, 0] = "all" if load.acks is Acks.ALL else 1 if load.acks is Acks.LEADER else 0
    timeout_ms = int(timeout_s * 1000)
    producer: Producer[bytes, bytes] = Producer(
        servers,
        acks=acks,
        enable_idempotence=acks == "all",
        linger_ms=1,
        delivery_timeout_ms=timeout_ms,
        max_block_ms=min(timeout_ms, MAX_BLOCK_MS),
    )
    await producer.start()
    pause_ms = Pace(clock, load.rate) if load.rate is not None else None
    writer = WorkloadWriter(
        producer,
        ledger,
        clock,
        load.topic,
        found,
        name,
        acks=acks,
        in_flight=load.in_flight,
        pause_ms=pause_ms,
        limit=load.limit,
    )
    if load.seconds is not None:
        asyncio.get_running_loop().call_later(load.seconds, writer.stop)
    interrupted = await _run(writer, screen)
    if interrupted:
        hear_no_more()
    sent = sum(writer.sent.values())
    return {
        "topic": load.topic,
        "writer": name,
        "acks": load.acks.value,
        "sent": sent,
        "acknowledged": ledger.acknowledged,
        "failed": ledger.failed,
        "unknown": sent - ledger.acknowledged - ledger.certainly_not_written,
        "interrupted": interrupted,
        "longest_silence_ms": ledger.longest_silence_ms(),
        **({"history": str(history)} if history is not None else {}),
    }


async def _run(writer: WorkloadWriter, screen: Screen) -> bool:
    """Run a writer to its end, or until it is told to stop; the second time its records are not waited for.

    Whoever tells it once more does not keep it from completing the ledger.
    """
    import asyncio

    running = asyncio.create_task(writer.run())
    told = 0

    def on_told() -> None:
        nonlocal told
        if running.done():
            return
        told += 1
        writer.stop()
        if told > 1:
            running.cancel()
            return
        say_what_is_waited_for(writer.ledger.unacknowledged, screen)

    with told_to_stop(on_told):
        try:
            await running
        except asyncio.CancelledError:
            if told < 2:
                raise
        finally:
            with contextlib.suppress(ExceptionGroup):  # each failure is in the ledger already
                await writer.producer.close(0)
            await writer.settle()
            writer.ledger.close()
    return told > 0


async def _partitions(servers: str, topic: str, wanted: int) -> int:
    """How many partitions the topic has; makes it with the brokers' default replication factor if it is not there."""
    from odradek import Admin
    from odradek.administration.descriptions import NewTopic

    from odradek_chaos.harness.topics import create_topic

    async with Admin(servers) as admin:
        if topic in await admin.list_topics():
            return len((await admin.describe_topics([topic]))[0].partitions)
        return await create_topic(admin, NewTopic(topic, wanted), timeout_s=DEFAULT_TIMEOUT_S, may_exist=True)
