"""Produce: one batch for one partition, appended in the order of the calls, answered now or later."""

from __future__ import annotations

from functools import partial

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import INTERNAL_TOPICS, LONGEST_TOPIC_NAME, TopicPartition

from odradek_broker.requests.access import OPEN, Access
from odradek_broker.requests.context import Lookup, RequestContext
from odradek_broker.requests.unpacked import UnpackedProduces
from odradek_broker.runtime.counters import Counters, Timer
from odradek_broker.runtime.replicas.purgatory import AnswerCallback, ProduceAnswer

__all__ = ["AnswerCallback", "ProduceAnswer", "ProduceRequests"]

DEFAULT_TIMEOUT_MS = 30_000  # request.timeout.ms, Kafka's default
MAX_TIMEOUT_MS = 300_000  # five minutes bound what a caller may ask us to hold


class ProduceRequests:
    """Appends batches as leader. acks must be 0, 1 or -1 (INVALID_REQUIRED_ACKS); batches fail one by one."""

    def __init__(
        self, *, lookup: Lookup, counters: Counters, unpacked: UnpackedProduces, access: Access = OPEN
    ) -> None:
        self._unpacked = unpacked
        self._lookup = lookup
        self._access = access
        self._counters = counters
        self._times = counters.request("Produce")  # there from the beginning: a rate needs a zero to start from

    def append(
        self,
        context: RequestContext,
        tp: TopicPartition,
        topic_id: bytes,
        batch: memoryview,
        acks: int,
        timeout_ms: int,
        answer: AnswerCallback,
    ) -> None:
        """Append one batch; no await stands between the call and the write. `timeout_ms` 0: the default.

        It waits five minutes at most. `answer` is called exactly once, now or later; with acks=0 only with an error.
        `topic_id` b"" finds the topic by its name alone; another topic of this name is UNKNOWN_TOPIC_ID.
        """
        counters = self._counters
        if counters.timer is not None:
            answer = self._timed(answer, counters.timer)
        refused, error = self._refusal(context, tp)
        replica = error or self._lookup(tp, topic_id)
        if not isinstance(replica, ErrorCode):
            replica.traffic.produces += 1
            timeout_ms = min(timeout_ms, MAX_TIMEOUT_MS) or DEFAULT_TIMEOUT_MS
            settings = replica.log.settings
            if settings.compaction is None and settings.compression is None:
                replica.produce(batch, acks, timeout_ms, answer)
            else:
                append = partial(replica.produce, acks=acks, timeout_ms=timeout_ms, answer=answer)
                self._unpacked.produce(replica, batch, append, answer)
            return
        counters.gone.produces += 1
        counters.gone.failed_produces += 1
        if refused:
            answer(ProduceAnswer(replica, refused))
        else:
            if replica is ErrorCode.INCONSISTENT_TOPIC_ID:
                replica = ErrorCode.UNKNOWN_TOPIC_ID
            answer(ProduceAnswer(replica, f"{tp}: {replica.message}"))

    def _refusal(self, context: RequestContext, tp: TopicPartition) -> tuple[str, ErrorCode]:
        """Why nobody, or this caller, may write there; NONE if there is no reason."""
        if len(tp.topic) > LONGEST_TOPIC_NAME:
            return f"a topic name of {len(tp.topic)} characters", ErrorCode.INVALID_TOPIC_EXCEPTION
        if tp.topic in INTERNAL_TOPICS:
            return f"{tp.topic} is an internal topic: only brokers write into it", ErrorCode.INVALID_TOPIC_EXCEPTION
        refused = self._access.refusal(context, "Produce", tp.topic) if self._access.is_on else ErrorCode.NONE
        return f"{tp}: {refused.message}" if refused else "", refused

    def _timed(self, answer: AnswerCallback, timer: Timer) -> AnswerCallback:
        arrived = timer()

        def observed(told: ProduceAnswer) -> None:
            self._times.observe(timer() - arrived)
            answer(told)

        return observed
