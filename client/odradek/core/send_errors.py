"""What a producer is told of a batch that was given up."""

from __future__ import annotations

from odradek_proto.errors import ErrorCode
from odradek_proto.words import noun

from odradek.core.batches import Batch
from odradek.core.sequences import Sequences
from odradek.shared.errors import BrokerError, DeliveryTimeout, RecordTooLarge, SerializationError, broker_error


def too_old(batch: Batch, timeout_ms: int, sequences: Sequences) -> DeliveryTimeout:
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


def sent_before(batch: Batch, code: ErrorCode, said: str) -> BrokerError:
    """The broker takes a batch for one that came too early, whose earlier attempt it may have written."""
    text = f"{said or code.message}; an earlier attempt may have written these records: they are not sent again"
    error = broker_error(code, text, where=str(batch.owner.name))
    error.maybe_written = True
    error.hint = "look for them in the topic before you do"
    return error


def not_encodable(batch: Batch, error: Exception) -> SerializationError:
    return SerializationError(f"{batch.owner.name}: {batch.count} records cannot be made into a batch: {error!r}")


def larger_than_credit(batch: Batch, size: int, credit: int) -> RecordTooLarge:
    return RecordTooLarge(f"{batch.owner.name}: a batch of {size} bytes, and the broker takes {credit} at a time")
