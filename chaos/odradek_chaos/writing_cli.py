"""`odradek chaos write`: a bounded workload of unique records, and a ledger of what the writer was told.

The ledger is what `odradek audit run --history` takes. Exit codes: 0 every record was acknowledged, 1 some were not,
2 usage.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path
from typing import Annotated

import typer
from odradek.cli.current import bootstrap_servers
from odradek.cli.failures import FAILED, FINE, USAGE, CommandFailed
from odradek.cli.options import DEFAULT_TIMEOUT_S, Bootstrap, Json, Output, OutputFormat, Quiet
from odradek.cli.screen import Screen

Count = Annotated[int, typer.Option("--count", metavar="N", min=1, help="How many records, over all partitions.")]
History = Annotated[
    Path | None, typer.Option("--history", metavar="FILE", help="Write down here what was sent and acknowledged.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is in --history.")]
Partitions = Annotated[int, typer.Option("-p", "--partitions", min=1, help="Of the topic, when it must be made.")]
InFlight = Annotated[int, typer.Option("--in-flight", min=1, help="Unacknowledged records of each partition.")]


def write(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where to write. It is made when it is not there.")],
    count: Count = 10_000,
    history: History = None,
    overwrite: Overwrite = False,
    partitions: Partitions = 3,
    in_flight: InFlight = 100,
    bootstrap: Bootstrap = None,
    output: Output = OutputFormat.TABLE,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write unique records with acks=all and idempotence, and keep a ledger for the audit.

    Goes on through failures: a record whose fate nobody knows is in the ledger as such.
    """
    screen = Screen(output, as_json, quiet)
    if history is not None and history.is_file() and not overwrite:
        raise CommandFailed(
            f"{history} is there already", hint="give --overwrite to replace it, or another --history", exit_code=USAGE
        )
    servers, facts = bootstrap_servers(bootstrap), dict[str, int | str]()
    try:
        asyncio.run(_write(servers, topic, count, history, partitions, in_flight, facts))
    except OSError as error:
        raise CommandFailed(f"cannot write the ledger: {error}") from error
    except KeyboardInterrupt:
        if facts:
            _show(screen, facts)
        raise
    _show(screen, facts)
    raise typer.Exit(FINE if facts["acknowledged"] == facts["sent"] else FAILED)


def _show(screen: Screen, facts: dict[str, int | str]) -> None:
    place = f"; the ledger is {facts['history']}" if "history" in facts else ""
    screen.show(
        facts,
        lambda: (
            f"{facts['acknowledged']} of {facts['sent']} records acknowledged by {facts['topic']}, "
            f"the longest silence of a partition was {facts['longest_silence_ms']} ms{place}"
        ),
    )


async def _write(
    servers: str,
    topic: str,
    count: int,
    history: Path | None,
    partitions: int,
    in_flight: int,
    facts: dict[str, int | str],
) -> None:
    """Write, and fill `facts` also when it is interrupted: the ledger holds what was sent until then."""
    from odradek import Producer
    from odradek_proto.transport.clock import LoopClock

    from odradek_chaos.workload import Ledger, Writer

    found = await _partitions(servers, topic, partitions)
    clock = LoopClock(random.Random())
    name = f"w{random.randrange(1 << 32):08x}"  # another run on the same topic writes other values
    ledger = Ledger(clock, history, keep=False)
    producer: Producer[bytes, bytes] = Producer(servers, acks="all", enable_idempotence=True, linger_ms=1)
    await producer.start()
    writer = Writer(producer, ledger, clock, topic, found, name, in_flight=in_flight, limit=count)
    try:
        await writer.run()
    finally:
        with contextlib.suppress(ExceptionGroup):  # each failure is in the ledger already
            await producer.close()
        ledger.close()
        silences = [item.longest_silence_ms for item in ledger.progress.values()]
        facts |= {
            "topic": topic,
            "writer": name,
            "sent": sum(writer.sent.values()),
            "acknowledged": ledger.acknowledged,
            "failed": ledger.failed,
            "longest_silence_ms": max(silences, default=0),
            **({"history": str(history)} if history is not None else {}),
        }


async def _partitions(servers: str, topic: str, wanted: int) -> int:
    """How many partitions the topic has; makes it with the brokers' default replication factor if it is not there."""
    from odradek import Admin
    from odradek.descriptions import NewTopic

    from odradek_chaos.topics import create_topic

    async with Admin(servers) as admin:
        if topic in await admin.list_topics():
            return len((await admin.describe_topics([topic]))[0].partitions)
        return await create_topic(admin, NewTopic(topic, wanted), timeout_s=DEFAULT_TIMEOUT_S, may_exist=True)
