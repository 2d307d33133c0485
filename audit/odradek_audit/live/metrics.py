"""What an audit found, for Prometheus: a file for the textfile collector of its node exporter."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from odradek_audit.live.files import replace_file
from odradek_audit.report import Report


def write_metrics(report: Report, path: Path) -> None:
    """Replace the file at once. Raises `OSError`."""
    replace_file(path, metrics_of(report, time.time()))


def metrics_of(report: Report, now_s: float) -> str:
    """Prometheus' text format."""
    gauges = {
        "verdict": ("Exit code of the audit: 0 fine, 1 inconclusive, 3 findings.", report.exit_code),
        "inconclusive": ("Reasons why too little was compared.", len(report.inconclusive)),
        "compared_records": ("Copies of records that were compared with the leader's.", report.compared_records),
        "compared_batches": ("Copies of batches that were compared with the leader's.", report.compared_batches),
        "read_bytes": ("Bytes of batches that were read from all replicas.", report.read_bytes),
        "partitions": ("Partitions that were compared.", len(report.partitions)),
        "seconds": ("How long the audit took.", round(report.seconds, 3)),
        "finished_timestamp_seconds": ("When it ended.", round(now_s, 3)),
    }
    lines = []
    for name, (said, value) in gauges.items():
        full = f"odradek_audit_{name}"
        lines += [f"# HELP {full} {said}", f"# TYPE {full} gauge", f"{full} {value}"]
    found = Counter(finding.check for finding in report.findings)
    lines += ["# HELP odradek_audit_findings Findings by check.", "# TYPE odradek_audit_findings gauge"]
    lines += [f'odradek_audit_findings{{check="{check}"}} {count}' for check, count in sorted(found.items())]
    return "\n".join(lines) + "\n"
