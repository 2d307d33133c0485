"""A partition as a follower: what to ask the leader, and what to make of the answers (A7).

A `FollowerPartition` follows one leader in one leader epoch. Three phases: *truncating* (the leader is asked where an
epoch ends, in the modes that do so), *fetching*, and *out of range* (the leader is asked where its log begins and
ends). In the `fetch` mode a divergence is found by the fetch itself.

Rules of this module. One request is in flight at a time, and an answer counts only if it answers that very request
(R-74, R-80). An answer that says "truncate" moves neither the high watermark nor the log start offset (R-28). The
fetch offset is always the log end offset and the last fetched epoch always the newest of the epoch cache, so that
neither can be lost on the way (R-68, R-81). Orders to the disk (`Truncate`, `RestartLog`, `AppendBatches`) end a step:
the rim carries them out and reports, and the step goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek_proto.errors import ErrorCode
from odradek_proto.records import BatchHeader

from odradek_broker.core.metadata.image import NO_LEADER, PartitionRegistration
from odradek_broker.core.partition import fencing
from odradek_broker.core.partition.follower_asking import Phase
from odradek_broker.core.partition.follower_truncation import TruncatingFollower
from odradek_broker.core.partition.messages import (
    NO_EPOCH,
    AdvanceLogStart,
    AppendBatches,
    Effect,
    FetchAnswer,
    FetchDecision,
    FetchRequest,
    HighWatermarkAdvanced,
    RequestReady,
    Transition,
    WriteEpochs,
)
from odradek_broker.core.partition.received import Verdict, judge_batches


class FollowerPartition(TruncatingFollower):
    """This broker follows `leader` in `leader_epoch`; `failed` says why it has stopped until new metadata come."""

    # --- Role ------------------------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> list[Effect]:
        """Become a follower (R-103): with epochs go on at the log's end (R-70, R-71), without cut first (L-1, R-73)."""
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
        if self.policy.truncates_to_high_watermark:
            if self.leader == self._previous_leader:
                return effects + self._enter(Phase.FETCHING, now_ms)
            return effects + self._cut(log.high_watermark, Phase.FETCHING, "L-1", {}, now_ms)
        asks = self.policy.asks_for_epoch_end or log.epochs.latest_epoch == NO_EPOCH
        return effects + self._enter(Phase.TRUNCATING if asks else Phase.FETCHING, now_ms)

    def update(self, registration: PartitionRegistration, now_ms: int) -> list[Effect]:
        """New metadata that leave this broker a follower. An older partition epoch is ignored (R-100).

        In the same leader epoch nothing restarts (R-103). A larger one starts again from the beginning, even with the
        same leader, which may have lost its leadership and come back with another log (R-104).
        """
        if registration.partition_epoch < self.partition_epoch or registration.leader_epoch < self.leader_epoch:
            return []
        if registration.leader_epoch == self.leader_epoch:
            self.partition_epoch = registration.partition_epoch
            return []
        self._previous_leader = self.held_leader
        self._take(registration)
        self.failed = None
        self._in_flight = None
        self._answer = None
        self._on_disk_phase = None
        self._backoff.reset()
        return self.start(now_ms)

    # --- Records ---------------------------------------------------------------------------------------------------

    def on_fetch_answer(self, answer: FetchAnswer, now_ms: int) -> list[Effect]:
        """The leader answered a fetch (R-79 to R-86). One that does not fit the request in flight is dropped (R-80)."""
        request = self._in_flight
        if not isinstance(request, FetchRequest) or answer.fetch_offset != request.fetch_offset:
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
        if verdict is Verdict.INVALID:
            return self.on_corrupt_answer(now_ms)
        if verdict is Verdict.BELOW_LOG_END:
            first = answer.headers[0]
            return self._fail(
                f"batch {first.base_offset} to {first.last_offset} below the end {log.log_end_offset}", "R-85"
            )
        self._backoff.reset()
        self._answer = answer
        if verdict is Verdict.RESTARTS_LOG:
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
        log = self.log
        for header in headers:
            log.producers.update(header)
        log.log_end_offset = headers[-1].next_offset
        return [*self._follow_bounds(answer), *self._ready(now_ms)]

    def _follow_bounds(self, answer: FetchAnswer) -> list[Effect]:
        """Take over high watermark and log start offset. The former may fall, since the leader may be new (R-27)."""
        log = self.log
        effects: list[Effect] = []
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
        """Records below `offset` are on the disk; a position that waited for it may be told now.

        Within a back-off, too: until now there was no deadline at which it could have been asked.
        """
        log = self.log
        log.flushed_offset = max(log.flushed_offset, min(offset, log.log_end_offset))
        return [RequestReady()] if self.settings.flush_before_ack and self._can_ask() else []

    # --- Out of range ----------------------------------------------------------------------------------------------

    def on_restarted(self, offset: int, now_ms: int) -> list[Effect]:
        """A `RestartLog` was carried out: the log is empty and begins at `offset` (R-231)."""
        then, self._on_disk_phase = self._on_disk_phase, None
        assert then is not None, offset
        log = self.log
        log.log_start_offset = log.log_end_offset = log.high_watermark = log.flushed_offset = offset
        log.producers.clear()
        effects: list[Effect] = [WriteEpochs(())] if log.epochs.clear() else []
        if self._answer is not None:
            return effects + self._append(self._answer)
        return effects + self._enter(then, now_ms)

    # --- Consumers -------------------------------------------------------------------------------------------------

    def fetch_by_consumer(
        self, fetch_offset: int, current_leader_epoch: int, last_fetched_epoch: int, read_committed: bool, now_ms: int
    ) -> FetchDecision:
        """Followers serve no consumers yet (KIP-392, R-269)."""
        return fencing.refuse(self.log, self.refusal(current_leader_epoch))
