"""Acknowledged records that no replica has any more, whatever was owed: how many, and from which offset.

`acknowledged-lost` judges promises against the log that counts. This answers what the owner of the data asks first: is
it still anywhere? So records of acks=1 count too, which breaks no promise, and a record whose value stands anywhere on
any replica is not gone.

Rule of this module: it never says that something is gone which may be there, or which was removed on purpose. So it
leaves out what lies below any replica's log start offset or below where any replica's log was cleaned, and what bytes
that cannot be read may hold: batches that cannot be decoded, stretches that are no batch, segments that are no
file, replicas that may not be read. How many records it left out for such bytes it says too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from odradek_audit.inputs.facts import BatchFacts, BatchTable, FileProblem, PartitionInputs, SegmentReader
from odradek_audit.inputs.history import ACKS_ALL, ACKS_LEADER, PartitionHistory, value_digest
from odradek_audit.inputs.records import READ_BYTES, iter_decoded
from odradek_audit.results import Loss

NO_OFFSET = -1
NEAR, MOST_PLACES = 16, 20
"""Losses with so few offsets between them are one, and a partition has no more than these."""
ANY_OFFSET = (0, 1 << 62)
Span = tuple[int, int]
"""Offsets from the first to the second, exclusive."""


class Acknowledgement(NamedTuple):
    """What one acknowledgement said; `NO_OFFSET` when it named none."""

    acks: str
    offset: int
    digest: bytes
    time_ms: int = -1


class MissingRecords(NamedTuple):
    """What no replica has, and the offsets of other records that may be in bytes that cannot be read, in order."""

    losses: list[Loss]
    unknown: list[int]


def losses_of(
    partition: PartitionInputs,
    tables: Mapping[str, BatchTable],
    history: PartitionHistory,
    held: Mapping[int, bytes],
    reader: SegmentReader,
    *,
    by_value: bool,
) -> MissingRecords:
    """The acknowledged records that no replica has, a `Loss` for each kind of acknowledgement.

    `held` has the values of the log that counts, at acknowledged offsets. `by_value` says that acknowledgements
    without an offset can be judged, which takes a history with its sends. `partition` is what the directories say,
    checkpoints that cannot be true included: they may tell of a deletion. Raises `OSError`.
    """
    if partition.compacted:
        return MissingRecords([], [])
    removed_to = max((max(each.log_start, each.cleaned_to) for each in partition.replicas.values()), default=0)
    missing = {
        told
        for told in _acknowledged(history, by_value=by_value and removed_to == 0)
        if (told.offset >= removed_to or told.offset == NO_OFFSET) and held.get(told.offset) != told.digest
    }
    if not missing:
        return MissingRecords([], [])
    wanted = {told.digest for told in missing}
    found: set[bytes] = set()
    hidden: list[Span] = [ANY_OFFSET] if partition.unread else []
    for name in sorted(partition.replicas):
        if any(map(_hides_records, partition.replicas[name].problems)):
            hidden.append(ANY_OFFSET)
        hidden += _stretches(tables[name], name, reader)
        hidden += _search(tables[name], name, reader, wanted, found)
    absent = {told for told in missing if told.digest not in found}
    gone = _outside(absent, _merged(hidden))
    return MissingRecords(summed(history, gone), sorted(told.offset for told in absent - gone))


def summed(history: PartitionHistory, gone: Iterable[Acknowledgement]) -> list[Loss]:
    """A `Loss` for each kind of acknowledgement and each place, those without an offset by themselves. Of several
    values at one offset it names the smallest."""
    kinds: dict[tuple[str, bool], list[Acknowledgement]] = {}
    for told in sorted(gone, key=lambda told: (told.offset, history.labels.get(told.digest, ""))):
        kinds.setdefault((told.acks, told.offset == NO_OFFSET), []).append(told)
    return [
        _loss(history, place)
        for _, every in sorted(kinds.items(), key=lambda kind: (kind[0][0] != ACKS_ALL, kind[0][1]))
        for place in _in_places(every)
    ]


def _loss(history: PartitionHistory, place: Sequence[Acknowledgement]) -> Loss:
    first, last = place[0], next(told for told in place if told.offset == place[-1].offset)
    named = first.offset != NO_OFFSET
    labels = [history.labels.get(told.digest, "") if named else "" for told in (first, last)]
    times = sorted(told.time_ms for told in place)
    return Loss(
        history.topic,
        history.partition,
        first.acks,
        len(place),
        first.offset,
        last.offset + 1 if named else NO_OFFSET,
        (times[0], times[-1]),
        (labels[0], labels[1]),
    )


def _in_places(every: Sequence[Acknowledgement]) -> list[list[Acknowledgement]]:
    """Rising offsets in runs, parted where most of others lie between; at most `MOST_PLACES`."""
    steps = {number: every[number].offset - every[number - 1].offset for number in range(1, len(every))}
    widest = sorted(steps, key=lambda number: -steps[number])[: MOST_PLACES - 1]
    parted = sorted(number for number in widest if steps[number] > NEAR)
    return [list(every[begin:end]) for begin, end in pairwise([0, *parted, len(every)])]


def all_acknowledged(history: PartitionHistory) -> set[Acknowledgement]:
    """Every record that was acknowledged with acks=all or acks=1."""
    return set(_acknowledged(history, by_value=True))


def _acknowledged(history: PartitionHistory, *, by_value: bool) -> Iterable[Acknowledgement]:
    named = ((ACKS_ALL, history.acknowledged), (ACKS_LEADER, history.acknowledged_by_leader))
    known: set[bytes] = set()
    for acks, events in named:
        for offset, digest, *_ in events:
            known.add(digest)
            yield Acknowledgement(str(acks), offset, digest, history.ack_times.get((offset, digest), -1))
    unnamed = ((ACKS_ALL, history.acknowledged_anywhere), (ACKS_LEADER, history.acknowledged_by_leader_anywhere))
    for acks, nowhere in unnamed if by_value else ():
        for digest, *_ in nowhere:
            if digest not in known:
                yield Acknowledgement(str(acks), NO_OFFSET, digest)


def _hides_records(problem: FileProblem) -> bool:
    """Whether records may be in what could not be read: a partition's directory, or a segment of it."""
    return problem.file == "." or problem.file.endswith(".log")


def _stretches(table: BatchTable, replica: str, reader: SegmentReader) -> Iterable[Span]:
    """Offsets that bytes which are no batch may hold: from the row before to the row behind them. Zeros hold none."""
    for problem in table.problems:
        if _is_zeros(problem.facts, replica, reader):
            continue
        first = table.last_offset[problem.row - 1] + 1 if problem.row else 0
        end = table.base_offset[problem.row] if problem.row < len(table) else ANY_OFFSET[1]
        yield (first, end) if first <= end else ANY_OFFSET  # one of the two rows says a wrong offset


def _is_zeros(facts: BatchFacts, replica: str, reader: SegmentReader) -> bool:
    """Whether a stretch is a file that grew before its bytes were written, as a power loss leaves it."""
    end = facts.position + facts.size
    for start in range(facts.position, end, READ_BYTES):
        length = min(READ_BYTES, end - start)
        try:
            data = reader.read(replica, f"{facts.segment:020d}.log", start, length)
        except OSError:
            return False
        if len(data) != length or data.strip(b"\0"):
            return False
    return True


def _search(
    table: BatchTable, replica: str, reader: SegmentReader, wanted: set[bytes], found: set[bytes]
) -> Iterable[Span]:
    """Add to `found` what a replica has of `wanted`; yields the offsets of batches that cannot be decoded."""
    for batch in iter_decoded(table, replica, reader):
        if batch.problem:
            yield table.base_offset[batch.row], table.last_offset[batch.row] + 1
        found.update(wanted.intersection(value_digest(record.value) for record in batch.records))


def _merged(spans: Iterable[Span]) -> list[Span]:
    """The same offsets as spans that do not touch, in order; empty ones left out."""
    merged: list[Span] = []
    for first, end in sorted(span for span in spans if span[0] < span[1]):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((first, end))
    return merged


def _outside(absent: Iterable[Acknowledgement], hidden: list[Span]) -> set[Acknowledgement]:
    """Those that cannot be in any of the spans. A record whose offset nobody named may be in each of them."""
    firsts = [first for first, _ in hidden]

    def may_hold(offset: int) -> bool:
        if offset == NO_OFFSET:
            return bool(hidden)
        place = bisect_right(firsts, offset) - 1
        return place >= 0 and offset < hidden[place][1]

    return {told for told in absent if not may_hold(told.offset)}
