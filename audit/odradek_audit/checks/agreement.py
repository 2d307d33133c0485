"""Do the replicas of a partition agree: `log-matching` (I-1, I-3) and `epoch-fork` (I-2, S-8).

Every replica is compared with one of them, the authority: the one that has the newest leader epoch, then the
longest log. Both logs are walked by digests; a stretch where they differ is one finding, from the first record that
differs to where they agree again.

What is owed below the bound is equality. The bound is the largest of the high watermark checkpoints, the highest
acknowledged offset + 1 and the highest delivered offset + 1, a lower bound of the real high watermark. Only the
range that both have is compared: from the larger log start (and behind Kafka's cleaner) to the smaller log end.

Two differences are violations wherever they stand: other bytes under the same offset and epoch, and a stretch behind
which the logs agree again, for nobody can have truncated it.
One difference is none even below the bound: the tail of a replica that has not yet heard of a newer epoch, all of
it from epochs older than what stands there on the authority, and above the replica's own high watermark. The next
fetch cuts it off (KIP-101, KIP-595). With `settled`, when the cluster had time to do so, it is a finding as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from odradek_proto.compression import CodecUnavailable
from odradek_proto.records import CorruptBatch, Record, decode_records, read_header

from odradek_audit.checks.facts import (
    BatchTable,
    PartitionInputs,
    ReplicaInputs,
    SegmentReader,
    log_end_offset,
)
from odradek_audit.findings import FindingSink

LOG_MATCHING, EPOCH_FORK = "log-matching", "epoch-fork"


@dataclass
class Compared:
    """How much was compared between one replica and the authority."""

    start: int
    end: int
    batches: int = 0
    records: int = 0


@dataclass
class _Stretch:
    """Rows of both tables that differ: [row, end_row) of the replica, [other_row, other_end_row) of the authority."""

    row: int
    other_row: int
    end_row: int = -1
    other_end_row: int = -1
    agree_again: bool = False
    fork: tuple[int, int] | None = None


@dataclass(frozen=True)
class _Side:
    inputs: ReplicaInputs
    table: BatchTable
    log_end: int


def check_agreement(
    partition: PartitionInputs,
    tables: Mapping[str, BatchTable],
    authority: str,
    bound: int,
    reader: SegmentReader,
    sink: FindingSink,
    *,
    settled: bool = False,
) -> list[Compared]:
    """Compare every replica with the authority; returns what was compared."""
    sides = {
        name: _Side(inputs, tables[name], log_end_offset(inputs, tables[name]))
        for name, inputs in sorted(partition.replicas.items())
    }
    leader = sides[authority]
    results = []
    for name, side in sides.items():
        if name == authority:
            continue
        compared = _common_range(partition, side, leader)
        results.append(compared)
        for stretch in _differences(side.table, leader.table, compared):
            _judge(side, leader, stretch, compared, bound, reader, sink, settled)
    return results


def _common_range(partition: PartitionInputs, side: _Side, leader: _Side) -> Compared:
    start = max(side.inputs.log_start, leader.inputs.log_start, side.inputs.cleaned_to, leader.inputs.cleaned_to)
    end = min(side.log_end, leader.log_end)
    if partition.compacted:
        start = end  # replicas clean on their own schedule
    return Compared(min(start, end), end)


def _differences(table: BatchTable, other: BatchTable, compared: Compared) -> list[_Stretch]:
    """Walk both logs over the common range; counts what was compared.

    A batch that only one side has, because the other has a hole or unreadable bytes there, is skipped: the hole is
    a finding of its own.
    """
    row, row_end = _rows(table, compared)
    other_row, other_end = _rows(other, compared)
    stretches: list[_Stretch] = []
    current: _Stretch | None = None
    bases, lasts = table.base_offset, table.last_offset
    other_bases, other_lasts = other.base_offset, other.last_offset
    while row < row_end and other_row < other_end:
        if lasts[row] < other_bases[other_row] and current is None:
            row += 1
            continue
        if other_lasts[other_row] < bases[row] and current is None:
            other_row += 1
            continue
        compared.batches += 1
        compared.records += table.record_count[row]
        if table.digest(row) == other.digest(other_row):
            if current is not None:
                current.end_row, current.other_end_row, current.agree_again = row, other_row, True
                current = None
        else:
            if current is None:
                current = _Stretch(row, other_row)
                stretches.append(current)
            _note_fork(table, row, other, other_row, current)
        last, other_last = lasts[row], other_lasts[other_row]
        row += last <= other_last
        other_row += other_last <= last
    if current is not None:
        current.end_row, current.other_end_row = row_end, other_end
    return stretches


def _note_fork(table: BatchTable, row: int, other: BatchTable, other_row: int, stretch: _Stretch) -> None:
    same_place = table.base_offset[row] == other.base_offset[other_row] and table.epoch[row] == other.epoch[other_row]
    if same_place and stretch.fork is None:
        stretch.fork = (row, other_row)


def _rows(table: BatchTable, compared: Compared) -> tuple[int, int]:
    """First row that reaches into the range, and the one past the last that begins below its end."""
    return (
        _first(len(table), lambda row: table.last_offset[row] >= compared.start),
        _first(len(table), lambda row: table.base_offset[row] >= compared.end),
    )


def _first(length: int, reached: Callable[[int], bool]) -> int:
    """The first number for which `reached` holds, by bisection; offsets out of order make it imprecise, never
    endless."""
    low, high = 0, length
    while low < high:
        middle = (low + high) // 2
        if reached(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _judge(
    side: _Side,
    leader: _Side,
    stretch: _Stretch,
    compared: Compared,
    bound: int,
    reader: SegmentReader,
    sink: FindingSink,
    settled: bool,
) -> None:
    """Decide what a difference is: a violation, a tail that waits for its truncation, or a tail that nobody owes."""
    begin = min(side.table.base_offset[stretch.row], leader.table.base_offset[stretch.other_row])
    last_epoch = side.table.epoch[stretch.end_row - 1]
    older = last_epoch < leader.table.epoch[stretch.other_row]
    if begin >= bound and not stretch.agree_again:
        if stretch.fork is not None:
            _report_fork(side, leader, stretch.fork, reader, sink)
        return
    own_bound = side.inputs.high_watermark or 0
    if older and not stretch.agree_again and stretch.fork is None and begin >= own_bound and not settled:
        sink.note(
            "truncation-pending",
            side.inputs.replica,
            f"replica {side.inputs.replica} ends in records of epochs up to {last_epoch} from offset {begin} "
            "on, where replica "
            f"{leader.inputs.replica} holds epoch {leader.table.epoch[stretch.other_row]}; its next fetch "
            "cuts them off",
            offset=begin,
            end_offset=side.log_end,
        )
        return
    _report_difference(side, leader, stretch, compared, bound, reader, sink)


def _report_difference(
    side: _Side,
    leader: _Side,
    stretch: _Stretch,
    compared: Compared,
    bound: int,
    reader: SegmentReader,
    sink: FindingSink,
) -> None:
    table, other = side.table, leader.table
    row, other_row = stretch.row, stretch.other_row
    offset, detail = _first_difference(side, row, leader, other_row, reader)
    end = table.base_offset[stretch.end_row] if stretch.agree_again else min(compared.end, side.log_end)
    mine = f"replica {side.inputs.replica} holds {_describe(table, row)} at offset {offset} of epoch {table.epoch[row]}"
    theirs = f"replica {leader.inputs.replica} holds {_describe(other, other_row)} of epoch {other.epoch[other_row]}"
    again = f", and they agree again from {end}" if stretch.agree_again else ""
    below = f"below the bound {bound}" if offset < bound else f"above the bound {bound}, but they agree again behind it"
    sink.report(
        LOG_MATCHING,
        side.inputs.replica,
        f"{mine}; {theirs} ({below}{again}){detail}",
        other_replica=leader.inputs.replica,
        offset=offset,
        end_offset=max(end, offset + 1),
        epoch=table.epoch[row],
        file=f"{table.segment[row]:020d}.log",
        position=table.position[row],
        other_epoch=other.epoch[other_row],
        other_file=f"{other.segment[other_row]:020d}.log",
        other_position=other.position[other_row],
        crc=table.crc[row],
        other_crc=other.crc[other_row],
        same_epoch=stretch.fork is not None,
        agree_again=stretch.agree_again,
        batch_offsets=[table.base_offset[row], table.last_offset[row]],
        other_batch_offsets=[other.base_offset[other_row], other.last_offset[other_row]],
    )


def _report_fork(side: _Side, leader: _Side, fork: tuple[int, int], reader: SegmentReader, sink: FindingSink) -> None:
    table, other = side.table, leader.table
    row, other_row = fork
    offset, detail = _first_difference(side, row, leader, other_row, reader)
    sink.report(
        EPOCH_FORK,
        side.inputs.replica,
        f"replica {side.inputs.replica} and replica {leader.inputs.replica} hold different bytes at offset "
        f"{offset}, both of "
        f"epoch {table.epoch[row]}: two brokers led in one epoch, or a copy was changed{detail}",
        other_replica=leader.inputs.replica,
        offset=offset,
        end_offset=table.last_offset[row] + 1,
        epoch=table.epoch[row],
        file=f"{table.segment[row]:020d}.log",
        position=table.position[row],
        crc=table.crc[row],
        other_crc=other.crc[other_row],
        other_file=f"{other.segment[other_row]:020d}.log",
        other_position=other.position[other_row],
    )


def _describe(table: BatchTable, row: int) -> str:
    first, last = table.base_offset[row], table.last_offset[row]
    where = f"{first}" if first == last else f"{first} to {last}"
    return f"batch {where} (CRC {table.crc[row]:#010x})"


def _first_difference(side: _Side, row: int, leader: _Side, other_row: int, reader: SegmentReader) -> tuple[int, str]:
    """Drill down: the first offset whose records differ, and a sentence on them. The batches' start when nothing
    can be decoded."""
    table, other = side.table, leader.table
    start = max(table.base_offset[row], other.base_offset[other_row])
    mine = _records(side, row, reader)
    theirs = _records(leader, other_row, reader)
    if mine is None or theirs is None or table.epoch[row] != other.epoch[other_row]:
        return start, ""
    by_offset = {record.offset: record for record in theirs}
    for record in mine:
        counterpart = by_offset.get(record.offset)
        if record.offset >= start and counterpart != record:
            return record.offset, f": {_contrast(record, counterpart)}"
    return start, ": the records are equal, the batches around them are not"


def _records(side: _Side, row: int, reader: SegmentReader) -> list[Record] | None:
    table = side.table
    try:
        data = reader.read(side.inputs.replica, f"{table.segment[row]:020d}.log", table.position[row], table.size[row])
        return decode_records(data, read_header(data, 0), 0)
    except (OSError, CorruptBatch, CodecUnavailable):
        return None


def _contrast(record: Record, other: Record | None) -> str:
    """Both values around the first byte that differs, or what else differs."""
    if other is None:
        return "the other has no record there"
    mine, theirs = record.value or b"", other.value or b""
    if record.value == other.value:
        return "the values are equal; key, timestamp or headers are not"
    place = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), min(len(mine), len(theirs)))
    start = max(0, place - 12)
    return f"byte {place} of the value: {mine[start : place + 12]!r} against {theirs[start : place + 12]!r}"
