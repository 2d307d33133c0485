"""What a check is, and what it reports. `catalogue` has them all.

A check has one kebab-case name, used in code, in findings and in docs/checks.md. A finding names the replica, the
offset and the epoch, and ends in a sentence for people. A note is something that an auditor should know and that
breaks no rule.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

import msgspec

from odradek_audit.excerpt import BatchView, Excerpt, ExcerptSide
from odradek_audit.words import plain

FINDINGS_PER_CHECK = 50
"""Findings kept per check, partition and replica. One flipped byte can break thousands of batches; the rest is
counted."""


MERGED = "told_together"
"""The key in a merged finding's evidence: how many findings it stands for."""


ON_ALL = "on_all"
"""The key in the evidence of what all replicas of a partition share: how many they are."""


class Severity(StrEnum):
    """How bad a finding is for the owner of the data."""

    CRITICAL = "critical"  # data is lost, damaged or different between replicas
    ERROR = "error"  # a file says what is not so; the records themselves may be fine


class CheckKind(StrEnum):
    """What a check looks at; what is done about a finding hangs on it."""

    STRUCTURE = "structure"  # the batches of one replica's own log
    LOG = "log"  # what one replica's log says of producers and transactions
    FILE = "file"  # a file beside the log
    IDENTITY = "identity"  # whose directory it is
    AGREEMENT = "agreement"  # two replicas beside each other
    LOST = "lost"  # what clients were told, and is gone
    METADATA = "metadata"  # what controllers decided
    GROUP = "group"  # what consumer groups have committed
    TOLD = "told"  # what clients were told otherwise


@dataclass(frozen=True)
class Check:
    """A check: its name, its weight, one line for people, the rules that it stands for.

    `cause` is what probably happened, `headline` one short sentence of a finding and its place (" in orders-0", or
    nothing); without it the page takes the finding's own sentence. `told_in_runs`: findings of neighbouring offsets are
    one to a reader. `once_a_file`: so are those of one file.
    """

    name: str
    kind: CheckKind
    severity: Severity
    title: str
    rules: tuple[str, ...]
    cause: str | Callable[[Finding], str]
    headline: Callable[[Finding, str], str] | None = None
    told_in_runs: bool = False
    once_a_file: bool = False

    @property
    def in_the_log(self) -> bool:
        """Whether a finding says that the replica's own copy is damaged."""
        return self.kind in (CheckKind.STRUCTURE, CheckKind.LOG)

    def explained(self, finding: Finding) -> Finding:
        """The finding with its suspected cause."""
        return replace(finding, cause=self.cause if isinstance(self.cause, str) else self.cause(finding))


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
    excerpt: Excerpt | None = None
    replicas: tuple[str, ...] = ()
    """All replicas of which this is so, `replica` first."""

    def __post_init__(self) -> None:
        if self.replica and not self.replicas:
            object.__setattr__(self, "replicas", (self.replica,))

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_json(cls, line: str) -> Finding:
        """Undo `to_json`. Raises `msgspec.ValidationError`."""
        return msgspec.json.decode(line, type=cls)

    @property
    def place(self) -> str:
        """The partition, for people; empty for what belongs to none."""
        return f"{plain(self.topic, 80)}-{self.partition}" if self.partition >= 0 else ""

    @property
    def weight(self) -> int:
        """How many findings stand behind one that was merged of neighbours."""
        return int(self.evidence.get(MERGED, 1))

    @property
    def end(self) -> int:
        """One past its last offset, also where it names one offset alone."""
        return max(self.end_offset, self.offset + 1)

    def side(self, role: str) -> ExcerptSide | None:
        """The first replica with a role in its excerpt."""
        return self.excerpt.side(role) if self.excerpt is not None else None

    def batch(self, role: str) -> BatchView | None:
        """The batch of that replica."""
        side = self.side(role)
        return side.batch if side is not None else None

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
        check: Check,
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
        self._counts[check.name, replica] += 1
        if self._counts[check.name, replica] > FINDINGS_PER_CHECK:
            self.suppressed[check.name] += 1
            return
        self.findings.append(
            Finding(
                check=check.name,
                severity=check.severity,
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
