"""The leader epoch cache: where each leadership of a partition began in this replica's log (KIP-101, R-60 to R-69).

A sorted list of (epoch, start offset), strictly increasing in both. The follower's truncation and the consumer's check
(KIP-320) depend on its answers, so two rules hold. An entry is written to disk before its data (R-60): the changes here
return whether there is something to write. And nothing is guessed: the result for an unknown epoch is `UNDEFINED`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEntry(NamedTuple):
    """An epoch and an offset: its start offset as an entry of the cache, its end offset as an answer."""

    epoch: int
    offset: int


UNDEFINED = EpochEntry(UNDEFINED_EPOCH, UNDEFINED_OFFSET)


class EpochCache:
    """Epochs and their start offsets, strictly increasing in both. Pure: the caller that changes it writes the file."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        """`entries` as a file had them; conflicting ones are resolved as `assign` does."""
        self._entries: list[EpochEntry] = []
        for epoch, offset in entries:
            self.assign(epoch, offset)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int:
        """The newest epoch (R-68), -1 when there is none."""
        return self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that `epoch` starts at `start_offset` (R-60). Returns whether anything changed.

        The lower epoch or offset wins over later entries that contradict it, so an epoch that never got a record is
        replaced by the next one at the same offset. Raises `ValueError` for negative values: a batch without an epoch
        must not leave an entry (KAFKA-7897).
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} at offset {start_offset}: neither may be negative")
        entries = self._entries
        if entries:
            latest = entries[-1]
            if latest.epoch == epoch and latest.offset <= start_offset:
                return False
            while entries and (entries[-1].epoch >= epoch or entries[-1].offset >= start_offset):
                entries.pop()
        entries.append(EpochEntry(epoch, start_offset))
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEntry:
        """The largest known epoch not above `epoch`, and where it ends in a log that ends at `log_end_offset` (R-62).

        Below the oldest entry the *requested* epoch comes back with the start of the oldest: the asker has nothing
        that we still know of, and cuts there.
        """
        entries = self._entries
        if epoch == UNDEFINED_EPOCH or not entries or epoch > entries[-1].epoch:
            return UNDEFINED
        if epoch == entries[-1].epoch:
            return EpochEntry(epoch, log_end_offset)
        if epoch < entries[0].epoch:
            return EpochEntry(epoch, entries[0].offset)
        end_offset = log_end_offset
        for entry in reversed(entries):
            if entry.epoch <= epoch:
                return EpochEntry(entry.epoch, end_offset)
            end_offset = entry.offset
        raise AssertionError((epoch, entries))

    def truncate_from_end(self, offset: int) -> bool:
        """Drop the entries that start at `offset` or later (R-63). A negative offset changes nothing."""
        if offset < 0:
            return False
        entries = self._entries
        before = len(entries)
        while entries and entries[-1].offset >= offset:
            entries.pop()
        return len(entries) != before

    def truncate_from_start(self, offset: int) -> bool:
        """Forget entries below `offset`; the epoch that `offset` belongs to now starts there (R-64)."""
        entries = self._entries
        below = 0
        while below < len(entries) and entries[below].offset <= offset:
            below += 1
        if not below or (below == 1 and entries[0].offset == offset):
            return False
        entries[:below] = [EpochEntry(entries[below - 1].epoch, offset)]
        return True

    def clear(self) -> bool:
        """Forget everything (R-67)."""
        changed = bool(self._entries)
        self._entries.clear()
        return changed

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch that the record at `offset` was written in (R-67); none before the first entry."""
        for entry in reversed(self._entries):
            if entry.offset <= offset:
                return entry.epoch
        return None
