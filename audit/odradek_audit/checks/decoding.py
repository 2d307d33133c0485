"""`batch-unreadable` and `header-mismatch` of batches whose CRC is right: can their records be decoded, and are they
what the header says (A1)?

Bytes that all replicas hold alike are no difference, and every consumer may stop at them all the same. Decoding costs
ten times what everything else does, so it is done on one replica, and of large logs for the first batch of each block
of offsets only, unless somebody wants all (`deep`). With a history the log is decoded anyway (`against_history`).

And is their timestamp type the one of the topic's setting? A leader stamps every batch as `message.timestamp.type` says
and refuses a client's batch that says otherwise. Judged are topics whose setting the metadata log has known since they
were made: one that was never changed holds everywhere; where only the brokers' own default counts, which takes a
restart to change, all batches of a leader epoch are alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from odradek_proto.headers import CODEC_MASK, CONTROL, LAST_CODEC, LOG_APPEND_TIME, TRANSACTIONAL
from odradek_proto.records import ControlType, CorruptBatch, Record, control_type

from odradek_audit.catalogue import BATCH_UNREADABLE, HEADER_MISMATCH
from odradek_audit.findings import FindingSink
from odradek_audit.inputs.facts import BLOCK_OFFSETS, BatchTable, ReplicaInputs, SegmentReader, TopicSettings
from odradek_audit.inputs.records import CONTROL_BIT, DecodedBatch, decoded_row, iter_decoded

TYPES = ("CreateTime", "LogAppendTime")


def check_decoding(
    table: BatchTable, replica: str, reader: SegmentReader, sink: FindingSink, *, deep: bool, cleaned_to: int = 0
) -> None:
    """Decode the batches of one replica, all of them or some. What cannot be read is told by others."""
    try:
        for batch in iter_decoded(table, replica, reader, control=True) if deep else _sample(table, replica, reader):
            row = batch.row
            if batch.problem and not table.attributes[row] & CONTROL_BIT and (deep or not batch.unavailable):
                report_undecodable(table, replica, batch, sink)
            elif table.base_offset[row] >= cleaned_to and (
                wrong := contradiction(table.attributes[row], table.max_timestamp[row], batch.records)
            ):
                _report_contradiction(table, row, replica, wrong, sink)
    except OSError as error:
        sink.note("not-decoded", replica, f"the records of replica {replica} were not read: {error}")


def _sample(table: BatchTable, replica: str, reader: SegmentReader) -> Iterator[DecodedBatch]:
    block = -1
    for row, attributes in enumerate(table.attributes):
        here = table.base_offset[row] // BLOCK_OFFSETS
        if here != block or attributes & CODEC_MASK > LAST_CODEC or attributes & CONTROL_BIT:
            yield decoded_row(table, row, replica, reader)
        block = here


def contradiction(attributes: int, max_timestamp: int, records: Sequence[Record]) -> str:
    """What the records of a batch that no cleaner has seen say against its header; empty: nothing. Of a batch that is
    not compressed the largest timestamp is the client's word, and one that is too large misses no record."""
    if not records:
        return ""
    if attributes & CONTROL_BIT:
        with suppress(CorruptBatch):
            kind = control_type(records[0])
            known = (ControlType.ABORT, ControlType.COMMIT) if attributes & TRANSACTIONAL else tuple(ControlType)
            return "" if kind in known else f"its marker is of kind {kind}, which there is not"
        return "its marker is of no kind"
    newest = max(record.timestamp for record in records)
    if attributes & LOG_APPEND_TIME or newest == max_timestamp:
        return ""
    if newest < max_timestamp and not attributes & CODEC_MASK:
        return ""
    return f"its header says {max_timestamp} as the largest timestamp, and its records {newest}"


def _report_contradiction(table: BatchTable, row: int, replica: str, wrong: str, sink: FindingSink) -> None:
    sink.report(
        HEADER_MISMATCH,
        replica,
        f"replica {replica} holds the batch {table.base_offset[row]} to {table.last_offset[row]} of epoch "
        f"{table.epoch[row]}, and {wrong}",
        **table.place(row),
    )


def report_undecodable(table: BatchTable, replica: str, batch: DecodedBatch, sink: FindingSink) -> None:
    """A batch that is no records; one whose codec is not installed is a note."""
    row = batch.row
    where = f"batch {table.base_offset[row]} to {table.last_offset[row]}"
    if batch.unavailable:
        sink.note(
            "not-decoded",
            replica,
            f"replica {replica}: {where} was not read: {batch.problem}",
            offset=table.base_offset[row],
        )
        return
    sink.report(
        BATCH_UNREADABLE,
        replica,
        f"replica {replica} holds the {where} of epoch {table.epoch[row]} with a right CRC, but its records "
        f"cannot be decoded: {batch.problem}",
        **table.place(row),
    )


# --- The timestamp type -----------------------------------------------------------------------------------------------


def check_timestamp_types(
    inputs: ReplicaInputs, settings: TopicSettings | None, table: BatchTable, sink: FindingSink
) -> None:
    """One finding for batches in a row. Of the table only batches where the type changes are needed."""
    if settings is None or len(settings.timestamp_types) != 1:
        return
    (value,) = settings.timestamp_types
    if value is not None and value not in TYPES:
        return
    for rows in _runs(_wrong_rows(table, value)):
        row, last = rows.start, rows.stop - 1
        kind = _type_of(table, row)
        usual = f"the topic's message.timestamp.type was never anything but {value}"
        other = f"the others of its leader epoch say {TYPES[1 - kind]}, and no setting was changed"
        sink.report(
            HEADER_MISMATCH,
            inputs.replica,
            f"replica {inputs.replica} holds the batches from offset {table.base_offset[row]} to "
            f"{table.last_offset[last]} of epoch {table.epoch[row]} with timestamps of {TYPES[kind]}, and "
            f"{usual if value is not None else other}",
            **(table.place(row) | {"end_offset": table.last_offset[last] + 1}),
            attributes=table.attributes[row],
        )


def _type_of(table: BatchTable, row: int) -> int:
    return int(bool(table.attributes[row] & LOG_APPEND_TIME))


def _wrong_rows(table: BatchTable, value: str | None) -> list[int]:
    """Rows of data batches with another type than the setting's, or without one than most of their epoch's."""
    if not {bool(each & LOG_APPEND_TIME) for each in set(table.attributes)} - {value == TYPES[1]}:
        return []
    by_epoch: dict[int, tuple[list[int], list[int]]] = {}
    for row, attributes in enumerate(table.attributes):
        if not attributes & CONTROL:
            by_epoch.setdefault(table.epoch[row], ([], []))[_type_of(table, row)].append(row)
    if value is not None:
        return sorted(row for kinds in by_epoch.values() for row in kinds[1 - TYPES.index(value)])
    return sorted(row for kinds in by_epoch.values() for row in min(kinds[::-1], key=len))


def _runs(rows: list[int]) -> Iterator[range]:
    start = 0
    for place, row in enumerate(rows):
        if place + 1 == len(rows) or rows[place + 1] != row + 1:
            yield range(rows[start], row + 1)
            start = place + 1
