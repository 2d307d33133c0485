"""`odradek doctor`: what is wrong with this machine, the way to a cluster, and the cluster.

It dials every bootstrap address, and then every address that any broker advertises on any listener, all at the same
time and each with a deadline.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from odradek_proto.command_line import FINDINGS, FINE, UNREACHABLE, USAGE, CommandFailed, current_directory

from odradek.cli.clusters.current import bootstrap_servers
from odradek.cli.terminal.grouping import SCREEN, CommandGroup, ToScreen
from odradek.cli.terminal.options import Bootstrap, seconds
from odradek.cli.terminal.running import run
from odradek.cli.terminal.screen import table

if TYPE_CHECKING:
    from odradek.cli.checkup.addresses import Addresses
    from odradek.cli.checkup.finding import CheckContext, CheckupFinding

app = CommandGroup("Find out what is wrong with this machine or a cluster, and what to do.", no_args_is_help=False)
DIAL_S = 3.0


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """Everything that was found. `addresses` is None when no cluster was named."""

    addresses: Addresses | None
    findings: Sequence[CheckupFinding]

    @property
    def reached(self) -> bool:
        return self.addresses is not None and bool(self.addresses.listeners)

    @property
    def exit_code(self) -> int:
        from odradek.cli.checkup.finding import problems

        if self.addresses is not None and not self.reached:
            return UNREACHABLE
        return FINDINGS if problems(self.findings) else FINE

    def as_json(self) -> dict[str, Any]:
        from odradek.cli.checkup.finding import problems

        return {
            "healthy": self.exit_code == FINE,
            "cluster_id": self.addresses.cluster_id if self.addresses is not None else None,
            "problems": problems(self.findings),
            "addresses": dial_rows(self.addresses) if self.addresses is not None else [],
            "findings": [finding.as_json() for finding in self.findings],
        }


@app.command()
def doctor(
    bootstrap: Bootstrap = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "-c",
            "--config",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            readable=True,
            help="Check a broker's settings as well.",
        ),
    ] = None,
    timeout: Annotated[float, seconds("--timeout", "How long one dial or question may take.")] = DIAL_S,
    screen: ToScreen = SCREEN,
) -> None:
    """Find out what is wrong with this machine or a cluster, and what to do.

    Dials the bootstrap addresses and every address that a broker advertises, asks the cluster for its quorum and its
    partitions, and looks at this machine. Exit code 3 when something is wrong, 4 when no bootstrap address answers.
    """
    from odradek.cli.checkup.finding import CheckContext

    directory = current_directory() if bootstrap is None else None
    servers, unnamed = _servers(bootstrap)
    asked = CheckContext(
        directory=str(directory) if directory is not None else None,
        config=str(config) if config is not None else None,
        environment=os.environ,
    )
    report = run(examine(servers, unnamed, asked, timeout * 1000))
    screen.show(report.as_json(), lambda: as_text(report))
    raise typer.Exit(report.exit_code)


def _servers(bootstrap: str | None) -> tuple[list[str], str]:
    """The addresses to begin with; with none, the reason."""
    try:
        given = bootstrap_servers(bootstrap)
    except CommandFailed as error:
        if error.exit_code == USAGE:
            raise
        return [], f"{error}: {error.hint}"
    return list(dict.fromkeys(part.strip() for part in given.split(",") if part.strip())), ""


async def examine(servers: Sequence[str], unnamed: str, asked: CheckContext, timeout_ms: float) -> DoctorReport:
    """Look at everything. `unnamed` says why there are no servers, when there are none."""
    from odradek.cli.checkup import machine
    from odradek.cli.checkup.finding import note

    directory = asked["directory"]
    findings = machine.findings(Path(directory) if directory is not None else None)
    findings += machine.of_other_packages(asked)
    if not servers:
        return DoctorReport(None, [note("cluster", "no cluster", unnamed), *findings])
    addresses, of_cluster = await _examine_cluster(servers, timeout_ms)
    return DoctorReport(addresses, [*of_cluster, *findings])


async def _examine_cluster(servers: Sequence[str], timeout_ms: float) -> tuple[Addresses, list[CheckupFinding]]:
    import asyncio

    from odradek_proto.transport.grpc_options import GrpcOptions

    from odradek.cli.checkup import addresses as of_addresses
    from odradek.cli.checkup import cluster as of_cluster
    from odradek.cli.checkup.dialling import dial
    from odradek.shared.security import network_for

    # A frozen process takes the connection and says nothing: gRPC must not give up before the dial's own deadline.
    network = network_for(options=GrpcOptions(connect_timeout_ms=round(2 * timeout_ms) + 1_000))
    found = of_addresses.Addresses(servers)

    async def dial_all(targets: Sequence[str]) -> None:
        dialled = await asyncio.gather(*(dial(network, target, timeout_ms) for target in targets))
        found.dialled.update(zip(targets, dialled, strict=True))

    try:
        await dial_all(servers)
        found.advertised = of_addresses.advertised_in(found.answers)
        await dial_all([address for address in found.advertised_addresses() if address not in found.dialled])
        findings = of_addresses.judge(found)
        first = next((found.dialled[address] for address in servers if found.dialled[address].answer), None)
        if first is not None and first.answer is not None:
            facts = await of_cluster.ask_cluster(network, first.address, first.answer, timeout_ms)
            findings += of_cluster.judge(facts)
        return found, findings
    finally:
        await network.close()


def dial_rows(addresses: Addresses) -> list[dict[str, Any]]:
    """Every address that was dialled: who is meant to be there, and who is."""
    by_address = {one.address: one for one in reversed(addresses.advertised)}
    rows = []
    for address, dialled in addresses.dialled.items():
        one = by_address.get(address)
        rows.append(
            {
                "address": address,
                "bootstrap": address in addresses.bootstrap,
                "broker": one.broker if one is not None else None,
                "listener": one.listener if one is not None else None,
                "found": str(dialled.outcome),
                "answered_by": dialled.answer.answered_by if dialled.answer is not None else None,
                "latency_ms": dialled.latency_ms,
                "clock_ms": dialled.clock_ms,
            }
        )
    return rows


COLUMNS = {"address": "ADDRESS", "listener": "LISTENER", "broker": "BROKER", "found": "ANSWER",
           "answered_by": "FROM", "latency_ms": "MS", "clock_ms": "CLOCK MS"}  # fmt: skip


def as_text(report: DoctorReport) -> str:
    """The report for people: dials, findings with their remedies, a verdict."""
    from odradek.cli.checkup.finding import problems

    parts = []
    if report.addresses is not None:
        rows = dial_rows(report.addresses)
        parts.append(table([*COLUMNS.values()], ([row[key] for key in COLUMNS] for row in rows)))
    lines = []
    for finding in report.findings:
        lines.append(f"{finding.level:8}{finding.check}: {finding.says}")
        if finding.remedy:
            lines.append(f"{'':8}try: {finding.remedy}")
    if lines:
        parts.append("\n".join(lines))
    count = problems(report.findings)
    verdict = "nothing is wrong" if not count else f"{count} problem{'s' if count > 1 else ''}"
    if report.addresses is not None and not report.reached:
        verdict += "; no bootstrap address answered"
    parts.append(verdict)
    return "\n\n".join(parts)
