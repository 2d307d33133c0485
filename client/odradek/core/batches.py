"""Batches of a producer, from their first record to their answer.

    open -> closed -> on the wire -> done
                 ^--- retry ---'

Rules of this module. A batch that was given a sequence number keeps its records, and keeps the number until the
producer epoch is bumped: it is never split or merged, so that a broker recognises a retry (R-249). Batches of a
partition are numbered as they were opened, and that order is the order of everything that happens to them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from odradek_proto.compression import Codec
from odradek_proto.records import HEADER_SIZE, RecordToWrite, encode_batch
from odradek_proto.topics import TopicPartition

from odradek.shared.errors import OdradekError
from odradek.shared.results import RecordMetadata

NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
SEQUENCE_MASK = 0x7FFFFFFF  # after 2^31 - 1 comes 0


class Waiter(Protocol):
    """An asyncio future, of which the core needs only this."""

    def done(self) -> bool: ...

    def set_result(self, result: RecordMetadata, /) -> None: ...

    def set_exception(self, exception: BaseException, /) -> None: ...


class ProducerBatch:
    """Records of one partition that travel together.

    `size` estimates the uncompressed bytes. `unclaimed` counts deliveries of which nobody has asked what became of
    them.
    """

    __slots__ = (
        "attempts", "base_offset", "broker_id", "closed", "correlation_id", "count", "created_ms", "done", "encoded",
        "error", "log_append_time", "maybe_written", "number", "owner", "records", "sent_ms", "sequence", "size",
        "timestamps", "unclaimed", "waiters",
    )  # fmt: skip

    def __init__(self, owner: SendQueue, number: int, now_ms: int) -> None:
        self.owner = owner
        self.number = number
        self.created_ms = now_ms
        self.records: list[RecordToWrite] = []
        self.size = HEADER_SIZE
        self.closed = False
        self.count = 0  # records, known once it is closed
        self.sequence = NO_SEQUENCE
        self.encoded = b""
        self.attempts = 0
        self.broker_id = -1
        self.correlation_id = -1
        self.sent_ms = 0
        self.maybe_written = False  # an attempt ended without certainty that nothing was written
        self.done = False
        self.error: OdradekError | None = None
        self.base_offset = -1
        self.log_append_time = -1
        self.timestamps: list[int] = []
        self.waiters: list[tuple[int, Waiter]] = []
        self.unclaimed = 0

    def encode(self, codec: Codec, producer_id: int, producer_epoch: int) -> bytes:
        """The bytes to send. Encoded once per sequence number: a retry sends the same bytes."""
        if not self.encoded:
            self.encoded = encode_batch(
                self.records,
                codec=codec,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=self.sequence,
            )
        return self.encoded

    def close(self) -> None:
        self.closed = True
        self.count = len(self.records)

    def renumber(self, sequence: int) -> None:
        self.sequence = sequence
        self.encoded = b""

    @property
    def next_sequence(self) -> int:
        return (self.sequence + self.count) & SEQUENCE_MASK

    def metadata(self, index: int) -> RecordMetadata:
        """Where the record at `index` is. Only for a batch that is done without an error."""
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        timestamp = self.log_append_time if self.log_append_time >= 0 else self.timestamps[index]
        return RecordMetadata(self.owner.name.topic, self.owner.name.partition, offset, timestamp)

    def finish(self, error: OdradekError | None) -> int:
        """Let go of the records. Returns the bytes of buffer memory that are free again."""
        assert not self.done, (self.owner.name, self.number)
        self.close()
        self.error = error
        self.timestamps = [record[0] for record in self.records]
        self.records = []
        self.encoded = b""
        self.done = True  # at last: other threads look at it, and then at the rest
        return self.size - HEADER_SIZE


class SendQueue:
    """Everything of one partition that is not done: `waiting`, in order of number, and `wire`, in order of sending."""

    __slots__ = (
        "acked_number", "bump", "failures", "known", "last_error", "leader_epoch", "leader_id", "name", "next_number",
        "next_sequence", "producer_epoch", "producer_id", "retry_at_ms", "unacked_sequence", "unresolved", "waiting",
        "wire", "with_work",
    )  # fmt: skip

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.with_work: tuple[dict[TopicPartition, SendQueue], ...] = ()  # where it enters itself when records wait
        self.leader_id = -1
        self.leader_epoch = -1
        self.waiting: deque[ProducerBatch] = deque()
        self.wire: dict[int, ProducerBatch] = {}
        self.next_number = 0
        self.acked_number = -1
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = -1
        self.next_sequence = 0
        self.unacked_sequence = 0  # the one right after the last acknowledged record
        self.unresolved = False  # a sequenced batch was given up, nobody knows whether it was written
        self.known = False  # the leader has acknowledged a batch of this producer epoch, so it judges sequences
        self.bump = False  # the sequence has a hole: go on under a new producer epoch
        self.failures = 0
        self.retry_at_ms = 0
        self.last_error: OdradekError | None = None

    def add(self, record: RecordToWrite, size: int, batch_size: int) -> ProducerBatch | None:
        """Add a record to the open batch; it is the last of the batch then. None when there is no batch with room."""
        if not self.waiting:
            return None
        batch = self.waiting[-1]
        if batch.closed:
            return None
        size += batch.size
        if size > batch_size:
            batch.close()
            return None
        batch.records.append(record)
        batch.size = size
        return batch

    def add_values(
        self, values: Sequence[object], at: int, stamp: int, overhead: int, batch_size: int, room: int
    ) -> int:
        """Add values from `at` on, without keys, to the open batch while they are bytes and fit; returns how many.

        The same as `add` for each, in one loop without calls. `room` is what is left of buffer.memory.
        """
        if not self.waiting or self.waiting[-1].closed:
            return 0
        batch = self.waiting[-1]
        size, limit = batch.size, min(batch_size, batch.size + room)
        before = len(batch.records)
        append = batch.records.append
        likely = values[at] if at < len(values) else b""
        most = max(limit - size, 0) // (overhead + len(likely)) + 1 if isinstance(likely, bytes) else 0
        for value in values[at : at + most]:
            if not isinstance(value, bytes):
                break
            grown = size + overhead + len(value)
            if grown > limit:
                break
            append((stamp, None, value, ()))
            size = grown
        batch.size = size
        return len(batch.records) - before

    def open(self, record: RecordToWrite, size: int, batch_size: int, now_ms: int) -> ProducerBatch:
        """Open a batch with a record; it takes the first one whatever its size."""
        assert not self.waiting or self.waiting[-1].closed, self.name
        batch = ProducerBatch(self, self.next_number, now_ms)
        self.next_number += 1
        batch.records.append(record)
        batch.size += size
        if batch.size >= batch_size:
            batch.close()
        self.waiting.append(batch)
        self.enter()
        return batch

    def put_back(self, batch: ProducerBatch) -> None:
        """A batch comes back from the wire; it takes its old place in the order."""
        waiting = self.waiting
        place = 0
        while place < len(waiting) and waiting[place].number < batch.number:
            place += 1
        waiting.insert(place, batch)
        self.enter()

    def enter(self) -> None:
        """Something waits here: be found by those who look for work."""
        for queues in self.with_work:
            queues[self.name] = self

    def is_oldest(self, batch: ProducerBatch) -> bool:
        """Whether no earlier batch of the partition is still to be answered."""
        if self.waiting and self.waiting[0].number < batch.number:
            return False
        return all(other.number >= batch.number for other in self.wire.values())

    @property
    def has_sequenced(self) -> bool:
        """Whether a batch with a sequence number is outstanding."""
        return bool(self.wire) or bool(self.waiting and self.waiting[0].sequence != NO_SEQUENCE)
