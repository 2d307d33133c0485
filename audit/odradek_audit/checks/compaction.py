"""`compaction-mismatch`: do replicas whose cleaners have been at different places still hold the same (K-89)?

Each replica cleans on its own, so below where any cleaner has been bytes are not compared. What must hold there: where
two replicas have a record at one offset it is the same record, and each key has the same newest value. No violation: a
key whose newest record one replica has above the other's end, keys below a log start offset, a tombstone that one
replica has removed already, and records of transactions that were aborted or are open. At each place most replicas are
believed, else the reference replica.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from odradek_proto.records import ControlType, CorruptBatch, Record, control_type, decode_records, read_header

from odradek_audit.catalogue import COMPACTION_MISMATCH
from odradek_audit.checks.unread import NOT_COMPARED
from odradek_audit.findings import FindingSink
from odradek_audit.inputs.facts import BatchTable, PartitionInputs, SegmentReader, log_end_offset
from odradek_audit.inputs.history import value_digest
from odradek_audit.inputs.records import CONTROL_BIT, TRANSACTIONAL_BIT, iter_decoded
from odradek_audit.words import plural


class _Newest(NamedTuple):
    """A key's last record: its offset, its content, and whether it is a tombstone."""

    offset: int
    content: bytes
    tombstone: bool


class _Copy:
    """What one replica holds below where a cleaner has been, and the newest record of each key."""

    def __init__(self, table: BatchTable, replica: str, reader: SegmentReader, end: int) -> None:
        self.by_offset: dict[int, bytes] = {}
        self.newest: dict[bytes, _Newest] = {}
        aborted = _not_committed(table, replica, reader)
        for batch in iter_decoded(table, replica, reader):
            if batch.problem:
                raise OSError(f"offset {table.base_offset[batch.row]}: {batch.problem}")
            for record in batch.records:
                content = _content(record)
                if record.offset < end:
                    self.by_offset[record.offset] = content
                if record.key is not None and batch.row not in aborted:
                    key = value_digest(record.key)
                    self.newest[key] = _Newest(record.offset, content, record.value is None)


def _content(record: Record) -> bytes:
    return value_digest(repr((record.key, record.value, record.headers)).encode())


def _not_committed(table: BatchTable, replica: str, reader: SegmentReader) -> set[int]:
    """Rows of transactions that were aborted or have no end."""
    open_rows: dict[int, list[int]] = {}
    aborted: set[int] = set()
    for row, attributes in enumerate(table.attributes):
        if not attributes & TRANSACTIONAL_BIT:
            continue
        if not attributes & CONTROL_BIT:
            open_rows.setdefault(table.producer_id[row], []).append(row)
            continue
        data = reader.read(replica, table.file(row), table.position[row], table.size[row])
        if control_type(decode_records(data, read_header(data))[0]) == ControlType.ABORT:
            aborted.update(open_rows.get(table.producer_id[row], ()))
        open_rows.pop(table.producer_id[row], None)
    return aborted.union(*open_rows.values())


def check_compaction(
    partition: PartitionInputs,
    tables: Mapping[str, BatchTable],
    reference_replica: str,
    bound: int,
    reader: SegmentReader,
    sink: FindingSink,
) -> None:
    """Compare what the cleaners have left of a partition's logs; nothing where no cleaner has been."""
    every = partition.replicas
    cleaned = partition.cleaned_to(*every.values())
    if not cleaned or len(every) < 2 or _are_equal(tables):
        return
    end = min(bound, *(log_end_offset(each, tables[name]) for name, each in every.items()))
    start = max(each.log_start for each in every.values())
    try:
        copies = {name: _Copy(tables[name], name, reader, min(end, cleaned)) for name in sorted(every)}
    except (OSError, CorruptBatch) as error:
        sink.note(NOT_COMPARED, reference_replica, f"what the cleaners have left was not compared: {error}")
        return
    told: dict[tuple[str, str], list[int]] = {}
    found = [*_other_records(copies, reference_replica), *_other_newest(copies, start, min(end, cleaned))]
    for name, offset, what in found:
        told.setdefault((name, what), []).append(offset)
    for (name, what), offsets in sorted(told.items()):
        _report(name, what, sorted(set(offsets)), tables[name], sink)


def _are_equal(tables: Mapping[str, BatchTable]) -> bool:
    first, *others = tables.values()
    same = (first.base_offset, first.last_offset, first.epoch, first.crc, first.size)
    return all(
        same == (each.base_offset, each.last_offset, each.epoch, each.crc, each.size) and not each.problems
        for each in others
    )


Difference = tuple[str, int, str]
"""Replica, offset, and what is wrong there."""


def _other_records(copies: Mapping[str, _Copy], reference_replica: str) -> Iterator[Difference]:
    """Offsets at which replicas hold different records."""
    for offset in sorted(set().union(*(copy.by_offset for copy in copies.values()))):
        held = {name: copy.by_offset[offset] for name, copy in copies.items() if offset in copy.by_offset}
        if len(set(held.values())) > 1:
            right = _believed(held, reference_replica)
            yield from ((name, offset, "holds another record") for name, each in held.items() if each != right)


def _other_newest(copies: Mapping[str, _Copy], start: int, end: int) -> Iterator[Difference]:
    """Keys whose newest record is not the same everywhere, or is missing somewhere."""
    for key in sorted(set().union(*(copy.newest for copy in copies.values()))):
        held = {name: copy.newest.get(key) for name, copy in copies.items()}
        newest = [each for each in held.values() if each is not None]
        last = max(newest)
        if last.offset >= end or last.offset < start:
            continue
        if last.tombstone:
            stale = {name: each for name, each in held.items() if each is not None and each.offset < last.offset}
            yield from ((name, each.offset, "holds a value that was deleted") for name, each in stale.items())
            continue
        for name, each in held.items():
            if each is None or each.offset < last.offset:
                yield name, last.offset, "lacks the newest record of its key"


def _believed(held: Mapping[str, bytes], reference_replica: str) -> bytes:
    (content, votes), *others = Counter(held.values()).most_common()
    if reference_replica in held and others and others[0][1] == votes:
        return held[reference_replica]
    return content


def _report(replica: str, what: str, offsets: list[int], table: BatchTable, sink: FindingSink) -> None:
    more = f", and so at {plural(len(offsets) - 1, 'other offset')} up to {offsets[-1]}" if len(offsets) > 1 else ""
    row = next((row for row in range(len(table)) if table.last_offset[row] >= offsets[0]), -1)
    inside = row >= 0 and table.base_offset[row] <= offsets[0]
    sink.report(
        COMPACTION_MISMATCH,
        replica,
        f"replica {replica} {what} at offset {offsets[0]}, below where a cleaner has been{more}",
        offset=offsets[0],
        end_offset=offsets[-1] + 1,
        epoch=table.epoch[row] if inside else -1,
        file=table.file(row) if inside else "",
        position=table.position[row] if inside else -1,
        records=len(offsets),
    )
