"""What a producer is told of a batch that was given up."""

from __future__ import annotations

from odradek.core.batches import Batch
from odradek.errors import DeliveryTimeout, RecordTooLarge, SerializationError


def too_old(batch: Batch, timeout_ms: int) -> DeliveryTimeout:
    """delivery.timeout.ms is over; with why it took so long, and whether the records may be in the log all the same."""
    queue, last = batch.owner, batch.owner.last_error
    why = f"; the last error was: {last.message}" if last is not None else ""
    nobody = "; the partition has no leader" if queue.leader_id < 0 and last is None else ""
    return DeliveryTimeout(
        f"{queue.name}: not acknowledged within {timeout_ms} ms, {batch.attempts} attempts{why}{nobody}",
        maybe_written=batch.maybe_written or batch.correlation_id in queue.wire,
        hint=last.hint if last is not None else "",
    )


def not_encodable(batch: Batch, error: Exception) -> SerializationError:
    return SerializationError(f"{batch.owner.name}: {batch.count} records cannot be made into a batch: {error!r}")


def larger_than_credit(batch: Batch, size: int, credit: int) -> RecordTooLarge:
    return RecordTooLarge(f"{batch.owner.name}: a batch of {size} bytes, and the broker takes {credit} at a time")
