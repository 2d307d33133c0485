"""What is known of a running demo: enough to draw it, to print it, and to judge it at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from odradek.cli.clusters.status import ClusterStatus
from odradek_proto.words import noun

from odradek_chaos.harness.verify import ReadBack
from odradek_chaos.harness.workload import Ledger

FINE, FAILED, FINDINGS = 0, 1, 3
STEPS = ("start", "write", "kill", "restart", "read back", "audit")


@dataclass(frozen=True, slots=True)
class DemoEvent:
    """Something that happened, in a sentence. `at_s` is seconds since the demo began."""

    at_s: float
    text: str
    bad: bool = False


@dataclass(frozen=True, slots=True)
class AuditOutcome:
    """What the auditor said. `exit_code` is its own; `summary` is empty when it could not run."""

    engine: str
    exit_code: int
    seconds: float
    summary: dict[str, Any]
    trouble: str = ""


@dataclass
class DemoState:
    """Changed by the story alone. `on_happening` is called for each happening."""

    seed: int
    brokers: int
    on_happening: Callable[[DemoEvent], None] = lambda happening: None
    step: str = STEPS[0]
    doing: str = ""
    happenings: list[DemoEvent] = field(default_factory=list)
    status: ClusterStatus | None = None
    ledger: Ledger | None = None
    dead: set[int] = field(default_factory=set)
    stopped: bool = False  # all brokers, cleanly
    silence_ms: int = 0
    failover_ms: int | None = None
    in_flight_at_kill: int = 0
    read_back: ReadBack | None = None
    audited: AuditOutcome | None = None
    report: str = ""  # the path of the audit's page
    began: float = field(default_factory=time.monotonic)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began

    def tell(self, text: str, *, bad: bool = False) -> None:
        happening = DemoEvent(self.elapsed_s, text, bad)
        self.happenings.append(happening)
        self.on_happening(happening)

    def begin(self, step: str, doing: str) -> None:
        assert step in STEPS, step
        self.step, self.doing = step, doing

    @property
    def exit_code(self) -> int:
        """3 when anything contradicts a promise, 1 when something could not be checked, 0 when all was kept."""
        if self.read_back is not None and not self.read_back.sound:
            return FINDINGS
        if self.audited is not None and self.audited.exit_code == FINDINGS:
            return FINDINGS
        checked = self.read_back is not None and self.read_back.acknowledged > 0
        return FINE if checked and self.audited is not None and self.audited.exit_code == FINE else FAILED

    def verdict(self) -> list[str]:
        """The last lines, for people."""
        read, audited = self.read_back, self.audited
        lines = []
        if read is not None:
            lines.append(
                f"{read.acknowledged:,} records were acknowledged, {read.read:,} read back: "
                + ("each acknowledged one once, and in order" if read.sound else "NOT what was promised")
            )
            for name, anomaly in sorted(read.anomalies.items()):
                lines.append(f"  {name}: {anomaly.count}, for example {anomaly.examples[0]}")
        if self.failover_ms is not None:
            on_their_way = noun(self.in_flight_at_kill, "record was on its way", "records were on their way")
            lines.append(
                f"{self.in_flight_at_kill} {on_their_way} when the leader was killed; "
                f"no partition was silent for longer than {self.failover_ms} ms"
            )
        if audited is not None:
            lines.append(_audit_line(audited))
        ending = {FINE: "SURVIVED", FINDINGS: "DAMAGED", FAILED: "INCONCLUSIVE"}[self.exit_code]
        return [*lines, f"verdict: {ending} (seed {self.seed}, {self.elapsed_s:.0f} s)"]

    def as_json(self) -> dict[str, Any]:
        read, audited, ledger = self.read_back, self.audited, self.ledger
        return {
            "verdict": {FINE: "survived", FINDINGS: "damaged", FAILED: "inconclusive"}[self.exit_code],
            "exit_code": self.exit_code,
            "seed": self.seed,
            "seconds": round(self.elapsed_s, 1),
            "acknowledged": ledger.acknowledged if ledger is not None else 0,
            "failed": ledger.failed if ledger is not None else 0,
            "read": read.read if read is not None else None,
            "anomalies": {name: each.count for name, each in read.anomalies.items()} if read is not None else None,
            "in_flight_at_kill": self.in_flight_at_kill,
            "longest_silence_ms": self.failover_ms,
            "audit": audited.summary if audited is not None else None,
            "report": self.report or None,
            "happenings": [{"at_s": round(each.at_s, 3), "text": each.text} for each in self.happenings],
        }


def _audit_line(audited: AuditOutcome) -> str:
    if audited.trouble:
        return f"the audit could not be done: {audited.trouble}"
    summary = audited.summary
    findings = summary.get("findings", 0)
    said = {
        FINE: "the replicas agree",
        FINDINGS: f"{findings} {noun(findings, 'finding')}",
        FAILED: f"inconclusive: {'; '.join(summary.get('inconclusive', []))}",
    }[audited.exit_code]
    return (
        f"the audit ({audited.engine}) compared {summary.get('compared_records', 0):,} copies of records in "
        f"{len(summary.get('replicas', {}))} log directories: {said}"
    )
