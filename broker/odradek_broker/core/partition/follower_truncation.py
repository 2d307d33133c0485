"""How a follower's log is made a prefix of its leader's: by divergence, by the ends of epochs, by the leader's range.

Rules of this module. A cut below the own high watermark is allowed, since an unclean election may ask for it, and is
written down before it happens (R-92). A cut at the log's end removes no record, but an epoch that never got one
(R-65). `Truncate` and `RestartLog` end a step; the rim reports when they are done, and the step goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek_proto.errors import ErrorCode

from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.core.partition.follower_asking import AskingFollower, Phase
from odradek_broker.core.partition.messages import (
    NO_EPOCH,
    Effect,
    EpochRequest,
    OffsetsRequest,
    RestartLog,
    Transition,
    Truncate,
    WriteEpochs,
)
from odradek_broker.core.partition.truncation import cut_for


class TruncatingFollower(AskingFollower):
    """What a follower cuts. `_on_disk_phase` is set while the disk carries out a cut; that phase comes after it."""

    def _enter(self, phase: Phase, now_ms: int) -> list[Effect]:
        """Go on with a phase. Without any epoch there is nothing to ask for: cut at the high watermark (R-73)."""
        self.phase = phase
        if phase is Phase.TRUNCATING and self.log.epochs.latest_epoch == NO_EPOCH:
            return self._cut(self.log.high_watermark, Phase.FETCHING, "R-73", {}, now_ms)
        return self._ready(now_ms)

    def _on_error(self, error: ErrorCode, now_ms: int) -> list[Effect]:
        """The leader refused (R-78, R-83, R-90, R-91)."""
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            facts = {"error": error.name, "leader": self.leader, "leader_epoch": self.leader_epoch}
            fenced = Transition("fenced", "R-91", facts)
            return [fenced, *self._fail(f"leader {self.leader} knows an epoch above {self.leader_epoch}", "R-91")]
        if error is ErrorCode.OFFSET_OUT_OF_RANGE and self.phase is not Phase.OUT_OF_RANGE:
            return self._enter(Phase.OUT_OF_RANGE, now_ms)
        self._backoff.delay(now_ms, self.settings.replica_fetch_backoff_ms)
        return []

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
        return self._cut(cut.offset, Phase.TRUNCATING if asks_again else Phase.FETCHING, rule, facts, now_ms)

    def _cut(self, offset: int, then: Phase, rule: str, facts: Mapping[str, object], now_ms: int) -> list[Effect]:
        """Truncate to `offset`, and go on with a phase.

        At the log's end no record goes, but an epoch that never got one does: it would be asked for again and again
        (R-65, KAFKA-10706). When nothing at all could go, the partition waits a little instead of asking in circles.
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
            reason = f"{rule}: leader {self.leader} in epoch {self.leader_epoch}"
            return [Transition("truncated", rule, facts), Truncate(offset, reason)]
        dropped = log.epochs.truncate_from_end(end)
        if not dropped and rule == "R-79":
            self._backoff.delay(now_ms, self.settings.replica_fetch_backoff_ms)
        effects: list[Effect] = [WriteEpochs(log.epochs.entries)] if dropped else []
        return effects + self._enter(then, now_ms)

    def on_truncated(self, log_end_offset: int, now_ms: int) -> list[Effect]:
        """A `Truncate` was carried out, producer state included; storage may have cut lower than asked (R-230).

        With odradek.fsync=before-ack the cut is on the disk by now.
        """
        then, self._on_disk_phase = self._on_disk_phase, None
        log = self.log
        assert then is not None, log_end_offset
        assert log_end_offset <= log.log_end_offset, (log_end_offset, log.log_end_offset)
        log.log_end_offset = log_end_offset
        log.flushed_offset = min(log.flushed_offset, log_end_offset)
        log.log_start_offset = min(log.log_start_offset, log_end_offset)
        log.high_watermark = min(log.high_watermark, log_end_offset)
        effects: list[Effect] = []
        if log.epochs.truncate_from_end(log_end_offset):
            effects.append(WriteEpochs(log.epochs.entries))
        return effects + self._enter(then, now_ms)

    # --- Out of range ------------------------------------------------------------------------------------------------

    def on_offsets_answer(
        self, request: OffsetsRequest, error: ErrorCode, log_start_offset: int, log_end_offset: int, now_ms: int
    ) -> list[Effect]:
        """The leader said where its log begins and ends (R-84): cut at its end, or start anew at its start."""
        if request != self._in_flight:
            return []
        self._in_flight = None
        if error != ErrorCode.NONE:
            return self._on_error(error, now_ms)
        log = self.log
        facts = {"leader_log_start_offset": log_start_offset, "leader_log_end_offset": log_end_offset}
        if log_end_offset < log.log_end_offset:
            return self._cut(log_end_offset, Phase.FETCHING, "R-84", facts, now_ms)
        if log_start_offset > log.log_end_offset:
            return self._restart(log_start_offset, "R-84", facts | {"log_end_offset": log.log_end_offset})
        # We are in its range now, but were not a moment ago: it moved, or it does not know our newest epoch.
        self._backoff.delay(now_ms, self.settings.replica_fetch_backoff_ms)
        return self._enter(Phase.FETCHING, now_ms)

    def _restart(self, offset: int, rule: str, facts: Mapping[str, object]) -> list[Effect]:
        self._on_disk_phase = Phase.FETCHING
        reason = f"{rule}: leader {self.leader} in epoch {self.leader_epoch}"
        return [Transition("log_restarted", rule, {"to": offset, **facts}), RestartLog(offset, reason)]
