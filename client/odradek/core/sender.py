"""The producer's decisions: which batch goes when, in what order, and what an answer means for it.

Rules of this module (R-249). Up to five batches of a partition are on the wire; a batch that comes back goes again,
with the same sequence number, before anything younger. A leader that may not know the producer gets one batch at a
time until it has acknowledged one: it takes any number from somebody unknown (R-241), so if it refuses the first
batch, because it does not lead yet, and takes the second, the first can never follow. Where the numbers come from is
in `sequences`, which queue is whose in `send_queues`.

A batch goes when it is full, when it has waited for linger.ms, or, with linger.ms=0, when nothing of its partition is
on the wire. So a lone record goes at once and records that come faster than answers travel together. (Unlike Kafka,
which with linger.ms=0 fills all five places of a connection with whatever is there.)
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from odradek_proto.errors import ErrorCode
from odradek_proto.records import RecordToWrite
from odradek_proto.transport.backoff import SEARCHING, backoff_ms
from odradek_proto.values import Value
from odradek_proto.words import noun

from odradek.core.answers import ProduceResponse
from odradek.core.batches import NO_SEQUENCE, ProducerBatch, SendQueue
from odradek.core.cluster_view import ClusterView
from odradek.core.send_queues import SendQueues
from odradek.core.sequences import Sequences
from odradek.shared.config import ProducerConfig
from odradek.shared.errors import (
    BrokerError,
    DeliveryTimeout,
    OdradekError,
    RecordTooLarge,
    SerializationError,
    broker_error,
)

FRAME_BYTES = 1024 * 1024  # a message of about this size costs little more than its bytes
STALL_MS = 1_000  # a broker that owes an answer for so long may be frozen: ask the others who leads

SEQUENCE_GAP_ERRORS = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH}
)
NOT_WRITTEN = SEQUENCE_GAP_ERRORS | {ErrorCode.NOT_ENOUGH_REPLICAS}  # of the errors that are retried
MEANS_OTHER_LEADER = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class BatchCompleted(Value, frozen=True):
    """A batch is done; its `error` says how."""

    batch: ProducerBatch


class RefreshMetadata(Value, frozen=True):
    """Somebody should ask who leads."""

    reason: str


class DropStream(Value, frozen=True):
    """A broker owes answers for too long, or no longer leads what it owes them for: end its stream."""

    broker_id: int


Effect = BatchCompleted | RefreshMetadata | DropStream


class Sender:
    """All partitions that a producer writes to. Every method that can change something returns what is to be done."""

    def __init__(self, config: ProducerConfig, rng: random.Random) -> None:
        self._config = config
        self._codec = config.codec
        self._rng = rng
        self._linger_ms = config.linger_ms
        self._max_in_flight = config.max_in_flight_requests_per_connection
        self._next_correlation_id = 1
        self.queues = SendQueues()
        self.sequences = Sequences(self._max_in_flight, wanted=config.enable_idempotence)
        self.hurry = False  # somebody flushes or waits for room: batches go without lingering
        self.outstanding = 0  # batches that are not done
        self.buffered_bytes = 0

    # --- records in ------------------------------------------------------------------------------------------------

    def open(self, queue: SendQueue, record: RecordToWrite, size: int, now_ms: int) -> ProducerBatch:
        """Open a batch with a record, after `SendQueue.add` found no room."""
        self.outstanding += 1
        return queue.open(record, size, self._config.batch_size, now_ms)

    # --- batches out -----------------------------------------------------------------------------------------------

    def drain(self, broker_id: int, now_ms: int, room: int, credit: int) -> tuple[list[ProducerBatch], list[Effect]]:
        """Batches to send to a broker now, in this order, encoded; they count as on the wire from here on.

        `room` is how many bytes may still go unanswered, of `credit` in all. No more than about `FRAME_BYTES`.
        """
        batches: list[ProducerBatch] = []
        effects: list[Effect] = []
        queues = self.queues.led_by(broker_id)
        if not queues:
            return batches, effects
        left = min(room, FRAME_BYTES)
        for queue in queues.values():
            if queue.bump and not queue.wire:
                effects += self._give_up_sent(queue)
            while (batch := self._next_batch(queue, now_ms)) is not None:
                try:
                    size = len(batch.encode(self._codec, queue.producer_id, queue.producer_epoch))
                except Exception as error:  # whatever it is, it must not take the other batches with it
                    effects += self._give_up(batch, not_encodable(batch, error))
                    continue
                if size > credit:
                    effects += self._give_up(batch, larger_than_credit(batch, size, credit))
                    continue
                if size > left and (batches or size > room):
                    break
                left -= size
                self._put_on_wire(batch, broker_id, now_ms)
                batches.append(batch)
            if left <= 0:
                break
        self.queues.rotate(broker_id)
        return batches, effects

    def _next_batch(self, queue: SendQueue, now_ms: int) -> ProducerBatch | None:
        """The batch of a partition that may go now, with its sequence number; None when none may."""
        waiting = queue.waiting
        if not waiting or now_ms < queue.retry_at_ms or len(queue.wire) >= self._max_in_flight:
            return None
        batch = waiting[0]
        if queue.failures and queue.wire and batch.sequence == NO_SEQUENCE:
            return None  # after a failure, nothing unnumbered overtakes what is on the wire
        if queue.wire and not queue.known and self._config.enable_idempotence:
            return None
        if queue.bump and not self.sequences.renumber(queue):
            return None
        if batch.sequence != NO_SEQUENCE:
            return batch
        if not self._is_ready(batch, queue, now_ms):
            return None
        if self._config.enable_idempotence and not self.sequences.assign(batch, queue):
            return None
        batch.close()
        return batch

    def _is_ready(self, batch: ProducerBatch, queue: SendQueue, now_ms: int) -> bool:
        if batch.closed or self.hurry or batch.attempts:
            return True
        if self._linger_ms:
            return now_ms - batch.created_ms >= self._linger_ms
        return not queue.wire

    def _put_on_wire(self, batch: ProducerBatch, broker_id: int, now_ms: int) -> None:
        queue = batch.owner
        assert queue.waiting[0] is batch, (queue.name, batch.number)
        queue.waiting.popleft()
        batch.attempts += 1
        batch.broker_id = broker_id
        batch.sent_ms = now_ms
        batch.correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        queue.wire[batch.correlation_id] = batch

    # --- answers in ------------------------------------------------------------------------------------------------

    def on_sent(self, batches: Iterable[ProducerBatch]) -> list[Effect]:
        """A frame has left. With acks=0 that is all that will ever be known."""
        effects: list[Effect] = []
        if self._config.acks == 0:
            for batch in batches:
                if batch.owner.wire.pop(batch.correlation_id, None) is not None and not batch.done:
                    effects.append(self._finish(batch, None))
        return effects

    def on_answer(self, batch: ProducerBatch, answer: ProduceResponse, now_ms: int, view: ClusterView) -> list[Effect]:
        """The broker answered for a batch that is on the wire; answers for others are old news and not passed on."""
        queue = batch.owner
        del queue.wire[batch.correlation_id]
        code = ErrorCode.from_number(answer.error_code) if answer.error_code else ErrorCode.NONE
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            return self._on_success(batch, answer if code is ErrorCode.NONE else None)
        error = broker_error(code, answer.error_message, where=str(queue.name))
        queue.last_error = error
        if code not in NOT_WRITTEN and (code.retriable or code is ErrorCode.UNKNOWN_SERVER_ERROR):
            batch.maybe_written = True
        effects: list[Effect] = []
        if code in SEQUENCE_GAP_ERRORS and batch.sequence != NO_SEQUENCE:
            effects += self._on_gap(batch, code, answer.error_message, now_ms)
        elif code.retriable and batch.attempts <= self._config.retries:
            hinted = code is ErrorCode.NOT_LEADER_OR_FOLLOWER and view.hint_leader(
                queue.name, answer.current_leader_id, answer.current_leader_epoch
            )
            self._back_off(queue, now_ms)
            self._put_back(batch)
            if hinted:
                self.queues.move(queue, view)
            elif code in MEANS_OTHER_LEADER:
                queue.known = False  # of a topic that was made anew, nothing else may tell
                effects.append(RefreshMetadata(f"{queue.name}: {code.name}"))
        elif not batch.done:
            error.maybe_written = batch.maybe_written
            effects.append(self._finish(batch, error))
            queue.unresolved = batch.sequence != NO_SEQUENCE
        self.sequences.resolve(queue)
        return effects

    def _on_gap(self, batch: ProducerBatch, code: ErrorCode, said: str, now_ms: int) -> list[Effect]:
        """The broker lacks the batch before this one, or has forgotten this one.

        This attempt wrote nothing; an earlier one may have, and under another epoch nobody would know it again.
        """
        queue = batch.owner
        if not queue.is_oldest(batch):
            self._put_back(batch)  # the one before is on its way
        elif batch.maybe_written:
            queue.unresolved = True
            return [] if batch.done else [self._finish(batch, sent_before(batch, code, said))]
        else:
            self.sequences.break_off(queue, overtaken=code is ErrorCode.INVALID_PRODUCER_EPOCH)
            self._back_off(queue, now_ms)
            self._put_back(batch)
        return []

    def _on_success(self, batch: ProducerBatch, answer: ProduceResponse | None) -> list[Effect]:
        queue = batch.owner
        queue.failures = 0
        queue.retry_at_ms = 0
        queue.last_error = None
        queue.known = queue.known or batch.broker_id == queue.leader_id
        if batch.number > queue.acked_number:
            queue.acked_number = batch.number
            queue.unacked_sequence = batch.next_sequence
        if answer is not None:
            batch.base_offset = answer.base_offset
            batch.log_append_time = answer.log_append_time_ms
        effects: list[Effect] = [] if batch.done else [self._finish(batch, None)]
        if queue.unresolved:
            self.sequences.resolve(queue)
        return effects

    def on_stream_broken(self, broker_id: int, now_ms: int, error: OdradekError) -> list[Effect]:
        """Nobody knows what became of the batches on the wire to a broker: they go again."""
        for queue in self.queues:
            lost = [batch for batch in queue.wire.values() if batch.broker_id == broker_id]
            if lost or (queue.waiting and queue.leader_id == broker_id):
                queue.last_error = error
            for batch in lost:
                del queue.wire[batch.correlation_id]
                batch.maybe_written = True
                self._put_back(batch)
            if lost:
                self._back_off(queue, now_ms)
                self.sequences.resolve(queue)
        return [RefreshMetadata(f"broker {broker_id}: {error.message}")]

    def on_leaders(self, view: ClusterView, now_ms: int) -> list[Effect]:
        """Metadata came: partitions go to their new leaders at once, whatever they were waiting for."""
        effects: list[Effect] = []
        for queue in self.queues:
            self.queues.move(queue, view)
            effects += [
                DropStream(batch.broker_id)
                for batch in queue.wire.values()
                if batch.broker_id != queue.leader_id >= 0 and now_ms - batch.sent_ms >= STALL_MS
            ]
        return effects

    # --- time ------------------------------------------------------------------------------------------------------

    def on_time(self, now_ms: int) -> list[Effect]:
        """Give up what is too old, and ask about brokers that owe answers."""
        effects: list[Effect] = []
        stalled = False
        for queue in self.queues.with_unfinished():
            while queue.waiting and now_ms - queue.waiting[0].created_ms >= self._config.delivery_timeout_ms:
                effects += self._give_up(queue.waiting[0], self._too_old(queue.waiting[0]))
            for batch in queue.wire.values():
                owed_ms = now_ms - batch.sent_ms
                stalled = stalled or owed_ms >= STALL_MS
                if owed_ms >= self._config.request_timeout_ms + STALL_MS:
                    effects.append(DropStream(batch.broker_id))
                if not batch.done and now_ms - batch.created_ms >= self._config.delivery_timeout_ms:
                    effects.append(self._finish(batch, self._too_old(batch)))
                    queue.unresolved = batch.sequence != NO_SEQUENCE
        if stalled:
            effects.append(RefreshMetadata("answers are overdue"))
        return effects

    def _too_old(self, batch: ProducerBatch) -> DeliveryTimeout:
        return too_old(batch, self._config.delivery_timeout_ms, self.sequences)

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """When `on_time` or a drain has something to do, if nothing else happens; None when nothing is outstanding."""
        if not self.outstanding:
            return None
        timeout_ms = self._config.delivery_timeout_ms
        return max(self.queues.next_due_ms(now_ms, timeout_ms, self._linger_ms, now_ms + STALL_MS), now_ms + 1)

    def fail_all(self, error: OdradekError) -> list[Effect]:
        """Nothing that is outstanding will ever be sent."""
        effects: list[Effect] = []
        for queue in self.queues:
            batches = (*queue.wire.values(), *queue.waiting)
            effects += [self._finish(batch, error) for batch in batches if not batch.done]
            queue.waiting.clear()
            queue.wire.clear()
        return effects

    # --- inner steps -----------------------------------------------------------------------------------------------

    def _back_off(self, queue: SendQueue, now_ms: int) -> None:
        if now_ms < queue.retry_at_ms:
            return  # several batches of one refusal are one failure
        queue.failures += 1
        config = self._config
        queue.retry_at_ms = now_ms + backoff_ms(
            queue.failures, config.retry_backoff_ms, config.retry_backoff_max_ms, self._rng, SEARCHING
        )

    def _put_back(self, batch: ProducerBatch) -> None:
        if batch.done:
            if batch.sequence != NO_SEQUENCE:
                batch.owner.unresolved = True
        else:
            batch.owner.put_back(batch)

    def _give_up_sent(self, queue: SendQueue) -> list[Effect]:
        """What waits is about to be numbered anew: without those that may be written under their old numbers."""
        code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        sent = [batch for batch in queue.waiting if batch.maybe_written and batch.sequence != NO_SEQUENCE]
        return [effect for batch in sent for effect in self._give_up(batch, sent_before(batch, code, ""))]

    def _give_up(self, batch: ProducerBatch, error: OdradekError) -> list[Effect]:
        """A batch that waits will not be sent (again)."""
        error.maybe_written = batch.maybe_written
        queue = batch.owner
        queue.waiting.remove(batch)
        if batch.sequence != NO_SEQUENCE:
            queue.unresolved = True
            self.sequences.resolve(queue)
        return [self._finish(batch, error)]

    def _finish(self, batch: ProducerBatch, error: OdradekError | None) -> BatchCompleted:
        self.buffered_bytes -= batch.finish(error)
        self.outstanding -= 1
        return BatchCompleted(batch)


def too_old(batch: ProducerBatch, timeout_ms: int, sequences: Sequences) -> DeliveryTimeout:
    """delivery.timeout.ms is over; with why it took so long, and whether the records may be in the log all the same."""
    queue, last = batch.owner, batch.owner.last_error
    if sequences.needs_producer_id and not batch.attempts:
        last = sequences.refusal or last
        reason = "; no broker has given this producer its id and epoch, which takes a majority of the controllers"
    else:
        reason = "; the partition has no leader" if queue.leader_id < 0 and last is None else ""
    why = f"; the last error was: {last.message}" if last is not None else ""
    tries = f"{batch.attempts} {noun(batch.attempts, 'attempt')}" if batch.attempts else "never sent"
    return DeliveryTimeout(
        f"{queue.name}: not acknowledged within {timeout_ms} ms, {tries}{reason}{why}",
        maybe_written=batch.maybe_written or batch.correlation_id in queue.wire,
        hint=last.hint if last is not None else "",
    )


def sent_before(batch: ProducerBatch, code: ErrorCode, said: str) -> BrokerError:
    """The broker takes a batch for one that came too early, whose earlier attempt it may have written."""
    text = f"{said or code.message}; an earlier attempt may have written these records: they are not sent again"
    error = broker_error(code, text, where=str(batch.owner.name))
    error.maybe_written = True
    error.hint = "look for them in the topic before you do"
    return error


def not_encodable(batch: ProducerBatch, error: Exception) -> SerializationError:
    return SerializationError(f"{batch.owner.name}: {batch.count} records cannot be made into a batch: {error!r}")


def larger_than_credit(batch: ProducerBatch, size: int, credit: int) -> RecordTooLarge:
    return RecordTooLarge(f"{batch.owner.name}: a batch of {size} bytes, and the broker takes {credit} at a time")
