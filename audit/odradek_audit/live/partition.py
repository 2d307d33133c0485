"""The replicas of one partition of a running cluster, compared batch by batch below their high watermarks.

Each replica is a stream of what its broker's file holds, read a piece at a time, so memory hangs on the number of
replicas. Base offset, last offset, leader epoch, CRC and size of each batch must be the leader's, and every CRC right:
brokers send bytes as they are on the disk. What differs is read a second time before it is told. A replica whose high
watermark is low does not keep the others from being compared above it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from odradek_proto.errors import ErrorCode
from odradek_proto.records import HEADER_SIZE, CorruptBatch, read_header, verify_crc

from odradek_audit.catalogue import (
    BATCH_UNREADABLE,
    CRC_MISMATCH,
    DELIVERED_LOST,
    EPOCH_CACHE_MISMATCH,
    EPOCH_NOT_MONOTONIC,
    LOG_MATCHING,
    OFFSET_GAP,
    OFFSET_NOT_INCREASING,
)
from odradek_audit.checks import walking
from odradek_audit.findings import FindingSink
from odradek_audit.inputs.facts import BLOCK_OFFSETS

PIECE_BYTES = 1 << 20
LARGEST_PIECE = 128 << 20
WAIT_MS = 500
EMPTY_ANSWERS = 20  # ten seconds for a broker that was started a moment ago
MASK = (1 << 64) - 1
_DIGESTED = struct.Struct(">qqiIi")


class Source(Protocol):
    """One replica of the partition, by its broker. Raises `OSError`."""

    def fetch(self, offset: int, max_bytes: int) -> tuple[int, int, int, bytes]:
        """Error code, high watermark, log start offset, and batches from the one that holds the offset on."""
        ...

    def high_watermark(self, offset: int) -> tuple[int, int]:
        """Error code and high watermark, asked for at an offset that the log should have, and without a wait."""
        ...

    def earliest(self) -> tuple[int, int]: ...

    def latest(self) -> tuple[int, int]:
        """Error code and log end offset; older versions of odradek say the high watermark, and of leaders alone."""
        ...

    def epoch_end(self, epoch: int) -> tuple[int, int, int]: ...


class LiveBatch(NamedTuple):
    """What is compared of a batch. `problem` is empty, or says why its bytes cannot be what was written."""

    base_offset: int
    last_offset: int
    epoch: int
    crc: int
    size: int
    problem: str = ""
    data: bytes = b""


class ReplicaUnreadable(OSError):
    """A replica, by its broker, does not give what it has: the others can be compared without it."""

    def __init__(self, replica: str, reason: str) -> None:
        super().__init__(f"replica {replica} {reason}")
        self.replica = replica


@dataclass
class ReplicaStream:
    """One replica's batches, in their order."""

    replica: str
    source: Source
    offset: int = 0
    high_watermark: int = -1
    log_start: int = -1
    read: int = 0
    """Bytes of batches that came."""
    waiting: list[LiveBatch] = field(default_factory=list)
    """The batches that were read and not taken, the next one last."""

    def begin(self, offset: int) -> None:
        """Read from the batch on that holds an offset, or from where the log begins if that is later."""
        self.offset = offset
        self._fill()
        self.offset = max(self.offset, offset)

    def peek(self, end: int) -> LiveBatch | None:
        """The next batch that begins below an offset; None behind the last one."""
        for _ in range(EMPTY_ANSWERS):
            if self.waiting or self.offset >= end:
                break
            self._fill()
        if not self.waiting and self.offset < end:
            raise ReplicaUnreadable(self.replica, f"gives nothing at offset {self.offset}, of {end}")
        return self.waiting[-1] if self.waiting and self.waiting[-1].base_offset < end else None

    def take(self) -> LiveBatch:
        return self.waiting.pop()

    def again(self, offset: int) -> LiveBatch | None:
        """One batch, read anew."""
        error, _, _, data = self.source.fetch(offset, PIECE_BYTES)
        return next(_batches(data), None) if not error else None

    def _fill(self) -> None:
        max_bytes = PIECE_BYTES
        while True:
            error, high_watermark, log_start, data = self.source.fetch(self.offset, max_bytes)
            self.read += len(data)
            if error == ErrorCode.OFFSET_OUT_OF_RANGE and self.high_watermark < 0:
                refused, begins = self.source.earliest()
                if not refused and begins > self.offset:
                    self.offset, self.high_watermark = begins, 0
                    continue
            if error == ErrorCode.CORRUPT_MESSAGE:
                self.waiting = [LiveBatch(self.offset, self.offset, -1, 0, 0, "its broker refuses to send it")]
                return
            if error:
                raise ReplicaUnreadable(self.replica, f"answers {ErrorCode.from_number(error).name}")
            found = [batch for batch in _batches(data) if batch.last_offset >= self.offset or batch.problem]
            if data and not found and max_bytes < LARGEST_PIECE:
                max_bytes *= 4  # a broker that sends a part of a batch that is larger
                continue
            break
        self.high_watermark, self.log_start = high_watermark, log_start
        self.waiting = found[::-1]
        if found:
            self.offset = max(self.offset, found[-1].last_offset) + 1


def _batches(data: bytes) -> Iterator[LiveBatch]:
    """Whole batches one behind the other. What cannot be one ends them, and is the last."""
    position = 0
    while len(data) - position >= HEADER_SIZE:
        try:
            header = read_header(data, position)
        except CorruptBatch as error:
            yield LiveBatch(-1, -1, -1, 0, 0, error.reason)
            return
        if position + header.size > len(data):
            return
        sound = verify_crc(data, header, position)
        problem = "" if sound else "its bytes do not have the CRC of its header"
        numbers = (header.base_offset, header.last_offset, header.leader_epoch, header.crc, header.size)
        yield LiveBatch(*numbers, problem, data[position : position + header.size])
        position += header.size


@dataclass
class PartitionComparison(walking.ComparisonCount):
    """What came of one partition."""

    blocks: dict[int, int] = field(default_factory=dict)
    """A digest of the batches that begin in each block of 1,024 offsets, of whole blocks only."""
    epochs: list[list[int]] = field(default_factory=list)
    """[epoch, first offset] as the leader's batches say."""
    starts: dict[str, int] = field(default_factory=dict)
    high_watermarks: dict[str, int] = field(default_factory=dict)
    log_ends: dict[str, int] = field(default_factory=dict)
    """Their log end offsets, at least what they say to be committed."""
    read: dict[str, int] = field(default_factory=dict)
    """Bytes of batches that came from each replica."""


def begun(leader: ReplicaStream, others: Sequence[ReplicaStream], since: int, sink: FindingSink) -> PartitionComparison:
    """What there is to be compared from an offset on. Raises `OSError`, too if a replica's first batch is refused: its
    broker names no high watermark then, and nothing would be compared."""
    for stream in (leader, *others):
        stream.begin(since)
        if stream.waiting and stream.waiting[-1].problem and not stream.waiting[-1].size:
            tell_problem(stream, stream.waiting[-1], sink)  # raises, for nothing behind it can be read
        if stream.high_watermark < 0:
            raise ReplicaUnreadable(stream.replica, "names no high watermark")
    marks = {stream.replica: stream.high_watermark for stream in (leader, *others)}
    end = min(marks.values())
    start = min(max(since, *(stream.log_start for stream in (leader, *others))), end)
    ends = {stream.replica: stream.source.latest() for stream in (leader, *others)}
    return PartitionComparison(
        start,
        max(start, end),
        starts={stream.replica: stream.log_start for stream in (leader, *others)},
        high_watermarks=marks,
        log_ends={name: mark if ends[name][0] else max(mark, ends[name][1]) for name, mark in marks.items()},
    )


def compare(
    leader: ReplicaStream, others: Sequence[ReplicaStream], since: int, sink: FindingSink
) -> PartitionComparison:
    """Lay each replica beside the leader's from an offset on. Raises `OSError`."""
    compared = begun(leader, others, since, sink)
    marks = dict(compared.high_watermarks)
    end, expected = marks.pop(leader.replica), -1
    while (batch := leader.peek(end)) is not None:
        leader.take()
        if batch.problem:
            tell_problem(leader, batch, sink)
            expected = -1
            continue
        _judge(leader, batch, expected, compared, sink)
        expected = batch.last_offset + 1
        if batch.base_offset < compared.start:
            continue
        for other in others:
            known = min(end, marks[other.replica])  # above it the other one may yet truncate
            if batch.base_offset < known and _beside(leader, other, batch, known, sink):
                compared.batches += 1
                compared.records += batch.last_offset - batch.base_offset + 1
        block = batch.base_offset // BLOCK_OFFSETS
        compared.blocks[block] = (compared.blocks.get(block, 0) + _digest(batch)) & MASK
    _keep_whole(compared)
    return compared


def _digest(batch: LiveBatch) -> int:
    """64 bits of what is compared; the same on every machine, for they are kept."""
    return int.from_bytes(hashlib.blake2b(_DIGESTED.pack(*batch[:5]), digest_size=8).digest(), "big")


def _keep_whole(compared: PartitionComparison) -> None:
    first = -(-compared.start // BLOCK_OFFSETS)
    compared.blocks = {
        block: digest
        for block, digest in compared.blocks.items()
        if first <= block and (block + 1) * BLOCK_OFFSETS <= compared.end
    }


def _judge(
    leader: ReplicaStream, batch: LiveBatch, expected: int, compared: PartitionComparison, sink: FindingSink
) -> None:
    """The leader's log by itself."""
    first, behind, epoch, name = batch.base_offset, batch.last_offset + 1, batch.epoch, leader.replica
    said = f"replica {name}: the batch at offset {first}"
    if 0 <= expected < first:
        said = f"{said} begins where {expected} should follow"
        sink.report(OFFSET_GAP, name, said, offset=expected, end_offset=first, epoch=epoch)
    elif first < expected:
        said = f"{said} begins below {expected}"
        sink.report(OFFSET_NOT_INCREASING, name, said, offset=first, end_offset=behind, epoch=epoch)
    last = compared.epochs[-1][0] if compared.epochs else -1
    if 0 <= epoch < last:
        said = f"{said} has leader epoch {epoch} behind one of {last}"
        sink.report(EPOCH_NOT_MONOTONIC, name, said, offset=first, end_offset=behind, epoch=epoch, epochs_around=[last])
    elif batch.epoch > last:
        compared.epochs.append([batch.epoch, batch.base_offset])


def _beside(leader: ReplicaStream, other: ReplicaStream, batch: LiveBatch, end: int, sink: FindingSink) -> bool:
    """Whether another replica has the same batch; what is behind is passed over."""
    mine = other.peek(end)
    while mine is not None and not mine.problem and mine.last_offset < batch.base_offset:
        other.take()
        mine = other.peek(end)
    if mine is not None and not mine.problem and mine[:5] == batch[:5]:
        other.take()
        return True
    if mine is not None and mine.problem:
        other.take()
        tell_problem(other, mine, sink, at=batch)
        return False
    first = batch.base_offset
    if (once := leader.again(first)) is None or (more := other.again(first)) is None or once == more:
        return False  # not so any more: a log was cut, or the replica is elsewhere now
    if mine is not None and mine.base_offset == batch.base_offset:
        other.take()
    what = (
        f"has none at offset {first}" if mine is None or mine.base_offset > first else f"has another at offset {first}"
    )
    sink.report(
        LOG_MATCHING,
        other.replica,
        f"replica {other.replica} {what}, where replica {leader.replica}, the leader, has the batch of offsets "
        f"{first} to {batch.last_offset} in leader epoch {batch.epoch}",
        other_replica=leader.replica,
        offset=first,
        end_offset=batch.last_offset + 1,
        epoch=batch.epoch if mine is None else mine.epoch,
        other_epoch=batch.epoch,
        same_epoch=mine is not None and mine.epoch == batch.epoch,
    )
    return False


def tell_problem(stream: ReplicaStream, batch: LiveBatch, sink: FindingSink, at: LiveBatch | None = None) -> None:
    place = at if at is not None else batch
    offset = batch.base_offset if batch.base_offset >= 0 else place.base_offset
    check = CRC_MISMATCH if batch.size else BATCH_UNREADABLE
    where = f"the batch at offset {offset}" if offset >= 0 else "a batch"
    sink.report(
        check,
        stream.replica,
        f"replica {stream.replica}: {where}: {batch.problem}",
        offset=offset,
        end_offset=max(batch.last_offset, offset) + 1,
        epoch=batch.epoch,
    )
    if not batch.size:
        raise ReplicaUnreadable(stream.replica, f"cannot be read behind offset {offset}")


def judge_epochs(leader: ReplicaStream, compared: PartitionComparison, sink: FindingSink) -> None:
    """Does the leader say of each epoch the end that its batches show? Truncation goes by what it says (KIP-101)."""
    for (epoch, _), (following, first) in zip(compared.epochs, compared.epochs[1:], strict=False):
        error, known, end = leader.source.epoch_end(epoch)
        if error or (known, end) == (epoch, first):
            continue
        sink.report(
            EPOCH_CACHE_MISMATCH,
            leader.replica,
            f"replica {leader.replica} says that leader epoch {epoch} ends at {end} (epoch {known}), and the first "
            f"batch of epoch {following} is at offset {first}",
            offset=first,
            end_offset=first + 1,
            epoch=epoch,
        )


def judge_memory(
    leader: ReplicaStream, epoch: int, end: int, blocks: dict[int, int], now: PartitionComparison, sink: FindingSink
) -> None:
    """Is what an earlier audit compared still there, and the same? Raises `OSError`."""
    error, _, log_end = leader.source.epoch_end(epoch)
    if not error and 0 <= log_end < end:
        sink.report(
            DELIVERED_LOST,
            leader.replica,
            f"offsets {log_end} to {end - 1}, which an earlier audit read from all replicas, are gone: the log of the "
            f"leader, replica {leader.replica}, ends at {log_end}",
            offset=log_end,
            end_offset=end,
            epoch=epoch,
        )
    for block in sorted(blocks.keys() & now.blocks.keys()):
        if blocks[block] != now.blocks[block]:
            first = block * BLOCK_OFFSETS
            sink.report(
                LOG_MATCHING,
                leader.replica,
                f"replica {leader.replica}, the leader, holds other batches in offsets {first} to "
                f"{first + BLOCK_OFFSETS - 1} than at an earlier audit",
                offset=first,
                end_offset=first + BLOCK_OFFSETS,
            )
