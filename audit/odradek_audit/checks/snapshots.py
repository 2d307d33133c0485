"""`producer-snapshot-mismatch`: does a `.snapshot` file say of each producer what the batches below it say (C5; R-241)?

A broker that starts believes the newest snapshot and replays only what lies behind it, so a wrong one makes it accept a
batch twice or refuse the next. Judged are the producers that a snapshot names and whose batches are at hand. Producers
that it lacks have expired, unless it has one that must have expired before them: whose last batch is an earlier one,
and of no later time. Not judged: snapshots behind the log end (a start removes them), producers without a batch in the
log (retention took it), and compacted logs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from odradek_proto.formats import PRODUCER_SNAPSHOT_SUFFIX, CorruptFile, ProducerSnapshotEntry, decode_producer_snapshot

from odradek_audit.catalogue import PRODUCER_SNAPSHOT_MISMATCH
from odradek_audit.checks.unread import note_file, report_corrupt
from odradek_audit.findings import FindingSink
from odradek_audit.inputs.facts import NO_PRODUCER, BatchTable, ReplicaInputs, SegmentReader, log_end_offset
from odradek_audit.inputs.records import CONTROL_BIT
from odradek_audit.words import plural

SEQUENCES = 1 << 31
_NOTHING: tuple[int, ...] = ()
LARGEST_SNAPSHOT = 64 * 1024 * 1024  # about a million producers


class ProducerState(NamedTuple):
    """What the log says of a producer: its epoch, its last sequence and offset in it, and that batch's leader epoch and
    time."""

    epoch: int
    sequence: int
    offset: int
    leader_epoch: int
    timestamp: int = -1


def check_snapshots(inputs: ReplicaInputs, table: BatchTable, reader: SegmentReader, sink: FindingSink) -> None:
    """All snapshots of one replica, in one walk over its log."""
    log_end = log_end_offset(inputs, table)
    known: dict[int, ProducerState] = {}
    row = 0
    for offset in inputs.snapshots:
        if offset > log_end:
            return
        row = _follow(table, row, offset, known)
        judge_snapshot(inputs, offset, known, table, reader, sink)


def judge_snapshot(
    inputs: ReplicaInputs,
    offset: int,
    known: Mapping[int, ProducerState],
    table: BatchTable,
    reader: SegmentReader,
    sink: FindingSink,
) -> None:
    """Compare one snapshot with what the log says of the producers below its offset. The table need not be whole: of
    its batches only the first is looked at."""
    entries = _read(inputs, offset, reader, sink)
    if entries is not None and not (inputs.segments and offset < inputs.segments[0].base_offset):
        for entry in entries:
            _judge(inputs, offset, entry, known.get(entry.producer_id), table, sink)
        _judge_missing(inputs, offset, entries, known, sink)


def _follow(table: BatchTable, row: int, end: int, known: dict[int, ProducerState]) -> int:
    """Let `known` learn of the batches from a row up to an offset (exclusive); returns the row behind them."""
    while row < len(table) and table.last_offset[row] < end:
        producer, epoch = table.producer_id[row], table.producer_epoch[row]
        if producer != NO_PRODUCER and table.attributes[row] & CONTROL_BIT:
            if producer in known and known[producer].epoch < epoch:  # a marker with a new epoch ends the old one
                known[producer] = ProducerState(epoch, -1, -1, table.epoch[row])
        elif producer != NO_PRODUCER and table.base_sequence[row] >= 0:
            count = table.last_offset[row] - table.base_offset[row] + 1
            last = (table.base_sequence[row] + count - 1) % SEQUENCES
            place = (table.last_offset[row], table.epoch[row], table.max_timestamp[row])
            known[producer] = ProducerState(epoch, last, *place)
        row += 1
    return row


def _read(
    inputs: ReplicaInputs, offset: int, reader: SegmentReader, sink: FindingSink
) -> Sequence[ProducerSnapshotEntry] | None:
    file = f"{offset:020d}{PRODUCER_SNAPSHOT_SUFFIX}"
    try:
        return decode_producer_snapshot(reader.read(inputs.replica, file, 0, LARGEST_SNAPSHOT))
    except PermissionError as error:
        note_file(inputs, file, error, sink)
        return None
    except (CorruptFile, OSError) as error:
        if offset != max(inputs.snapshots) or inputs.clean_shutdown:
            report_corrupt(inputs.replica, file, error, sink)
        return None  # the newest after a crash: it is written without an fsync, and a start removes what it cannot read


def _judge(
    inputs: ReplicaInputs,
    offset: int,
    entry: ProducerSnapshotEntry,
    state: ProducerState | None,
    table: BatchTable,
    sink: FindingSink,
) -> None:
    first = table.base_offset[0] if len(table) else offset
    stored = (entry.producer_epoch, entry.last_sequence, entry.last_offset)
    if state is None:
        if entry.last_offset < first:
            return
        said, epoch = "no batch of it", -1
    else:
        if stored == state[:3] or (entry.last_offset == -1 and entry.producer_epoch > state.epoch):
            return
        said = f"sequence {state.sequence} of its epoch {state.epoch} at offset {state.offset} as the last one"
        epoch = state.leader_epoch
    file = f"{offset:020d}{PRODUCER_SNAPSHOT_SUFFIX}"
    sink.report(
        PRODUCER_SNAPSHOT_MISMATCH,
        inputs.replica,
        f"replica {inputs.replica} has the producer {entry.producer_id} in {file} with sequence "
        f"{entry.last_sequence} of its epoch {entry.producer_epoch} at offset {entry.last_offset}, and its log has "
        f"{said} below {offset}",
        offset=state.offset if state is not None and state.offset >= 0 else entry.last_offset,
        epoch=epoch,
        file=file,
        producer_id=entry.producer_id,
        snapshot_offset=offset,
    )


def _judge_missing(
    inputs: ReplicaInputs,
    offset: int,
    entries: Sequence[ProducerSnapshotEntry],
    known: Mapping[int, ProducerState],
    sink: FindingSink,
) -> None:
    """Producers expire by the time of their last batch or marker, so of two the earlier and older one goes first. One
    that has been in transactions stays as long as they are open, and says nothing of others."""
    kept = [
        entry
        for entry in entries
        if entry.coordinator_epoch < 0
        and entry.current_txn_first_offset < 0
        and known.get(entry.producer_id, _NOTHING)[:3] == (entry.producer_epoch, entry.last_sequence, entry.last_offset)
    ]
    named = {entry.producer_id for entry in entries}
    missing = [
        (state.offset, producer, witness)
        for producer, state in known.items()
        if producer not in named
        for witness in kept
        if witness.last_offset < state.offset and witness.timestamp <= state.timestamp
    ]
    if not missing:
        return
    last, producer, witness = max(missing, key=lambda each: each[0])
    count = len({each for _, each, _ in missing})
    others = f" and {plural(count - 1, 'other producer')}" if count > 1 else ""
    file = f"{offset:020d}{PRODUCER_SNAPSHOT_SUFFIX}"
    sink.report(
        PRODUCER_SNAPSHOT_MISMATCH,
        inputs.replica,
        f"replica {inputs.replica} lacks the producer {producer}{others} in {file}: its last batch below {offset} "
        f"ends at offset {last}; it cannot have expired, for producer {witness.producer_id} is there, whose last one "
        f"ends at {witness.last_offset}",
        offset=last,
        epoch=known[producer].leader_epoch,
        file=file,
        producer_id=producer,
        snapshot_offset=offset,
    )
