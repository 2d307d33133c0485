"""Collects what a finding shows: the batches of all replicas around its offset, their fields, records and bytes.

Runs at the end of a partition's checks, where the bytes can be read, and changes no finding but for its excerpt.
Bounded in three ways: some findings of each check and partition, some replicas of each finding, some bytes of each
batch. Whatever the bytes are, nothing is raised: a batch that cannot be read or decoded says so.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from odradek_audit.evidence.batch_views import (
    ROW,
    FoundBatch,
    batch_line,
    batch_view,
    first_difference,
    first_wrong_record,
    payload_start,
    same_bytes,
)
from odradek_audit.excerpt import (
    ACCUSED,
    NO_BATCH,
    OTHER,
    REFERENCE,
    BatchLine,
    Bytes,
    Excerpt,
    ExcerptSide,
    MissingRange,
)
from odradek_audit.findings import Finding, Severity
from odradek_audit.inputs.facts import BatchFacts, BatchTable, PartitionInputs, SegmentReader, log_end_offset
from odradek_audit.wording import is_lack

EXHIBITS_PER_CHECK = 3
EXHIBITS_PER_PARTITION = 12
SIDES = 5
"""Replicas shown side by side: the accused, its reference, and some others."""
NEIGHBOURS = 2
LARGEST_READ = 4 * 1024 * 1024
"""A larger batch is shown without records: an excerpt must not cost what an audit costs."""
RAW_WINDOW = 128


def attach_excerpts(
    partition: PartitionInputs,
    tables: Mapping[str, BatchTable],
    reader: SegmentReader,
    findings: Sequence[Finding],
    reference_replica: str,
) -> list[Finding]:
    """The same findings, the gravest of each check with an excerpt."""
    taken: Counter[str] = Counter()
    chosen: set[int] = set()
    by_gravity = sorted(range(len(findings)), key=lambda place: findings[place].severity is not Severity.CRITICAL)
    for place in by_gravity:
        check = findings[place].check
        if len(chosen) < EXHIBITS_PER_PARTITION and taken[check] < EXHIBITS_PER_CHECK:
            taken[check] += 1
            chosen.add(place)
    return [
        replace(finding, excerpt=_excerpt(partition, tables, reader, finding, reference_replica))
        if place in chosen
        else finding
        for place, finding in enumerate(findings)
    ]


def _excerpt(
    partition: PartitionInputs,
    tables: Mapping[str, BatchTable],
    reader: SegmentReader,
    finding: Finding,
    reference_replica: str,
) -> Excerpt | None:
    if finding.replica not in partition.replicas or (finding.offset < 0 and not finding.file):
        return None
    names = [*finding.replicas, *(name for name in sorted(partition.replicas) if name not in finding.replicas)]
    others = [name for name in names if name not in finding.replicas]
    has = any(_at_offset(tables[name], finding.offset)[0] is not None for name in others)
    by_place = finding.replicas if not (has and is_lack(finding)) else ()
    found = {name: _find(partition, tables[name], reader, finding, name, name in by_place) for name in names}
    reference = _reference(finding, found, reference_replica)
    names = sorted(names, key=lambda name: (name not in finding.replicas, name != reference, name))[:SIDES]
    if reference and reference not in names:
        names[-1] = reference
    accused, other = found[finding.replica], found.get(reference)
    difference = first_difference(accused, other)
    start, shown = payload_start(difference.first), first_wrong_record(accused, other, finding.offset)
    sides = []
    for name in names:
        role = ACCUSED if name in finding.replicas else REFERENCE if name == reference else OTHER
        against = other if name != reference else accused
        sides.append(_side(tables[name], found[name], role, finding, (start, shown), against, reader))
    agreeing = [name for name in sorted(found) if name == reference or same_bytes(found[name], other)]
    return Excerpt(
        offset=finding.offset,
        first_difference=difference.first,
        differing_bytes=difference.total,
        agreeing=tuple(agreeing),
        sides=tuple(sides),
        differing_in_records=difference.in_records,
        lacked=_lacked(tables[reference], finding) if reference and is_lack(finding) else None,
    )


def _lacked(table: BatchTable, finding: Finding) -> MissingRange:
    """What the reference has at the offsets that are missing."""
    first, last = bisect_left(table.last_offset, finding.offset), bisect_left(table.base_offset, finding.end_offset)
    records, size = sum(table.record_count[first:last]), sum(table.size[first:last])
    return MissingRange(last - first, records, size, finding.end_offset)


def _reference(finding: Finding, found: Mapping[str, FoundBatch], reference_replica: str) -> str:
    """The replica to compare with: the finding's own; else one with a sound batch there, the reference replica
    first."""
    if finding.other_replica in found:
        return finding.other_replica
    sound = [name for name, entry in found.items() if entry.facts is not None and not entry.facts.problem]
    candidates = [
        name
        for name in sorted(sound, key=lambda name: (name != reference_replica, name))
        if name not in finding.replicas
    ]
    return candidates[0] if candidates else ""


def _find(
    partition: PartitionInputs, table: BatchTable, reader: SegmentReader, finding: Finding, name: str, by_place: bool
) -> FoundBatch:
    """The batch of a replica at the finding's place: by file and byte on those accused, by offset on the others, and on
    those that lack what others have."""
    facts, row = None, -1
    if by_place and finding.file.endswith(".log") and finding.position >= 0:
        facts, row = _at_position(table, int(finding.file.removesuffix(".log")), finding.position)
    if facts is None and finding.offset >= 0:
        facts, row = _at_offset(table, finding.offset)
    if facts is None:
        return FoundBatch(name, None, row, _why_absent(partition, table, finding.offset, name) if row >= 0 else "")
    try:
        length = min(facts.size, LARGEST_READ)
        data = reader.read(name, f"{facts.segment:020d}.log", facts.position, length)
    except OSError as error:
        return FoundBatch(name, facts, row, f"it cannot be read: {error.strerror or error}")
    return FoundBatch(name, facts, row, "", data, len(data) == facts.size)


def _at_position(table: BatchTable, segment: int, position: int) -> tuple[BatchFacts | None, int]:
    row = table.row_at(segment, position)
    if row is not None:
        return table.facts(row), row
    for problem in table.problems:
        if problem.facts.segment == segment and problem.facts.position == position:
            return problem.facts, problem.row
    return None, -1


def _at_offset(table: BatchTable, offset: int) -> tuple[BatchFacts | None, int]:
    row = bisect_left(table.last_offset, offset)
    if row < len(table) and table.base_offset[row] <= offset:
        return table.facts(row), row
    for problem in table.problems:
        facts = problem.facts
        if problem.row == row or facts.base_offset <= offset <= facts.last_offset:
            return facts, problem.row
    return None, row


def _why_absent(partition: PartitionInputs, table: BatchTable, offset: int, name: str) -> str:
    inputs = partition.replicas[name]
    end = log_end_offset(inputs, table)
    if offset >= end:
        return f"the log ends at {end}"
    if offset < inputs.log_start:
        return f"the log begins at {inputs.log_start}"
    return NO_BATCH


def _side(
    table: BatchTable,
    found: FoundBatch,
    role: str,
    finding: Finding,
    shown: tuple[int, int],
    against: FoundBatch | None,
    reader: SegmentReader,
) -> ExcerptSide:
    facts = found.facts
    near = min(found.row, len(table) - 1)
    segment = facts.segment if facts is not None else table.segment[near] if near >= 0 else None
    file = f"{segment:020d}.log" if segment is not None else ""
    batch = None if facts is None or found.absent else batch_view(found, facts, *shown, against)
    lines = _neighbours(table, found)
    return ExcerptSide(found.replica, role, file, found.absent, lines, batch, _raw(finding, found.replica, reader))


def _neighbours(table: BatchTable, found: FoundBatch) -> tuple[BatchLine, ...]:
    if found.row < 0:
        return ()
    before = range(max(0, found.row - NEIGHBOURS), min(found.row, len(table)))
    own = found.facts is not None and not found.facts.problem
    behind_start = found.row + own
    behind = range(behind_start, min(len(table), behind_start + NEIGHBOURS))
    middle = [batch_line(found.facts)] if found.facts is not None else []
    rows = [batch_line(table.facts(row)) for row in before]
    return (*rows, *middle, *(batch_line(table.facts(row)) for row in behind))


def _raw(finding: Finding, replica: str, reader: SegmentReader) -> Bytes | None:
    """Bytes of the file that the finding names, where that is no log and lies in the partition's directory."""
    if not finding.file or finding.file.endswith(".log") or "/" in finding.file or finding.file.startswith("."):
        return None
    start = max(0, finding.position - RAW_WINDOW // 2) // ROW * ROW
    try:
        data = reader.read(replica, finding.file, start, RAW_WINDOW)
    except OSError:
        return None
    return Bytes(start, start + len(data), data.hex())
