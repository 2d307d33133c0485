"""Snapshots of the producer state of one partition: `NNN.snapshot` is valid for the log below NNN (R-246).

A snapshot has a CRC, so it is written in place: a torn one is found out when it is read, deleted, and the next older
one serves. Kafka's format keeps the last batch of each producer; the other four of the last five are in the log
(`producer_loading`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from operator import eq

from odradek_proto.formats import (
    PRODUCER_SNAPSHOT_SUFFIX,
    CorruptFile,
    ProducerSnapshotEntry,
    decode_producer_snapshot,
    encode_producer_snapshot,
    segment_file_name,
)
from odradek_proto.transport.ports import Files

from odradek_broker.core.partition.producers import (
    MAX_SEQUENCE,
    NO_OFFSET,
    NO_SEQUENCE,
    CachedBatch,
    ProducerEntry,
    ProducerStates,
)
from odradek_broker.storage.atomic import read_file
from odradek_broker.storage.errors import NO_ROOM, log_ignored

_Predicate = Callable[[int], bool]


class ProducerSnapshots:
    """The snapshot files of one directory, by offset."""

    __slots__ = ("_directory", "_files", "_offsets", "dirty")

    def __init__(self, files: Files, directory: str, offsets: Iterable[int]) -> None:
        self._files = files
        self._directory = directory
        self._offsets = sorted(offsets)
        self.dirty: set[int] = set()  # written and not flushed

    @property
    def offsets(self) -> tuple[int, ...]:
        return tuple(self._offsets)

    def path(self, offset: int) -> str:
        return f"{self._directory}/{segment_file_name(offset, PRODUCER_SNAPSHOT_SUFFIX)}"

    def write(self, offset: int, producers: ProducerStates, log_start_offset: int = 0) -> None:
        """Write what `producers` holds, which is valid below `offset`; of nobody only above the log start, as Kafka.

        On a full disk there is none: it saves reading the log. Raises `OSError`.
        """
        if offset <= log_start_offset and not len(producers):
            return
        content = encode_producer_snapshot(_to_file(entry) for entry in producers.entries())
        try:
            self._write(self.path(offset), content)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            if self._files.exists(self.path(offset)):
                self._files.remove(self.path(offset))
            self.drop(lambda known: known == offset)
            return
        if not self._offsets or offset > self._offsets[-1]:
            self._offsets.append(offset)  # as at every roll: there may be thousands
        elif offset not in self._offsets:
            self._offsets = sorted([*self._offsets, offset])
        self.dirty.add(offset)

    def _write(self, path: str, content: bytes) -> None:
        file = self._files.open(path, create=True)
        try:
            file.truncate(0)
            file.pwritev([content], 0)
        finally:
            file.close()

    def restore(self, producers: ProducerStates, start_offset: int, end_offset: int) -> None:
        """Fill `producers` from the newest sound snapshot at or below `end_offset`.

        Snapshots beyond it, below `start_offset`, where the first segment begins, and bad ones are deleted (R-246).
        Without any the state is empty, and valid there. Unlike Kafka, those below the log start count as well: who
        wrote what was deleted since may still repeat it (R-241).
        """
        self.drop(lambda offset: not start_offset <= offset <= end_offset)
        producers.clear()
        producers.end_offset = start_offset
        for offset in reversed(self.offsets):
            content = read_file(self._files, self.path(offset))
            try:
                entries = decode_producer_snapshot(content or b"")
            except CorruptFile as error:
                log_ignored(self.path(offset), error)
                self.drop(partial(eq, offset))
                continue
            producers.restore((_from_file(entry) for entry in entries), offset)
            return

    def drop(self, unwanted: _Predicate) -> None:
        """Delete the snapshots at the offsets for which `unwanted` is true."""
        gone = [offset for offset in self._offsets if unwanted(offset)]
        for offset in reversed(gone):
            if self._files.exists(self.path(offset)):
                self._files.remove(self.path(offset))
            self.dirty.discard(offset)
        if gone:
            self._offsets = [offset for offset in self._offsets if offset not in gone]

    def fsync(self, offset: int) -> None:
        """Make one snapshot durable, if it is still there."""
        try:
            file = self._files.open(self.path(offset))
        except FileNotFoundError:
            return
        try:
            file.fsync()
        finally:
            file.close()


def _to_file(entry: ProducerEntry) -> ProducerSnapshotEntry:
    last = entry.batches[-1] if entry.batches else CachedBatch(NO_SEQUENCE, NO_SEQUENCE, NO_OFFSET, 0)
    return ProducerSnapshotEntry(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=last.last_sequence,
        last_offset=last.last_offset,
        offset_delta=last.offset_delta,
        timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_first_offset=entry.transaction_first_offset,
    )


def _from_file(entry: ProducerSnapshotEntry) -> ProducerEntry:
    batches = []
    if entry.last_sequence >= 0:
        first_sequence = (entry.last_sequence - entry.offset_delta) & MAX_SEQUENCE
        last_offset, delta = entry.last_offset, entry.offset_delta
        batches.append(CachedBatch(first_sequence, entry.last_sequence, last_offset, delta, entry.timestamp))
    return ProducerEntry(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        batches=batches,
        last_timestamp=entry.timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        transaction_first_offset=entry.current_txn_first_offset,
    )
