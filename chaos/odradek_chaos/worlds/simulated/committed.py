"""The first-commit table: what was ever below a high watermark, and whether it still says the same everywhere.

The cheapest and best detector that a simulator has. The first replica that puts a batch below its high watermark
writes it into the table; every replica that does so later, and every log after a restart, is compared with it. The
bytes are read from the simulated disks, by a reader of its own: the accused does not lend his books to the auditor.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from odradek_chaos.worlds.simulated.disk import SimDisk
from odradek_chaos.worlds.simulated.inodes import Directory, Inode

HEADER = struct.Struct(">qiibIhi")  # base offset, length, leader epoch, magic, CRC, attributes, last offset delta
PREFIX_BYTES = 12  # base offset and length, which the length does not count


class Batch(NamedTuple):
    next_offset: int
    leader_epoch: int
    crc: int


@dataclass(slots=True)
class _Cursor:
    """How far one replica was compared, and where in its files that is."""

    offset: int = 0
    segment: str = ""
    position: int = 0


class CommittedLog:
    """The committed batches of one partition, and how far each replica has been compared with them."""

    def __init__(self, directory: str) -> None:
        self.end_offset = 0
        self._directory = directory
        self._batches: dict[int, Batch] = {}
        self._cursors: dict[int, _Cursor] = {}

    def forget(self, replica: int) -> None:
        """Compare this replica anew from its first offset: it was cut, or it comes from a disk that crashed."""
        self._cursors.pop(replica, None)

    def compare(self, replica: int, disk: SimDisk, high_watermark: int) -> str | None:
        """Look at what lies newly below this replica's high watermark; returns what is wrong with it."""
        cursor = self._cursors.get(replica)
        if cursor is None:
            cursor = self._cursors[replica] = _Cursor()
        while cursor.offset < high_watermark:
            data = self._data(cursor, disk)
            if data is None:
                return f"nothing at offset {cursor.offset}, below its high watermark {high_watermark}"
            base_offset, length, epoch, _, crc, _, delta = HEADER.unpack_from(data, cursor.position)
            batch = Batch(base_offset + delta + 1, epoch, crc)
            if base_offset != cursor.offset:
                return f"a batch of offset {base_offset} where {cursor.offset} should be"
            if batch.next_offset > high_watermark:
                break  # the high watermark stands inside of a batch: wait for the rest
            problem = self._enter(base_offset, batch)
            if problem is not None:
                return problem
            cursor.offset = batch.next_offset
            cursor.position += PREFIX_BYTES + length
        return None

    def _enter(self, base_offset: int, batch: Batch) -> str | None:
        known = self._batches.get(base_offset)
        if known is None:
            if base_offset < self.end_offset:
                return f"a batch begins at {base_offset}, and none did when that offset was committed"
            self._batches[base_offset] = batch
            self.end_offset = batch.next_offset
            return None
        if known == batch:
            return None
        return (
            f"offsets {base_offset} to {batch.next_offset - 1} hold a batch of epoch {batch.leader_epoch} with CRC "
            f"{batch.crc:08x}; committed was one of epoch {known.leader_epoch} with CRC {known.crc:08x} "
            f"and end {known.next_offset}"
        )

    def _data(self, cursor: _Cursor, disk: SimDisk) -> bytearray | None:
        """The bytes in which the cursor's next batch stands."""
        if cursor.segment:
            inode = disk.find(f"{self._directory}/{cursor.segment}")
            if isinstance(inode, Inode) and cursor.position + HEADER.size <= len(inode.data):
                return inode.data
        directory = disk.find(self._directory)
        if not isinstance(directory, Directory):
            return None
        name = f"{cursor.offset:020d}.log"
        inode = directory.entries.get(name)
        if not isinstance(inode, Inode) or len(inode.data) < HEADER.size:
            return None
        cursor.segment, cursor.position = name, 0
        return inode.data
