"""Records that one replica alone still has: who removes or rebuilds that one loses them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from odradek_audit.catalogue import CHECKS, REPLICA_BEHIND
from odradek_audit.evidence.story import leaders_of
from odradek_audit.findings import Finding
from odradek_audit.report.model import Report
from odradek_audit.results import PartitionSummary
from odradek_audit.wording import is_lack
from odradek_audit.words import noun, offsets, plain

SHOWN_COPIES = 3


class LastCopy(NamedTuple):
    """Offsets [first, end) of a partition that of all replicas `replica` alone has."""

    topic: str
    partition: int
    first: int
    end: int
    replica: str
    without: frozenset[str]


def last_copies(report: Report) -> list[str]:
    """A sentence for each stretch, with whether the last leader known has it; the first few."""
    found = _found(report)
    said = [_sentence(copy, report) for copy in found[:SHOWN_COPIES]]
    if (left := len(found) - SHOWN_COPIES) > 0:
        said.append(f"So it is with {left} more {noun(left, 'stretch', 'stretches')} of offsets: see the findings.")
    return said


def partitions_of_last_copies(report: Report) -> set[tuple[str, int]]:
    """The partitions to be repaired first: until then each other step may cost the only copy."""
    return {(copy.topic, copy.partition) for copy in _found(report)}


def _found(report: Report) -> list[LastCopy]:
    here = defaultdict[tuple[str, int], list[Finding]](list)
    for finding in report.findings:
        here[finding.topic, finding.partition].append(finding)
    summaries = [each for each in report.partitions if (each.topic, each.partition) in here]
    return [copy for each in summaries for copy in _of_partition(each, here[each.topic, each.partition])]


def _lacks(finding: Finding) -> bool:
    return is_lack(finding) or finding.check == REPLICA_BEHIND.name


def _of_partition(summary: PartitionSummary, findings: Sequence[Finding]) -> Iterator[LastCopy]:
    """Where its findings say that records are not there, and all replicas but one lack or damaged them."""
    bad = [each for each in findings if _lacks(each) or CHECKS[each.check].in_the_log]
    ends = sorted({offset for each in filter(_lacks, bad) for offset in (each.offset, each.end_offset)})
    last: LastCopy | None = None
    for first, end in pairwise(ends):
        touching = [each for each in bad if each.offset < end and first < each.end_offset]
        without = frozenset(name for each in touching for name in each.replicas)
        have = [
            each.replica
            for each in summary.replicas
            if each.replica not in without and each.log_start <= first and end <= each.log_end
        ]
        if len(have) != 1 or len(summary.replicas) < 2 or not any(map(_lacks, touching)):
            continue
        if last is not None and (last.end, last.replica) == (first, have[0]):
            last = last._replace(end=end, without=last.without & without)
            continue
        if last is not None:
            yield last
        last = LastCopy(summary.topic, summary.partition, first, end, have[0], without)
    if last is not None:
        yield last


def _sentence(copy: LastCopy, report: Report) -> str:
    number, place = copy.end - copy.first, f"{plain(copy.topic, 80)}-{copy.partition}"
    are = noun(number, "is", "are")
    said = (
        f"{number:,} {noun(number, 'record')} of {place} ({offsets(copy.first, copy.end)}) {are} left on replica "
        f"{copy.replica} only: do not remove or replace the copy of {place} on replica {copy.replica}."
    )
    of_partition = f"{copy.topic}-{copy.partition}"
    led = {epoch: leader for (of, epoch), leader in leaders_of(report.events).items() if of == of_partition}
    if led and str(leader := led[max(led)]) in copy.without:
        said += f" The last leader known, broker {leader}, lacks {noun(number, 'it', 'them')}."
    return said
