"""Acknowledged records that no replica has any more, whatever was owed: how many, and from which offset.

`acknowledged-lost` judges promises against the log that counts. This answers what the owner of the data asks first: is
it still anywhere? So records of acks=1 count too, which breaks no promise, and a record that any replica still has at
its offset, or the authority anywhere, is not gone. Neither is one below the log start offset, nor one in a batch that
cannot be decoded: nobody knows what that holds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping

from odradek_audit.checks.facts import BatchTable, Loss, PartitionInputs, SegmentReader
from odradek_audit.checks.records import decoded_row
from odradek_audit.history import ACKS_ALL, ACKS_LEADER, PartitionHistory, value_digest

Missing = dict[int, set[bytes]]
"""What the authority lacks: values as digests, by offset."""


def losses_of(
    partition: PartitionInputs,
    tables: Mapping[str, BatchTable],
    authority: str,
    history: PartitionHistory,
    held: Mapping[int, bytes],
    elsewhere: Collection[bytes],
    undecodable: Iterable[int],
    reader: SegmentReader,
) -> list[Loss]:
    """The acknowledged records that no replica has, a `Loss` for each kind of acknowledgement.

    `held` has the authority's values at acknowledged offsets, `elsewhere` all of its values that were sent, and
    `undecodable` the rows of its table whose records cannot be read. Raises `OSError`.
    """
    table, log_start = tables[authority], partition.replicas[authority].log_start
    closed = list(undecodable)
    found = []
    for acks, acknowledged in ((ACKS_ALL, history.acknowledged), (ACKS_LEADER, history.acknowledged_by_leader)):
        missing: Missing = {}
        for offset, digest, *_ in acknowledged:
            if offset < log_start or held.get(offset) == digest or digest in elsewhere:
                continue
            if not any(table.base_offset[row] <= offset <= table.last_offset[row] for row in closed):
                missing.setdefault(offset, set()).add(digest)
        for name in sorted(partition.replicas):
            if missing and name != authority:
                _strike_out(missing, tables[name], name, reader)
        if missing:
            records = sum(len(values) for values in missing.values())
            found.append(Loss(partition.topic, partition.partition, str(acks), records, min(missing), max(missing) + 1))
    return found


def _strike_out(missing: Missing, table: BatchTable, replica: str, reader: SegmentReader) -> None:
    """Take away what a replica has, and what a batch of it that cannot be decoded may have."""
    offsets = sorted(missing)
    for row in range(len(table)):
        first = bisect_left(offsets, table.base_offset[row])
        inside = offsets[first : bisect_left(offsets, table.last_offset[row] + 1)]
        if not inside:
            continue
        batch = decoded_row(table, row, replica, reader)
        if batch.problem:
            for offset in inside:
                missing.pop(offset, None)
        for record in batch.records:
            values = missing.get(record.offset, set())
            values.discard(value_digest(record.value))
            if not values:
                missing.pop(record.offset, None)
