"""A member of the quorum: its log, its durable state, its role, and the transitions between roles.

Rules of this module. The epoch never falls. Per epoch there is one vote and one leader at most, and both are persisted
before anything follows from them (R-201). A leader that loses leadership answers all waiting requests (R-209).
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from odradek_proto.errors import ErrorCode
from odradek_proto.values import replace

from odradek_broker.core.partition.messages import ReplicaLog, Transition, WriteEpochs
from odradek_broker.core.quorum.leader import Leader
from odradek_broker.core.quorum.messages import (
    LAST_EPOCH,
    NO_HIGH_WATERMARK,
    NO_NODE,
    AppendLeaderChange,
    Effect,
    Fail,
    FlushLog,
    LeaderChanged,
    LeadershipEnded,
    PersistState,
    QuorumConfig,
    QuorumFetchAnswer,
    QuorumReply,
    QuorumState,
    Snapshot,
)
from odradek_broker.core.quorum.roles import (
    Ballot,
    Candidate,
    Follower,
    Prospective,
    Resigned,
    Retries,
    Search,
    Unattached,
)

Role = Unattached | Prospective | Candidate | Follower | Leader | Resigned

SOON_MS = 150  # nobody leads: how long the slowest voter waits, at random, before it asks whether it would win
LARGEST_DOUBLING = 6  # of a back-off
NO_EPOCH = -1
EPOCHS_REMEDY = 'docs/troubleshooting.md, "The quorum-state of a controller is of no use"'


class QuorumMember:
    """The state shared by all parts of the core. Effects are collected in `effects`, in order, and taken out after each
    step.
    """

    def __init__(
        self,
        config: QuorumConfig,
        log: ReplicaLog,
        state: QuorumState,
        rng: random.Random,
        snapshots: Sequence[Snapshot],
    ) -> None:
        self.config = config
        self.log = log
        self.snapshots = list(snapshots)  # on the disk, the oldest first
        self.state = state
        self.rng = rng
        self.effects: list[Effect] = []
        self.role: Role = Unattached(None)
        self.lost_elections = 0  # one after the other
        self.gone_in_epoch = NO_EPOCH  # there is proof that this epoch's leader leads no more
        self.proved_in_epoch = NO_EPOCH  # this epoch's leader has answered a fetch as one
        self._announced = LeaderChanged(NO_NODE, state.epoch)

    # --- small things ---

    def emit(self, *effects: Effect) -> None:
        self.effects.extend(effects)

    def tell(self, event: str, rule: str, **facts: object) -> None:
        """A line of evidence, in front of the effects that it speaks of."""
        self.emit(Transition(event, rule, {"node": self.config.node_id, "epoch": self.state.epoch, **facts}))

    def last_epoch(self) -> int:
        """The epoch of the log's last record, 0 for an empty log: the form used in requests."""
        return max(self.log.epochs.latest_epoch, 0)

    def election_timeout_ms(self) -> int:
        """Random in [T, 2T), so that voters seldom collide (R-204)."""
        return self.rng.randrange(self.config.election_timeout_ms, 2 * self.config.election_timeout_ms)

    def backoff_ms(self, failures: int) -> int:
        """20, 40, 80 ms ... : before a retry at a peer."""
        return min(self.config.retry_backoff_ms << min(failures, LARGEST_DOUBLING), self.config.election_backoff_max_ms)

    def back_off(self, role: Follower, now_ms: int) -> None:
        """Retry at the leader, after a pause that grows."""
        role.fetch_at_ms = now_ms + self.backoff_ms(role.failures)
        role.failures += 1

    def persist(self, state: QuorumState) -> None:
        assert state.epoch >= self.state.epoch, (state, self.state)
        if state == self.state:
            return
        self.state = state
        self.emit(PersistState(state))

    def state_in(self, epoch: int, leader_id: int, voted_id: int) -> QuorumState:
        return QuorumState(epoch, leader_id, voted_id, self.state.catching_up)

    def votes_provisionally(self, candidates_end_offset: int) -> bool:
        """Whether this node's vote is insufficient evidence: it may lack records that it has once acknowledged (R-217).

        If neither it nor the candidate has any record, there is nothing to lack: so a new cluster can start.
        """
        return self.state.catching_up and (self.log.log_end_offset > 0 or candidates_end_offset > 0)

    def caught_up(self, end_offset: int) -> None:
        """Everything that was ever committed below `end_offset` is on the disk: this voter counts as any other."""
        if self.state.catching_up:
            self.tell("voter_caught_up", "R-217", leo=end_offset)
            self.persist(replace(self.state, catching_up=False))

    def fetch_error(self, error: ErrorCode) -> QuorumFetchAnswer:
        return QuorumFetchAnswer(error, self.role.leader_id, self.state.epoch)

    def has_voted_for(self, leader_id: int) -> bool:
        """Whether this node's vote of this epoch went to that leader, as far as it remembers."""
        return self.state.voted_id == leader_id != NO_NODE

    def leader_high_watermark(self) -> int:
        known = self.role.high_watermark if isinstance(self.role, Leader) else None
        return NO_HIGH_WATERMARK if known is None else known

    # --- from role to role ---

    def enter(self, role: Role) -> None:
        old, self.role = self.role, role
        if isinstance(old, Leader):
            self.emit(LeadershipEnded(old.epoch))
            for token in old.waiting:
                self.emit(QuorumReply(token, self.fetch_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)))
        now_known = LeaderChanged(role.leader_id, self.state.epoch)
        if now_known != self._announced:
            self._announced = now_known
            self.emit(now_known)

    def become_unattached(
        self, epoch: int, now_ms: int, *, election_in_ms: int | None = None, voted: int = NO_NODE
    ) -> None:
        """Know no live leader. A voter soon starts an election: after `election_in_ms`, else 0 to 150 ms; an observer
        searches.

        In the same epoch, the persisted leader and vote stay: they hold for the whole epoch.
        """
        if epoch > self.state.epoch:
            self.persist(self.state_in(epoch, NO_NODE, voted))
        elif voted != NO_NODE:
            assert self.state.leader_id == NO_NODE, (self.state, voted)
            assert self.state.voted_id in (NO_NODE, voted), (self.state, voted)
            self.persist(self.state_in(epoch, NO_NODE, voted))
        if not self.config.is_voter:
            voters = list(self.config.voters)
            self.rng.shuffle(voters)
            self.enter(Unattached(None, Search(voters, now_ms)))
            return
        wait_ms = self.rng.randint(0, SOON_MS) if election_in_ms is None else election_in_ms
        self.enter(Unattached(now_ms + wait_ms))

    def _ballot(self, now_ms: int) -> Ballot:
        """The node's own vote is as good as it would be for another one with this log."""
        provisional = self.votes_provisionally(self.log.log_end_offset)
        return Ballot(self.config.node_id, self.config.voters, now_ms, provisional)

    def become_prospective(self, now_ms: int) -> None:
        """Check whether there would be a majority (KIP-996). A single voter has no other to ask."""
        if len(self.config.voters) == 1:
            self.become_candidate(now_ms)
            return
        ballot = self._ballot(now_ms)
        self.enter(Prospective(ballot, now_ms + self.election_timeout_ms()))

    def become_candidate(self, now_ms: int, *, above: int | None = None) -> None:
        """Open the epoch after this one, or after `above`, with a vote for oneself (R-204).

        A candidate that restarted carries on with the epoch that it had opened (R-202).
        """
        epoch = (self.state.epoch if above is None else above) + 1
        if epoch > LAST_EPOCH:
            self.emit(Fail(f"epoch {LAST_EPOCH} was the last one: no leader can be elected any more ({EPOCHS_REMEDY})"))
            return
        self.tell("became_candidate", "R-204", epoch=epoch, leo=self.log.log_end_offset)
        self.persist(self.state_in(epoch, NO_NODE, self.config.node_id))
        ballot = self._ballot(now_ms)
        self.enter(Candidate(ballot, now_ms + self.election_timeout_ms()))
        if ballot.won:
            self.become_leader(ballot, now_ms)

    def become_leader(self, ballot: Ballot, now_ms: int) -> None:
        """Adopt the epoch, and open it with a record of its own, which is the first that can be committed (R-205,
        R-206).
        """
        epoch, start = self.state.epoch, self.log.log_end_offset
        self.tell("leader_elected", "R-205", start=start, granted=tuple(sorted(ballot.granted)))
        self.lost_elections = 0
        self.persist(QuorumState(epoch, self.config.node_id, self.config.node_id))  # and never catching up
        if self.log.epochs.assign(epoch, start):
            self.emit(WriteEpochs(self.log.epochs.entries))
        self.log.log_end_offset = start + 1
        self.emit(AppendLeaderChange(start, epoch, self.config.voters, tuple(sorted(ballot.granted))), FlushLog())
        self.enter(Leader(self.config, epoch, start, now_ms, ballot.electors))

    def become_follower(self, leader_id: int, epoch: int, now_ms: int) -> None:
        """Follow the leader of an epoch."""
        role = self.role
        if isinstance(role, Follower) and epoch == self.state.epoch and role.leader_id == leader_id:
            return
        self.tell("became_follower", "R-213", leader=leader_id, epoch=epoch, leo=self.log.log_end_offset)
        self.lost_elections = 0
        self.gone_in_epoch = NO_EPOCH
        voted = self.state.voted_id if epoch == self.state.epoch else NO_NODE
        self.persist(self.state_in(epoch, leader_id, voted))
        follower = Follower(leader_id, now_ms + self.config.fetch_timeout_ms, now_ms)
        follower.flushed = self.log.flushed_offset >= self.log.log_end_offset
        self.enter(follower)

    def become_resigned(self, successors: tuple[int, ...], rule: str, now_ms: int) -> None:
        """Lead no longer, and notify the voters (R-212). The node may be a candidate in the next epoch, but leaves the
        first try to the others.
        """
        self.tell("resigned", rule, leo=self.log.log_end_offset, successors=successors)
        election_at_ms = now_ms + SOON_MS + self.rng.randint(0, SOON_MS)
        self.enter(Resigned(successors, election_at_ms, Retries(self.config.other_voters, now_ms)))

    def lost_leader(self, reason: str, now_ms: int) -> None:
        """There is proof that the leader does not lead any more; there is no need to wait for a timeout (R-215)."""
        self.tell("leader_lost", "R-215", leader=self.role.leader_id, reason=reason)
        self.gone_in_epoch = self.state.epoch
        self.become_unattached(self.state.epoch, now_ms)

    def leader_is_gone(self, epoch: int, leader_id: int, says: int) -> bool:
        """Whether this node knows better than node `says`, which knows a leader of `epoch`.

        A voter that has not noticed yet still names a dead leader, and a node that followed it again would lose it
        again, until the last one has noticed. A message from the leader itself disproves the proof.
        """
        return epoch == self.gone_in_epoch and leader_id not in (NO_NODE, says)

    def observe(self, epoch: int, leader_id: int, now_ms: int, *, says: int) -> None:
        """Node `says` knows this epoch and perhaps its leader: follow what is newer (R-213)."""
        if self.leader_is_gone(epoch, leader_id, says):
            return
        known = leader_id if leader_id in self.config.voters and leader_id != self.config.node_id else NO_NODE
        if epoch > self.state.epoch and known == NO_NODE:
            self.become_unattached(epoch, now_ms)
        elif epoch > self.state.epoch or (epoch == self.state.epoch and self._may_follow(known, says)):
            self.become_follower(known, epoch, now_ms)

    def _may_follow(self, leader_id: int, says: int) -> bool:
        """Whether node `says`, which was asked, may name this leader of the current epoch.

        If another one is known, it may have been named by a third node (R-205 needs no proof), so both can only be
        confirmed by themselves: the known one does not lead, or the other one does. Two that have proved it, by an
        election or by records, are impossible, and fatal (R-213, R-218).
        """
        known = self.state.leader_id
        if leader_id == NO_NODE or known in (NO_NODE, leader_id):
            return leader_id != NO_NODE
        if says not in (known, leader_id):
            return False
        if says == leader_id and (known == self.config.node_id or self.proved_in_epoch == self.state.epoch):
            self.emit(Fail(f"epoch {self.state.epoch} has two leaders, {known} and {leader_id}"))
            return False
        return True
