"""How a fetch session waits for fetch.min.bytes (R-121).

Rules of this module. Whoever asks for one byte, the default, never waits for more. A session that has nothing to tell
has no deadline and no timer; the wait begins with the first bytes that are not enough. It ends when a client that
repeats its fetch every fetch.max.wait.ms, as Kafka's clients do, would be answered: so no record waits longer here
than it would there.

What is not enough yet is held back: its bytes are counted, and it is looked at again only when it is woken, from where
the count ended. So a wait costs each batch once, however often it is woken. As in Kafka, a partition counts for as many
bytes as there are, but for no more than its max_bytes.
"""

from __future__ import annotations

from odradek_proto.topics import TopicPartition

from odradek_broker.requests.fetch_answers import PartitionAnswers
from odradek_broker.requests.fetch_requests import Wanted
from odradek_broker.runtime.replicas.ports import FetchWaiter


class FetchMinBytes:
    """What one session's client wants at least, and until when it is waited for. Times are monotonic.

    Partitions that are held back leave the session's `ready`, and come back all together.
    """

    __slots__ = ("_answers", "_follower", "_found", "_held", "_max_wait_ms", "_named_ms", "deadline_ms", "wanted_bytes")

    def __init__(self, answers: PartitionAnswers, *, follower: bool) -> None:
        self.wanted_bytes = 1  # over all partitions of the session
        self.deadline_ms: int | None = None
        self._answers = answers
        self._follower = follower
        self._held: dict[TopicPartition, int] = {}  # bytes of what is held back
        self._found = 0  # their sum
        self._max_wait_ms = 0
        self._named_ms = 0

    @property
    def holds(self) -> bool:
        """Whether something is held back."""
        return bool(self._held)

    def asked(self, wanted_bytes: int, max_wait_ms: int, now_ms: int) -> None:
        """The client named partitions: a fetch, as Kafka sees it."""
        self.wanted_bytes = wanted_bytes
        self._max_wait_ms = max(1, max_wait_ms)
        self._named_ms = now_ms

    def is_met(
        self,
        wanted: dict[TopicPartition, Wanted],
        ready: dict[TopicPartition, None],
        waiter: FetchWaiter,
        now_ms: int,
    ) -> bool:
        """Whether everything is to be told now; it is all ready then. If not, it is held back until `deadline_ms`."""
        waits = self.wanted_bytes > 1 and (self.deadline_ms is None or now_ms < self.deadline_ms)
        if waits and not self._count(wanted, ready, waiter, now_ms) and self._found:
            ready.clear()
            self._begin(now_ms)
            return False
        if self._held:
            self._give_back(ready)
        return True

    def forget(self, tp: TopicPartition) -> None:
        """This partition is not wanted any more, or anew."""
        if self._held:
            self._found -= self._held.pop(tp, 0)

    def rest(self) -> None:
        """Nothing is ready any more."""
        self.deadline_ms = None

    def _count(
        self,
        wanted: dict[TopicPartition, Wanted],
        ready: dict[TopicPartition, None],
        waiter: FetchWaiter,
        now_ms: int,
    ) -> bool:
        """Hold back what is ready; True as soon as there is enough, or more to say than bytes."""
        for tp in ready:
            each = wanted[tp]
            limit = self._answers.limit_in_memory(each, now_ms)
            if limit is None:
                return True
            self.forget(tp)
            found = self._held[tp] = self._bytes_below(each, limit)
            self._found += found
            if self._found >= self.wanted_bytes:
                return True
            each.decision = None  # when it is told, it is looked at again
            if each.replica is not None:
                each.replica.waiters.add(waiter, follower=self._follower)
        return False

    def _bytes_below(self, wanted: Wanted, limit: int) -> int:
        """Count on from where the last count ended, until there is enough."""
        assert wanted.replica is not None, wanted.topic_partition
        missing = min(self.wanted_bytes - self._found, wanted.max_bytes) - wanted.counted_bytes
        if missing > 0:
            start = max(wanted.counted_to, wanted.fetch_offset)
            more, wanted.counted_to = wanted.replica.log.count_in_memory(start, limit, missing)
            wanted.counted_bytes += more
        return min(wanted.counted_bytes, wanted.max_bytes)

    def _begin(self, now_ms: int) -> None:
        """There are bytes, and not enough."""
        if self.deadline_ms is None:
            repeats = (now_ms - self._named_ms) // self._max_wait_ms
            self.deadline_ms = self._named_ms + (repeats + 1) * self._max_wait_ms

    def _give_back(self, ready: dict[TopicPartition, None]) -> None:
        """Those who have waited longest come first."""
        woken = list(ready)
        ready.clear()
        ready.update(dict.fromkeys(self._held))
        ready.update(dict.fromkeys(woken))
        self._held.clear()
        self._found = 0
