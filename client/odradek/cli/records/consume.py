"""`odradek consume`: read records and print them."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Annotated, NoReturn

import typer
from odradek_proto.command_line import USAGE, CommandFailed

from odradek.cli.clusters.current import bootstrap_servers
from odradek.cli.terminal.grouping import CommandGroup
from odradek.cli.terminal.options import LARGEST_INT32, Bootstrap, Quiet, seconds
from odradek.cli.terminal.parsing import ReadSpan, Start, check_group, parse_span
from odradek.cli.terminal.running import run
from odradek.cli.terminal.screen import Screen

app = CommandGroup("Read records.", no_args_is_help=False)

Topics = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC...", help="What to read. A regular expression begins with ^, for example ^orders"),
]
Offset = Annotated[
    str,
    typer.Option(
        "-o",
        "--offset",
        metavar="WHERE",
        help="beginning, end, an offset, -N (the last N of each partition), @TIME (ISO or ms); FROM:TO stops "
        "before TO: 5:10, :end, @TIME:@TIME.",
    ),
]
Format = Annotated[
    str,
    typer.Option(
        "-f",
        "--format",
        metavar="FORMAT",
        help="%t topic, %p partition, %o offset, %k key, %v or %s value, %h headers, %T timestamp in ms, "
        "%e leader epoch, %K and %S length of key and value (-1: null), %% a percent sign; "
        r"\n \t \r \0 \\ as usual.",
    ),
]
Group = Annotated[
    str | None,
    typer.Option(
        "-G",
        "--group",
        metavar="GROUP",
        help="As a member of this group, from where it was; -o beginning or end where it has committed nothing.",
    ),
]


@app.command()
def consume(
    topics: Topics,
    offset: Offset = "end",
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Short for -o beginning.")] = False,
    exit_at_end: Annotated[bool, typer.Option("-e", "--exit", help="Stop at the end of what is there now.")] = False,
    count: Annotated[
        int | None, typer.Option("-c", "--count", metavar="N", min=1, help="Stop after N records.")
    ] = None,
    partitions: Annotated[
        list[int] | None,
        typer.Option(
            "-p", "--partition", metavar="N", min=0, max=LARGEST_INT32, help="Only this one. May be repeated."
        ),
    ] = None,
    record_format: Format = r"%v\n",
    group: Group = None,
    json_lines: Annotated[bool, typer.Option("-J", help="One JSON object a line and record.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same as -J.")] = False,
    timeout: Annotated[float | None, seconds("--timeout", "Stop when no record came for so long (exit 5).")] = None,
    bootstrap: Bootstrap = None,
    quiet: Quiet = False,
) -> None:
    """Read records.

    Prints them until Ctrl-C, until -e or -c say enough, or up to the end of -o FROM:TO, for which it waits without -e.
    Only records below the high watermark are read: what a failure could still take back is not shown.
    """
    from odradek.cli.records.format import compile_format, json_line
    from odradek.cli.records.reading import ConsumeRun, GroupReader

    for topic in topics:
        _check(topic)
    if group is not None:
        check_group(group)
    span = ReadSpan(Start("beginning")) if from_beginning else parse_span(offset)
    ends_by_itself = exit_at_end or span.end is not None
    if span.begin.kind == "end" and ends_by_itself and group is None:
        _refuse_nothing(bootstrap, topics, partitions, f"-o {offset}" if span.end is not None else f"-o {offset} -e")
    show = json_line if json_lines or as_json else compile_format(record_format)
    screen = Screen(quiet=quiet)
    servers = bootstrap_servers(bootstrap)
    if group is not None:
        member = GroupReader(servers, group, span, partitions, show)
        if run(member.run(topics, to_end=exit_at_end, count=count, patience=timeout)):
            raise KeyboardInterrupt
        return
    reading = ConsumeRun(servers, span, to_end=exit_at_end, show=show, screen=screen)
    seen = run(reading.run(topics, partitions, count=count, patience=timeout))
    if not seen and ends_by_itself:
        screen.say("no records there")


def _check(topic: str) -> None:
    """Raises `CommandFailed` (2) for a name that no topic can have, or an expression that is none."""
    from odradek.cli.terminal.parsing import check_topic_name

    if not topic.startswith("^"):
        check_topic_name(topic)
        return
    try:
        re.compile(topic)
    except re.error as error:
        raise CommandFailed(
            f"{topic!r} is no regular expression: {error}", hint="as Python writes them: '^orders-.*'", exit_code=USAGE
        ) from None


def _refuse_nothing(bootstrap: str | None, topics: list[str], partitions: list[int] | None, span: str) -> NoReturn:
    """Raises `CommandFailed` for a span in which there never is a record.

    First for a topic or a partition that is not there, if a cluster can be asked: that is what has to be mended.
    """
    from odradek import OdradekError
    from odradek.cli.records.reading import check_meant

    try:
        servers = bootstrap_servers(bootstrap)
    except CommandFailed:
        servers = ""  # no cluster was named
    with suppress(OdradekError):
        if servers:
            run(check_meant(servers, topics, partitions))
    raise CommandFailed(f"{span} reads nothing", hint="-o beginning, or -o -10 for the last ten", exit_code=USAGE)
