"""The state that a partition keeps of its idempotent producers (KIP-98, R-240 to R-248).

Per producer id: its epoch, its last five batches, and the first offset of its open transaction. Two rules. A check
changes no sequence: state changes only when the batch was written, by `update` (R-243). And `update` never fails:
followers and recovery accept what the leader once accepted, gaps and old epochs included (R-244).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek_proto.errors import ErrorCode
from odradek_proto.headers import CONTROL, TRANSACTIONAL
from odradek_proto.records import BatchHeader

CACHED_BATCHES = 5  # max.in.flight.requests.per.connection of an idempotent client
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
NO_OFFSET = -1
MAX_SEQUENCE = (1 << 31) - 1


class CachedBatch(NamedTuple):
    """One of the last batches of a producer, by which a repetition is known. Sequences are inclusive and may wrap."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int = -1  # its largest; with LogAppendTime what the producer was told

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


def cached_batch(header: BatchHeader) -> CachedBatch:
    """What is remembered of a batch that stands in the log."""
    delta = header.last_offset_delta
    return CachedBatch(
        header.base_sequence, header.last_sequence, header.base_offset + delta, delta, header.max_timestamp
    )


class ProducerCheck(NamedTuple):
    """The answer to a batch before it is written: an error, or the batch that it repeats (R-16), or neither."""

    error: ErrorCode
    duplicate: CachedBatch | None = None


ACCEPTED = ProducerCheck(ErrorCode.NONE)
_INVALID_RECORD = ProducerCheck(ErrorCode.INVALID_RECORD)
_INVALID_EPOCH = ProducerCheck(ErrorCode.INVALID_PRODUCER_EPOCH)
_OUT_OF_ORDER = ProducerCheck(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


@dataclass(slots=True)
class ProducerEntry:
    """State of one producer id in one partition. `batches` holds up to five, oldest first."""

    producer_id: int
    producer_epoch: int
    batches: list[CachedBatch] = field(default_factory=list)
    last_timestamp: int = -1
    coordinator_epoch: int = -1
    transaction_first_offset: int = NO_OFFSET  # -1: no open transaction
    seen_ms: int = 0  # wall time; lives in memory alone

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def copy(self) -> ProducerEntry:
        return ProducerEntry(
            self.producer_id,
            self.producer_epoch,
            list(self.batches),
            self.last_timestamp,
            self.coordinator_epoch,
            self.transaction_first_offset,
            self.seen_ms,
        )


def follows(last_sequence: int, next_sequence: int) -> bool:
    """Whether a batch may come right after a sequence: one more, and 0 after 2^31 - 1 (R-241)."""
    return next_sequence == last_sequence + 1 or (next_sequence == 0 and last_sequence == MAX_SEQUENCE)


class ProducerStates:
    """All producers of one partition, valid for the log below `end_offset`."""

    __slots__ = ("_ended", "_entries", "_now_ms", "_open", "end_offset", "expiration_ms")

    def __init__(self, expiration_ms: int = 86_400_000, now_wall_ms: int = 0) -> None:
        self.expiration_ms = expiration_ms
        self.end_offset = 0
        self._entries: dict[int, ProducerEntry] = {}
        self._open: dict[int, int] = {}  # producer id -> first offset of its open transaction
        self._ended: list[tuple[int, int]] = []  # (first, last offset) of ended transactions
        self._now_ms = now_wall_ms

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._entries.values())

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    # --- Leader ----------------------------------------------------------------------------------------------------

    def check(self, header: BatchHeader, now_wall_ms: int) -> ProducerCheck:
        """Judge a client's batch before it is written (R-240 to R-242). A batch without a producer id is fine.

        In this order: a repetition of one of the last five batches; an epoch below the known one; the sequence.
        """
        producer_id = header.producer_id
        if producer_id < 0:
            return ACCEPTED
        if header.base_sequence < 0 and not header.is_control:
            return _INVALID_RECORD
        self._now_ms = max(self._now_ms, now_wall_ms)
        entry = self._entries.get(producer_id)
        if entry is None or self._is_expired(entry, now_wall_ms):
            return ACCEPTED  # nothing is known of this producer: any first sequence will do
        if header.producer_epoch == entry.producer_epoch:
            first, last = header.base_sequence, header.last_sequence
            for batch in entry.batches:
                if batch.first_sequence == first and batch.last_sequence == last:
                    return ProducerCheck(ErrorCode.NONE, batch)
            return ACCEPTED if follows(entry.last_sequence, first) else _OUT_OF_ORDER
        if header.producer_epoch < entry.producer_epoch:
            return _INVALID_EPOCH
        return ACCEPTED if header.base_sequence == 0 else _OUT_OF_ORDER

    # --- Every replica ---------------------------------------------------------------------------------------------

    def update(self, header: BatchHeader) -> None:
        """Take in a batch that was written: by the leader after its check, by followers and recovery as it is."""
        last_offset = header.base_offset + header.last_offset_delta
        self.end_offset = last_offset + 1
        producer_id = header.producer_id
        if producer_id < 0:
            return
        producer_epoch = header.producer_epoch
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, producer_epoch)
        elif entry.producer_epoch != producer_epoch:
            entry.producer_epoch = producer_epoch
            entry.batches.clear()  # a new epoch starts at sequence 0, after a marker too
        entry.last_timestamp = header.max_timestamp
        entry.seen_ms = self._now_ms
        kind = header.attributes & (CONTROL | TRANSACTIONAL)
        if kind & CONTROL:
            self._end_transaction(entry, last_offset)
            return
        batches = entry.batches
        if len(batches) == CACHED_BATCHES:
            del batches[0]
        batches.append(cached_batch(header))
        if kind and entry.transaction_first_offset == NO_OFFSET:
            entry.transaction_first_offset = header.base_offset
            self._open[producer_id] = header.base_offset

    def _end_transaction(self, entry: ProducerEntry, last_offset: int) -> None:
        if entry.transaction_first_offset == NO_OFFSET:
            return
        self._ended.append((entry.transaction_first_offset, last_offset))
        entry.transaction_first_offset = NO_OFFSET
        self._open.pop(entry.producer_id, None)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """First offset of the earliest transaction that is open or has its end marker above; none: all is stable.

        What has its marker below is forgotten: a high watermark falls only with a truncation, which restores all.
        """
        self._ended = [each for each in self._ended if each[1] >= high_watermark]
        return min([*self._open.values(), *(first for first, _ in self._ended)], default=None)

    def on_log_start(self, log_start_offset: int) -> None:
        """Records below the log start offset are gone; producers are remembered until they expire (R-160)."""
        if self._ended:
            self._ended = [each for each in self._ended if each[1] >= log_start_offset]
        self.end_offset = max(self.end_offset, log_start_offset)

    # --- Expiry ----------------------------------------------------------------------------------------------------

    def _is_expired(self, entry: ProducerEntry, now_wall_ms: int) -> bool:
        """Whether a producer has been silent for `producer.id.expiration.ms` (R-248).

        Unlike Kafka, the time when a batch was taken in counts as well as the batch's own timestamp. Otherwise a
        producer that copies records of last year would be forgotten between its batches, and its retries doubled.
        """
        if entry.transaction_first_offset != NO_OFFSET:
            return False
        return now_wall_ms - max(entry.last_timestamp, entry.seen_ms) >= self.expiration_ms

    def expire(self, now_wall_ms: int) -> int:
        """Forget the producers that have expired; returns how many. Called now and then, on every replica."""
        self._now_ms = max(self._now_ms, now_wall_ms)
        expired = [key for key, entry in self._entries.items() if self._is_expired(entry, now_wall_ms)]
        for producer_id in expired:
            del self._entries[producer_id]
        return len(expired)

    # --- Snapshots -------------------------------------------------------------------------------------------------

    def entries(self) -> list[ProducerEntry]:
        """Copies of all entries, in the order in which the producers first came, for a snapshot at `end_offset`."""
        return [entry.copy() for entry in self._entries.values()]

    def restore(self, entries: Iterable[ProducerEntry], end_offset: int = 0) -> None:
        """Replace everything by a snapshot's entries, valid below `end_offset`."""
        self.clear()
        self.end_offset = end_offset
        for entry in entries:
            copy = entry.copy()
            copy.seen_ms = self._now_ms
            self._entries[copy.producer_id] = copy
            if copy.transaction_first_offset != NO_OFFSET:
                self._open[copy.producer_id] = copy.transaction_first_offset

    def clear(self) -> None:
        """Forget everything, `end_offset` included."""
        self._entries.clear()
        self._open.clear()
        self._ended.clear()
        self.end_offset = 0
