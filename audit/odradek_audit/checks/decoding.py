"""`batch-unreadable` and `header-mismatch` of batches whose CRC is right: can their records be decoded, and are they
what the header says (A1)?

Bytes that all replicas hold alike are no difference, and every consumer may stop at them all the same. Decoding costs
ten times what everything else does, so it is done on one replica, and of large logs for the first batch of each block
of offsets only, unless somebody wants all (`deep`). With a history the log is decoded anyway (`against_history`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from odradek_proto.headers import CODEC_MASK, LAST_CODEC, LOG_APPEND_TIME, TRANSACTIONAL
from odradek_proto.records import ControlType, CorruptBatch, Record, control_type

from odradek_audit.catalogue import BATCH_UNREADABLE, HEADER_MISMATCH
from odradek_audit.findings import FindingSink
from odradek_audit.inputs.facts import BLOCK_OFFSETS, BatchTable, SegmentReader
from odradek_audit.inputs.records import CONTROL_BIT, DecodedBatch, decoded_row, iter_decoded


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
