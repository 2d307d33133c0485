"""What a sender orders: the words between the producer's decisions and its engine."""

from __future__ import annotations

from odradek_proto.values import Value

from odradek.core.batches import Batch


class Finished(Value, frozen=True):
    """A batch is done; its `error` says how."""

    batch: Batch


class RefreshMetadata(Value, frozen=True):
    """Somebody should ask who leads."""

    reason: str


class DropStream(Value, frozen=True):
    """A broker owes answers for too long, or no longer leads what it owes them for: end its stream."""

    broker_id: int


Effect = Finished | RefreshMetadata | DropStream
