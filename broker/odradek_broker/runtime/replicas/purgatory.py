"""Where the requests of a broker wait: the core's delayed operations, with one timer for all their deadlines.

A request waits for one of its partition's offsets to move; a key names the partition and that offset. A waiting request
is answered after the step that completed it, never inside it (R-126).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.deadline import Deadline
from odradek_proto.transport.ports import Clock
from odradek_proto.values import Value

from odradek_broker.core.delayed import NO_LIMIT, DelayedOperation, DelayedOperations, DelayedProduce
from odradek_broker.core.fetching import PartitionFetch
from odradek_broker.core.partition.messages import AppendDecision

PRODUCE = "produce"  # acks=all, for the high watermark
DELETE = "delete"  # DeleteRecords, for the low watermark
FOLLOWER_FETCH = "follower fetch"  # for the log end offset
CONSUMER_FETCH = "consumer fetch"  # for the high watermark


class PurgatoryKey:
    """What a request waits for. Every replica has its own keys, so a key is equal to itself alone."""

    __slots__ = ("request", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, request: str) -> None:
        self.topic_partition = topic_partition
        self.request = request  # one of the four above

    def __repr__(self) -> str:
        return f"{self.topic_partition} {self.request}"


class ProduceAnswer(Value, frozen=True):
    """What the producer of one batch is told."""

    error: ErrorCode
    message: str = ""
    base_offset: int = -1
    log_start_offset: int = -1
    log_append_time_ms: int = -1  # -1 with CreateTime
    leader_id: int = -1
    leader_epoch: int = -1
    invalid_records: Sequence[int] = ()  # places in the batch, when these are why it is refused
    record_message: str = ""  # of each of them


AnswerCallback = Callable[[ProduceAnswer], None]


class AwaitedBatch(DelayedProduce, eq=False):
    """An acks=all batch that waits. `describe` turns its outcome into what the producer is told."""

    decision: AppendDecision
    describe: Callable[[ErrorCode, AppendDecision], ProduceAnswer]
    answer: AnswerCallback

    def complete(self, outcome: ErrorCode) -> None:
        answer = self.answer
        del self.answer  # it holds the request, and a completed operation stays in the heap until its deadline
        answer(self.describe(outcome, self.decision))


class DelayedFetch(DelayedOperation, eq=False):
    """A partition of a fetch that has nothing to say yet. Woken, it is looked at again, and may have to wait again."""

    fetch: PartitionFetch
    look_again: Callable[[PartitionFetch], None]

    def complete(self, outcome: ErrorCode) -> None:
        self.look_again(self.fetch)


class DelayedDelete(DelayedOperation, eq=False):
    """A cut of the log's beginning that waits for the replicas on live brokers (R-125)."""

    answer: Callable[[ErrorCode], None]

    def complete(self, outcome: ErrorCode) -> None:
        self.answer(outcome)


class Purgatory(DelayedOperations[PurgatoryKey, DelayedOperation]):
    """One for each broker."""

    __slots__ = ("_clock", "_deadline")

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._deadline = Deadline(clock, self._on_timer)

    def complete(self, key: PurgatoryKey, reached: int = NO_LIMIT) -> None:
        """Answer those whose condition holds now, in the order of what they require."""
        for request, outcome in self.check(key, reached):
            request.complete(outcome)

    def fail_all(self, key: PurgatoryKey, error: ErrorCode) -> None:
        """Answer everybody who waits for this key."""
        for request, outcome in self.fail(key, error):
            request.complete(outcome)

    def close(self) -> None:
        """Stop the timer."""
        self._deadline.cancel()

    def on_earliest(self, deadline_ms: int) -> None:
        self._deadline.arm(deadline_ms)

    def _on_timer(self) -> None:
        expired = self.on_time(self._clock.now_ms())
        self._deadline.arm(self.next_deadline_ms())
        for request, outcome in expired:
            request.complete(outcome)
