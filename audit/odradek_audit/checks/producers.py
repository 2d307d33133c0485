"""Do an idempotent producer's sequence numbers in the log go up by one, and its epochs never down (I-11, C5; R-241)?

`sequence-gap` only inside one (producer id, epoch): the first batch that is seen may have any sequence (older ones may
be gone), a new epoch of the producer starts at 0, or anywhere after its state expired, which nothing on disk tells.
`producer-epoch-not-monotonic`: a producer's epoch does not fall, of its batches and of markers, since brokers refuse
the older one until its state expires. Compacted logs are not judged.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek_audit.catalogue import PRODUCER_EPOCH_NOT_MONOTONIC, SEQUENCE_GAP
from odradek_audit.findings import FindingSink
from odradek_audit.inputs.facts import NO_PRODUCER, BatchTable, ReplicaInputs
from odradek_audit.inputs.records import CONTROL_BIT

UNKNOWN = -1
SEQUENCES = 1 << 31  # sequence numbers wrap from 2^31 - 1 to 0
PRODUCER_EXPIRY_MS = 86_400_000  # producer.id.expiration.ms, Kafka's default: later, any sequence is accepted again


class _Last(NamedTuple):
    """A producer's last batch so far. `other` is the sequence that it would have ended with, had it begun where it
    should: one wrong batch is one finding."""

    epoch: int
    sequence: int
    timestamp: int
    offset: int
    other: int


def check_sequences(inputs: ReplicaInputs, table: BatchTable, sink: FindingSink) -> None:
    """Follow every producer through one replica's log."""
    if table.producer_id.count(NO_PRODUCER) == len(table):
        return
    known: dict[int, _Last] = {}
    holes = {problem.row for problem in table.problems}
    for row in range(len(table)):
        if row in holes:
            known.clear()  # what stood there may have been any producer's
        producer, epoch = table.producer_id[row], table.producer_epoch[row]
        last = known.get(producer)
        if last is not None and table.attributes[row] & CONTROL_BIT and epoch > last.epoch:
            known[producer] = last._replace(epoch=epoch, sequence=UNKNOWN, other=UNKNOWN)
        elif (
            last is not None
            and table.attributes[row] & CONTROL_BIT
            and epoch < last.epoch
            and table.max_timestamp[row] - last.timestamp < PRODUCER_EXPIRY_MS
        ):
            _report_fenced(inputs, table, row, last, sink)
        if producer == NO_PRODUCER or table.attributes[row] & CONTROL_BIT or table.base_sequence[row] < 0:
            continue
        first = table.base_sequence[row]
        count = table.last_offset[row] - table.base_offset[row] + 1
        other = (first + count - 1) % SEQUENCES
        timestamp = table.max_timestamp[row]
        if last is not None and timestamp - last.timestamp < PRODUCER_EXPIRY_MS:
            if epoch < last.epoch:
                _report_fenced(inputs, table, row, last, sink)
            elif epoch == last.epoch and last.sequence != UNKNOWN:
                expected = (last.sequence + 1) % SEQUENCES
                if first not in (expected, (last.other + 1) % SEQUENCES):
                    _report(inputs, table, row, expected, last.offset, sink)
                    other = (expected + count - 1) % SEQUENCES
        known[producer] = _Last(epoch, (first + count - 1) % SEQUENCES, timestamp, table.last_offset[row], other)


def _report_fenced(inputs: ReplicaInputs, table: BatchTable, row: int, last: _Last, sink: FindingSink) -> None:
    sink.report(
        PRODUCER_EPOCH_NOT_MONOTONIC,
        inputs.replica,
        f"replica {inputs.replica} holds a batch of epoch {table.producer_epoch[row]} of producer "
        f"{table.producer_id[row]} at offset {table.base_offset[row]}, behind its epoch {last.epoch}, with which "
        "brokers refuse older ones",
        **table.place(row),
        producer_id=table.producer_id[row],
        previous_offset=last.offset,
    )


def _report(
    inputs: ReplicaInputs, table: BatchTable, row: int, expected: int, previous_offset: int, sink: FindingSink
) -> None:
    sink.report(
        SEQUENCE_GAP,
        inputs.replica,
        f"replica {inputs.replica} holds sequence {table.base_sequence[row]} of producer "
        f"{table.producer_id[row]} (epoch {table.producer_epoch[row]}) at offset {table.base_offset[row]}, where "
        f"sequence {expected} should follow",
        **table.place(row),
        expected_sequence=expected,
        producer_id=table.producer_id[row],
        previous_offset=previous_offset,
    )
