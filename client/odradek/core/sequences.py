"""Producer ids and sequence numbers: what lets a broker recognise a batch that comes again (R-249).

Rules of this module. A batch keeps its number for as long as the producer epoch lasts. A hole in the sequence is closed
by a new producer epoch, under which what is left is numbered from 0. A batch that was given up after it had been sent
leaves its sequence number unresolved: nothing new is numbered until the others are answered, and then there is a hole
or there is none.
"""

from __future__ import annotations

from odradek.core.batches import NO_PRODUCER_ID, NO_SEQUENCE, ProducerBatch, SendQueue
from odradek.shared.errors import OdradekError


class Sequences:
    """The producer's id and epoch, and by them the numbers of the batches of all partitions."""

    def __init__(self, max_in_flight: int, *, wanted: bool) -> None:
        self._max_in_flight = max_in_flight
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = -1
        self.needs_producer_id = wanted
        self.refusal: OdradekError | None = None  # the last answer to the question that is still open

    def on_producer_id(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.needs_producer_id = False
        self.refusal = None

    def assign(self, batch: ProducerBatch, queue: SendQueue) -> bool:
        """Number a new batch. False while that cannot be done.

        From the oldest batch without an answer to this one there are at most five: the broker remembers as many
        (R-245), and one that falls out of its memory could not be recognised when it comes again.
        """
        if queue.unresolved or self.producer_id == NO_PRODUCER_ID:
            return False
        oldest = min([sent.number for sent in queue.wire.values()], default=batch.number)
        if batch.number - oldest >= self._max_in_flight:
            return False
        if not self._is_current(queue):
            if queue.wire:
                return False  # those of the old epoch first
            self._start(queue)
        batch.close()
        batch.renumber(queue.next_sequence)
        queue.next_sequence = batch.next_sequence
        return True

    def renumber(self, queue: SendQueue) -> bool:
        """Number everything that waits from 0, under a producer epoch that the broker has not seen yet."""
        if queue.wire:
            return False
        if self._is_current(queue):
            self.needs_producer_id = True
            return False
        if self.needs_producer_id:
            return False
        self._start(queue)
        for batch in queue.waiting:
            if batch.sequence != NO_SEQUENCE:
                batch.renumber(queue.next_sequence)
                queue.next_sequence = batch.next_sequence
        return True

    def break_off(self, queue: SendQueue, *, overtaken: bool = False) -> None:
        """The sequence has a hole: go on under a new producer epoch.

        `overtaken`: the broker knows a larger one. Somebody else writes under this producer id, by how much larger is
        not said, and raising it by one each time might take as long: go on under another id.
        """
        queue.bump = True
        if self._is_current(queue):
            self.needs_producer_id = True
            if overtaken:
                self.producer_id, self.producer_epoch = NO_PRODUCER_ID, -1

    def resolve(self, queue: SendQueue) -> None:
        """Once all sequenced batches are answered: did they fill the place of the one that was given up?"""
        if not queue.unresolved or queue.has_sequenced:
            return
        queue.unresolved = False
        if queue.unacked_sequence != queue.next_sequence:
            self.break_off(queue)

    def _is_current(self, queue: SendQueue) -> bool:
        return (queue.producer_id, queue.producer_epoch) == (self.producer_id, self.producer_epoch)

    def _start(self, queue: SendQueue) -> None:
        queue.producer_id, queue.producer_epoch = self.producer_id, self.producer_epoch
        queue.next_sequence = queue.unacked_sequence = 0
        queue.bump = queue.unresolved = queue.known = False
