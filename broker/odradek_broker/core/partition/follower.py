"""A partition as a follower: its requests to the leader, and the effects of the responses (A7).

A `FollowerPartition` follows one leader in one leader epoch. Three phases: *truncating* (requests the end of an epoch
from the leader, in the modes that do so), *fetching*, and *out of range* (requests the start and end of the leader's
log). In the `fetch` mode the fetch itself detects a divergence.

Rules of this module. One request is in flight at a time, and a response counts only if it answers that very request
(R-74, R-80). A response that requires a truncation moves neither the high watermark nor the log start offset (R-28).
The fetch offset is always the log end offset and the last fetched epoch always the newest of the epoch cache, so that
neither can get lost (R-68, R-81). Disk effects (`Truncate`, `RestartLog`, `AppendBatches`) end a step: the rim carries
them out and reports, and the step continues from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto

from odradek_proto.errors import ErrorCode
from odradek_proto.records import BatchHeader

from odradek_broker.core.metadata.image import NO_LEADER, PartitionRegistration
from odradek_broker.core.partition import fencing
from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.core.partition.messages import (
    NO_EPOCH,
    AdvanceLogStart,
    AppendBatches,
    Effect,
    EpochRequest,
    FetchAnswer,
    FetchDecision,
    FollowerFetchRequest,
    FollowerRequest,
    HighWatermarkAdvanced,
    OffsetsRequest,
    PartitionFailed,
    PartitionSettings,
    ReplicaLog,
    RequestReady,
    RestartLog,
    Transition,
    Truncate,
    WriteEpochs,
)
from odradek_broker.core.partition.policy import ReplicaPolicy
from odradek_broker.core.partition.replication_quota import ReplicationQuota
from odradek_broker.core.partition.truncation import cut_for

FIRST_DELAY_MS = 2  # about as long as a metadata record takes to reach every broker on a healthy network


class FetchPhase(Enum):
    """The kind of a follower's next request."""

    TRUNCATING = auto()  # where the newest epoch ends
    FETCHING = auto()  # records
    OUT_OF_RANGE = auto()  # where the leader's log begins and ends


class FollowerPartition:
    """This broker follows `leader` in `leader_epoch`; `failed` is the reason why it has stopped until new metadata
    arrive.
    """

    def __init__(
        self,
        log: ReplicaLog,
        *,
        broker_id: int,
        registration: PartitionRegistration,
        settings: PartitionSettings,
        policy: ReplicaPolicy,
        now_ms: int,
        previous_leader: int = NO_LEADER,
    ) -> None:
        """`previous_leader` is the leader held so far, -1 at process start (L-1). Nothing happens before `start`."""
        self.log = log
        self.broker_id = broker_id
        self.settings = settings
        self.policy = policy
        self.failed: str | None = None
        self.phase = FetchPhase.FETCHING
        self._previous_leader = previous_leader
        self._in_flight: FollowerRequest | None = None
        self._backoff = Backoff()
        self._answer: FetchAnswer | None = None  # the one whose batches are being written
        self._on_disk_phase: FetchPhase | None = (
            None  # a cut or a restart is being carried out; this phase comes after it
        )
        self._take(registration)

    def _take(self, registration: PartitionRegistration) -> None:
        assert registration.leader != self.broker_id, (registration, self.broker_id)
        self.leader = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.partition_epoch = registration.partition_epoch
        self._in_sync = self.broker_id in registration.isr
        self._is_behind = True  # until an answer shows that it is not

    @property
    def held_leader(self) -> int:
        """The leader that this replica has last known; the next follower's `previous_leader` (L-1)."""
        return self._previous_leader if self.leader == NO_LEADER else self.leader

    @property
    def in_flight(self) -> FollowerRequest | None:
        """The request that is out."""
        return self._in_flight

    # --- Role --------------------------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> list[Effect]:
        """Become a follower (R-103): with epochs continue at the log's end (R-70, R-71), without them truncate first
        (L-1, R-73).
        """
        log = self.log
        facts = {
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "partition_epoch": self.partition_epoch,
            "log_end_offset": log.log_end_offset,
            "high_watermark": log.high_watermark,
            "last_epoch": log.epochs.latest_epoch,
        }
        effects: list[Effect] = [Transition("became_follower", "R-103", facts)]
        if self.leader == NO_LEADER:
            return effects
        if self._must_mend():
            return effects + self._mend(now_ms)
        if self.policy.truncates_to_high_watermark:
            if self.leader == self._previous_leader:
                return effects + self._enter(FetchPhase.FETCHING, now_ms)
            return effects + self._cut(log.high_watermark, FetchPhase.FETCHING, "L-1", {}, now_ms)
        asks = self.policy.asks_for_epoch_end or log.epochs.latest_epoch == NO_EPOCH
        return effects + self._enter(FetchPhase.TRUNCATING if asks else FetchPhase.FETCHING, now_ms)

    def update(self, registration: PartitionRegistration, now_ms: int) -> list[Effect]:
        """New metadata that leave this broker a follower. An older partition epoch is ignored (R-100).

        In the same leader epoch nothing restarts (R-103). A larger one starts again from the beginning, even with the
        same leader, which may have lost its leadership and come back with another log (R-104).
        """
        if registration.partition_epoch < self.partition_epoch or registration.leader_epoch < self.leader_epoch:
            return []
        if registration.leader_epoch == self.leader_epoch:
            self.partition_epoch = registration.partition_epoch
            self._in_sync = self.broker_id in registration.isr
            return self._mend(now_ms) if self._must_mend() else self._ready(now_ms)
        self._previous_leader = self.held_leader
        self._take(registration)
        self.failed = None
        self._in_flight = None
        self._answer = None
        self._on_disk_phase = None
        self._backoff.reset()
        return self.start(now_ms)

    def _must_mend(self) -> bool:
        """A damaged copy that no longer counts is truncated where the damage begins, and fetched again (R-146)."""
        ready = self.failed is None and self.leader != NO_LEADER and self._on_disk_phase is None
        return self.log.damaged_at is not None and not self._in_sync and ready

    def _mend(self, now_ms: int) -> list[Effect]:
        offset = self.log.damaged_at
        assert offset is not None, self.log
        self._in_flight = None
        return self._cut(max(offset, self.log.log_start_offset), FetchPhase.FETCHING, "R-146", {}, now_ms)

    # --- Asking ------------------------------------------------------------------------------------------------------

    def next_request(self, now_ms: int) -> FollowerRequest | None:
        """The next request to the leader; it counts as in flight from here on.

        None: one is in flight, the partition is delayed or failed, there is no leader, the disk is busy, or (with
        odradek.fsync=before-ack) the log is not flushed to its end, and a position would promise what can be lost.
        """
        if self._backoff.is_delayed(now_ms) or not self._can_ask():
            return None
        log = self.log
        epoch = self.leader_epoch if self.policy.fences_by_leader_epoch else NO_EPOCH
        request: FollowerRequest
        if self.phase is FetchPhase.FETCHING:
            last_epoch = log.epochs.latest_epoch if self.policy.sends_last_fetched_epoch else NO_EPOCH
            request = FollowerFetchRequest(
                log.topic_partition,
                log.topic_id,
                log.log_end_offset,
                epoch,
                last_epoch,
                log.log_start_offset,
                self.settings.replica_fetch_max_bytes,
            )
        elif self.phase is FetchPhase.TRUNCATING:
            request = EpochRequest(log.topic_partition, epoch, log.epochs.latest_epoch)
        else:
            request = OffsetsRequest(log.topic_partition, epoch)
        self._in_flight = request
        return request

    def counts_for(self, quota: ReplicationQuota) -> bool:
        """Whether the next request has to wait while this quota is exceeded (KIP-73).

        Not that of a member of the ISR, nor of one that had everything below the leader's high watermark, as in Kafka:
        it is about to join, and acks=all may wait for it.
        """
        fetches = self.phase is FetchPhase.FETCHING and self._is_behind and not self._in_sync
        return fetches and quota.covers(self.log.topic_partition)

    def _can_ask(self) -> bool:
        log = self.log
        return (
            self._in_flight is None
            and self._answer is None
            and self._on_disk_phase is None
            and self.failed is None
            and self.leader != NO_LEADER
            and not (self.settings.flush_before_ack and log.flushed_offset < log.log_end_offset)
        )

    def next_deadline_ms(self) -> int | None:
        """When a delayed partition is due again (R-90)."""
        return self._backoff.until_ms if self._can_ask() else None

    def _ready(self, now_ms: int) -> list[Effect]:
        return [RequestReady()] if self._can_ask() and not self._backoff.is_delayed(now_ms) else []

    # --- Waiting and stopping ----------------------------------------------------------------------------------------

    def on_transport_error(self, now_ms: int) -> list[Effect]:
        """The request in flight is lost, or could not be sent (R-90)."""
        self._in_flight = None
        if self.failed is None:
            self._backoff.delay(now_ms, self.settings.replica_fetch_backoff_ms)
        return []

    def on_corrupt_answer(self, now_ms: int) -> list[Effect]:
        """A response held a batch that is corrupt or misplaced: nothing of it is appended, retry later (R-86).

        Also for an `AppendBatches` that the rim could not carry out and that left nothing behind, as on a full disk;
        its new epochs are forgotten.
        """
        self._in_flight = None
        if self._answer is not None:
            self._answer = None
            self.log.epochs.truncate_from_end(self.log.log_end_offset)
        self._backoff.delay(now_ms, self.settings.replica_fetch_backoff_ms)
        return []

    def _fail(self, reason: str, rule: str) -> list[Effect]:
        self.failed = reason
        self._in_flight = None
        self._answer = None
        self._on_disk_phase = None
        facts = {"reason": reason, "leader": self.leader, "leader_epoch": self.leader_epoch}
        return [Transition("replica_failed", rule, facts), PartitionFailed(reason)]

    def refusal(self, current_leader_epoch: int) -> ErrorCode:
        """The error for any request that only the leader may answer; the epoch is compared first (R-110)."""
        epoch = current_leader_epoch if self.policy.fences_by_leader_epoch else NO_EPOCH
        error = fencing.check_leader_epoch(epoch, self.leader_epoch)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if error == ErrorCode.NONE else error

    # --- Records -----------------------------------------------------------------------------------------------------

    def on_fetch_answer(self, answer: FetchAnswer, now_ms: int) -> list[Effect]:
        """The leader answered a fetch (R-79 to R-86). One that does not fit the request in flight is dropped (R-80)."""
        request = self._in_flight
        if not isinstance(request, FollowerFetchRequest) or answer.fetch_offset != request.fetch_offset:
            return []
        if answer.current_leader_epoch not in (request.current_leader_epoch, NO_EPOCH):
            return []
        self._in_flight = None
        if answer.error != ErrorCode.NONE:
            return self._on_error(answer.error, now_ms)
        if answer.diverging is not None:
            return self._on_divergence(answer.diverging, now_ms)
        assert request.fetch_offset == self.log.log_end_offset, (request, self.log.log_end_offset)
        if not answer.headers:
            self._backoff.reset()
            return [*self._follow_bounds(answer), *self._ready(now_ms)]
        return self._on_batches(answer, now_ms)

    def _on_batches(self, answer: FetchAnswer, now_ms: int) -> list[Effect]:
        log = self.log
        verdict = judge_batches(answer.headers, log, self.leader_epoch, self.policy)
        if verdict is FetchVerdict.INVALID:
            return self.on_corrupt_answer(now_ms)
        if verdict is FetchVerdict.BELOW_LOG_END:
            first = answer.headers[0]
            return self._fail(
                f"batch {first.base_offset} to {first.last_offset} below the end {log.log_end_offset}", "R-85"
            )
        self._answer = answer
        if verdict is FetchVerdict.RESTARTS_LOG:
            offset = answer.headers[0].base_offset
            return self._restart(offset, "R-85", {"log_end_offset": log.log_end_offset})
        return self._append(answer)

    def _append(self, answer: FetchAnswer) -> list[Effect]:
        """Epochs first, then the data that they speak of (R-60, R-61)."""
        epochs = self.log.epochs
        latest = epochs.latest_epoch
        changed = False
        for header in answer.headers:
            if header.leader_epoch != latest and header.leader_epoch != NO_EPOCH:
                changed |= epochs.assign(header.leader_epoch, header.base_offset)
                latest = header.leader_epoch
        write: list[Effect] = [WriteEpochs(epochs.entries)] if changed else []
        return [*write, AppendBatches(answer.headers)]

    def on_appended(self, headers: Sequence[BatchHeader], now_ms: int) -> list[Effect]:
        """The batches were written: log end offset, then high watermark, then log start offset (R-81, R-27, R-162)."""
        answer, self._answer = self._answer, None
        assert answer is not None, headers
        assert headers, answer
        self._backoff.reset()  # not before: a full disk refuses what the leader answers well, again and again
        log = self.log
        for header in headers:
            log.producers.update(header)
        log.log_end_offset = headers[-1].next_offset
        return [*self._follow_bounds(answer), *self._ready(now_ms)]

    def _follow_bounds(self, answer: FetchAnswer) -> list[Effect]:
        """Take over high watermark and log start offset. The former may fall, since the leader may be new (R-27)."""
        log = self.log
        effects: list[Effect] = []
        self._is_behind = answer.high_watermark > log.log_end_offset
        old = log.high_watermark
        new = max(min(answer.high_watermark, log.log_end_offset), log.log_start_offset)
        if new != old:
            log.high_watermark = new
            if new > old:
                effects.append(HighWatermarkAdvanced(old, new))
        if answer.log_start_offset > log.log_start_offset:
            effects += self._advance_log_start(min(answer.log_start_offset, new))
        return effects

    def on_log_start_advanced(self, offset: int, now_ms: int) -> list[Effect]:
        """Records below `offset` go, by this replica's own retention (R-164)."""
        assert offset <= self.log.high_watermark, (offset, self.log.high_watermark)
        return self._advance_log_start(offset)

    def _advance_log_start(self, offset: int) -> list[Effect]:
        log = self.log
        if offset <= log.log_start_offset:
            return []
        log.log_start_offset = offset
        log.producers.on_log_start(offset)
        effects: list[Effect] = [AdvanceLogStart(offset)]
        if log.epochs.truncate_from_start(offset):
            effects.append(WriteEpochs(log.epochs.entries))
        return effects

    def on_flushed(self, offset: int, now_ms: int) -> list[Effect]:
        """Records below `offset` are on disk; a position that waited for it may be sent now.

        Within a back-off, too: until now it had no deadline at which it would have been due.
        """
        log = self.log
        log.flushed_offset = max(log.flushed_offset, min(offset, log.log_end_offset))
        return [RequestReady()] if self.settings.flush_before_ack and self._can_ask() else []

    # --- Divergence --------------------------------------------------------------------------------------------------

    def _on_divergence(self, end: EpochEntry, now_ms: int) -> list[Effect]:
        """The leader found our log to differ: cut, and fetch again at once (R-79). Bounds stay as they are (R-28)."""
        return self._cut_by(end, "R-79", now_ms)

    def on_epoch_answer(self, request: EpochRequest, error: ErrorCode, end: EpochEntry, now_ms: int) -> list[Effect]:
        """The leader answered OffsetsForLeaderEpoch (R-73 to R-78)."""
        if request != self._in_flight:
            return []
        self._in_flight = None
        if error != ErrorCode.NONE:
            return self._on_error(error, now_ms)
        self._backoff.reset()
        return self._cut_by(end, "R-75", now_ms)

    def _cut_by(self, end: EpochEntry, rule: str, now_ms: int) -> list[Effect]:
        log = self.log
        cut = cut_for(end, log.epochs, log.log_end_offset, log.high_watermark)
        asks_again = self.policy.asks_for_epoch_end and not cut.complete
        facts = {"answer_epoch": end.epoch, "answer_end": end.offset, "complete": cut.complete}
        return self._cut(cut.offset, FetchPhase.TRUNCATING if asks_again else FetchPhase.FETCHING, rule, facts, now_ms)

    def _cut(self, offset: int, then: FetchPhase, rule: str, facts: Mapping[str, object], now_ms: int) -> list[Effect]:
        """Truncate to `offset`, and continue with a phase.

        At the log's end no record is removed, but an epoch that never got one is: it would be requested again and again
        (R-65, KAFKA-10706). If nothing at all could be removed, the partition waits a little instead of looping.
        """
        log = self.log
        end = log.log_end_offset
        if offset < end:
            facts = {
                "from": end,
                "to": offset,
                "high_watermark": log.high_watermark,
                "leader": self.leader,
                "leader_epoch": self.leader_epoch,
                "last_epoch": log.epochs.latest_epoch,
                **facts,
            }
            self._on_disk_phase = then
            return [Transition("truncated", rule, facts), Truncate(offset, rule, self.leader, self.leader_epoch)]
        dropped = log.epochs.truncate_from_end(end)
        if not dropped and rule == "R-79":
            self._backoff.delay(now_ms, self.settings.replica_fetch_backoff_ms)
        effects: list[Effect] = [WriteEpochs(log.epochs.entries)] if dropped else []
        return effects + self._enter(then, now_ms)

    def on_truncated(self, log_end_offset: int, now_ms: int) -> list[Effect]:
        """A `Truncate` was carried out, producer state included; storage may have truncated lower than requested
        (R-230).

        With odradek.fsync=before-ack the truncation is on disk by now.
        """
        then, self._on_disk_phase = self._on_disk_phase, None
        log = self.log
        assert then is not None, log_end_offset
        assert log_end_offset <= log.log_end_offset, (log_end_offset, log.log_end_offset)
        log.log_end_offset = log_end_offset
        log.flushed_offset = min(log.flushed_offset, log_end_offset)
        log.log_start_offset = min(log.log_start_offset, log_end_offset)
        log.high_watermark = min(log.high_watermark, log_end_offset)
        if log.damaged_at is not None and log_end_offset <= log.damaged_at:
            log.damaged_at = None
        effects: list[Effect] = []
        if log.epochs.truncate_from_end(log_end_offset):
            effects.append(WriteEpochs(log.epochs.entries))
        return effects + self._enter(then, now_ms)

    def _enter(self, phase: FetchPhase, now_ms: int) -> list[Effect]:
        """Continue with a phase. Without any epoch nothing is requested: truncate to the high watermark (R-73)."""
        self.phase = phase
        if phase is FetchPhase.TRUNCATING and self.log.epochs.latest_epoch == NO_EPOCH:
            return self._cut(self.log.high_watermark, FetchPhase.FETCHING, "R-73", {}, now_ms)
        return self._ready(now_ms)

    def _on_error(self, error: ErrorCode, now_ms: int) -> list[Effect]:
        """The leader refused (R-78, R-83, R-90, R-91)."""
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            facts = {"error": error.name, "leader": self.leader, "leader_epoch": self.leader_epoch}
            fenced = Transition("fenced", "R-91", facts)
            return [fenced, *self._fail(f"leader {self.leader} knows an epoch above {self.leader_epoch}", "R-91")]
        if error is ErrorCode.OFFSET_OUT_OF_RANGE and self.phase is not FetchPhase.OUT_OF_RANGE:
            return self._enter(FetchPhase.OUT_OF_RANGE, now_ms)
        self._backoff.delay(now_ms, self.settings.replica_fetch_backoff_ms)
        return []

    # --- Out of range ------------------------------------------------------------------------------------------------

    def on_restarted(self, offset: int, now_ms: int) -> list[Effect]:
        """A `RestartLog` was carried out: the log is empty and begins at `offset` (R-231)."""
        then, self._on_disk_phase = self._on_disk_phase, None
        assert then is not None, offset
        log = self.log
        log.log_start_offset = log.log_end_offset = log.high_watermark = log.flushed_offset = offset
        log.damaged_at = None
        log.producers.clear()
        effects: list[Effect] = [WriteEpochs(())] if log.epochs.clear() else []
        if self._answer is not None:
            return effects + self._append(self._answer)
        return effects + self._enter(then, now_ms)

    def on_offsets_answer(
        self, request: OffsetsRequest, error: ErrorCode, log_start_offset: int, log_end_offset: int, now_ms: int
    ) -> list[Effect]:
        """The start and end of the leader's log have arrived (R-84): truncate to its end, or restart at its start."""
        if request != self._in_flight:
            return []
        self._in_flight = None
        if error != ErrorCode.NONE:
            return self._on_error(error, now_ms)
        log = self.log
        facts = {"leader_log_start_offset": log_start_offset, "leader_log_end_offset": log_end_offset}
        if log_end_offset < log.log_end_offset:
            return self._cut(log_end_offset, FetchPhase.FETCHING, "R-84", facts, now_ms)
        if log_start_offset > log.log_end_offset:
            return self._restart(log_start_offset, "R-84", facts | {"log_end_offset": log.log_end_offset})
        # We are in its range now, but were not a moment ago: it moved, or it does not know our newest epoch.
        self._backoff.delay(now_ms, self.settings.replica_fetch_backoff_ms)
        return self._enter(FetchPhase.FETCHING, now_ms)

    def _restart(self, offset: int, rule: str, facts: Mapping[str, object]) -> list[Effect]:
        self._on_disk_phase = FetchPhase.FETCHING
        return [Transition("log_restarted", rule, {"to": offset, **facts}), RestartLog(offset, rule)]

    # --- Consumers ---------------------------------------------------------------------------------------------------

    def fetch_by_consumer(
        self, fetch_offset: int, current_leader_epoch: int, last_fetched_epoch: int, read_committed: bool, now_ms: int
    ) -> FetchDecision:
        """A consumer that does not know of followers is redirected to the leader."""
        return fencing.refuse(self.log, self.refusal(current_leader_epoch))

    def read_for_consumer(self, fetch_offset: int, current_leader_epoch: int, last_fetched_epoch: int) -> FetchDecision:
        """The range that a consumer that knows of followers may read here: below our own high watermark (KIP-392,
        R-269).
        """
        error = self.refusal(current_leader_epoch)
        if error != ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return fencing.refuse(self.log, error)
        last = last_fetched_epoch if self.policy.checks_divergence_on_fetch else NO_EPOCH
        return fencing.decide_read(self.log, fetch_offset, last, self.log.high_watermark)


class Backoff:
    """How long a partition waits after an error (R-90); `until_ms` is None when it does not.

    Unlike Kafka, which waits `replica.fetch.backoff.ms` at once, the first waits are short and double up to that
    setting. Most errors come from two brokers that learn of a new leader a moment apart, and a follower that slept for
    a second then would hold every acks=all write for that second.
    """

    __slots__ = ("_errors", "until_ms")

    def __init__(self) -> None:
        self._errors = 0
        self.until_ms: int | None = None

    def is_delayed(self, now_ms: int) -> bool:
        return self.until_ms is not None and now_ms < self.until_ms

    def delay(self, now_ms: int, longest_ms: int) -> None:
        """Wait after one more error in a row, never longer than `longest_ms`."""
        self.until_ms = now_ms + min(FIRST_DELAY_MS << min(self._errors, 20), longest_ms)
        self._errors += 1

    def reset(self) -> None:
        """An answer was fine."""
        self._errors = 0
        self.until_ms = None


class FetchVerdict(Enum):
    """How the batches of a fetch response are handled (R-81, R-85, R-221)."""

    APPEND = auto()
    RESTARTS_LOG = auto()  # the log is empty and begins inside of the first batch: begin it there instead
    BELOW_LOG_END = auto()  # they would overwrite: the replica fails
    INVALID = auto()  # not one behind the other, or of epochs that the leader cannot have here: ask again


def judge_batches(
    headers: Sequence[BatchHeader], log: ReplicaLog, leader_epoch: int, policy: ReplicaPolicy
) -> FetchVerdict:
    """Judge batches that arrived in answer to a fetch at the log end offset. No CRC covers offsets and epochs.

    In the oldest protocol the *last* offset of the first batch was compared, so one that straddles the end of the log
    was taken whole (L-9): offsets then go backwards inside the log.
    """
    end = log.log_end_offset
    first = headers[0]
    verdict = FetchVerdict.APPEND
    if first.base_offset < end:
        straddles = first.last_offset >= end
        if straddles and log.log_start_offset == end:
            verdict = FetchVerdict.RESTARTS_LOG
        elif not (straddles and policy.appends_straddling_batch):
            return FetchVerdict.BELOW_LOG_END
    next_offset = first.base_offset if first.base_offset < end else end
    rising = policy.sends_last_fetched_epoch  # the older modes let logs part, and epochs fall with them
    epoch = log.epochs.latest_epoch
    for header in headers:
        base_offset = header.base_offset
        if base_offset < next_offset or (base_offset > next_offset and not log.gaps):
            return FetchVerdict.INVALID
        if header.leader_epoch != NO_EPOCH:
            if header.leader_epoch > leader_epoch or (rising and header.leader_epoch < epoch):
                return FetchVerdict.INVALID
            epoch = header.leader_epoch
        next_offset = base_offset + header.last_offset_delta + 1
    return verdict
