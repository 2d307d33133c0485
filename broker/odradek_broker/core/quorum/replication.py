"""The leader's side of replication: answering fetches, raising the high watermark, appending (R-205 to R-211)."""

from __future__ import annotations

from collections.abc import Sequence

from odradek_proto.errors import ErrorCode
from odradek_proto.values import replace

from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.core.quorum.leader import Leader, WaitingFetch
from odradek_broker.core.quorum.member import QuorumMember
from odradek_broker.core.quorum.messages import (
    AnswerFetches,
    AppendRecords,
    BeginEpoch,
    Fetch,
    FlushLog,
    LeadershipBegan,
    NotLeader,
    QuorumFetchAnswer,
    QuorumHighWatermarkAdvanced,
    QuorumReply,
    ReplyRecords,
    SendRequest,
    Token,
)


class Replication:
    """A member as the leader; in any other role it redirects fetches."""

    def __init__(self, member: QuorumMember) -> None:
        self._member = member

    # --- fetches ---

    def on_fetch(self, fetch: Fetch, token: Token, now_ms: int) -> None:
        """Respond if there is news: records, a divergence, a high watermark that the sender does not know."""
        member, role = self._member, self._member.role
        error = self._fetch_error(fetch)
        if error is not ErrorCode.NONE or not isinstance(role, Leader):
            member.emit(QuorumReply(token, member.fetch_error(error)))
            return
        if self._needs_snapshot(fetch):
            role.hear(fetch, member.log.log_end_offset, now_ms)
            member.emit(QuorumReply(token, self._snapshot_answer(role)))  # no position, either
            return
        end = member.log.epochs.end_offset_for(fetch.last_epoch, member.log.log_end_offset)
        if end.epoch != fetch.last_epoch or end.offset < fetch.fetch_offset:
            member.emit(
                QuorumReply(token, self._answer(role, end))
            )  # no position: what it has is not what we have
            return
        for replica_id in (fetch.replica_id, *role.forget_silent(now_ms)):
            if (displaced := role.displace(replica_id)) is not None:
                del role.waiting[displaced]
                member.emit(QuorumReply(displaced, self._answer(role)))
        if role.keeps(fetch.replica_id):
            role.record(fetch, member.log.log_end_offset, now_ms)
        else:
            fetch = replace(fetch, max_wait_ms=0)
        self.advance(role, now_ms)
        self._confirm_leadership(role, now_ms)
        reply = self._reply(role, fetch, token, now_ms)
        if fetch.max_wait_ms <= 0 or fetch.replica_id < 0:
            member.emit(reply or QuorumReply(token, self._answer(role)))
            return
        role.waiting[token] = WaitingFetch(fetch, now_ms + fetch.max_wait_ms)
        if reply is not None:
            self.wake(role)

    def _fetch_error(self, fetch: Fetch) -> ErrorCode:
        state = self._member.state
        if fetch.epoch < state.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if fetch.epoch > state.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not isinstance(self._member.role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def _needs_snapshot(self, fetch: Fetch) -> bool:
        """Whether a snapshot leads further than the log does (R-208).

        Unlike Kafka, an epoch from before a snapshot counts only where the log starts: above it, the log can still show
        where both diverge, and a follower that is slightly behind does not get everything again.
        """
        member, log_start = self._member, self._member.log.log_start_offset
        if not member.snapshots:
            return False
        if fetch.fetch_offset == 0 or fetch.fetch_offset < log_start:
            return True  # quicker than the log, or the only way
        first = member.snapshots[0].id
        if first.end_offset != log_start:
            return False
        return fetch.last_epoch < first.epoch or (fetch.fetch_offset == log_start and fetch.last_epoch != first.epoch)

    def _answer(self, role: Leader, diverging: EpochEntry | None = None) -> QuorumFetchAnswer:
        member = self._member
        return QuorumFetchAnswer(
            ErrorCode.NONE,
            role.leader_id,
            role.epoch,
            member.leader_high_watermark(),
            member.log.log_start_offset,
            diverging,
        )

    def _snapshot_answer(self, role: Leader) -> QuorumFetchAnswer:
        return replace(self._answer(role), snapshot=self._member.snapshots[-1].id)

    def _confirm_leadership(self, role: Leader, now_ms: int) -> None:
        """A voter that may have lost its disk follows this leader: request confirmation from the others that it still
        leads (R-217).
        """
        for voter, peer_id in role.catch_ups.to_ask(now_ms):
            send = SendRequest(peer_id, BeginEpoch(role.leader_id, role.epoch))
            role.catch_ups.asked(voter, send)
            self._member.emit(send)

    def _reply(self, role: Leader, fetch: Fetch, token: Token, now_ms: int) -> QuorumReply | ReplyRecords | None:
        """The news for a fetch, None for none. Uncommitted records are sent too; a state machine reads up to the high
        watermark. A fetch that has waited may be one from before the log start by now.
        """
        if self._needs_snapshot(fetch):
            return QuorumReply(token, self._snapshot_answer(role))
        limit = self._member.log.log_end_offset
        caught_up = fetch.catching_up and role.catch_ups.has_caught_up(fetch, role.high_watermark, now_ms)
        answer = replace(self._answer(role), caught_up=caught_up) if caught_up else self._answer(role)
        if fetch.fetch_offset < limit:
            return ReplyRecords(token, answer, fetch.fetch_offset, limit, fetch.max_bytes)
        if caught_up or answer.high_watermark > fetch.high_watermark:
            return QuorumReply(token, answer)
        return None

    def wake(self, role: Leader) -> None:
        """There may be news for the fetches that wait (R-209, KIP-1166)."""
        if role.waiting and not role.answers_due:
            role.answers_due = True
            self._member.emit(AnswerFetches())

    def answer_fetches(self, role: Leader, now_ms: int) -> None:
        """Respond to every waiting fetch for which there is news."""
        role.answers_due = False
        for token, waiting in list(role.waiting.items()):
            reply = self._reply(role, waiting.fetch, token, now_ms)
            if reply is not None:
                del role.waiting[token]
                self._member.emit(reply)

    # --- progress ---

    def advance(self, role: Leader, now_ms: int) -> None:
        """Raise the high watermark if a majority has advanced, and notify the waiting requests."""
        member = self._member
        first = role.high_watermark is None
        if not role.advance(member.log.flushed_offset) or role.high_watermark is None:
            return
        old = member.log.high_watermark
        assert role.high_watermark >= old, (role.high_watermark, old)
        member.log.high_watermark = role.high_watermark
        member.emit(QuorumHighWatermarkAdvanced(old, role.high_watermark))
        if first:
            member.tell("leadership_began", "R-206", hw=role.high_watermark, after_ms=now_ms - role.began_ms)
            member.emit(LeadershipBegan(role.epoch))
        self.wake(role)

    def append(self, records: Sequence[bytes], epoch: int | None) -> int:
        """Append one atomic batch; returns its base offset. With `epoch`, only in that one: a decision based on an
        older state must not be written. Raises `NotLeader`, and `ValueError` for no records.
        """
        member, role = self._member, self._member.role
        if not isinstance(role, Leader) or (epoch is not None and epoch != role.epoch):
            raise NotLeader(role.leader_id, member.state.epoch)
        if not records:
            raise ValueError("a batch needs at least one record")
        base_offset = member.log.log_end_offset
        member.log.log_end_offset += len(records)
        member.emit(AppendRecords(base_offset, role.epoch, tuple(records)), FlushLog())
        self.wake(role)  # followers write while we flush
        return base_offset

    # --- time ---

    def on_time(self, role: Leader, now_ms: int) -> None:
        member = self._member
        lost_at_ms = role.quorum_lost_at_ms()
        if lost_at_ms is not None and now_ms >= lost_at_ms:
            member.become_resigned(role.successors(), "R-211", now_ms)
            return
        for token in role.expired(now_ms):
            waiting = role.waiting.pop(token)
            member.emit(self._reply(role, waiting.fetch, token, now_ms) or QuorumReply(token, self._answer(role)))
        for voter in role.voters_to_tell(now_ms):
            member.emit(SendRequest(voter, BeginEpoch(role.leader_id, role.epoch)))
