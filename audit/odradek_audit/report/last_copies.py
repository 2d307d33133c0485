"""Records that one replica alone still has: who removes or rebuilds that one loses them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from odradek_audit.catalogue import CHECKS, REPLICA_BEHIND
from odradek_audit.evidence.story import leaders_of
from odradek_audit.findings import Finding
from odradek_audit.report.model import Report
from odradek_audit.results import PartitionSummary
from odradek_audit.wording import is_lack
from odradek_audit.words import noun, plain

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
    found = [copy for each in report.partitions for copy in _of_partition(each, report.findings)]
    said = [_sentence(copy, report) for copy in found[:SHOWN_COPIES]]
    if (left := len(found) - SHOWN_COPIES) > 0:
        said.append(f"So it is with {left} more {noun(left, 'stretch', 'stretches')} of offsets: see the findings.")
    return said


def partitions_of_last_copies(report: Report) -> set[tuple[str, int]]:
    """The partitions to be repaired first: until then each other step may cost the only copy."""
    return {(each.topic, each.partition) for each in report.partitions for _ in _of_partition(each, report.findings)}


def _of_partition(summary: PartitionSummary, findings: Sequence[Finding]) -> Iterator[LastCopy]:
    """Where findings say that records are not there, and all replicas but one lack or damaged them."""
    here = [each for each in findings if (each.topic, each.partition) == (summary.topic, summary.partition)]
    lacks = [each for each in here if is_lack(each) or each.check == REPLICA_BEHIND.name]
    bad = [each for each in here if each in lacks or CHECKS[each.check].in_the_log]
    ends = sorted({offset for each in lacks for offset in (each.offset, each.end_offset)})
    last: LastCopy | None = None
    for first, end in pairwise(ends):
        touching = [each for each in bad if each.offset < end and first < each.end_offset]
        without = frozenset(name for each in touching for name in each.replicas)
        have = [
            each.replica
            for each in summary.replicas
            if each.replica not in without and each.log_start <= first and end <= each.log_end
        ]
        if len(have) != 1 or len(summary.replicas) < 2 or not any(each in lacks for each in touching):
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
    where = f"offset {copy.first}" if number == 1 else f"offsets {copy.first} to {copy.end - 1}"
    said = (
        f"{number:,} {noun(number, 'record')} of {place} ({where}) {noun(number, 'is', 'are')} left on replica "
        f"{copy.replica} only: do not remove or replace the copy of {place} on replica {copy.replica}."
    )
    of_partition = f"{copy.topic}-{copy.partition}"
    led = {epoch: leader for (of, epoch), leader in leaders_of(report.events).items() if of == of_partition}
    if led and str(leader := led[max(led)]) in copy.without:
        said += f" The last leader known, broker {leader}, lacks {noun(number, 'it', 'them')}."
    return said
