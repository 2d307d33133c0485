"""Findings that say the same of neighbouring offsets, told as one: four records lost in a row are one loss to a reader.

Only the page does so; the files have every finding by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from odradek_audit.catalogue import CHECKS
from odradek_audit.findings import MERGED, Finding


def merge_runs(findings: Iterable[Finding]) -> list[Finding]:
    """Runs of one check, replica and partition whose offsets follow on each other, as one finding each."""
    merged: list[Finding] = []
    for finding in findings:
        last = merged[-1] if merged else None
        if last is not None and _follows(last, finding):
            evidence = last.evidence | {MERGED: last.weight + 1}
            merged[-1] = replace(last, end_offset=finding.end_offset, evidence=evidence)
        else:
            merged.append(finding)
    return merged


def _follows(last: Finding, finding: Finding) -> bool:
    same = ("check", "topic", "partition", "replicas", "other_replica")
    return (
        CHECKS[finding.check].told_in_runs
        and finding.offset == last.end_offset >= 0
        and all(getattr(last, name) == getattr(finding, name) for name in same)
        and last.evidence.get("held_by") == finding.evidence.get("held_by")
    )
