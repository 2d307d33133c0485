"""`compaction-mismatch`: do replicas whose cleaners have been at different places still hold the same (K-89)?

Each replica cleans on its own, so below where any cleaner has been bytes are not compared. What must hold there: where
two replicas have a record at one offset it is the same record, and each key has the same newest value. No violation: a
key whose newest record one replica has above the other's end, keys below a log start offset, a tombstone that one
replica has removed already, and keys in transactions that were aborted, or that have no end yet on one of the replicas.
At each place most replicas are believed, else the reference replica.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from odradek_proto.records import ControlType, CorruptBatch, Record, control_type

from odradek_audit.catalogue import COMPACTION_MISMATCH
from odradek_audit.checks.unread import NOT_COMPARED
from odradek_audit.findings import FindingSink
from odradek_audit.inputs.facts import BatchTable, PartitionInputs, SegmentReader, log_end_offset
from odradek_audit.inputs.history import value_digest
from odradek_audit.inputs.records import CONTROL_BIT, TRANSACTIONAL_BIT, iter_decoded
from odradek_audit.words import plural


class NewestRecord(NamedTuple):
    """A key's last record: its offset, its content, and whether it is a tombstone."""

    offset: int
    content: bytes
    tombstone: bool


class NewestRecords:
    """The newest record of each key of a log whose batches come in their order, those of transactions when they are
    committed."""

    def __init__(self) -> None:
        self.by_key: dict[bytes, NewestRecord] = {}
        self._open: dict[int, list[tuple[bytes, NewestRecord]]] = {}

    def add(self, attributes: int, producer_id: int, records: Sequence[tuple[Record, bytes]]) -> None:
        """The records of the next batch, with their contents. Raises `CorruptBatch` for a marker that is none."""
        if attributes & CONTROL_BIT:
            ended = self._open.pop(producer_id, [])
            if ended and records and control_type(records[0][0]) == ControlType.COMMIT:
                self._put(ended)
            return
        found = [
            (value_digest(record.key), NewestRecord(record.offset, content, record.value is None))
            for record, content in records
            if record.key is not None
        ]
        if attributes & TRANSACTIONAL_BIT:
            self._open.setdefault(producer_id, []).extend(found)
        else:
            self._put(found)

    def undecided(self) -> set[bytes]:
        """Keys with records of transactions that have no end yet."""
        return {key for waiting in self._open.values() for key, _ in waiting}

    def _put(self, found: Iterable[tuple[bytes, NewestRecord]]) -> None:
        for key, newest in found:
            self.by_key[key] = max(newest, self.by_key.get(key, newest))


class _Copy:
    """What one replica holds below where a cleaner has been, and the newest record of each key."""

    def __init__(self, table: BatchTable, replica: str, reader: SegmentReader, end: int) -> None:
        self.by_offset: dict[int, bytes] = {}
        self.newest = NewestRecords()
        for batch in iter_decoded(table, replica, reader, control=True):
            if batch.problem:
                raise OSError(f"offset {table.base_offset[batch.row]}: {batch.problem}")
            found = [(record, content_of(record)) for record in batch.records]
            attributes = table.attributes[batch.row]
            self.newest.add(attributes, table.producer_id[batch.row], found)
            if not attributes & CONTROL_BIT:
                self.by_offset.update((record.offset, content) for record, content in found if record.offset < end)


def content_of(record: Record) -> bytes:
    """A digest of what must be the same on every replica that has the record."""
    return value_digest(repr((record.key, record.value, record.headers)).encode())


def check_compaction(
    partition: PartitionInputs,
    tables: Mapping[str, BatchTable],
    reference_replica: str,
    bound: int,
    reader: SegmentReader,
    sink: FindingSink,
) -> int:
    """Compare what the cleaners have left of a partition's logs, nothing where no cleaner has been; returns how many
    copies of records were laid beside another one."""
    every = partition.replicas
    cleaned = partition.cleaned_to(*every.values())
    if not cleaned or len(every) < 2:
        return 0
    if _are_equal(tables):
        table = tables[reference_replica]
        below = bisect_left(table.base_offset, cleaned)
        return sum(table.record_count[:below]) * (len(tables) - 1)
    end = min(bound, *(log_end_offset(each, tables[name]) for name, each in every.items()))
    start = max(each.log_start for each in every.values())
    try:
        copies = {name: _Copy(tables[name], name, reader, min(end, cleaned)) for name in sorted(every)}
    except (OSError, CorruptBatch) as error:
        sink.note(NOT_COMPARED, reference_replica, f"what the cleaners have left was not compared: {error}")
        return 0
    newest = {name: copy.newest.by_key for name, copy in copies.items()}
    for key in set().union(*(copy.newest.undecided() for copy in copies.values())):
        for each in newest.values():
            each.pop(key, None)  # the marker stands above the other's end
    found = [*_other_records(copies, reference_replica), *other_newest(newest, start, min(end, cleaned))]
    for (name, what), offsets in by_kind(found).items():
        _report(name, what, offsets, tables[name], sink)
    return sum(times - 1 for times in Counter(chain.from_iterable(copy.by_offset for copy in copies.values())).values())


def _are_equal(tables: Mapping[str, BatchTable]) -> bool:
    first, *others = tables.values()
    return all(first.digest_columns() == each.digest_columns() and not each.problems for each in others)


Difference = tuple[str, int, str]
"""Replica, offset, and what is wrong there."""
DELETED = "holds a value that was deleted"
CAME_BACK = "holds a record of a key that most replicas have no record of"


def _other_records(copies: Mapping[str, _Copy], reference_replica: str) -> Iterator[Difference]:
    """Offsets at which replicas hold different records."""
    for offset in sorted(set().union(*(copy.by_offset for copy in copies.values()))):
        held = {name: copy.by_offset[offset] for name, copy in copies.items() if offset in copy.by_offset}
        yield from other_record(offset, held, reference_replica)


def other_record(offset: int, held: Mapping[str, bytes], reference_replica: str) -> Iterator[Difference]:
    """Replicas whose content at an offset is not the believed one."""
    if len(set(held.values())) > 1:
        right = _believed(held, reference_replica)
        yield from ((name, offset, "holds another record") for name, each in held.items() if each != right)


def other_newest(newest_of: Mapping[str, Mapping[bytes, NewestRecord]], start: int, end: int) -> Iterator[Difference]:
    """Keys whose newest record, from `start` to `end`, is not the same everywhere, or is missing somewhere."""
    for key in sorted(set().union(*newest_of.values())):
        held = {name: newest.get(key) for name, newest in newest_of.items()}
        newest = [each for each in held.values() if each is not None]
        last = max(newest)
        if last.offset >= end or last.offset < start:
            continue
        if last.tombstone:
            stale = {name: each for name, each in held.items() if each is not None and each.offset < last.offset}
            yield from ((name, each.offset, DELETED) for name, each in stale.items())
            continue
        if 2 * len(newest) < len(held):
            yield from ((name, each.offset, CAME_BACK) for name, each in held.items() if each is not None)
            continue
        for name, each in held.items():
            if each is None or each.offset < last.offset:
                yield name, last.offset, "lacks the newest record of its key"


def _believed(held: Mapping[str, bytes], reference_replica: str) -> bytes:
    (content, votes), *others = Counter(held.values()).most_common()
    if reference_replica in held and others and others[0][1] == votes:
        return held[reference_replica]
    return content


def by_kind(found: Iterable[Difference]) -> dict[tuple[str, str], list[int]]:
    """The offsets of each replica and kind of difference, rising."""
    told: dict[tuple[str, str], set[int]] = {}
    for name, offset, what in found:
        told.setdefault((name, what), set()).add(offset)
    return {kind: sorted(offsets) for kind, offsets in sorted(told.items())}


def differing(replica: str, what: str, offsets: Sequence[int]) -> str:
    """A sentence for one finding."""
    more = f", and so at {plural(len(offsets) - 1, 'other offset')} up to {offsets[-1]}" if len(offsets) > 1 else ""
    return f"replica {replica} {what} at offset {offsets[0]}{more}"


def _report(replica: str, what: str, offsets: list[int], table: BatchTable, sink: FindingSink) -> None:
    row = next((row for row in range(len(table)) if table.last_offset[row] >= offsets[0]), -1)
    inside = row >= 0 and table.base_offset[row] <= offsets[0]
    sink.report(
        COMPACTION_MISMATCH,
        replica,
        f"{differing(replica, what, offsets)}, below where a cleaner has been",
        offset=offsets[0],
        end_offset=offsets[-1] + 1,
        epoch=table.epoch[row] if inside else -1,
        file=table.file(row) if inside else "",
        position=table.position[row] if inside else -1,
        records=len(offsets),
    )
