"""Completes the state of producers from a snapshot that has only their last batch (R-245, R-246).

Rule of this module: the caller reads the log backwards, passes the batches in, newest first, and gets the position to
continue from. The state is complete when each producer has its last five batches, or all of its epoch: the state that
`ProducerStates.update` would hold.
"""

from __future__ import annotations

from odradek_proto.records import BatchHeader

from odradek_broker.core.partition.producers import CACHED_BATCHES, ProducerEntry, ProducerStates, cached_batch


class EarlierBatches:
    """The producers that lack batches, and how far down the log was looked at for all of them."""

    __slots__ = ("_lacking", "_reached")

    def __init__(self, producers: ProducerStates) -> None:
        self._lacking = {entry.producer_id: entry for entry in producers if _lacks(entry)}
        self._reached = producers.end_offset

    @property
    def wanted_below(self) -> int | None:
        """The offset below which the next batch may stand that somebody lacks; None when nobody does."""
        if not self._lacking:
            return None
        return min(self._reached, max(entry.batches[0].first_offset for entry in self._lacking.values()))

    def reach(self, offset: int) -> None:
        """Everything from there on was told."""
        self._reached = offset

    def take(self, header: BatchHeader) -> None:
        """The next older batch of the log, or one that is known already."""
        entry = self._lacking.get(header.producer_id)
        if entry is None or header.base_offset >= entry.batches[0].first_offset:
            return
        if header.producer_epoch != entry.producer_epoch:
            del self._lacking[entry.producer_id]  # a new epoch forgot the batches of the one before
        elif not header.is_control:
            entry.batches.insert(0, cached_batch(header))
            if not _lacks(entry):
                del self._lacking[entry.producer_id]


def _lacks(entry: ProducerEntry) -> bool:
    """Whether there may be earlier batches that count: those of an epoch begin with sequence 0."""
    return 0 < len(entry.batches) < CACHED_BATCHES and entry.batches[0].first_sequence != 0
