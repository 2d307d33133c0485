"""The follower's side of replication: find the leader, fetch from it, truncate what it lacks (R-207, R-210, R-214)."""

from __future__ import annotations

from odradek_proto.errors import ErrorCode

from odradek_broker.core.partition.epochs import UNDEFINED_EPOCH, EpochEntry
from odradek_broker.core.partition.messages import WriteEpochs
from odradek_broker.core.quorum.member import QuorumMember
from odradek_broker.core.quorum.messages import (
    NO_HIGH_WATERMARK,
    AppendFetched,
    Dial,
    Fail,
    Fetch,
    FetchSnapshot,
    FetchSnapshotAnswer,
    FlushLog,
    QuorumFetchAnswer,
    QuorumHighWatermarkAdvanced,
    SendRequest,
    SnapshotId,
    TruncateLog,
    Unanswered,
)
from odradek_broker.core.quorum.roles import Download, Follower, Unattached

LEADS_NOT = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.BROKER_NOT_AVAILABLE)
"""What a leader cannot say: a process that is starting or stopping does not lead, and it will never lead this epoch
again.
"""


class Following:
    """What a member does as a follower, and as an observer that looks for the leader."""

    def __init__(self, member: QuorumMember) -> None:
        self._member = member

    # --- asking ---

    def fetch(self, now_ms: int) -> None:
        """Fetch if the last fetch is done and all that it brought is on the disk: the offset is a durable
        acknowledgement.
        """
        member, role = self._member, self._member.role
        if isinstance(role, Follower) and role.may_fetch(now_ms):
            role.in_flight = SendRequest(role.leader_id, self._next_request(role))
            member.emit(role.in_flight)
        elif isinstance(role, Unattached) and role.search is not None and role.search.may_ask(now_ms):
            role.search.in_flight = SendRequest(role.search.next_voter(), self._request(0))
            role.search.asked += 1
            member.emit(role.search.in_flight)

    def _next_request(self, role: Follower) -> Fetch | FetchSnapshot:
        member, download = self._member, role.download
        if download is None:
            return self._request(member.config.fetch_max_wait_ms)
        config = member.config
        return FetchSnapshot(
            config.node_id,
            member.state.epoch,
            download.snapshot,
            download.position,
            config.fetch_max_bytes,
            member.state.catching_up,
            member.has_voted_for(role.leader_id),
        )

    def _request(self, max_wait_ms: int) -> Fetch:
        member = self._member
        return Fetch(
            member.config.node_id,
            member.state.epoch,
            member.log.log_end_offset,
            member.last_epoch(),
            member.log.high_watermark,
            max_wait_ms,
            member.config.fetch_max_bytes,
            member.state.catching_up,
            member.has_voted_for(member.role.leader_id),
        )

    def on_time(self, now_ms: int) -> None:
        member, role = self._member, self._member.role
        if isinstance(role, Follower) and role.timed_out(now_ms):
            member.tell("leader_lost", "R-210", leader=role.leader_id, reason="fetch timeout")
            if member.config.is_voter:
                member.become_prospective(now_ms)
            else:
                member.become_unattached(member.state.epoch, now_ms)
        self.fetch(now_ms)

    # --- answers ---

    def on_fetch_answer(self, send: SendRequest, answer: QuorumFetchAnswer, now_ms: int) -> None:
        role = self.expects(send, answer, now_ms)
        if role is None:
            return
        if answer.error is ErrorCode.NONE and answer.epoch == self._member.state.epoch:
            self._on_heard(role, answer, now_ms)
        elif answer.error in LEADS_NOT:
            self._member.lost_leader(answer.error.name, now_ms)
        else:
            self._member.back_off(role, now_ms)

    def on_snapshot_answer(
        self, send: SendRequest, answer: FetchSnapshotAnswer, now_ms: int
    ) -> tuple[Follower, Download] | None:
        """The role and the download that this piece belongs to; None when nobody waits for it any more."""
        role = self.expects(send, answer, now_ms)
        if role is None:
            return None
        if answer.error in LEADS_NOT:
            self._member.lost_leader(answer.error.name, now_ms)
            return None
        return None if role.download is None else (role, role.download)

    def expects(
        self, send: SendRequest, answer: QuorumFetchAnswer | FetchSnapshotAnswer, now_ms: int
    ) -> Follower | None:
        """Take note of what the answer says of epoch and leader. The role that asked, if it is still this node's."""
        member, role = self._member, self._member.role
        if isinstance(role, Unattached):
            self._on_found(role, send, now_ms)
        expected = isinstance(role, Follower) and role.in_flight is send
        if isinstance(role, Follower) and expected:
            role.in_flight = None
        member.observe(answer.epoch, answer.leader_id, now_ms, says=send.peer_id)
        if role is not member.role or not isinstance(role, Follower) or not expected:
            return None
        return role

    def _on_found(self, role: Unattached, send: SendRequest, now_ms: int) -> None:
        """A voter has answered an observer, or nobody has. Ask the next one, after a pause that grows with every
        round.
        """
        search = role.search
        if search is not None and search.in_flight is send:
            search.in_flight = None
            rounds = (search.asked - 1) // len(search.voters)
            search.at_ms = now_ms + self._member.backoff_ms(rounds)

    def _on_heard(self, role: Follower, answer: QuorumFetchAnswer, now_ms: int) -> None:
        member, log = self._member, self._member.log
        role.heard(now_ms, member.config.fetch_timeout_ms)
        member.proved_in_epoch = answer.epoch
        if answer.snapshot is not None:
            self._begin_download(role, answer.snapshot)
            return
        if answer.diverging is not None:  # the rest of the log may be another one, too: no high watermark (KAFKA-14704)
            self._truncate(answer.diverging)
            self.fetch(now_ms)
            return
        if answer.headers and not self._append(role, answer):
            return
        reached = min(log.log_end_offset, answer.high_watermark)
        if reached > log.high_watermark:
            old, log.high_watermark = log.high_watermark, reached
            member.emit(QuorumHighWatermarkAdvanced(old, reached))
        if answer.caught_up and NO_HIGH_WATERMARK < answer.high_watermark <= log.flushed_offset:
            member.caught_up(log.log_end_offset)  # below it lies all that was committed in older epochs
        self.fetch(now_ms)

    def _begin_download(self, role: Follower, snapshot: SnapshotId) -> None:
        """The leader no longer has the records that this node needs, and says which snapshot it has instead (R-208).

        A snapshot below the own high watermark would take back what was promised.
        """
        member, log = self._member, self._member.log
        if snapshot.end_offset <= log.high_watermark:
            found = f"the snapshot at {snapshot.end_offset} of epoch {snapshot.epoch}"
            member.emit(Fail(f"leader {role.leader_id} offers {found}, below the high watermark {log.high_watermark}"))
            return
        member.tell(
            "snapshot_fetch_began",
            "R-208",
            leader=role.leader_id,
            end_offset=snapshot.end_offset,
            snapshot_epoch=snapshot.epoch,
            leo=log.log_end_offset,
        )
        role.download = Download(snapshot)

    def _truncate(self, diverging: EpochEntry) -> None:
        """Cut to where both logs can still agree (R-210). What is below the high watermark was promised: cutting it
        is fatal.
        """
        member, log = self._member, self._member.log
        own = log.epochs.end_offset_for(diverging.epoch, log.log_end_offset)
        if own.epoch == UNDEFINED_EPOCH:
            offset = min(diverging.offset, log.log_end_offset)
        elif own.epoch == diverging.epoch:
            offset = min(diverging.offset, own.offset)
        else:
            offset = own.offset
        if offset < log.high_watermark:
            member.emit(Fail(f"asked to truncate to {offset}, below the high watermark {log.high_watermark}"))
            return
        reason = f"leader epoch {diverging.epoch} ended at {diverging.offset} (leader {member.role.leader_id})"
        member.tell("truncated", "R-210", to=offset, leo=log.log_end_offset, reason=reason)
        log.log_end_offset = offset
        log.flushed_offset = min(log.flushed_offset, offset)
        member.emit(TruncateLog(offset, reason))
        if log.epochs.truncate_from_end(offset):
            if offset == log.log_start_offset and member.snapshots and member.snapshots[0].id.end_offset == offset:
                log.epochs.assign(member.snapshots[0].id.epoch, offset)  # of the last record below
            member.emit(WriteEpochs(log.epochs.entries))

    def _append(self, role: Follower, answer: QuorumFetchAnswer) -> bool:
        """Append what the leader sent, exactly at the end of the log. Anything else is no fetch's answer, and fatal."""
        member, log = self._member, self._member.log
        offset, epoch = log.log_end_offset, member.last_epoch()
        new_epochs = False
        for header in answer.headers:
            if header.base_offset != offset or not epoch <= header.leader_epoch <= member.state.epoch:
                found = f"a batch at {header.base_offset} of epoch {header.leader_epoch}"
                member.emit(Fail(f"leader {role.leader_id} sent {found} where {offset} of epoch {epoch} was to follow"))
                return False
            offset, epoch = header.next_offset, header.leader_epoch
        for header in answer.headers:
            new_epochs |= log.epochs.assign(header.leader_epoch, header.base_offset)
        if new_epochs:
            member.emit(WriteEpochs(log.epochs.entries))
        log.log_end_offset = offset
        role.flushed = False
        member.emit(AppendFetched(answer.batches, answer.headers), FlushLog())
        return True

    def on_fetch_unanswered(self, send: SendRequest, why: Unanswered, now_ms: int) -> None:
        """A refusal proves that the leader is gone; a connection that broke is a reason to look."""
        member, role = self._member, self._member.role
        if isinstance(role, Unattached):
            self._on_found(role, send, now_ms)
        if not isinstance(role, Follower) or role.in_flight is not send:
            return
        role.in_flight = None
        if why is Unanswered.REFUSED:
            member.lost_leader("connection refused", now_ms)
        elif why is Unanswered.BROKEN:
            role.dialling = True
            member.emit(Dial(role.leader_id))
        else:
            role.fetch_at_ms = now_ms + member.config.retry_backoff_ms

    def on_dialled(self, peer_id: int, refused: bool, now_ms: int) -> None:
        member, role = self._member, self._member.role
        if not isinstance(role, Follower) or not (role.dialling or role.looking) or role.leader_id != peer_id:
            return
        waited, role.dialling, role.looking = role.dialling, False, False
        if refused:
            member.lost_leader("connection refused", now_ms)
        elif waited:
            member.back_off(role, now_ms)

    def on_flushed(self, now_ms: int) -> None:
        member, role = self._member, self._member.role
        if isinstance(role, Follower) and member.log.flushed_offset >= member.log.log_end_offset:
            role.flushed = True
            self.fetch(now_ms)
