"""Puts the proofs of a partition's parts together: are all replicas sound, and do they agree?

`prove_partition` gives the result that `check_partition` would give, without findings and notes but those on single
replicas and on where logs begin and end, or raises `Unproven`. Replicas are compared by the hashes of their blocks of
1,024 offsets; where the common range begins or ends inside of a block, the few headers there are read again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from odradek_proto.headers import HEADER, HEADER_SIZE, LENGTH_END

from odradek_audit.checks.checkpoints import check_checkpoints, check_ends, check_identity, check_log_start
from odradek_audit.checks.companions import check_companions
from odradek_audit.checks.decoding import check_timestamp_types
from odradek_audit.checks.epochs import check_epoch_cache
from odradek_audit.checks.snapshots import ProducerState, judge_snapshot
from odradek_audit.checks.transactions import OpenTransaction, note_open
from odradek_audit.checks.walking import ComparisonCount
from odradek_audit.engine.conclusion import (
    bound_of,
    explained,
    note_alone,
    partition_summary,
    reference_replica_of,
    summary_of,
)
from odradek_audit.engine.proof import MASK, NEVER, PartProof, PartTask
from odradek_audit.engine.spans import ProducerSpan, Unproven, join_transactions, joined_producers
from odradek_audit.findings import FindingSink
from odradek_audit.inputs.disk import FileSystem, join
from odradek_audit.inputs.facts import BLOCK_OFFSETS, METADATA_TOPIC, BatchTable, Bounds, PartitionInputs, ReplicaInputs
from odradek_audit.inputs.facts import log_end_offset as log_end_of
from odradek_audit.inputs.layout import reader_of
from odradek_audit.results import PartitionResult

READ_BYTES = 256 * 1024


@dataclass
class _Replica:
    """The proofs of one replica's parts as one."""

    inputs: ReplicaInputs
    table: BatchTable = field(default_factory=BatchTable)
    """The skeleton: enough for every check that looks at ends and epochs only."""
    batches: int = 0
    bytes: int = 0
    first_offset: int = -1
    next_offset: int = -1
    blocks: array[int] = field(default_factory=lambda: array("q"))
    hashes: array[int] = field(default_factory=lambda: array("Q"))
    counts: array[int] = field(default_factory=lambda: array("I"))
    places: list[tuple[int, int, int]] = field(default_factory=list)
    """Offset, segment and position of the first batch of each block."""
    producers: dict[int, ProducerSpan] = field(default_factory=dict)
    open: dict[int, OpenTransaction] = field(default_factory=dict)
    """Transactions without an end so far."""
    newest: int = -1

    @property
    def log_end(self) -> int:
        return log_end_of(self.inputs, self.table)


def may_be_proven(partition: PartitionInputs) -> bool:
    """Whether it is worth trying: not where gaps are allowed or records are judged, nor where
    a finding is certain."""
    if partition.compacted or partition.topic == METADATA_TOPIC:
        return False
    return not any(inputs.cleaned_to or inputs.problems or inputs.refused for inputs in partition.replicas.values())


def prove_partition(
    disk: FileSystem,
    partition: PartitionInputs,
    proofs: Mapping[str, Sequence[tuple[PartTask, PartProof]]],
    *,
    settled: bool = False,
) -> PartitionResult:
    """The result for a partition all of whose replicas are sound and agree. Raises `Unproven` when that is not certain.

    `proofs` has the parts of each replica in the order of segments and positions.
    """
    sink = FindingSink(partition.topic, partition.partition)
    try:
        sides = {
            name: _joined(disk, partition, inputs, proofs.get(name, ()), sink)
            for name, inputs in sorted(partition.replicas.items())
        }
        check_identity(partition, sink)
        check_companions(partition, sink)
        if sink.findings:
            raise Unproven(sink.findings[0].sentence)
        tables = {name: side.table for name, side in sides.items()}
        reference_replica = reference_replica_of(partition, tables, frozenset())
        compared = [
            _compare(disk, side, sides[reference_replica]) for name, side in sides.items() if name != reference_replica
        ]
    except OSError as error:
        raise Unproven(str(error)) from error
    if sink.findings or sink.notes:
        raise Unproven("something to report")
    for side in sides.values():
        note_open(
            side.inputs, sorted(side.open.values(), key=lambda each: each.offset), side.newest, side.log_end, sink
        )
    bound = bound_of(partition, Bounds())
    check_ends(partition, tables, bound, sink, settled=settled)
    if len(partition.replicas) < 2:
        note_alone(reference_replica, sink)
    numbers = [
        replace(
            summary_of(side.inputs, side.table),
            batches=side.batches,
            records=side.next_offset - side.first_offset,
            bytes=side.bytes,
        )
        for side in sides.values()
    ]
    summary = replace(partition_summary(partition, bound, compared, reference_replica), replicas=numbers)
    return PartitionResult(explained(sink.findings), sink.notes, summary)


# --- One replica ------------------------------------------------------------------------------------------------------


def _joined(
    disk: FileSystem,
    partition: PartitionInputs,
    inputs: ReplicaInputs,
    proofs: Sequence[tuple[PartTask, PartProof]],
    sink: FindingSink,
) -> _Replica:
    if not all(segment.size for segment in inputs.segments[:-1]):
        raise Unproven("an empty file that is not the last one")
    side = _Replica(inputs)
    waiting = list(inputs.snapshots)
    states: dict[int, dict[int, ProducerState]] = {}
    segment, largest, last_time = -1, -1, -1
    for task, proof in proofs:
        if proof.doubt:
            raise Unproven(proof.doubt)
        if task.part.base_offset != segment:
            if last_time > largest:
                raise Unproven("a time index entry that is younger than every record")
            segment, largest, last_time = task.part.base_offset, -1, -1
            _note_states(side, segment, waiting, states)
        if largest > proof.first_time or (proof.first_time != NEVER and proof.first_time < last_time):
            raise Unproven("time index entries that are too old")
        largest, last_time = max(largest, proof.max_timestamp), max(last_time, proof.last_time)
        for offset, spans in proof.snapshot_producers.items():
            waiting.remove(offset)
            states[offset] = _states(joined_producers(side.producers, spans))
        _append(side, task, proof)
    if last_time > largest:
        raise Unproven("a time index entry that is younger than every record")
    behind = inputs.segments[-1] if inputs.segments else None
    if behind is not None and not behind.size and side.batches and side.next_offset != behind.base_offset:
        raise Unproven("an empty file that does not begin where the log ends")
    _note_states(side, side.log_end, waiting, states)
    if any(offset <= side.log_end for offset in waiting):
        raise Unproven("a producer snapshot inside of a segment")
    check_checkpoints(inputs, side.table, sink)
    check_log_start(inputs, sink)
    check_epoch_cache(inputs, side.table, sink)
    check_timestamp_types(inputs, partition.settings, side.table, sink)
    reader = reader_of(disk, partition)
    for offset, known in states.items():
        judge_snapshot(inputs, offset, known, side.table, reader, sink)
    return side


def _note_states(side: _Replica, offset: int, waiting: list[int], states: dict[int, dict[int, ProducerState]]) -> None:
    """What is known of the producers where a segment begins, if there is a snapshot of just that offset."""
    if offset in waiting and (side.next_offset in (-1, offset)):
        waiting.remove(offset)
        states[offset] = _states(side.producers)


def _states(spans: Mapping[int, ProducerSpan]) -> dict[int, ProducerState]:
    return {
        producer: ProducerState(span.epoch, span.sequence, span.offset, span.leader_epoch, span.timestamp)
        for producer, span in spans.items()
        if span.has_batch
    }


def _append(side: _Replica, task: PartTask, proof: PartProof) -> None:
    """Go on with the next part, which must follow on the last one."""
    if not proof.batches:
        return
    expected = side.next_offset if side.batches else side.inputs.segments[0].base_offset
    if proof.first_offset != expected:
        raise Unproven(f"{task.part.path}: offset {proof.first_offset} where {expected} should follow")
    if not task.part.start and task.part.base_offset != expected:
        raise Unproven(f"{task.part.path}: begins with offset {expected}")
    if side.batches and proof.skeleton[0].epoch < side.table.epoch[-1]:
        raise Unproven(f"{task.part.path}: the leader epoch falls")
    side.table.extend(proof.skeleton)
    side.first_offset = side.first_offset if side.batches else proof.first_offset
    side.next_offset = proof.next_offset
    side.batches += proof.batches
    side.bytes += task.size
    _append_blocks(side, task, proof)
    side.producers = joined_producers(side.producers, proof.producers)
    join_transactions(side.open, proof.transactions)
    side.newest = max(side.newest, proof.max_timestamp)


def _append_blocks(side: _Replica, task: PartTask, proof: PartProof) -> None:
    columns = zip(proof.block_offsets, proof.block_positions, proof.block_hashes, proof.block_batches, strict=True)
    for offset, position, hashed, batches in columns:
        block = offset // BLOCK_OFFSETS
        if side.blocks and side.blocks[-1] == block:
            side.hashes[-1] = (side.hashes[-1] + hashed) & MASK
            side.counts[-1] += batches
            continue
        side.blocks.append(block)
        side.hashes.append(hashed)
        side.counts.append(batches)
        side.places.append((offset, task.part.base_offset, position))


# --- Two replicas -----------------------------------------------------------------------------------------------------


def _compare(disk: FileSystem, side: _Replica, leader: _Replica) -> ComparisonCount:
    """Are all batches equal from the larger log start to the smaller log end?"""
    start = max(side.inputs.log_start, leader.inputs.log_start)
    end = min(side.log_end, leader.log_end)
    compared = ComparisonCount(min(start, end), end)
    if start >= end:
        return compared
    cut_start = not side.first_offset == leader.first_offset == start
    cut_end = not side.next_offset == leader.next_offset == end
    low = (start // BLOCK_OFFSETS + 1) * BLOCK_OFFSETS if cut_start else start // BLOCK_OFFSETS * BLOCK_OFFSETS
    high = end // BLOCK_OFFSETS * BLOCK_OFFSETS if cut_end else -(-end // BLOCK_OFFSETS) * BLOCK_OFFSETS
    first = start
    if low >= high:
        batches, first = _compare_rows(disk, side, leader, start, end)
        compared.batches = batches
    else:
        if cut_start:
            compared.batches, first = _compare_rows(disk, side, leader, start, low)
        compared.batches += _compare_blocks(side, leader, low // BLOCK_OFFSETS, high // BLOCK_OFFSETS)
        if cut_end and high < end:
            compared.batches += _compare_rows(disk, side, leader, high, end, begun=True)[0]
    compared.records = end - first
    return compared


def _compare_blocks(side: _Replica, leader: _Replica, low: int, high: int) -> int:
    mine, theirs = _rows(side, low, high), _rows(leader, low, high)
    if (
        side.blocks[mine] != leader.blocks[theirs]
        or side.hashes[mine] != leader.hashes[theirs]
        or side.counts[mine] != leader.counts[theirs]
    ):
        raise Unproven(f"replicas {side.inputs.replica} and {leader.inputs.replica} differ")
    return sum(side.counts[mine])


def _rows(side: _Replica, low: int, high: int) -> slice:
    return slice(bisect_left(side.blocks, low), bisect_left(side.blocks, high))


def _compare_rows(
    disk: FileSystem, side: _Replica, leader: _Replica, low: int, high: int, *, begun: bool = False
) -> tuple[int, int]:
    """Compare batch by batch those that reach into [low, high), or with `begun` those that begin there; returns how
    many and the offset of the first."""
    mine, theirs = (list(_batches(disk, each, low, high, begun)) for each in (side, leader))
    if mine != theirs:
        raise Unproven(f"replicas {side.inputs.replica} and {leader.inputs.replica} differ from {low} to {high}")
    return len(mine), mine[0][0] if mine else low


def _batches(disk: FileSystem, side: _Replica, low: int, high: int, begun: bool) -> Iterator[tuple[int, ...]]:
    """What headers say of the batches in a range. Raises `Unproven` when the file is not as it was any more."""
    place = max(bisect_right(side.places, (low, NEVER, NEVER)) - 1, 0)
    if not side.places:
        return
    expected, first_segment, position = side.places[place]
    for segment in side.inputs.segments:
        if segment.base_offset < first_segment:
            continue
        start = position if segment.base_offset == first_segment else 0
        data, begin = b"", start
        while start < segment.size:
            if start + HEADER_SIZE > begin + len(data):
                data, begin = disk.read(join(side.inputs.directory, f"{segment.stem}.log"), start, READ_BYTES), start
            if len(data) < HEADER_SIZE:
                raise Unproven(f"{segment.stem}.log has shrunk")
            base, length, epoch, _, crc, _, delta, *_ = HEADER.unpack_from(data, start - begin)
            if base != expected or length < 0:
                raise Unproven(f"{segment.stem}.log has changed")
            if base >= high:
                return
            expected = base + delta + 1
            if base >= low or (expected > low and not begun):
                yield base, expected, epoch, crc, length
            start += LENGTH_END + length
