"""`odradek audit`: checks the log directories of a cluster's replicas against each other, and against what clients
were told.

Exit codes: 0 fine, 1 inconclusive or failed, 2 usage, 3 findings, 130 interrupted. Only this module knows typer; Spark
is imported when it is asked for.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer
from odradek_proto.topics import INTERNAL_TOPICS

from odradek_audit.cli.live import live
from odradek_audit.cli.refusing import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    begin,
    check_out,
    output_directory,
    stop,
    topics_named,
    write_behind_verdict,
)
from odradek_audit.words import plural

if TYPE_CHECKING:
    from rich.console import Console

    from odradek_audit.cli.progress import ProgressBar
    from odradek_audit.findings import Note
    from odradek_audit.report import Report

app = typer.Typer(
    name="audit",
    help="Check replicas' log directories, of odradek or of Kafka, against each other and against a history.",
    no_args_is_help=True,
)

SHOWN_FINDINGS = 20
MASTER = re.compile(r"local(\[(\*|[1-9]\d*)(, *\d+)?\])?|local-cluster\[.+\]|(spark|k8s)://.+|yarn")
SMALL_BYTES = 2 * 1024 * 1024 * 1024
"""Below this the local engine has finished before Spark has started, so it is the default."""


class Engine(StrEnum):
    """What runs the checks."""

    SPARK = "spark"
    LOCAL = "local"


class Output(StrEnum):
    """What is printed: for people, one JSON document, or one JSON object a finding."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


class _Request(TypedDict):
    """What both engines are asked."""

    replicas: dict[str, str]
    history: Path | None
    topics: list[str] | None
    settled: bool
    deep: bool | None


Deep = Annotated[
    bool | None,
    typer.Option("--deep/--no-deep", help="Decode the records of every batch. Default: up to 256 MiB of logs."),
]
Histories = Annotated[
    list[Path] | None,
    typer.Option("--history", metavar="FILE", help="What clients were told, in JSON lines (docs/checks.md)."),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, help="Processes of the local engine. Default: all cores.")
]

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--setting",
        metavar="NAME=VALUE",
        help="What the cluster ran with (acks, min.insync.replicas, odradek.fsync, unclean.leader.election.enable, "
        "odradek.truncation.mode): the report says what was owed.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.callback()
def audit() -> None:
    """Check replicas' log directories, of odradek or of Kafka, against each other and against a history."""


@app.command()
def run(
    replica: Annotated[
        list[str] | None,
        typer.Option("--replica", metavar="NAME=DIR", help="A broker's log directory, a path or a URI; once for each."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", metavar="DIR", help="Instead: what holds the brokers' directories; wildcards, a URI."),
    ] = None,
    history: Histories = None,
    engine: Annotated[Engine | None, typer.Option("--engine", help="Default: local up to 2 GiB, then spark.")] = None,
    master: Annotated[str, typer.Option("--master", help="Spark's master.")] = "local[*]",
    jobs: Jobs = None,
    topics: Annotated[str | None, typer.Option("--topics", help="Only these, separated by commas.")] = None,
    settled: Annotated[
        bool, typer.Option("--settled", help="The cluster had time to recover: tails that wait for truncation count.")
    ] = False,
    deep: Deep = None,
    out: Annotated[
        str | None, typer.Option("--out", metavar="DIR", help="Write the findings, their numbers and report.html here.")
    ] = None,
    html: Annotated[bool, typer.Option("--html/--no-html", help="Write report.html into --out.")] = True,
    setting: Settings = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is in --out.")] = False,
    output: Annotated[Output, typer.Option("--output", help="What to print.")] = Output.TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --output json.")] = False,
) -> None:
    """Read copies of log directories and say, with evidence, where the replicas disagree.

    Audit copies, or directories of stopped brokers: files that change while they are read contradict each other. Where
    a broker holds the lock of its directory, a line on standard error and a note (in-use) say so.
    Exit code 0: fine, 1: inconclusive (too little was compared), 2: usage, 3: findings, 130: interrupted.
    """
    from rich.console import Console

    from odradek_audit.cli.progress import progress_bar
    from odradek_audit.inputs.brokers import absent_brokers
    from odradek_audit.inputs.history import CorruptHistory
    from odradek_audit.inputs.stores import is_uri
    from odradek_audit.report.files import write_report

    console, shown = Console(stderr=True), Output.JSON if as_json else output
    begin("run", in_json=shown is not Output.TABLE)
    replicas = _replicas(replica or [], data or [])
    here = {name: Path(place) for name, place in replicas.items() if not is_uri(place)}
    whole = Path(data[0]) if data and len(data) == 1 and Path(data[0]).is_dir() else None
    check_out(out, overwrite, here, whole)
    configuration = _settings(setting or [])
    wanted = topics_named(topics)
    chosen = _chosen_engine(engine, master, replicas, wanted)
    request = _Request(replicas=replicas, history=_history(history or []), topics=wanted, settled=settled, deep=deep)
    at_work = _brokers_at_work(here)
    try:
        with progress_bar(console, shown=shown is Output.TABLE) as bar:
            if chosen is Engine.SPARK:
                report = _run_spark(console, bar, request, master)
            else:
                report = _run_local(bar, request, jobs)
    except CorruptHistory as error:
        stop(f"--history {request['history']}: line {error.line}: {error.reason}")
    except KeyboardInterrupt:
        stop("interrupted; nothing was concluded", EXIT_INTERRUPTED)
    report.notes = [*at_work, *(absent_brokers(whole, here) if whole is not None else []), *report.notes]
    report.configuration = configuration
    report.history_file = str(request["history"] or "")
    report.made_at = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    _print(report, shown, out, every_partition=wanted is not None)
    write_behind_verdict(
        report.exit_code, {f"--out {out}": partial(write_report, report, out, html=html)} if out is not None else {}
    )


@app.command()
def package(
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="The archive and audit_job.py go here.")],
    also: Annotated[
        list[str] | None,
        typer.Option(
            "--with", metavar="PACKAGE", help="Also this one, with what it needs: pyarrow, for object stores."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write what spark-submit needs where nothing of odradek is installed.

    The archive holds the audit and packages with C code as they are installed here, so it is for executors with this
    Python and this kind of machine.
    """
    from odradek_audit.spark.package import NotInstalled, write_package

    begin("package", in_json=as_json)
    directory = output_directory("--out", out)
    try:
        inside = write_package(directory, also or [])
    except NotInstalled as error:
        stop(str(error), EXIT_FAILED, hint=error.hint)
    except OSError as error:
        stop(f"--out {out}: {error.strerror or error}", EXIT_FAILED, hint="name a directory that you may write to")
    if as_json:
        typer.echo(json.dumps({"directory": str(out), "packages": inside}))
    else:
        typer.echo(f"{out}: audit_job.py and odradek_audit.tar.gz with {', '.join(inside)}")


app.command()(live)


def _replicas(entries: Sequence[str], data: Sequence[str]) -> dict[str, str]:
    """Where each replica's log directory is, checked to be there."""
    from odradek_audit.inputs.layout import replicas_of
    from odradek_audit.inputs.stores import located

    found: dict[str, str] = {}
    try:
        found = replicas_of(entries, data)
        disk, paths = located(found)
        for name, path in paths.items():
            if not disk.is_dir(path):
                stop(f"replica {name}: {path} is no directory")
    except OSError as error:
        given = f"--data {', '.join(data)}: " if data else ""
        inside = f"{error.filename}: " if error.filename not in (None, *data) else ""
        stop(f"{given}{inside}{error.strerror or error}")
    except ValueError as error:
        stop(str(error) if data or not entries else f"--replica: {error}")
    return found


def _brokers_at_work(replicas: dict[str, Path]) -> list[Note]:
    """Say now who is writing where the audit will read; the notes belong into its result."""
    from odradek_audit.inputs.brokers import ADVICE, brokers_at_work

    notes = brokers_at_work(replicas)
    if notes:
        names = ", ".join(note.replica for note in notes)
        typer.echo(f"odradek: running brokers use what is audited (replicas {names}): {ADVICE}", err=True)
    return notes


def _settings(entries: Sequence[str]) -> dict[str, str]:
    from odradek_audit.report.guarantees import parse_settings

    try:
        return parse_settings(entries)
    except ValueError as error:
        stop(f"--setting {error}")
    raise AssertionError("unreachable: stop raises")


def _history(paths: Sequence[Path]) -> Path | None:
    """One file: findings name its lines. Those of several clients may follow each other in it."""
    if not paths:
        return None
    if len(paths) > 1:
        given = shlex.join(map(str, paths))
        stop(
            f"--history was given {len(paths)} times, and one file is read: `cat {given} > all.jsonl` makes one of them"
        )
    path = paths[0]
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):  # it is read more than once
            stop(f"--history {path}: it is a pipe or a device", hint="put it into a file of its own")
        with path.open("rb") as file:
            file.read(1)
            return path
    except OSError as error:
        stop(f"--history {path}: {error.strerror or error}")
    return None


def _chosen_engine(given: Engine | None, master: str, replicas: dict[str, str], topics: list[str] | None) -> Engine:
    """The engine that was given, or the one for this much data; with Spark, a master that can be one."""
    chosen = given if given is not None else _default_engine(replicas, topics)
    if chosen is Engine.SPARK and not MASTER.fullmatch(master):
        stop(f"--master {master}: give local, local[N], local[*], spark://HOST:PORT, yarn or k8s://ADDRESS")
    return chosen


def _default_engine(replicas: dict[str, str], topics: list[str] | None) -> Engine:
    from odradek_audit.engine.local import layout_bytes
    from odradek_audit.inputs.layout import read_layout
    from odradek_audit.inputs.stores import located

    size = layout_bytes(read_layout(*located(replicas), topics))
    return Engine.LOCAL if size <= SMALL_BYTES else Engine.SPARK


def _run_local(bar: ProgressBar, request: _Request, jobs: int | None) -> Report:
    from odradek_audit.engine import local

    return local.audit(**request, progress=bar.show, jobs=jobs)


def _run_spark(console: Console, bar: ProgressBar, request: _Request, master: str) -> Report:
    missing = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        stop(
            f"the Spark engine needs {' and '.join(missing)}: pip install 'odradek[audit]' (or use --engine "
            "local, which reports the same findings)"
        )
    from odradek_audit.spark import engine as spark
    from odradek_audit.spark import launch
    from odradek_audit.spark.java import NoJava, find_java

    try:
        java = find_java()
    except NoJava as error:
        stop(str(error))
    console.print(f"Spark runs on Java {java.version}, {java.source}", highlight=False)
    try:
        bar.say("starting Spark")
        with launch.spark_session(master, java) as session:
            return spark.audit(session, **request, progress=bar.show)
    except launch.SparkFailed as error:
        stop(str(error), EXIT_FAILED)
    raise AssertionError("unreachable: stop raises")


def _print(report: Report, output: Output, out: str | None, *, every_partition: bool) -> None:
    if output is Output.JSON:
        document = report.summary() | {"finding_list": [json.loads(finding.to_json()) for finding in report.findings]}
        sys.stdout.write(json.dumps(document, ensure_ascii=True, indent=2) + "\n")
    elif output is Output.JSONL:
        sys.stdout.write("".join(finding.to_json() + "\n" for finding in report.findings))
    else:
        _print_table(report, out, every_partition)


def _print_table(report: Report, out: str | None, every_partition: bool) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from odradek_audit.report.headlines import counting, of_history
    from odradek_audit.report.last_copies import last_copies
    from odradek_audit.report.losses import loss_sentences, missing_events

    console = Console(highlight=False)
    for sentence in last_copies(report):
        console.print(f"[bold red]LAST COPY[/]: {escape(sentence)}", soft_wrap=True)
    for sentence in loss_sentences(report):
        console.print(f"[bold red]LOST[/]: {escape(sentence)}", soft_wrap=True)
    if report.losses and (missing := missing_events(report)):
        console.print(f"note: {missing}, so some truncations and elections may not be told", soft_wrap=True)
    for loss in report.losses[:SHOWN_FINDINGS]:
        if loss.story:
            place = f"{escape(loss.topic)}-{loss.partition}, from {loss.first_offset}"
            console.print(f"  {place}: {escape(loss.story)}", soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for title in ("partition", "replica", "log start", "HW", "LEO", "epoch", "batches", "records"):
        table.add_column(title, justify="left" if title in ("partition", "replica") else "right", no_wrap=True)
    folded = {} if every_partition else _folded(report)
    for partition in report.partitions:
        if partition.topic in folded:
            continue
        for replica in partition.replicas:
            mark = "-" if replica.high_watermark is None else str(replica.high_watermark)
            table.add_row(
                f"{partition.topic}-{partition.partition}",
                replica.replica + ("*" if replica.replica == partition.reference_replica else ""),
                str(replica.log_start),
                mark,
                str(replica.log_end),
                str(replica.last_epoch),
                str(replica.batches),
                str(replica.records),
            )
        for name in partition.unread:
            table.add_row(f"{partition.topic}-{partition.partition}", name, *"??????")
    console.print(table)
    console.print("* the log that the others are compared with: newest epoch, then longest")
    for topic, number in folded.items():
        console.print(f"{topic}: {plural(number, 'partition')} without a finding; --topics {topic} shows them")
    console.print()
    for note in report.notes[:SHOWN_FINDINGS]:
        console.print(f"note: {escape(note.sentence)}", soft_wrap=True)
    for finding in report.findings[:SHOWN_FINDINGS]:
        console.print(f"[bold red]{finding.check}[/]: {escape(finding.sentence)}", soft_wrap=True)
    if len(report.findings) > SHOWN_FINDINGS:
        console.print(
            f"... and {len(report.findings) - SHOWN_FINDINGS} more" + ("" if out else " (--out DIR keeps them all)")
        )
    for reason in report.inconclusive:
        console.print(f"[yellow]inconclusive[/]: {escape(reason)}", soft_wrap=True)
    if said := of_history(report):
        console.print(said, soft_wrap=True)
    copies = plural(report.compared_records, "copy of a record", "copies of records")
    console.print(
        f"[bold]{_verdict(report)}[/] Compared: {copies} in "
        f"{plural(report.compared_batches, 'copy of a batch', 'copies of batches')} "
        f"({report.read_bytes / 1e6:.1f} MB read, engine {report.engine}, {report.seconds:.1f} s). "
        f"{counting(report, '*')}",
        soft_wrap=True,
    )


def _folded(report: Report) -> dict[str, int]:
    """Internal topics of which nothing is wrong, and how many partitions each has: 50 rows that nobody wrote."""
    wrong = {each.topic for each in report.findings} | {each.topic for each in report.partitions if each.unread}
    names = [each.topic for each in report.partitions if each.topic in INTERNAL_TOPICS and each.topic not in wrong]
    return {name: names.count(name) for name in names}


def _verdict(report: Report) -> str:
    from odradek_audit.report.headlines import compared_on
    from odradek_audit.report.losses import lost_records

    lost = lost_records(report.losses)
    if report.findings:
        found = f"{plural(len(report.findings), 'finding')}."
        return f"{found} {_gone(lost, 'every replica that was read')}." if lost else found
    if report.inconclusive:
        return "Inconclusive."
    where = f" where they were compared, on {compared_on(report)}" if report.absent else ""
    agree = f"The replicas agree{where}"
    return f"{agree}, and {_gone(lost, 'every one of them')}." if lost else f"{agree}."


def _gone(lost: int, whence: str) -> str:
    return f"{plural(lost, 'acknowledged record is', 'acknowledged records are')} gone from {whence}"
