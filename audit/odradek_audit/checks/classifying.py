"""What a difference between two replicas is: `log-matching`, `epoch-fork`, a tail that waits for its truncation, or
nothing that anybody owes. The rules are in `agreement`; the sentences are made here."""

from __future__ import annotations

from dataclasses import dataclass

from odradek_proto.compression import CodecUnavailable
from odradek_proto.records import CorruptBatch, Record, decode_records, read_header

from odradek_audit.catalogue import EPOCH_FORK, LOG_MATCHING
from odradek_audit.checks.walking import ComparisonCount, DifferingRows, ReplicaSide
from odradek_audit.findings import FindingSink
from odradek_audit.inputs.facts import BatchTable, SegmentReader
from odradek_audit.inputs.records import first_apart


@dataclass(frozen=True)
class DifferenceClassifier:
    """Decides what a difference from a reference is: a violation, a tail that waits for its truncation, or a tail that
    nobody owes."""

    leader: ReplicaSide
    reason: str
    bound: int
    reader: SegmentReader
    sink: FindingSink
    settled: bool

    def classify(self, side: ReplicaSide, stretch: DifferingRows, compared: ComparisonCount) -> None:
        leader = self.leader
        begin = min(side.table.base_offset[stretch.row], leader.table.base_offset[stretch.other_row])
        last_epoch = side.table.epoch[stretch.end_row - 1]
        older = last_epoch < leader.table.epoch[stretch.other_row]
        if begin >= self.bound and not stretch.agree_again:
            if stretch.fork is not None:
                self._report_fork(side, stretch.fork)
            return
        own_bound = side.inputs.high_watermark or 0
        tail = older and not stretch.agree_again and stretch.fork is None
        if tail and begin >= own_bound and not self.settled:
            self.sink.note(
                "truncation-pending",
                side.inputs.replica,
                f"replica {side.inputs.replica} ends in records of epochs up to {last_epoch} from offset {begin} "
                f"on, where replica {leader.inputs.replica} holds epoch {leader.table.epoch[stretch.other_row]}; its "
                "next fetch cuts them off",
                offset=begin,
                end_offset=side.log_end,
            )
            return
        self._report_difference(side, stretch, compared)

    def _report_difference(self, side: ReplicaSide, stretch: DifferingRows, compared: ComparisonCount) -> None:
        leader, bound = self.leader, self.bound
        table, other = side.table, leader.table
        row, other_row = stretch.row, stretch.other_row
        offset, detail = _first_difference(side, row, leader, other_row, self.reader)
        end = table.base_offset[stretch.end_row] if stretch.agree_again else min(compared.end, side.log_end)
        held = f"{_describe(table, row)} at offset {offset} of epoch {table.epoch[row]}"
        mine = f"replica {side.inputs.replica} holds {held}"
        theirs = (
            f"replica {leader.inputs.replica} holds {_describe(other, other_row)} of epoch {other.epoch[other_row]}"
        )
        again = f", and they agree again from {end}" if stretch.agree_again else ""
        above = f"above the bound {bound}, but they agree again behind it"
        below = f"below the bound {bound}" if offset < bound else above
        self.sink.report(
            LOG_MATCHING,
            side.inputs.replica,
            f"{mine}; {theirs} ({below}{again}){detail}",
            other_replica=leader.inputs.replica,
            **(table.place(row) | {"offset": offset, "end_offset": max(end, offset + 1)}),
            reference=f"compared with replica {leader.inputs.replica}, because {self.reason}",
            other_epoch=other.epoch[other_row],
            other_file=other.file(other_row),
            other_position=other.position[other_row],
            crc=table.crc[row],
            other_crc=other.crc[other_row],
            sizes=[table.size[row], other.size[other_row]],
            same_epoch=stretch.fork is not None,
            agree_again=stretch.agree_again,
            batch_offsets=[table.base_offset[row], table.last_offset[row]],
            other_batch_offsets=[other.base_offset[other_row], other.last_offset[other_row]],
        )

    def _report_fork(self, side: ReplicaSide, fork: tuple[int, int]) -> None:
        leader = self.leader
        table, other = side.table, leader.table
        row, other_row = fork
        offset, detail = _first_difference(side, row, leader, other_row, self.reader)
        self.sink.report(
            EPOCH_FORK,
            side.inputs.replica,
            f"replica {side.inputs.replica} and replica {leader.inputs.replica} hold different bytes at offset "
            f"{offset}, both of epoch {table.epoch[row]}: two brokers led in one epoch, or a copy was changed{detail}",
            other_replica=leader.inputs.replica,
            **(table.place(row) | {"offset": offset}),
            reference=f"compared with replica {leader.inputs.replica}, because {self.reason}",
            crc=table.crc[row],
            other_crc=other.crc[other_row],
            other_file=other.file(other_row),
            other_position=other.position[other_row],
        )


def _describe(table: BatchTable, row: int) -> str:
    first, last = table.base_offset[row], table.last_offset[row]
    where = f"{first}" if first == last else f"{first} to {last}"
    return f"batch {where} (CRC {table.crc[row]:#010x})"


def _first_difference(
    side: ReplicaSide, row: int, leader: ReplicaSide, other_row: int, reader: SegmentReader
) -> tuple[int, str]:
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


def _records(side: ReplicaSide, row: int, reader: SegmentReader) -> list[Record] | None:
    table = side.table
    try:
        data = reader.read(side.inputs.replica, table.file(row), table.position[row], table.size[row])
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
    place = first_apart(mine, theirs)
    start = max(0, place - 12)
    return f"byte {place} of the value: {mine[start : place + 12]!r} against {theirs[start : place + 12]!r}"
