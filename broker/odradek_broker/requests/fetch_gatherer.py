"""The fetches of one reader that names a partition once and is answered when there is something to say.

For protocols with fetch sessions: a partition is named with its position, answered once, and then rests until it is
named again. What waits costs nothing: no task, only an entry in the broker's purgatory. Everything that is ready is
gathered at once, within the budget of one answer, and what is not gathered stays ready.

A position is recorded when it is named and never a second time (R-122). The limit of a read is captured once (R-229).
When something is ready, and when it waits, is decided by `core/fetching.py` (R-121, R-127).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.chance import chance
from odradek_proto.transport.ports import Buffer
from odradek_proto.values import Value

from odradek_broker.core.delayed import DelayedOperation
from odradek_broker.core.fetching import FetchMinimum, PartitionFetch, is_refusal
from odradek_broker.core.partition.messages import FetchDecision
from odradek_broker.requests.context import RequestContext
from odradek_broker.requests.fetch import FetchedPartition, FetchRequests
from odradek_broker.requests.fetch_answers import FetchReader, PartitionAnswers, PendingFetch, count_below, named_leader
from odradek_broker.runtime.replicas.replica import Replica

MAX_ANSWERED = 1_024  # partitions in one answer: headers are memory, too


class GatheredPartition(Value, frozen=True):
    """An answer, and what was asked. The rest of the fetch is over with it."""

    asked: PartitionFetch
    fetched: FetchedPartition
    size: int  # bytes of its batches


class _TimeForLess(DelayedOperation, eq=False):
    """The end of the wait for fetch.min.bytes."""

    on_ready: Callable[[], None]

    def complete(self, outcome: ErrorCode) -> None:
        self.on_ready()


class FetchGatherer:
    """`on_ready` is called when there may be something to gather; a follower's positions acknowledge (R-6)."""

    def __init__(
        self, requests: FetchRequests, context: RequestContext, *, follower: bool, on_ready: Callable[[], None]
    ) -> None:
        self.context = context
        self.reader = FetchReader(follower=follower, quota=requests.quota)
        self._requests = requests
        self._lookup = requests.lookup if follower else requests.access.lookup(requests.lookup, context, "Fetch")
        judged = requests.access.is_on and not follower
        self._refusal = partial(requests.access.refusal, context, "Fetch") if judged else None
        self._counters = requests.counters
        self._clock = requests.clock
        self._follower = follower
        self._on_ready = on_ready
        self._times = requests.counters.request("FetchFollower" if follower else "FetchConsumer")
        self._wanted: dict[TopicPartition, PendingFetch] = {}
        self._ready: dict[TopicPartition, None] = {}
        self._told: dict[TopicPartition, tuple[int, int, int]] = {}  # high watermark, log start, epoch that it knows
        self._answers = PartitionAnswers(requests.files, self.reader, self._ready_again)
        self._minimum = FetchMinimum()
        self._time_for_less: _TimeForLess | None = None
        self._named_ms = 0
        self._max_wait_ms = 0

    @property
    def wanted_count(self) -> int:
        """Partitions that wait or are ready."""
        return len(self._wanted)

    @property
    def ready_count(self) -> int:
        return len(self._ready)

    # --- What the reader wants --------------------------------------------------------------------------------------

    def begin(self, min_bytes: int, max_wait_ms: int) -> None:
        """The reader names partitions: a fetch, as Kafka sees it."""
        self._minimum.wanted_bytes = min_bytes
        self._max_wait_ms = max_wait_ms
        self._named_ms = self._clock.now_ms()

    def name(self, wanted: PendingFetch) -> None:
        """The reader wants this partition from this position on; what it wanted of it before is forgotten."""
        tp = wanted.topic_partition
        self.forget(tp, keep_told=True)
        wanted.max_wait_ms = 0 if chance("fetch-wait-ends-early", 0.1) else self._max_wait_ms
        if self._counters.timer is not None:
            wanted.named_at = self._counters.timer()
        self._wanted[tp] = wanted
        replica = self._lookup(tp, wanted.topic_id)
        if isinstance(replica, ErrorCode):
            self._counters.gone.fetches += 1
            wanted.decision = FetchDecision(replica, -1, -1, -1)
            self._make_ready(wanted)
            return
        wanted.replica = replica
        replica.traffic.fetches += 1
        told = self._told.get(tp)
        if told is not None and told[2] == wanted.current_leader_epoch:  # of an earlier term it took none
            wanted.told_high_watermark, wanted.told_log_start = told[:2]
        decision = self.reader.ask(replica, wanted)
        wanted.role = replica.role
        if wanted.waits_with(decision):
            self._wait(replica, wanted)
        else:
            wanted.decision = decision
            self._make_ready(wanted)

    def forget(self, tp: TopicPartition, *, keep_told: bool = False) -> None:
        """The reader does not want this partition any more; a read for it may go on."""
        wanted = self._wanted.pop(tp, None)
        self._answers.forget(tp)
        if wanted is not None:
            wanted.leave()
            self._ready.pop(tp, None)
            self._minimum.forget(tp)
            if not self._ready and not self._minimum.holds:
                self._rest()
        if not keep_told:
            self._told.pop(tp, None)

    def close(self) -> None:
        """The reader has gone."""
        self._answers.close()
        for wanted in self._wanted.values():
            wanted.leave()
        self._rest()
        self._wanted.clear()
        self._ready.clear()

    # --- What wakes it ----------------------------------------------------------------------------------------------

    def _look_again(self, fetch: PartitionFetch) -> None:
        """Called by the purgatory: there may be more to read, the role changed, or the wait is over."""
        if self._wanted.get(fetch.topic_partition) is fetch:
            self._make_ready(fetch)

    def _ready_again(self, tp: TopicPartition) -> None:
        wanted = self._wanted.get(tp)
        if wanted is not None:
            self._make_ready(wanted)

    def _make_ready(self, fetch: PartitionFetch) -> None:
        self._ready[fetch.topic_partition] = None
        self._on_ready()

    def _wait(self, replica: Replica, wanted: PendingFetch) -> None:
        """The fetch that named the partition may have moved the high watermark itself: that is news, too (R-127)."""
        state = replica.state
        wanted.news_deadline_ms(state.high_watermark, state.log_start_offset, self._clock.now_ms())
        wanted.wait(replica.follower_fetches if self._follower else replica.consumer_fetches, self._look_again)

    def _rest(self) -> None:
        """Nothing is ready any more, and nothing is held back."""
        self._minimum.deadline_ms = None
        if self._time_for_less is not None:
            self._requests.purgatory.cancel(self._time_for_less)
            self._time_for_less = None

    # --- What it is answered ----------------------------------------------------------------------------------------

    def gather(self, budget: int, cold_bytes: int) -> list[GatheredPartition]:
        """Everything that is ready now, as far as `budget` bytes go; nothing when there is too little (R-121).

        The first batch is gathered whatever its size (KIP-74). A thread reads at most `cold_bytes` for a partition.
        """
        if not self._ready and not self._minimum.holds:
            return []
        now_ms = self._clock.now_ms()
        if (self._minimum.wanted_bytes > 1 or self._minimum.holds) and not self._has_enough(now_ms):
            return []
        gathered: list[GatheredPartition] = []
        total, found = 0, False
        while self._ready:
            tp = next(iter(self._ready))
            if total >= budget or len(gathered) >= MAX_ANSWERED or self._leaves_the_rest(gathered):
                self._on_ready()
                break
            del self._ready[tp]
            wanted = self._wanted[tp]
            self._judge(wanted)
            decision, data = self._answers.find(wanted, budget - total, cold_bytes, now_ms, first=not found)
            if data is None:
                continue  # a thread reads; the partition is ready again when it has
            size = sum(map(len, data))
            if not size and self._says_nothing(wanted, decision, now_ms):
                wanted.decision = None
                if decision.limit > wanted.fetch_offset and found:
                    self._ready = {tp: None, **self._ready}  # its first batch did not fit: first in the next answer
                    self._on_ready()
                    break
                assert wanted.replica is not None, tp
                self._wait(wanted.replica, wanted)
                continue
            found = found or bool(size)
            total += size
            gathered.append(self._answered(wanted, decision, data, size, now_ms))
        if not self._ready:
            self._rest()
        return gathered

    def _judge(self, wanted: PendingFetch) -> None:
        """A fetch waits as long as there is nothing new: whoever may not read any more is told so, and nothing else."""
        if self._refusal is None or wanted.replica is None:
            return
        if error := self._refusal(wanted.topic_partition.topic):
            wanted.leave()
            wanted.replica, wanted.decision = None, FetchDecision(error, -1, -1, -1)

    def _leaves_the_rest(self, gathered: list[GatheredPartition]) -> bool:
        return bool(gathered) and chance("fetch-answer-partial", 0.1)

    def _says_nothing(self, wanted: PendingFetch, decision: FetchDecision, now_ms: int) -> bool:
        if wanted.replica is None or is_refusal(decision):
            return False
        return not wanted.has_news(decision, now_ms)

    def _answered(
        self, wanted: PendingFetch, decision: FetchDecision, data: Sequence[Buffer], size: int, now_ms: int
    ) -> GatheredPartition:
        tp, replica = wanted.topic_partition, wanted.replica
        del self._wanted[tp]
        if wanted.waiting is not None:
            wanted.leave()
        if replica is not None:
            if is_refusal(decision):  # a follower takes nothing from a refusal
                self._told.pop(tp, None)
            else:
                self._told[tp] = (decision.high_watermark, decision.log_start_offset, wanted.current_leader_epoch)
        traffic = self._counters.gone if replica is None else replica.traffic
        if self._follower:
            traffic.replication_bytes_out += size
            self._requests.quota.record(tp, size, now_ms)
        else:
            traffic.bytes_out += size
        timer = self._counters.timer
        if timer is not None:
            self._times.observe(timer() - wanted.named_at)
        if decision.error is ErrorCode.NONE:
            gaps = replica is not None and replica.state.gaps
            return GatheredPartition(wanted, FetchedPartition(tp, decision, gaps=gaps, buffers=data), size)
        traffic.failed_fetches += 1
        return GatheredPartition(wanted, FetchedPartition(tp, decision, *named_leader(wanted, decision)), size)

    def _has_enough(self, now_ms: int) -> bool:
        """Whether everything is to be told now; it is all ready then. If not, it is held back (R-121)."""
        minimum = self._minimum
        if minimum.waits(now_ms) and not self._count(now_ms) and minimum.found_bytes:
            self._ready.clear()
            deadline_ms = minimum.begin(self._named_ms, self._max_wait_ms, now_ms)
            if self._time_for_less is None:
                self._time_for_less = _TimeForLess(self._on_ready, deadline_ms=deadline_ms)
                self._requests.purgatory.register(self._time_for_less)  # for no key: only time ends it
            return False
        if minimum.holds:  # those who have waited longest come first
            self._ready = {**dict.fromkeys(minimum.release()), **self._ready}
        return True

    def _count(self, now_ms: int) -> bool:
        """Hold back what is ready; True as soon as there is enough, or more to say than bytes."""
        minimum = self._minimum
        for tp in self._ready:
            wanted = self._wanted[tp]
            limit = self._answers.limit_in_memory(wanted, now_ms)
            if limit is None:
                return True
            replica = wanted.replica
            assert replica is not None, tp
            if minimum.hold(wanted, *count_below(replica, wanted, limit, minimum.missing_bytes(wanted))):
                return True
            wanted.decision = None  # when it is told, it is looked at again
            wanted.wait(replica.follower_fetches if self._follower else replica.consumer_fetches, self._look_again)
        return False
