"""The partitions that a producer writes to: each has a queue, and each queue a leader.

Rules of this module. A queue is found by its partition's name and, for whoever sends, by its leader; of a partition
that nobody is known to lead the leader is -1. A new leader is tried at once, whatever the old one said to wait. Nobody
who looks for work walks over all queues, of which there may be thousands: a queue enters itself where work is looked
for when a batch begins to wait, and is taken out again by whoever finds nothing there.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek_proto.topics import TopicPartition

from odradek.core.batches import ProducerBatch, SendQueue
from odradek.core.cluster_view import ClusterView
from odradek.shared.errors import OdradekError


class SendQueues:
    """All queues of a producer; iterates over them in the order in which they were made."""

    def __init__(self) -> None:
        self._queues: dict[TopicPartition, SendQueue] = {}
        self._by_leader: dict[int, dict[TopicPartition, SendQueue]] = {}  # those in which something may wait
        self._unfinished: dict[TopicPartition, SendQueue] = {}  # those with batches that may not be done

    def __iter__(self) -> Iterator[SendQueue]:
        return iter(self._queues.values())

    def of(self, partition: TopicPartition, view: ClusterView) -> SendQueue:
        """The queue of a partition, made when it is first asked for."""
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = SendQueue(partition)
            self.move(queue, view)
        return queue

    def move(self, queue: SendQueue, view: ClusterView) -> None:
        """Give a queue to whoever leads its partition now."""
        leader = view.leader_of(queue.name)
        if (leader.leader_id, leader.epoch) != (queue.leader_id, queue.leader_epoch):
            queue.leader_epoch = leader.epoch
            queue.retry_at_ms = 0
            queue.known = False
        elif queue.with_work:
            return
        self._by_leader.get(queue.leader_id, {}).pop(queue.name, None)
        queue.leader_id = leader.leader_id
        queue.with_work = (self._by_leader.setdefault(queue.leader_id, {}), self._unfinished)
        if queue.waiting:
            queue.enter()

    def led_by(self, broker_id: int) -> dict[TopicPartition, SendQueue]:
        """The queues of the partitions that a broker leads and that have work, those first whose turn it is."""
        return self._by_leader.get(broker_id) or {}

    def rotate(self, broker_id: int) -> None:
        """The next drain for this broker starts with another partition."""
        queues = self._by_leader[broker_id]
        for name in [name for name, queue in queues.items() if not queue.waiting]:
            del queues[name]
        if len(queues) > 1:
            first = next(iter(queues))
            queues[first] = queues.pop(first)

    def has_work(self, broker_id: int) -> bool:
        """Whether something waits for this broker, now or after a while."""
        return any(queue.waiting for queue in self.led_by(broker_id).values())

    def leaders_in_use(self) -> list[int]:
        """The brokers for which something waits; -1 for those partitions that have no leader."""
        return [leader for leader in self._by_leader if self.has_work(leader)]

    def with_unfinished(self) -> list[SendQueue]:
        """The queues that have something waiting or on the wire."""
        found = self._unfinished
        for name in [name for name, queue in found.items() if not queue.waiting and not queue.wire]:
            del found[name]
        return [*found.values()]

    def next_due_ms(self, now_ms: int, timeout_ms: int, linger_ms: float, at_latest_ms: int) -> int:
        """When the first batch has waited long enough: to go, to go again, or to be given up."""
        due = at_latest_ms
        for queue in self.with_unfinished():
            if queue.waiting:
                batch = queue.waiting[0]
                due = min(due, batch.created_ms + timeout_ms)
                if queue.retry_at_ms > now_ms:
                    due = min(due, queue.retry_at_ms)
                elif linger_ms and (lingered := batch.created_ms + round(linger_ms)) > now_ms:
                    due = min(due, lingered)
            for batch in queue.wire.values():
                if not batch.done:
                    due = min(due, batch.created_ms + timeout_ms)
        return due

    def held_up(self, now_ms: int, stall_ms: int, refusal: OdradekError | None) -> dict[TopicPartition, str]:
        """The partitions with records that are not acknowledged because something is wrong, and what it is.

        `refusal` is why there is no producer id, if there is none; a broker that owes an answer for `stall_ms` counts.
        """
        found: dict[TopicPartition, str] = {}
        for queue in self.with_unfinished():
            owing = [batch for batch in queue.wire.values() if not batch.done]
            error = queue.last_error or refusal
            if not owing and not queue.waiting:
                continue  # all of it was given up
            if error is not None:
                found[queue.name] = error.message
            elif queue.leader_id < 0:
                found[queue.name] = "the partition has no leader"
            elif owing and now_ms - owing[0].sent_ms >= stall_ms:
                found[queue.name] = (
                    f"broker {owing[0].broker_id} has not answered: it is silent, or waits for in-sync replicas"
                )
        return found

    def unsettled(self) -> set[TopicPartition]:
        """The partitions whose last attempt failed."""
        return {queue.name for queue in self if queue.last_error is not None}

    def unfinished(self) -> list[ProducerBatch]:
        """All batches that are not done."""
        queues = self.with_unfinished()
        return [batch for queue in queues for batch in (*queue.wire.values(), *queue.waiting) if not batch.done]

    def unacknowledged(self) -> int:
        """How many records are in them."""
        return sum(len(batch.records) for batch in self.unfinished())
