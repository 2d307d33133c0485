"""The logs of one partition on all simulated disks, read as they grow, and what was ever committed of them.

The bytes are read by a reader of the checker's own: the accused does not lend his books to the auditor. Each batch is
read once for each replica; a cut drops what was cut, and of what a new incarnation opens everything is read anew from
the first segment on that is not the same bytes. Of a cut that nobody spoke of the last batch tells: it does not stand
where it stood, and all is read anew.

The first-commit table is the cheapest and best detector that a simulator has: the first replica that puts a batch
below its high watermark writes it into the table, and every replica that does so later is compared with it.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from functools import partial
from typing import NamedTuple

from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.inodes import Directory, Entry, Inode

# base offset, length, leader epoch, magic, CRC, attributes, last offset delta, first and max timestamp, producer id
# and epoch, base sequence
HEADER = struct.Struct(">qiibIhiqqqhi")
PREFIX_BYTES = 12  # base offset and length, which the length does not count
SEQUENCES = 1 << 31
NEAR = 3  # batches from the end that are looked at before a log is searched


class BatchSummary(NamedTuple):
    """What matters of one batch. The last two say where it ends in the replica's own files."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    crc: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    segment: Inode | None = None
    end_position: int = 0


_new_batch = partial(tuple.__new__, BatchSummary)  # no Python in between


class SegmentReading:
    """What was read of one segment: its file, the bytes from its first one on, and the index of its first batch."""

    __slots__ = ("base", "content", "file", "first", "name")

    def __init__(self, base: int, file: Inode, first: int) -> None:
        self.base = base
        self.name = f"{base:020d}.log"
        self.file = file
        self.first = first
        self.content = bytearray()

    def stands(self, entries: dict[str, Entry]) -> bool:
        """Whether all that was read is still there, in the same file, byte for byte."""
        return entries.get(self.name) is self.file and self.file.data.startswith(self.content)


class LogView:
    """The batches of one replica, in order. `producers`: producer id to (epoch, last sequence) at the end."""

    def __init__(self, directory: str) -> None:
        self.batches: list[BatchSummary] = []
        self.producers: dict[int, tuple[int, int]] = {}
        self.committed = 0  # how many of the batches were held against the first-commit table
        self._directory = directory
        self._readings: list[SegmentReading] = []
        self._position = 0  # in the last of them

    @property
    def end_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else -1

    def cut(self, offset: int) -> None:
        """The replica dropped its records at `offset` and above."""
        batches = self.batches
        if not batches or batches[-1].next_offset <= offset:
            return
        while batches and batches[-1].next_offset > offset:
            batches.pop()
        self.committed = min(self.committed, len(batches))
        self._position = batches[-1].end_position if batches else 0
        while self._readings and self._readings[-1].first >= len(batches):
            self._readings.pop()
        if self._readings:
            del self._readings[-1].content[self._position :]
        self.producers.clear()
        for batch in batches:
            self._remember(batch)

    def compare(self, disk: SimDisk) -> None:
        """A new process has opened the log: forget what does not stand there as it was read, and what follows that.

        The rest need not be taken apart again: the same bytes were judged before, and what they were held against
        only grows.
        """
        readings, entries = self._readings, self._entries(disk)
        standing = 0
        if readings and self.first_base(disk) == readings[0].base:
            while standing < len(readings) and readings[standing].stands(entries):
                standing += 1
        if standing < len(readings) or not readings:
            first = readings[standing].first if readings else 0
            self.cut(self.batches[first - 1].next_offset if first else -1)

    def read(self, disk: SimDisk, log_end_offset: int, *, ahead: bool = False) -> list[BatchSummary] | str:
        """The batches that came since, up to the replica's log end; or what is wrong with them.

        With `ahead` the log end may be ahead of what was written.
        """
        batches, new = self.batches, list[BatchSummary]()
        if batches and log_end_offset < batches[-1].next_offset:
            self.cut(log_end_offset)
        if batches and not self._stands(disk):
            self.cut(-1)
        end = batches[-1].next_offset if batches else -1
        while end < log_end_offset:
            data = self._next_data(disk, log_end_offset)
            if data is None:
                self._keep()
                if ahead or (not batches and self.first_base(disk) >= log_end_offset):
                    break
                return f"nothing at offset {end}, below its log end offset {log_end_offset}"
            base, length, epoch, _, crc, _, delta, _, _, pid, pepoch, sequence = HEADER.unpack_from(
                data, self._position
            )
            if batches and base != end:
                self._keep()
                return f"a batch of offset {base} where {end} should be"
            self._position += PREFIX_BYTES + length
            end = base + delta + 1
            last = -1
            if pid >= 0:
                last = (sequence + delta) % SEQUENCES
                self.producers[pid] = (pepoch, last)
            batch = _new_batch((base, end, epoch, crc, pid, pepoch, last, self._readings[-1].file, self._position))
            batches.append(batch)
            new.append(batch)
        self._keep()
        return new

    def at(self, offset: int) -> BatchSummary | None:
        """The batch that contains an offset: most often one of the last."""
        batches = self.batches
        for near in batches[: -NEAR - 1 : -1]:
            if near.base_offset <= offset:
                return near if near.next_offset > offset else None
        place = bisect_right(batches, offset, key=_base_offset) - 1
        found = batches[place] if place >= 0 else None
        return found if found is not None and found.next_offset > offset else None

    def _stands(self, disk: SimDisk) -> bool:
        """Whether the last batch that was read is still where it was, in the file that has the name."""
        last, before = self.batches[-1], self.batches[-2] if len(self.batches) > 1 else None
        if last.segment is None:
            return True
        if not self._readings:
            return False
        reading = self._readings[-1]
        file = reading.file
        if self._entries(disk).get(reading.name) is not file or len(file.data) < last.end_position:
            return False
        start = before.end_position if before is not None and before.segment is file else 0
        base, _, epoch, _, crc, *_ = HEADER.unpack_from(file.data, start)
        return (base, epoch, crc) == (last.base_offset, last.leader_epoch, last.crc)

    def _entries(self, disk: SimDisk) -> dict[str, Entry]:
        directory = disk.find(self._directory)
        return directory.entries if isinstance(directory, Directory) else {}

    def _keep(self) -> None:
        """Keep the bytes that were read."""
        if self._readings:
            reading = self._readings[-1]
            reading.content += memoryview(reading.file.data)[len(reading.content) : self._position]

    def _remember(self, batch: BatchSummary) -> None:
        if batch.producer_id >= 0:
            self.producers[batch.producer_id] = (batch.producer_epoch, batch.last_sequence)

    def first_base(self, disk: SimDisk) -> int:
        """Where the files begin; an empty log has its end there."""
        return int(min((name for name in self._entries(disk) if name.endswith(".log")), default="0.log")[:-4])

    def _next_data(self, disk: SimDisk, log_end_offset: int) -> bytearray | None:
        """The bytes in which the next batch stands, at `_position`."""
        if self._readings:
            data = self._readings[-1].file.data
            if self._position + HEADER.size <= len(data):
                return data
        base = self.end_offset if self.batches else self.first_base(disk)
        if base >= log_end_offset:
            return None  # an empty log that begins later
        found = self._entries(disk).get(f"{base:020d}.log")
        if not isinstance(found, Inode) or len(found.data) < HEADER.size:
            return None
        self._keep()  # of the file before
        self._readings.append(SegmentReading(base, found, len(self.batches)))
        self._position = 0
        return found.data


def _base_offset(batch: BatchSummary) -> int:
    return batch.base_offset


class ReplicasHistory:
    """Everything that the replicas of one partition ever held. Methods return what is wrong, None for nothing."""

    def __init__(self, directory: str) -> None:
        self.committed_end = 0  # TrueHW: the largest high watermark that stood at the end of a batch
        self.views: dict[int, LogView] = {}
        self._directory = directory
        self._committed: dict[int, tuple[int, int, int, int]] = {}  # base offset to the batch's identity
        self._by_epoch: dict[tuple[int, int], tuple[int, int, int, int]] = {}  # (base offset, leader epoch)

    def view(self, replica: int) -> LogView:
        found = self.views.get(replica)
        if found is None:
            found = self.views[replica] = LogView(self._directory)
        return found

    def begin(self, replica: int, disk: SimDisk) -> None:
        """A new process has opened this replica: read anew what is not there as it was."""
        self.view(replica).compare(disk)

    def forget(self, replica: int) -> None:
        """Read this replica anew from its first byte: it was damaged, or replaced."""
        self.views.pop(replica, None)

    def append(self, replica: int, disk: SimDisk, log_end_offset: int, *, ahead: bool = False) -> str | None:
        """Read what came to a replica's log; equal offset and leader epoch must mean equal bytes (I-2)."""
        new = self.view(replica).read(disk, log_end_offset, ahead=ahead)
        if isinstance(new, str):
            self.forget(replica)
            return new
        by_epoch = self._by_epoch
        for batch in new:
            identity = batch[:4]
            known = by_epoch.setdefault((batch.base_offset, batch.leader_epoch), identity)
            if known != identity:
                return (
                    f"offsets {batch.base_offset} to {batch.next_offset - 1} of epoch {batch.leader_epoch} have CRC "
                    f"{batch.crc:08x}, and a batch of that offset and epoch had {known[3]:08x} and end {known[1]}"
                )
        return None

    def commit(self, replica: int, high_watermark: int) -> str | None:
        """Hold what lies newly below a replica's high watermark against the table (N3)."""
        view = self.view(replica)
        batches, place = view.batches, view.committed
        while place < len(batches) and batches[place].next_offset <= high_watermark:
            problem = self._enter(batches[place])
            if problem is not None:
                return problem
            place += 1
            view.committed = place
        if place == len(batches) and view.end_offset < high_watermark and batches:
            return f"nothing at offset {view.end_offset}, below its high watermark {high_watermark}"
        return None

    def is_committed(self, batch: BatchSummary) -> bool:
        """Whether this is the batch that was committed at its offset."""
        return self._committed.get(batch.base_offset) == batch[:4]

    def committed_epoch_below(self, offset: int) -> int | None:
        """The leader epoch of the committed record just below an offset; None when it is not known. A slow search."""
        for base, end, epoch, _ in self._committed.values():
            if base < offset <= end:
                return epoch
        return None

    def _enter(self, batch: BatchSummary) -> str | None:
        known = self._committed.get(batch.base_offset)
        if known is None:
            if batch.base_offset < self.committed_end:
                return f"a batch begins at {batch.base_offset}, and none did when that offset was committed"
            self._committed[batch.base_offset] = batch[:4]
            self.committed_end = batch.next_offset
            return None
        if known == batch[:4]:
            return None
        return (
            f"offsets {batch.base_offset} to {batch.next_offset - 1} hold a batch of epoch {batch.leader_epoch} with "
            f"CRC {batch.crc:08x}; committed was one of epoch {known[2]} with CRC {known[3]:08x} and end {known[1]}"
        )
