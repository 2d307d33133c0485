"""Walks the logs of two replicas side by side, by the digests of their batches, and yields where they differ.

Only the range that both have is walked. Batches that only one of them has, because the other has a hole or unreadable
bytes there, are passed over: the hole is a finding of its own, and so is a batch that says a wrong base offset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from odradek_audit.inputs.facts import BatchTable, PartitionInputs, ReplicaInputs

ROWS_AT_ONCE = 256


@dataclass
class ComparisonCount:
    """How much was compared between one replica and the reference replica."""

    start: int
    end: int
    batches: int = 0
    records: int = 0


@dataclass
class DifferingRows:
    """Rows that differ: [row, end_row) of the replica, from `other_row` on of the reference replica."""

    row: int
    other_row: int
    end_row: int = -1
    agree_again: bool = False
    fork: tuple[int, int] | None = None


@dataclass(frozen=True)
class ReplicaSide:
    inputs: ReplicaInputs
    table: BatchTable
    log_end: int


def common_range(partition: PartitionInputs, side: ReplicaSide, leader: ReplicaSide) -> ComparisonCount:
    start = max(side.inputs.log_start, leader.inputs.log_start, partition.cleaned_to(side.inputs, leader.inputs))
    end = min(side.log_end, leader.log_end)
    return ComparisonCount(min(start, end), end)  # replicas clean on their own schedule


def differences(table: BatchTable, other: BatchTable, compared: ComparisonCount) -> list[DifferingRows]:
    """Walk both logs over the common range; counts what was compared.

    A batch that only one side has, because the other has a hole or unreadable bytes there, is skipped: the hole is
    a finding of its own.
    """
    row, row_end = _rows(table, compared)
    other_row, other_end = _rows(other, compared)
    stretches: list[DifferingRows] = []
    current: DifferingRows | None = None
    bases, lasts = table.base_offset, table.last_offset
    other_bases, other_lasts = other.base_offset, other.last_offset
    while row < row_end and other_row < other_end:
        if lasts[row] < other_bases[other_row] and current is None:
            beyond = _misplaced(other, other_row)
            other_row, row = other_row + beyond, row + (not beyond)
            continue
        if other_lasts[other_row] < bases[row] and current is None:
            beyond = _misplaced(table, row)
            row, other_row = row + beyond, other_row + (not beyond)
            continue
        if current is None and (equal := _equal_ahead(table, range(row, row_end), other, range(other_row, other_end))):
            compared.batches += equal
            compared.records += sum(table.record_count[row : row + equal])
            row, other_row = row + equal, other_row + equal
            continue
        compared.batches += 1
        compared.records += table.record_count[row]
        if table.digest(row) == other.digest(other_row):
            if current is not None:
                current.end_row, current.agree_again = row, True
                current = None
        else:
            if current is None:
                current = DifferingRows(row, other_row)
                stretches.append(current)
            _note_fork(table, row, other, other_row, current)
        last, other_last = lasts[row], other_lasts[other_row]
        row += last <= other_last
        other_row += other_last <= last
    if current is not None:
        current.end_row = row_end
    return stretches


def _equal_ahead(table: BatchTable, rows: range, other: BatchTable, other_rows: range) -> int:
    """How many batches are the same on both from the first of these rows on, in steps of `ROWS_AT_ONCE`. Most of them
    are, so they are compared by columns."""
    equal, most = 0, min(len(rows), len(other_rows)) - ROWS_AT_ONCE
    mine, theirs = table.digest_columns(), other.digest_columns()
    while equal <= most:
        row, other_row = rows.start + equal, other_rows.start + equal
        if any(
            a[row : row + ROWS_AT_ONCE] != b[other_row : other_row + ROWS_AT_ONCE]
            for a, b in zip(mine, theirs, strict=True)
        ):
            break
        equal += ROWS_AT_ONCE
    return equal


def _misplaced(table: BatchTable, row: int) -> bool:
    """Whether a batch says an offset above the next one's and follows on none: a finding of its own, and nothing to
    walk by."""
    bases = table.base_offset
    if row + 1 >= len(table) or bases[row] < bases[row + 1]:
        return False
    return row > 0 and bases[row] > table.last_offset[row - 1] + 1


def _note_fork(table: BatchTable, row: int, other: BatchTable, other_row: int, stretch: DifferingRows) -> None:
    same_place = table.base_offset[row] == other.base_offset[other_row] and table.epoch[row] == other.epoch[other_row]
    if same_place and stretch.fork is None:
        stretch.fork = (row, other_row)


def _rows(table: BatchTable, compared: ComparisonCount) -> tuple[int, int]:
    """First row that reaches into the range, and the one past the last that begins below its end."""
    return (
        first_row(len(table), lambda row: table.last_offset[row] >= compared.start),
        first_row(len(table), lambda row: table.base_offset[row] >= compared.end),
    )


def first_row(length: int, reached: Callable[[int], bool]) -> int:
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
