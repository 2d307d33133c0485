"""`batch-unreadable` of batches whose CRC is right: can their records be decoded (A1)?

Bytes that all replicas hold alike are no difference, and every consumer may stop at them all the same. Decoding costs
ten times what everything else does, so it is done on one replica, and of large logs for the first batch of each block
of offsets only, unless somebody wants all (`deep`). With a history the log is decoded anyway (`against_history`).
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek_proto.headers import CODEC_MASK, LAST_CODEC

from odradek_audit.catalogue import BATCH_UNREADABLE
from odradek_audit.findings import FindingSink
from odradek_audit.inputs.facts import BLOCK_OFFSETS, BatchTable, SegmentReader
from odradek_audit.inputs.records import CONTROL_BIT, DecodedBatch, decoded_row, iter_decoded


def check_decoding(table: BatchTable, replica: str, reader: SegmentReader, sink: FindingSink, *, deep: bool) -> None:
    """Decode the batches of one replica, all of them or some. What cannot be read is told by others."""
    try:
        for batch in iter_decoded(table, replica, reader) if deep else _sample(table, replica, reader):
            if batch.problem and (deep or not batch.unavailable):
                report_undecodable(table, replica, batch, sink)
    except OSError as error:
        sink.note("not-decoded", replica, f"the records of replica {replica} were not read: {error}")


def _sample(table: BatchTable, replica: str, reader: SegmentReader) -> Iterator[DecodedBatch]:
    block = -1
    for row, attributes in enumerate(table.attributes):
        here = table.base_offset[row] // BLOCK_OFFSETS
        if (here != block or attributes & CODEC_MASK > LAST_CODEC) and not attributes & CONTROL_BIT:
            yield decoded_row(table, row, replica, reader)
        block = here


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
