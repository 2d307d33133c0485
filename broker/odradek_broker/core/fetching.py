"""When a fetch is answered, and when it waits (R-121, R-122, R-127). Kafka's DelayedFetch.

Rules of this module. A partition that has an error, a divergence or records below the reader's limit is answered at
once, unless the fetch requires more bytes than available (`FetchMinimum`). Otherwise it waits. A moved high watermark
or log start alone does not trigger a response: the reader gets it with the next records, or when its wait is over
(`PartitionFetch.news_deadline_ms`). A fetch that waited is decided again from the beginning when it is answered, and
records nothing a second time: so no permission to read is kept here.

The caller queries the replica, reads the bytes and keeps the time; both kinds of readers, followers and consumers, are
the same here.
"""

from __future__ import annotations

from msgspec import Struct
from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition

from odradek_broker.core.partition.messages import FetchDecision


def is_refusal(decision: FetchDecision) -> bool:
    """Whether it is an error or a divergence: no bytes go with it, and nothing is waited for (R-121)."""
    return decision.error is not ErrorCode.NONE or decision.diverging is not None


class PartitionFetch(Struct, eq=False):
    """One partition that a fetch names, from then until it is answered."""

    topic_partition: TopicPartition
    fetch_offset: int
    current_leader_epoch: int  # -1: not compared
    last_fetched_epoch: int  # -1: none
    log_start_offset: int  # of a follower; -1: a consumer
    max_bytes: int
    max_wait_ms: int = 0
    told_high_watermark: int = -1  # what the reader knows already
    told_log_start: int = -1
    news_at_ms: int | None = None  # when its wait is over; None: there is nothing that it does not know
    counted_bytes: int = 0  # towards the minimum, from the fetch offset on
    counted_to: int = -1  # the offset behind them; -1: nothing was counted yet

    def waits_with(self, decision: FetchDecision) -> bool:
        """Whether there is no news yet (R-121)."""
        return not is_refusal(decision) and decision.limit <= self.fetch_offset

    def news_deadline_ms(self, high_watermark: int, log_start_offset: int, now_ms: int) -> int | None:
        """When these current offsets must be sent; None if the reader knows them (R-127, R-261).

        From the first change that it does not know the reader waits `max_wait_ms`, whatever changes after that.
        """
        if (high_watermark, log_start_offset) == (self.told_high_watermark, self.told_log_start):
            return None
        if self.news_at_ms is None:
            self.news_at_ms = now_ms + self.max_wait_ms
        return self.news_at_ms

    def wait_is_over(self, now_ms: int) -> bool:
        return self.news_at_ms is not None and self.news_at_ms <= now_ms

    def has_news(self, decision: FetchDecision, now_ms: int) -> bool:
        """Whether it is answered without records: its wait is over, and the offsets have changed (R-127)."""
        if not self.wait_is_over(now_ms):
            return False
        self.news_at_ms = None
        return (decision.high_watermark, decision.log_start_offset) != (self.told_high_watermark, self.told_log_start)


class FetchMinimum:
    """fetch.min.bytes over the partitions of one fetch, and the deadline for it (R-121).

    Insufficient data are held back: their bytes are counted, and counting continues from there when there is more. So a
    wait costs each batch once, however often it is checked. As in Kafka, a partition counts for its available bytes,
    but for no more than its max_bytes.
    """

    __slots__ = ("_found", "_held", "deadline_ms", "wanted_bytes")

    def __init__(self, wanted_bytes: int = 1, deadline_ms: int | None = None) -> None:
        self.wanted_bytes = wanted_bytes
        self.deadline_ms = deadline_ms  # None: there is nothing yet to wait with
        self._held: dict[TopicPartition, int] = {}  # bytes of each partition that is held back
        self._found = 0  # their sum

    @property
    def found_bytes(self) -> int:
        return self._found

    @property
    def is_enough(self) -> bool:
        return self._found >= self.wanted_bytes

    @property
    def holds(self) -> bool:
        """Whether something is held back."""
        return bool(self._held)

    def waits(self, now_ms: int) -> bool:
        """Whether one byte is not enough, and there is time left. A fetch for one byte never waits for more."""
        return self.wanted_bytes > 1 and (self.deadline_ms is None or now_ms < self.deadline_ms)

    def missing_bytes(self, fetch: PartitionFetch) -> int:
        """How many more to count of a partition: not more than it may give, nor than is needed."""
        self.forget(fetch.topic_partition)
        return max(0, min(self.wanted_bytes - self._found, fetch.max_bytes) - fetch.counted_bytes)

    def hold(self, fetch: PartitionFetch, more_bytes: int, counted_to: int) -> bool:
        """So many more were counted; True as soon as there is enough."""
        fetch.counted_bytes += more_bytes
        fetch.counted_to = counted_to
        found = self._held[fetch.topic_partition] = min(fetch.counted_bytes, fetch.max_bytes)
        self._found += found
        return self.is_enough

    def forget(self, tp: TopicPartition) -> None:
        """This partition is no longer requested, or requested again."""
        self._found -= self._held.pop(tp, 0)

    def release(self) -> list[TopicPartition]:
        """Everything that is held back is to be answered now; those that have waited longest come first."""
        held = list(self._held)
        self._held.clear()
        self._found = 0
        return held

    def begin(self, named_ms: int, max_wait_ms: int, now_ms: int) -> int:
        """There are bytes, and not enough: until when they wait.

        For a session, which names a partition once and then waits: the wait ends when a client that repeats its fetch
        every `max_wait_ms`, as Kafka's clients do, would be answered. So no record waits longer than it would there.
        """
        if self.deadline_ms is None:
            repeats = (now_ms - named_ms) // max(1, max_wait_ms)
            self.deadline_ms = named_ms + (repeats + 1) * max(1, max_wait_ms)
        return self.deadline_ms
