"""`transaction-mismatch`: do the markers in the log and the `.txnindex` files name the same aborted transactions (C6)?

Consumers that read committed records learn from the index what to leave out. An aborted transaction that is missing
there is shown to them as if it had been committed; one that is there although its marker says COMMIT is hidden.

Where no replica has a transaction index none is judged: odradek's storage writes none. After an unclean stop a start
builds the index of the last segment anew, so that one is not judged then.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from odradek_proto.compression import CodecUnavailable
from odradek_proto.formats import TRANSACTION_INDEX_SUFFIX, AbortedTransaction, CorruptFile, decode_transaction_index
from odradek_proto.records import ControlType, CorruptBatch, control_type, decode_records, read_header

from odradek_audit.catalogue import TRANSACTION_MISMATCH
from odradek_audit.checks.unread import note_file, report_corrupt
from odradek_audit.findings import FindingSink
from odradek_audit.inputs.facts import (
    BatchTable,
    PartitionInputs,
    ReplicaInputs,
    SegmentFile,
    SegmentReader,
    log_end_offset,
)
from odradek_audit.inputs.records import CONTROL_BIT, TRANSACTIONAL_BIT

LARGEST_INDEX = 64 * 1024 * 1024
LONGEST_MS = 900_000  # transaction.max.timeout.ms, Kafka's default
OPEN_NAMED = 10
"""Open transactions that are named of a replica."""


class OpenTransaction(NamedTuple):
    """A transaction without an end: where it begins, and the largest timestamp of its first batch."""

    producer_id: int
    offset: int
    timestamp: int


class _Marker(NamedTuple):
    """A transaction's end in the log. `first` is the transaction's first offset, -1 when it is not in the log."""

    row: int
    aborted: bool
    first: int


def check_transactions(
    partition: PartitionInputs, inputs: ReplicaInputs, table: BatchTable, reader: SegmentReader, sink: FindingSink
) -> None:
    """Compare the transaction index of one replica with its log, and name the transactions that are open at its end."""
    if any(each & TRANSACTIONAL_BIT for each in set(table.attributes)):
        newest = max(table.max_timestamp)
        note_open(inputs, _open_at_end(table), newest, log_end_offset(inputs, table), sink)
    if not any(each & CONTROL_BIT for each in set(table.attributes)) and not inputs.transaction_indexes:
        return
    judged = [segment for segment in inputs.segments if is_judged(inputs, segment)]
    try:
        markers = {table.base_offset[marker.row]: marker for marker in _markers(inputs, table, reader)}
    except (OSError, CorruptBatch, CodecUnavailable) as error:
        sink.note(
            "not-compared", inputs.replica, f"the transactions of replica {inputs.replica} were not read: {error}"
        )
        return
    for segment in judged:
        entries = _entries(inputs, segment, reader, sink)
        if entries is not None:
            _check_segment(inputs, segment, entries, markers, table, sink)


def is_judged(inputs: ReplicaInputs, segment: SegmentFile) -> bool:
    """Whether a segment's transaction index must be as the log says."""
    return inputs.clean_shutdown or segment is not inputs.segments[-1]


def _open_at_end(table: BatchTable) -> list[OpenTransaction]:
    open_since: dict[int, OpenTransaction] = {}
    for row, attributes in enumerate(table.attributes):
        producer = table.producer_id[row]
        if attributes & TRANSACTIONAL_BIT and attributes & CONTROL_BIT:
            open_since.pop(producer, None)
        elif attributes & TRANSACTIONAL_BIT and producer not in open_since:
            open_since[producer] = OpenTransaction(producer, table.base_offset[row], table.max_timestamp[row])
    return list(open_since.values())


def note_open(
    inputs: ReplicaInputs, found: Sequence[OpenTransaction], newest: int, log_end: int, sink: FindingSink
) -> None:
    """Transactions without an end: readers of committed records wait at the first of them. `newest` is the largest
    timestamp of the log."""
    for producer, offset, timestamp in found[:OPEN_NAMED]:
        age = newest - timestamp
        old = f", {age // 1000:,} s older than the newest record: nobody will end it" if age > LONGEST_MS else ""
        sink.note(
            "open-transaction",
            inputs.replica,
            f"replica {inputs.replica}: the transaction of producer {producer} from offset {offset} on "
            f"has no end in the log{old}; readers of committed records wait there",
            offset=offset,
            end_offset=log_end,
        )


def _markers(inputs: ReplicaInputs, table: BatchTable, reader: SegmentReader) -> Iterator[_Marker]:
    """Every transaction marker of the log. Raises `OSError`, `CorruptBatch` and `CodecUnavailable`."""
    open_since: dict[int, int] = {}
    for row, attributes in enumerate(table.attributes):
        producer = table.producer_id[row]
        if not attributes & TRANSACTIONAL_BIT:
            continue
        if not attributes & CONTROL_BIT:
            open_since.setdefault(producer, table.base_offset[row])
            continue
        file = table.file(row)
        data = reader.read(inputs.replica, file, table.position[row], table.size[row])
        kind = control_type(decode_records(data, read_header(data))[0])
        if kind in (ControlType.ABORT, ControlType.COMMIT):
            yield _Marker(row, kind == ControlType.ABORT, open_since.pop(producer, -1))


def aborted_rows(inputs: ReplicaInputs, table: BatchTable, reader: SegmentReader) -> Iterator[int]:
    """The batches of transactions that were aborted. Raises `OSError`, `CorruptBatch` and `CodecUnavailable`."""
    rows: dict[int, list[int]] = {}
    ends = {marker.row: marker.aborted for marker in _markers(inputs, table, reader)}
    for row, attributes in enumerate(table.attributes):
        if not attributes & TRANSACTIONAL_BIT:
            continue
        if not attributes & CONTROL_BIT:
            rows.setdefault(table.producer_id[row], []).append(row)
        elif row in ends:
            ended = rows.pop(table.producer_id[row], [])
            yield from ended if ends[row] else ()


def _entries(
    inputs: ReplicaInputs, segment: SegmentFile, reader: SegmentReader, sink: FindingSink
) -> list[AbortedTransaction] | None:
    if segment.base_offset not in inputs.transaction_indexes:
        return []
    file = segment.stem + TRANSACTION_INDEX_SUFFIX
    try:
        return decode_transaction_index(reader.read(inputs.replica, file, 0, LARGEST_INDEX))
    except PermissionError as error:
        note_file(inputs, file, error, sink)
        return None
    except (CorruptFile, OSError) as error:
        report_corrupt(inputs.replica, file, error, sink)
        return None


def _check_segment(
    inputs: ReplicaInputs,
    segment: SegmentFile,
    entries: list[AbortedTransaction],
    markers: dict[int, _Marker],
    table: BatchTable,
    sink: FindingSink,
) -> None:
    named = set()
    for entry in entries:
        named.add(entry.last_offset)
        marker = markers.get(entry.last_offset)
        if marker is None:
            what = "the log has no transaction marker there"
        elif not marker.aborted:
            what = "the marker there says that it was committed"
        elif table.producer_id[marker.row] != entry.producer_id:
            what = f"the marker there is of producer {table.producer_id[marker.row]}"
        elif marker.first not in (-1, entry.first_offset):
            what = f"its first record is at offset {marker.first}"
        elif entry.last_stable_offset > entry.last_offset + 1:
            what = f"the last stable offset {entry.last_stable_offset} then: readers of older records do not come to it"
        else:
            continue
        said = (
            f"names an aborted transaction of producer {entry.producer_id} from offset {entry.first_offset} to "
            f"{entry.last_offset}, and {what}"
        )
        _report(inputs, segment, table, entry.last_offset, said, sink)
    for row in table.rows_of_segment(segment.base_offset):
        marker = markers.get(table.base_offset[row])
        if marker is not None and marker.aborted and marker.first >= 0 and table.base_offset[row] not in named:
            said = (
                f"lacks the aborted transaction of producer {table.producer_id[row]} from offset {marker.first} to "
                f"{table.base_offset[row]}"
            )
            _report(inputs, segment, table, table.base_offset[row], said, sink)


def _report(
    inputs: ReplicaInputs, segment: SegmentFile, table: BatchTable, offset: int, said: str, sink: FindingSink
) -> None:
    row = bisect_left(table.last_offset, offset)
    file = segment.stem + TRANSACTION_INDEX_SUFFIX
    sink.report(
        TRANSACTION_MISMATCH,
        inputs.replica,
        f"replica {inputs.replica}: {file} {said}",
        offset=offset,
        end_offset=offset + 1,
        epoch=table.epoch[row] if row < len(table) else -1,
        file=file,
    )
