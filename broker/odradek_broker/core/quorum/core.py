"""The core of the metadata quorum: events in, effects out (A13; KIP-595, KIP-996, KIP-1166).

Rules of this module. Every step gets the time and returns its effects in the order in which they must be carried out,
disk before messages: no response promises what is not yet on disk. The parts share one `QuorumMember` and never call
each other.

    Elections     votes, beginnings and ends of leaderships
    Replication   the leader's side
    Following     the followers' side
    Snapshots     replace old records, on this node and for others
    Plausibility  limits on messages from other nodes
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from odradek_proto.values import Value

from odradek_broker.core.partition.messages import ReplicaLog
from odradek_broker.core.quorum.elections import Elections
from odradek_broker.core.quorum.following import Following
from odradek_broker.core.quorum.leader import Leader
from odradek_broker.core.quorum.member import QuorumMember, Role
from odradek_broker.core.quorum.messages import (
    Answer,
    BeginEpoch,
    Effect,
    EndEpoch,
    EpochAnswer,
    Fetch,
    FetchSnapshot,
    FetchSnapshotAnswer,
    QuorumConfig,
    QuorumFetchAnswer,
    QuorumReply,
    QuorumState,
    Request,
    SegmentSize,
    SendRequest,
    Snapshot,
    SnapshotId,
    Token,
    Unanswered,
    Vote,
    VoteAnswer,
)
from odradek_broker.core.quorum.plausible import Plausibility
from odradek_broker.core.quorum.replication import Replication
from odradek_broker.core.quorum.roles import Resigned, earliest
from odradek_broker.core.quorum.snapshots import QuorumSnapshots


class QuorumStatus(Value, frozen=True):
    """Where a node of the quorum is; offsets are those of the metadata log, the high watermark is exclusive."""

    epoch: int
    high_watermark: int
    log_end_offset: int
    leads: bool
    log_start_offset: int


class QuorumCore:
    """One node of the quorum, stepped by its rim. `log` and `state` are as they were found on the disk, all of it
    flushed.
    """

    def __init__(
        self,
        config: QuorumConfig,
        log: ReplicaLog,
        state: QuorumState,
        rng: random.Random,
        snapshots: Sequence[Snapshot] = (),
    ) -> None:
        """`snapshots` are sound, the oldest first. The log starts at the end of one of them, or at 0."""
        self._member = QuorumMember(config, log, state, rng, snapshots)
        self._elections = Elections(self._member)
        self._replication = Replication(self._member)
        self._following = Following(self._member)
        self._snapshots = QuorumSnapshots(self._member)
        self._plausibility = Plausibility(self._member)

    # --- what is known ---

    @property
    def role(self) -> Role:
        return self._member.role

    @property
    def state(self) -> QuorumState:
        return self._member.state

    @property
    def log(self) -> ReplicaLog:
        return self._member.log

    @property
    def leader_id(self) -> int:
        return self._member.role.leader_id

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return self._member.snapshots[-1].id if self._member.snapshots else None

    def quorum_status(self) -> QuorumStatus:
        """The state that changes while the node runs, in one call, for frequent callers."""
        member = self._member
        log = member.log
        return QuorumStatus(
            member.state.epoch,
            log.high_watermark,
            log.log_end_offset,
            isinstance(member.role, Leader),
            log.log_start_offset,
        )

    def next_deadline_ms(self) -> int | None:
        """When `on_time` has to be called, unless something else happens before."""
        return earliest((self._member.role.next_deadline_ms(), self._snapshots.next_deadline_ms()))

    # --- what happens ---

    def start(self, now_ms: int) -> list[Effect]:
        """Take the role that follows from the state on disk (R-202).

        A node that led resigns permanently from that epoch: it may have lost records that it gave offsets to, and an
        offset of an epoch must mean one record forever.
        """
        member, state = self._member, self._member.state
        newest = member.log.epochs.latest_epoch
        if member.config.is_voter and len(member.config.voters) == 1:
            member.become_candidate(now_ms, above=max(state.epoch, newest))  # nobody else can be asked
        elif newest > state.epoch:
            member.become_unattached(newest, now_ms)
        elif state.leader_id == member.config.node_id and member.config.is_voter:
            member.become_resigned((), "R-202", now_ms)
        elif state.leader_id in member.config.voters:
            member.become_follower(state.leader_id, state.epoch, now_ms)
        elif state.voted_id == member.config.node_id and member.config.is_voter:
            member.become_candidate(now_ms, above=state.epoch - 1)
        else:
            member.become_unattached(state.epoch, now_ms)
        return self.on_time(now_ms)

    def on_request(self, request: Request, token: Token, now_ms: int) -> list[Effect]:
        """A request came; its `QuorumReply` is an effect of this step or, for a fetch that waits, of a later one."""
        refusal, epoch = self._plausibility.refusal(request, now_ms), self._member.state.epoch
        if refusal is not None:
            self._member.emit(QuorumReply(token, refusal))
            return self.on_time(now_ms)
        match request:
            case Vote():
                self._elections.on_vote(request, token, now_ms)
            case BeginEpoch():
                self._elections.on_begin(request, token, now_ms)
            case EndEpoch():
                self._elections.on_end(request, token, now_ms)
            case Fetch():
                self._replication.on_fetch(request, token, now_ms)
            case FetchSnapshot():
                self._snapshots.on_fetch(request, token, now_ms)
        self._plausibility.raised(epoch, now_ms, asked=False)
        return self.on_time(now_ms)

    def on_answer(self, send: SendRequest, answer: Answer, now_ms: int) -> list[Effect]:
        """The peer has responded to a `send`. An impossible response counts as none."""
        if not self._plausibility.believes(answer, now_ms):
            return self.on_unanswered(send, Unanswered.TIMED_OUT, now_ms)
        epoch = self._member.state.epoch
        match answer:
            case VoteAnswer():
                self._elections.on_vote_answer(send, answer, now_ms)
            case EpochAnswer():
                self._elections.on_epoch_answer(send, answer, now_ms)
                if isinstance(self._member.role, Leader):
                    self._replication.wake(self._member.role)
            case QuorumFetchAnswer():
                self._following.on_fetch_answer(send, answer, now_ms)
            case FetchSnapshotAnswer():
                waiting = self._following.on_snapshot_answer(send, answer, now_ms)
                if waiting is not None:
                    self._snapshots.on_chunk(*waiting, answer, now_ms)
        self._plausibility.raised(epoch, now_ms, asked=True)
        return self.on_time(now_ms)

    def on_unanswered(self, send: SendRequest, why: Unanswered, now_ms: int) -> list[Effect]:
        match send.request:
            case Vote():
                self._elections.on_vote_unanswered(send, why, now_ms)
            case EndEpoch():
                self._elections.on_epoch_unanswered(send, now_ms)
            case Fetch() | FetchSnapshot():
                self._following.on_fetch_unanswered(send, why, now_ms)
            case BeginEpoch():
                pass  # sent again in time
        return self.on_time(now_ms)

    def on_dialled(self, peer_id: int, refused: bool, now_ms: int) -> list[Effect]:
        """The connection attempt to the peer has ended; `refused` means that certainly no process listens there."""
        self._following.on_dialled(peer_id, refused, now_ms)
        return self.on_time(now_ms)

    def on_flushed(self, offset: int, now_ms: int) -> list[Effect]:
        """Everything below `offset` is on the disk."""
        member = self._member
        assert offset <= member.log.log_end_offset, (offset, member.log.log_end_offset)
        member.log.flushed_offset = max(member.log.flushed_offset, offset)
        if isinstance(member.role, Leader):
            self._replication.advance(member.role, now_ms)
        else:
            self._following.on_flushed(now_ms)
        return self.on_time(now_ms)

    def on_applied(self, size: int, now_ms: int) -> list[Effect]:
        """The state machine has taken in the committed records, so many bytes of batches.

        This is a part of the step that has committed them: all else that is due by now has happened in it.
        """
        self._snapshots.on_applied(size, now_ms)
        return self._emitted(now_ms)

    def on_snapshot_taken(
        self, snapshot: Snapshot | None, segments: Sequence[SegmentSize], now_ms: int, wall_ms: int
    ) -> list[Effect]:
        """The snapshot of `TakeSnapshot` is on disk; None: it was given up. `segments` are the closed ones."""
        self._snapshots.on_taken(snapshot, segments, wall_ms)
        return self.on_time(now_ms)

    def on_snapshot_checked(self, snapshot_id: SnapshotId, found: Snapshot | str, now_ms: int) -> list[Effect]:
        """The result of `CheckSnapshot`: a valid snapshot, or its error."""
        self._snapshots.on_checked(snapshot_id, found, now_ms)
        return self.on_time(now_ms)

    def append(self, records: Sequence[bytes], now_ms: int, epoch: int | None = None) -> tuple[int, list[Effect]]:
        """Append one atomic batch as the leader; base offset and effects. Raises `NotLeader` and `ValueError`."""
        base_offset = self._replication.append(records, epoch)
        return base_offset, self.on_time(now_ms)

    def answer_fetches(self, now_ms: int) -> list[Effect]:
        """A turn has passed since `AnswerFetches`."""
        if isinstance(self._member.role, Leader):
            self._replication.answer_fetches(self._member.role, now_ms)
        return self.on_time(now_ms)

    def resign(self, now_ms: int) -> list[Effect]:
        """Give the leadership up, if this node has it."""
        if isinstance(self._member.role, Leader):
            self._member.become_resigned(self._member.role.successors(), "R-212", now_ms)
        return self.on_time(now_ms)

    @property
    def end_epochs_pending(self) -> bool:
        """Whether a node that resigned still has voters to notify."""
        role = self._member.role
        return isinstance(role, Resigned) and role.retries.pending

    def forget(self, token: Token) -> None:
        """The sender of this fetch has disconnected."""
        if isinstance(self._member.role, Leader):
            self._member.role.waiting.pop(token, None)

    def on_time(self, now_ms: int) -> list[Effect]:
        """Let everything happen that is due by now. Every other step ends with it."""
        member, role = self._member, self._member.role
        if isinstance(role, Leader):
            self._replication.on_time(role, now_ms)
        if not isinstance(member.role, Leader):
            self._elections.on_time(now_ms)
            self._following.on_time(now_ms)
            if isinstance(member.role, Leader):  # it tells the voters in the step in which it was elected
                self._replication.on_time(member.role, now_ms)
        return self._emitted(now_ms)

    def _emitted(self, now_ms: int) -> list[Effect]:
        self._snapshots.on_time(now_ms)
        effects, self._member.effects = self._member.effects, []
        return effects
