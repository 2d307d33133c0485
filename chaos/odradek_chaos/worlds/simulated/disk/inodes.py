"""Files and directories of a simulated disk, each with what is in the page cache and what would survive a power loss.

A file keeps its current bytes and what it takes to get the durable ones back: the durable size, and the durable content
of every 512-byte sector below it that was changed since the last fsync. Appends save nothing, so logs are cheap.
A failed fsync leaves it as Linux does: the kernel takes the sectors that were dirty then for clean, so that they stay
on the disk as they were until they are written anew.
A directory keeps its current entries, its durable ones, and the changes between them in order.
"""

from __future__ import annotations

import random

SECTOR = 512


class Inode:
    """One file."""

    __slots__ = ("data", "durable_size", "forgotten", "saved")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable_size = 0
        self.saved: dict[int, bytes] = {}  # sector number to its durable bytes, where they differ from `data`
        self.forgotten: dict[int, None] = {}  # sectors that were dirty when an fsync failed, and not written since

    def write(self, offset: int, piece: bytes) -> None:
        end = offset + len(piece)
        if offset < self.durable_size:
            self._save(offset, end)
        if offset > len(self.data):
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset:end] = piece
        if self.forgotten:
            for sector in range(offset // SECTOR, -(-end // SECTOR)):
                self.forgotten.pop(sector, None)

    def truncate(self, size: int) -> None:
        if size < self.durable_size:
            self._save(size, self.durable_size)
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))

    def fsync(self) -> None:
        self.saved = {sector: self._on_disk(sector) for sector in self.forgotten if sector * SECTOR < len(self.data)}
        self.durable_size = len(self.data)

    def fail_fsync(self) -> None:
        """What is dirty now is neither written nor tried again."""
        unflushed = range(self.durable_size // SECTOR, -(-len(self.data) // SECTOR))
        self.forgotten.update(dict.fromkeys((*self.saved, *unflushed)))

    def _on_disk(self, sector: int) -> bytes:
        """The durable bytes of a sector, as many as the file has of it: zeros where none were ever written."""
        start = sector * SECTOR
        old = self.saved.get(sector)
        if old is None:
            old = bytes(self.data[start : min(start + SECTOR, self.durable_size)])
        size = min(SECTOR, len(self.data) - start)
        return old[:size].ljust(size, b"\0")

    def is_durable_up_to(self, end: int) -> bool:
        """Whether all bytes below `end` would survive a power loss as they are."""
        if self.durable_size < end:
            return False
        data = self.data
        for sector, old in self.saved.items():
            start = sector * SECTOR
            if start < end and old[: end - start] != data[start : min(start + len(old), end)]:
                return False
        return True

    def durable(self) -> bytearray:
        """The bytes that certainly survive a power loss."""
        content = self.data[: self.durable_size]
        content.extend(bytes(self.durable_size - len(content)))
        for sector, old in self.saved.items():
            content[sector * SECTOR : sector * SECTOR + len(old)] = old
        return content

    def clone(self) -> Inode:
        other = Inode()
        other.data = bytearray(self.data)
        return other

    def lose_power(self, rng: random.Random) -> None:
        """Become one of the contents that a power loss may leave: each unsynced sector and the size, old or new."""
        before, now = self.durable(), self.data
        fate = rng.choice(("nothing kept", "all kept", "prefix kept", "sectors kept"))
        if fate == "nothing kept":
            after = before
        elif fate == "all kept":
            after = now
        else:
            shortest, longest = sorted((len(before), len(now)))
            after = self._mix(rng, before, now, size=rng.randint(shortest, longest), torn=fate == "sectors kept")
        self.data = after
        self.durable_size = len(after)
        self.saved = {}
        self.forgotten.clear()

    def _mix(self, rng: random.Random, before: bytearray, now: bytearray, size: int, torn: bool) -> bytearray:
        """The new bytes up to `size`; with `torn`, sectors that never got to the disk are old, or zeros, or garbage."""
        after = bytearray(now[:size])
        after.extend(before[len(after) : size])
        if not torn:
            return after
        for sector, old in self.saved.items():
            if sector * SECTOR < size and rng.random() < 0.5:
                end = min(size, sector * SECTOR + len(old))
                after[sector * SECTOR : end] = old[: end - sector * SECTOR]
        if size > len(before):
            start = rng.randrange(len(before), size)
            end = min(size, (start // SECTOR + rng.randint(1, 8)) * SECTOR)  # whole sectors from there on are missing
            after[start:end] = bytes(end - start) if rng.random() < 0.7 else rng.randbytes(end - start)
        return after

    def _save(self, start: int, end: int) -> None:
        """Keep the durable content of the sectors in [start, end) that are about to change."""
        limit = min(end, self.durable_size)
        for sector in range(start // SECTOR, -(-limit // SECTOR)):
            if sector not in self.saved:
                old = self.data[sector * SECTOR : min(sector * SECTOR + SECTOR, self.durable_size)]
                self.saved[sector] = bytes(old)


class Directory:
    """One directory. A change is a list of (name, entry or None) that happens as one."""

    __slots__ = ("durable", "entries", "pending")

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.durable: dict[str, Entry] = {}
        self.pending: list[list[tuple[str, Entry | None]]] = []

    def change(self, *steps: tuple[str, Entry | None]) -> None:
        _apply(self.entries, steps)
        self.pending.append(list(steps))

    def fsync(self) -> None:
        self.durable = dict(self.entries)
        self.pending.clear()

    def lose_power(self, rng: random.Random) -> None:
        """Keep a prefix of the changes that were not made durable, then do the same below."""
        kept = rng.randint(0, len(self.pending))
        for steps in self.pending[:kept]:
            _apply(self.durable, steps)
        self.pending.clear()
        self.entries = dict(self.durable)
        for entry in self.entries.values():
            entry.lose_power(rng)


Entry = Inode | Directory


def _apply(
    entries: dict[str, Entry], steps: list[tuple[str, Entry | None]] | tuple[tuple[str, Entry | None], ...]
) -> None:
    for name, entry in steps:
        if entry is None:
            entries.pop(name, None)
        else:
            entries[name] = entry
