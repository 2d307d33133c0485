"""`odradek audit live`: the replicas of a running cluster, compared over Kafka's wire protocol. Exit codes are those of
`odradek audit run`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from odradek_proto.command_line import COMMAND_CONFIG, UNREACHABLE, CommandFailed
from odradek_proto.words import plural

from odradek_audit.cli.refusing import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    begin,
    check_file,
    check_out,
    stop,
    topics_named,
    write_behind_verdict,
)

if TYPE_CHECKING:
    from odradek_audit.live.security import LiveSecurity
    from odradek_audit.report import Report

SHOWN_FINDINGS = 20


Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT,...",
        envvar="ODRADEK_BOOTSTRAP",
        help="Brokers' listeners for Kafka's clients. Default: the cluster that `odradek cluster up` started last.",
    ),
]
Quota = Annotated[
    float, typer.Option("--quota", metavar="MB/S", min=0.0, help="Megabytes a second from all brokers; 0: no limit.")
]
DigestsFile = Annotated[
    Path | None,
    typer.Option("--digests", metavar="FILE", help="Remember what was compared here, and read only what is new."),
]
FromStart = Annotated[
    bool, typer.Option("--from-start", help="Read all again, and compare it with what --digests remembers.")
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        envvar=COMMAND_CONFIG,
        show_envvar=False,
        help="TLS and SASL with Kafka's names, as in client.properties.",
    ),
]
MetricsFile = Annotated[
    Path | None, typer.Option("--metrics", metavar="FILE", help="Write numbers for Prometheus' textfile collector.")
]


def live(
    bootstrap: Bootstrap = None,
    topics: Annotated[str | None, typer.Option("--topics", help="Only these, separated by commas.")] = None,
    quota: Quota = 10.0,
    digests: DigestsFile = None,
    from_start: FromStart = False,
    command_config: CommandConfig = None,
    metrics: MetricsFile = None,
    out: Annotated[str | None, typer.Option("--out", metavar="DIR", help="Write the report's files here.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is in --out.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Compare all replicas of a running Kafka or odradek over the wire, as a consumer that only reads.

    Batches, CRCs, offsets and leader epochs of each replica against the leader's, below its high watermark. One that
    stays below what was there makes it inconclusive. Exit code 0: fine, 1: inconclusive, 2: usage, 3: findings, 130:
    interrupted.
    """
    from odradek_audit.live.digests import CorruptDigests, Digests
    from odradek_audit.live.metrics import write_metrics
    from odradek_audit.live.run import LiveRequest, audit_cluster
    from odradek_audit.live.wire import WireError, WireUnreachable
    from odradek_audit.report.files import write_report

    begin("live", in_json=as_json)
    check_out(out, overwrite, {})
    check_file("--metrics", metrics)
    check_file("--digests", digests)
    wanted = topics_named(topics)
    addresses, settings = _meant(bootstrap)
    request = LiveRequest(addresses, wanted, quota * 1e6, from_start, _security(command_config or settings))
    if from_start and digests is None:
        stop("--from-start compares with what an earlier audit remembered: give its --digests FILE")
    try:
        progress = _Shown(quota, shown=sys.stderr.isatty() and not as_json, told=not as_json)
        report, remembered = audit_cluster(
            request,
            lambda cluster: Digests.read(digests, cluster) if digests is not None else None,
            progress.show,
            progress.beforehand,
            progress.waits,
        )
        report.made_at = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        progress.end()
    except CorruptDigests as error:
        stop(f"--digests: {error}")
    except WireUnreachable as error:
        stop(str(error), UNREACHABLE, error.hint)
    except WireError as error:
        stop(str(error), EXIT_FAILED)
    except OSError as error:  # of what is read: --digests, a certificate
        hint = "name a file that you may read"
        stop(f"{error.filename or ''} {error.strerror or error}".strip(), EXIT_FAILED, hint)
    except KeyboardInterrupt:
        stop("interrupted; nothing was concluded", EXIT_INTERRUPTED)
    _print(report, as_json)
    writes: dict[str, Callable[[], object]] = {}
    if metrics is not None:
        writes[f"--metrics {metrics}"] = partial(write_metrics, report, metrics)
    if out is not None:
        writes[f"--out {out}"] = partial(write_report, report, out)
    if digests is not None and remembered is not None:
        writes[f"--digests {digests}"] = partial(remembered.write, digests)
    write_behind_verdict(report.exit_code, writes)


def _meant(named: str | None) -> tuple[list[tuple[str, int]], Path | None]:
    """Where to ask, and how to talk where that is a cluster of this machine."""
    from odradek_audit.live.local_clusters import meant_by

    try:
        meant = meant_by(named)
    except CommandFailed as error:
        stop(str(error), error.exit_code, error.hint)
    return _addresses(meant.addresses), meant.settings


def _security(file: Path | None) -> LiveSecurity:
    from odradek_audit.live.security import IN_THE_CLEAR, BadSettings, security_from

    try:
        security = security_from(file) if file is not None else IN_THE_CLEAR
        security.context()
    except BadSettings as error:
        stop(f"--command-config {error}")
    return security


def _print(report: Report, as_json: bool) -> None:
    from odradek_audit.live.run import DELETED
    from odradek_audit.report.headlines import verdict_word

    if as_json:
        document = report.summary() | {"finding_list": [json.loads(finding.to_json()) for finding in report.findings]}
        sys.stdout.write(json.dumps(document, ensure_ascii=True, indent=2) + "\n")
    else:
        for finding in report.findings[:SHOWN_FINDINGS]:
            typer.echo(f"{finding.check}: {finding.sentence}")
        for note in report.notes:
            if note.kind == DELETED:
                typer.echo(f"note: {note.sentence}")
        for reason in report.inconclusive:
            typer.echo(f"inconclusive: {reason}")
        found = {"fine": "The replicas agree.", "findings": f"{plural(len(report.findings), 'finding')}."}
        said = found.get(report.verdict, f"{verdict_word(report).capitalize()}.")
        records = plural(report.compared_records, "copy of a record", "copies of records")
        batches = plural(report.compared_batches, "copy of a batch", "copies of batches")
        typer.echo(f"{said} Compared with the leaders': {records} in {batches}; leaders' own are not counted.")
        if above := [each for each in report.partitions if each.above_bound]:
            shown = [f"{each.topic}-{each.partition} {each.above_bound:,}" for each in above[:SHOWN_FINDINGS]]
            more = [plural(len(above) - SHOWN_FINDINGS, "more partition")] if len(above) > SHOWN_FINDINGS else []
            offsets = plural(sum(each.above_bound for each in above), "offset")
            said = f"Not compared on all replicas: {offsets} above the smallest high watermarks"
            typer.echo(f"{said} ({', '.join([*shown, *more])}).")


class _Shown:
    """One line on a terminal: how far it is. And, also elsewhere, who is waited for."""

    def __init__(self, quota: float, *, shown: bool, told: bool) -> None:
        self.shown = shown
        self.told = told
        self.quota = quota

    def beforehand(self, size: int | None) -> None:
        """What it will cost, before anything is read."""
        if self.shown:
            much = "how much is not known (DescribeLogDirs)" if size is None else f"at most {size / 1e6:,.1f} MB"
            rate = f", {self.quota:g} MB/s from all brokers together (--quota)" if self.quota else ""
            least = f": {size / self.quota / 1e6:,.0f} s" if size is not None and self.quota else ""
            typer.echo(f"to be read: {much}{rate}{least}", err=True)

    def show(self, progress: object) -> None:
        from odradek_audit.live.run import LiveProgress

        assert isinstance(progress, LiveProgress), progress
        if self.shown:
            done = f"{progress.done} of {progress.total} partitions, {progress.received / 1e6:.1f} MB"
            typer.echo(f"\r\033[K{done}, {progress.partition[:60]}", nl=False, err=True)

    def waits(self, who: str) -> None:
        if self.told:
            self.end()
            typer.echo(f"{who} does not answer yet; it is waited for", err=True)

    def end(self) -> None:
        if self.shown:
            typer.echo("\r\033[K", nl=False, err=True)


def _addresses(text: str) -> list[tuple[str, int]]:
    found = []
    for entry in text.split(","):
        host, _, port = entry.strip().rpartition(":")
        if not re.fullmatch(r"[\w.-]+|\[[^\s]+\]", host) or not port.isdecimal() or not 0 < int(port[:9]) < 65536:
            stop(f"-b {entry.strip()!r} is no address", hint="-b HOST:PORT, several with commas between")
        found.append((host.strip("[]"), int(port)))
    return found
