"""`odradek produce`: write records from standard input, a file, JSON lines or a generator."""

from __future__ import annotations

import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer
from odradek_proto.command_line import FAILED, FINE, INTERRUPTED, USAGE, CommandFailed
from odradek_proto.words import noun

from odradek.cli.clusters.current import bootstrap_servers
from odradek.cli.terminal.failures import did_you_mean, explain
from odradek.cli.terminal.grouping import SCREEN, CommandGroup, QuietScreen
from odradek.cli.terminal.options import LARGEST_INT32, MOST_SECONDS, Bootstrap, seconds
from odradek.cli.terminal.running import run
from odradek.cli.terminal.screen import Screen, human_bytes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from odradek.cli.records.outgoing import Portion
    from odradek.cli.records.sending import SendStatistics

app = CommandGroup("Write records: lines, files, JSON, or generated ones.", no_args_is_help=False)
UNKNOWN_TOPIC_MS = 2_000  # before the cluster is asked whether there is such a topic at all
KNOWN_TOPIC_TRIES = 10  # so often, as long as it says that there is
WAITING_BYTES = 4 << 20  # less than buffer.memory's default: after Ctrl-C a moment's records are waited for
WAITING_BATCHES = 32  # enough for all leaders to be kept busy


class InputFormat(StrEnum):
    LINES = "lines"
    JSON = "json"


class Acks(StrEnum):
    ALL = "all"
    LEADER = "1"
    NONE = "0"


class CompressionType(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Where to write.")]
KeySeparator = Annotated[
    str | None,
    typer.Option("-K", "--key-separator", metavar="SEP", help="Separator between key and value in each line."),
]
Key = Annotated[str | None, typer.Option("-k", "--key", metavar="KEY", help="The key of every record.")]
Tombstone = Annotated[
    bool, typer.Option("--tombstone", help="Write one record without a value, for -k; it reads no input.")
]
HeaderTexts = Annotated[
    list[str] | None, typer.Option("-H", "--headers", metavar="K=V", help="A header of each record. Repeatable.")
]
InputFile = Annotated[
    Path | None, typer.Option("--file", metavar="FILE", help="Read this file instead of standard input.")
]
Input = Annotated[
    InputFormat, typer.Option("--input", help="lines: a value each; json: an object each, as `consume -J` prints.")
]
Count = Annotated[
    int | None, typer.Option("--count", metavar="N", min=0, help="Make up N records instead (0: until Ctrl-C).")
]
Size = Annotated[str, typer.Option("--size", metavar="BYTES", help="Size of the values that --count makes up.")]
Partition = Annotated[
    int | None,
    typer.Option("-p", "--partition", metavar="N", min=0, max=LARGEST_INT32, help="Write to this partition only."),
]
Create = Annotated[bool, typer.Option("--create", help="Create the topic if it is not there.")]
Whose = Annotated[
    Acks, typer.Option("--acks", help="Acknowledgement to wait for: all in-sync replicas, the leader, or none.")
]
DeliveryTimeout = Annotated[float, seconds("--timeout", "Give a record up after so long.", least=0.1)]
DELIVERY_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    """Options that say how records are sent."""

    acks: Whose = Acks.ALL
    rate: Annotated[float, typer.Option("--rate", metavar="N", min=0, help="At most so many records a second.")] = 0
    compression: Annotated[CompressionType, typer.Option("-z", "--compression", help="Codec.")] = CompressionType.NONE
    linger: Annotated[
        float,
        typer.Option(
            "--linger", metavar="MS", min=0, max=MOST_SECONDS * 1000, help="Wait so long for a batch to fill."
        ),
    ] = 0
    batch_size: Annotated[str, typer.Option("--batch-size", metavar="BYTES", help="Largest batch.")] = "16KiB"
    delivery_timeout: DeliveryTimeout = DELIVERY_TIMEOUT_S

    def settings(self, *, create: bool = False) -> Mapping[str, object]:
        """What the producer is given, beside the addresses."""
        from odradek.cli.terminal.parsing import parse_size

        batch_bytes = parse_size(self.batch_size)
        return {
            "acks": self.acks.value,
            "linger_ms": self.linger,
            "batch_size": batch_bytes,
            "buffer_memory": max(WAITING_BYTES, WAITING_BATCHES * batch_bytes),
            "compression_type": self.compression.value,
            "delivery_timeout_ms": int(self.delivery_timeout * 1000),
            "allow_auto_create_topics": create,
            "unknown_topic_timeout_ms": UNKNOWN_TOPIC_MS,
        }


SENDER = ProduceOptions()


@app.command()
def produce(
    topic: Topic,
    key_separator: KeySeparator = None,
    key: Key = None,
    tombstone: Tombstone = False,
    headers: HeaderTexts = None,
    file: InputFile = None,
    input_format: Input = InputFormat.LINES,
    count: Count = None,
    size: Size = "100",
    partition: Partition = None,
    create: Create = False,
    sender: ProduceOptions = SENDER,
    bootstrap: Bootstrap = None,
    screen: QuietScreen = SCREEN,
) -> None:
    """Write records: lines, files, JSON, or generated ones.

    Without options a value per line of standard input. A line without the separator of -K has no key.
    The summary goes to standard error; with --json it is data: `errors` counts why records were not acknowledged,
    `ended_by` is what ended it early, for example a record that is too large. Exit code 1 in both cases.

    Ctrl-C or SIGTERM: no more is taken, and what was taken is waited for as long as --timeout says; a second one does
    not wait. Exit code 130 when all of it was acknowledged, 1 otherwise. What was read but not yet taken is not
    written: the summary counts the records of the input that were.
    """
    from odradek.cli.records.outgoing import parse_headers
    from odradek.cli.terminal.parsing import parse_size

    _check(topic, key_separator)
    _check_source(key, key_separator, input_format, file is not None, tombstone=tombstone, counted=count is not None)
    settings = sender.settings(create=create)
    fixed, bytes_each = parse_headers(headers or ()), parse_size(size)
    servers = bootstrap_servers(bootstrap)

    keyed = None if key is None else key.encode(errors="surrogateescape")

    def source(opened: BinaryIO) -> AsyncIterator[Portion]:
        from odradek.cli.records import outgoing

        if tombstone:
            return outgoing.one_record(outgoing.Outgoing(keyed, None, fixed, partition))
        if count is not None:
            return outgoing.generated_records(count, bytes_each, fixed, partition, keyed)
        if input_format is InputFormat.JSON:
            return outgoing.records_of_json(opened, fixed, partition)
        return outgoing.records_of_lines(opened, key_separator, fixed, partition, keyed)

    with ExitStack() as stack:
        opened: BinaryIO = sys.stdin.buffer if file is None else stack.enter_context(_opened(file))
        if file is None and count is None and not tombstone and sys.stdin.isatty():
            screen.say(f"type lines for {topic}; Ctrl-D ends")
        sent = run(send(servers, topic, screen, source(opened), settings, rate=sender.rate, total=count or 0))
    _sum_up(sent, screen)
    raise typer.Exit(FAILED if sent.failed or sent.unknown else INTERRUPTED if sent.interrupted else FINE)


def _check(topic: str, key_separator: str | None) -> None:
    from odradek.cli.terminal.parsing import check_topic_name

    check_topic_name(topic)
    if key_separator == "":
        raise CommandFailed("-K: the separator is empty", hint=r"-K : or -K $'\t'", exit_code=USAGE)


def _check_source(
    key: str | None, separator: str | None, form: InputFormat, file: bool, *, tombstone: bool, counted: bool
) -> None:
    """Raises `CommandFailed` (2) for options that exclude each other, or do nothing together."""
    wrong = ""
    if counted and (file or form is InputFormat.JSON):
        wrong, hint = "--count makes records up; it reads no input", "leave --file/--input out"
    elif key is not None and separator is not None:
        wrong, hint = "-k and -K exclude each other", "-k KEY for all records, or -K SEP for a key in each line"
    elif key is not None and form is InputFormat.JSON:
        wrong, hint = "-k is for lines; a JSON record has its own key", "leave -k or --input json out"
    elif tombstone and key is None:
        wrong, hint = "--tombstone needs a key", "-k KEY says whose value is deleted"
    elif tombstone and (counted or file):
        wrong, hint = "--tombstone is one record; it reads no input", "leave --count/--file out"
    if wrong:
        raise CommandFailed(wrong, hint=hint, exit_code=USAGE)


async def send(
    servers: str,
    topic: str,
    screen: Screen,
    source: AsyncIterator[Portion],
    settings: Mapping[str, object],
    *,
    rate: float,
    total: int,
) -> SendStatistics:
    """One producer's life. A bad record ends it early: the summary says what was written until then."""
    import asyncio

    from odradek import OdradekError, Producer, UnknownTopic
    from odradek.cli.records.sending import Sending
    from odradek.cli.terminal.stopping import hear_no_more, told_in_vain

    config = {"bootstrap.servers": servers, **settings}
    producer = Producer[bytes, bytes].from_config(config)
    await producer.start()
    sending = Sending(producer, topic, screen, rate=rate)
    begun = False
    try:
        await partitions_of(servers, topic, producer.partitions_for)
        begun = True
        await sending.run(source, total)
    except UnknownTopic as error:
        raise (await unknown_topic(servers, topic, error.message))[0] from error
    except (asyncio.CancelledError, CommandFailed, OdradekError, OSError) as error:
        if not isinstance(error, asyncio.CancelledError):
            sending.sent.ended_by = explain(error).message
        if begun or isinstance(error, asyncio.CancelledError):
            _sum_up(sending.sent, screen)
        raise
    finally:
        with told_in_vain(), suppress(ExceptionGroup):  # what was waited for in vain is counted as unknown
            await producer.close(0)
        if sending.sent.interrupted:
            hear_no_more()
    return sending.sent


async def partitions_of(servers: str, topic: str, ask: Callable[[str], Awaitable[list[int]]]) -> list[int]:
    """The partitions of a topic. Raises `CommandFailed` soon when the cluster does not know it.

    A topic that it knows is waited for: the broker that was asked may be busy, or may not have heard of it yet.
    """
    import asyncio

    from odradek import BootstrapError

    tries = 0
    while True:
        try:
            async with asyncio.timeout(UNKNOWN_TOPIC_MS / 1000):
                return await ask(topic)
        except (BootstrapError, LookupError, TimeoutError) as error:
            tries += 1
            failure, is_known = await unknown_topic(servers, topic)
            if not is_known or tries == KNOWN_TOPIC_TRIES:
                raise failure from error


async def unknown_topic(servers: str, topic: str, otherwise: str = "") -> tuple[CommandFailed, bool]:
    """The error for a topic or partition that is not found, with the nearest name there is; whether it is known."""
    from odradek import Admin

    async with Admin(servers) as admin:
        known = await admin.list_topics()
    if topic in known:
        return CommandFailed(
            otherwise or f"no answer about {topic!r}", hint=f"`odradek topic describe {topic}` shows its partitions"
        ), True
    return CommandFailed(
        f"there is no topic {topic!r}{did_you_mean(topic, known)}",
        hint=f"`odradek topic create {topic}` makes it; `odradek topic list` shows what is there",
    ), False


def _opened(file: Path) -> BinaryIO:
    from odradek.cli.terminal.parsing import unreadable

    try:
        return open(file, "rb")
    except OSError as error:
        raise unreadable("--file", file, error) from error


def _sum_up(sent: SendStatistics, screen: Screen) -> None:
    facts = sent.summary()
    if not screen.for_people:
        screen.show(facts, str)
        return
    latency = f"; acknowledged after p50 {facts['p50_ms']} ms, p99 {facts['p99_ms']} ms" if facts["records"] else ""
    screen.say(
        f"{facts['records']} {noun(facts['records'], 'record')}, "
        f"{human_bytes(facts['bytes'])} in {facts['seconds']:.1f} s: "
        f"{facts['records_per_second']:,.0f}/s, {human_bytes(facts['bytes_per_second'])}/s{latency}"
    )
    if facts["unknown"]:
        what, they = noun(facts["unknown"], "record was", "records were"), noun(facts["unknown"], "it", "they")
        print(f"odradek: {facts['unknown']} {what} not acknowledged yet; {they} may be written or not", file=sys.stderr)
    for message, number in sent.errors.items():
        what = noun(number, "record was", "records were")
        print(f"odradek: {number} {what} not acknowledged: {message}", file=sys.stderr)
    if sent.errors:
        from odradek.cli.records.measures import REMEDY

        print(f"  try: {REMEDY}", file=sys.stderr)
    if sent.maybe_written:
        print(
            f"  {sent.maybe_written} of them may be written all the same: `odradek cluster status` shows the log ends, "
            "`odradek doctor` says why",
            file=sys.stderr,
        )
