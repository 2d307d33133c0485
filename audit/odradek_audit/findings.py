"""What a check reports, and the list of all checks.

A check has one kebab-case name, used in code, in findings and in docs/checks.md. A finding names the replica, the
offset and the epoch, and ends in a sentence for people. A note is something that an auditor should know and that
breaks no rule.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

from odradek_audit.exhibit import Exhibit

FINDINGS_PER_CHECK = 50
"""Findings kept per check, partition and replica. One flipped byte can break thousands of batches; the rest is
counted."""


class Severity(StrEnum):
    """How bad a finding is for the owner of the data."""

    CRITICAL = "critical"  # data is lost, damaged or different between replicas
    ERROR = "error"  # a file says what is not so; the records themselves may be fine


@dataclass(frozen=True)
class Check:
    """A check's name, its weight, one line for people, and the rules that it stands for."""

    name: str
    severity: Severity
    title: str
    rules: tuple[str, ...]


_CRITICAL, _ERROR = Severity.CRITICAL, Severity.ERROR

CHECKS: dict[str, Check] = {
    check.name: check
    for check in (
        Check(
            "crc-mismatch", _CRITICAL, "a batch's bytes do not have the CRC-32C that its header names", ("I-9", "A1")
        ),
        Check("batch-unreadable", _CRITICAL, "bytes where a batch should begin are no batch", ("A1",)),
        Check("torn-tail", _CRITICAL, "an incomplete batch stands where no crash can have left it", ("A7",)),
        Check("offset-gap", _CRITICAL, "offsets are missing between two batches", ("I-6", "A2")),
        Check(
            "offset-not-increasing", _CRITICAL, "a batch begins at or below the last offset before it", ("I-5", "A2")
        ),
        Check(
            "epoch-not-monotonic", _CRITICAL, "a batch has a lower leader epoch than the one before it", ("I-4", "A3")
        ),
        Check("log-matching", _CRITICAL, "two replicas differ where they must agree", ("I-1", "I-3", "B1", "B5")),
        Check(
            "epoch-fork", _CRITICAL, "one (offset, epoch) holds different bytes on two replicas", ("I-2", "S-8", "B2")
        ),
        Check("record-count-mismatch", _CRITICAL, "a batch has not as many records as offsets", ("I-6", "A1")),
        Check("sequence-gap", _ERROR, "an idempotent producer's sequence numbers jump or repeat", ("I-11", "C5")),
        Check("epoch-cache-mismatch", _ERROR, "the leader epoch file does not say what the batches say", ("I-7", "A5")),
        Check(
            "checkpoint-order",
            _ERROR,
            "log start offset, high watermark, recovery point, log end are out of order",
            ("I-8", "A6"),
        ),
        Check("index-unsound", _ERROR, "an index entry would lead a reader to the wrong place", ("I-10", "A4")),
        Check(
            "producer-snapshot-mismatch",
            _ERROR,
            "a producer snapshot does not say what the batches say",
            ("I-11", "C5"),
        ),
        Check("transaction-mismatch", _CRITICAL, "markers in the log and the transaction index disagree", ("C6",)),
        Check("file-corrupt", _ERROR, "a checkpoint or metadata file cannot be read", ("A5", "A6")),
        Check("identity-mismatch", _ERROR, "replicas belong to different clusters or topics, or are one", ("A8",)),
        Check(
            "acknowledged-lost",
            _CRITICAL,
            "an acknowledged acks=all record is not in the log",
            ("S-2", "S-3", "D1", "D4", "I-12"),
        ),
        Check("delivered-lost", _CRITICAL, "a record that a consumer was given is not in the log", ("S-4",)),
        Check("duplicated", _CRITICAL, "an idempotent producer's record is in the log more than once", ("I-12", "D5")),
        Check("phantom", _CRITICAL, "the log holds a record that nobody sent", ("D2",)),
        Check("failed-present", _CRITICAL, "a record whose send definitely failed is in the log", ("D3",)),
        Check("reordered", _CRITICAL, "a producer's later record has a smaller offset", ("S-5", "D6")),
    )
}


@dataclass(frozen=True)
class Finding:
    """One broken rule, with where and why.

    `offset` is the first offset concerned and `end_offset` the one past the last (exclusive); -1 in a number means
    that it does not apply. `file` is a name inside the replica's partition directory or log directory, `position` a
    byte in it. `cause` is what probably happened, `reference` how the replica to compare with was
    chosen, where one was.
    """

    check: str
    severity: Severity
    topic: str
    partition: int
    replica: str
    sentence: str
    other_replica: str = ""
    offset: int = -1
    end_offset: int = -1
    epoch: int = -1
    file: str = ""
    position: int = -1
    evidence: dict[str, Any] = field(default_factory=dict)
    cause: str = ""
    reference: str = ""
    exhibit: Exhibit | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_json(cls, line: str) -> Finding:
        raw = json.loads(line)
        raw["severity"] = Severity(raw["severity"])
        if raw.get("exhibit") is not None:
            raw["exhibit"] = Exhibit.from_dict(raw["exhibit"])
        return cls(**{entry.name: raw[entry.name] for entry in fields(cls) if entry.name in raw})

    @property
    def sort_key(self) -> tuple[str, int, str, str, int, str, int, str]:
        return (
            self.topic,
            self.partition,
            self.check,
            self.replica,
            self.offset,
            self.file,
            self.position,
            self.sentence,
        )


@dataclass(frozen=True)
class Note:
    """Something that is no violation but belongs into the report: what was not compared and why, tails that will be
    cut."""

    kind: str
    topic: str
    partition: int
    replica: str
    sentence: str
    offset: int = -1
    end_offset: int = -1


class FindingSink:
    """Collects findings of one partition and keeps their number bounded."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.findings: list[Finding] = []
        self.notes: list[Note] = []
        self.suppressed: Counter[str] = Counter()
        self._counts: Counter[tuple[str, str]] = Counter()

    def report(
        self,
        check: str,
        replica: str,
        sentence: str,
        *,
        other_replica: str = "",
        offset: int = -1,
        end_offset: int = -1,
        epoch: int = -1,
        file: str = "",
        position: int = -1,
        reference: str = "",
        **evidence: Any,
    ) -> None:
        """Add a finding. More than `FINDINGS_PER_CHECK` of one check and replica are only counted."""
        severity = CHECKS[check].severity
        self._counts[check, replica] += 1
        if self._counts[check, replica] > FINDINGS_PER_CHECK:
            self.suppressed[check] += 1
            return
        self.findings.append(
            Finding(
                check=check,
                severity=severity,
                topic=self.topic,
                partition=self.partition,
                replica=replica,
                sentence=f"{self.topic}-{self.partition}: {sentence}",
                other_replica=other_replica,
                offset=offset,
                end_offset=end_offset,
                epoch=epoch,
                file=file,
                position=position,
                evidence=evidence,
                reference=reference,
            )
        )

    def note(self, kind: str, replica: str, sentence: str, *, offset: int = -1, end_offset: int = -1) -> None:
        self.notes.append(
            Note(
                kind,
                self.topic,
                self.partition,
                replica,
                f"{self.topic}-{self.partition}: {sentence}",
                offset,
                end_offset,
            )
        )


def sorted_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Findings in the one order that both engines use: topic, partition, check, replica, offset."""
    return sorted(findings, key=lambda finding: finding.sort_key)
