"""Votes, and the messages with which a leadership begins and ends (R-203, R-204, R-205, R-212, R-215)."""

from __future__ import annotations

from odradek_proto.errors import ErrorCode

from odradek_broker.core.quorum.leader import Leader
from odradek_broker.core.quorum.member import SOON_MS, QuorumMember
from odradek_broker.core.quorum.messages import (
    NO_NODE,
    BeginEpoch,
    Dial,
    EndEpoch,
    EpochAnswer,
    QuorumReply,
    SendRequest,
    Token,
    Unanswered,
    Vote,
    VoteAnswer,
)
from odradek_broker.core.quorum.roles import Candidate, Follower, Prospective, Resigned, Unattached


class Elections:
    """How a member stands in elections and takes part in those of others."""

    def __init__(self, member: QuorumMember) -> None:
        self._member = member

    # --- as a voter ---

    def on_vote(self, vote: Vote, token: Token, now_ms: int) -> None:
        member = self._member
        error = self._vote_error(vote)
        granted = False
        provisional = member.votes_provisionally(vote.end_offset)
        if error is ErrorCode.NONE:
            newer = vote.epoch > member.state.epoch
            if newer and vote.pre_vote:
                member.become_unattached(vote.epoch, now_ms)
            granted = self._grants(vote, now_ms)
            if granted and not vote.pre_vote:
                member.tell(
                    "vote_granted", "R-203", epoch=vote.epoch, candidate=vote.candidate_id, end_offset=vote.end_offset
                )
                wait_ms = member.election_timeout_ms()  # time for the candidate to win
                member.become_unattached(vote.epoch, now_ms, election_in_ms=wait_ms, voted=vote.candidate_id)
            elif newer and not vote.pre_vote:
                member.become_unattached(
                    vote.epoch, now_ms
                )  # the epoch is real, even if this candidate is not good enough
            elif not granted and isinstance(member.role, Follower):
                self._look(member.role)
        member.emit(
            QuorumReply(
                token, VoteAnswer(error, member.role.leader_id, member.state.epoch, granted, granted and provisional)
            )
        )

    def _vote_error(self, vote: Vote) -> ErrorCode:
        voters = self._member.config.voters
        if vote.candidate_id not in voters or not self._member.config.is_voter:
            return ErrorCode.INCONSISTENT_VOTER_SET
        return ErrorCode.FENCED_LEADER_EPOCH if vote.epoch < self._member.state.epoch else ErrorCode.NONE

    def _grants(self, vote: Vote, now_ms: int) -> bool:
        """The log is compared every time: a candidate that restarted may have lost a part of what it had when it
        first asked.
        """
        member = self._member
        if (vote.last_epoch, vote.end_offset) < (member.last_epoch(), member.log.log_end_offset):
            return False
        if vote.pre_vote:
            role = member.role
            if isinstance(role, Follower) and role.leader_id != vote.candidate_id:
                return not role.hears(now_ms)
            return not isinstance(role, Leader)
        if vote.epoch > member.state.epoch:
            return True
        return member.state.leader_id == NO_NODE and member.state.voted_id in (NO_NODE, vote.candidate_id)

    def _look(self, role: Follower) -> None:
        """Another voter knows no leader. It may know why before this node does, whose fetch still waits: so see
        whether anybody listens there. The fetch goes on meanwhile.
        """
        if not role.dialling and not role.looking:
            role.looking = True
            self._member.emit(Dial(role.leader_id))

    # --- as a candidate ---

    def ask(self, role: Prospective | Candidate, now_ms: int) -> None:
        """Ask every voter that is due."""
        member = self._member
        pre_vote = isinstance(role, Prospective)
        vote = Vote(member.state.epoch, member.config.node_id, member.last_epoch(), member.log.log_end_offset, pre_vote)
        for voter in role.ballot.retries.due(now_ms):
            send = SendRequest(voter, vote)
            role.ballot.retries.asked(send)
            member.emit(send)

    def on_vote_answer(self, send: SendRequest, answer: VoteAnswer, now_ms: int) -> None:
        member, role = self._member, self._member.role
        # Who grants has given up on the leader that it may still name.
        member.observe(answer.epoch, NO_NODE if answer.granted else answer.leader_id, now_ms, says=send.peer_id)
        if role is not member.role or not isinstance(role, Prospective | Candidate):
            return
        ballot = role.ballot
        if not ballot.retries.is_waiting_for(send):
            return
        if answer.error is ErrorCode.BROKER_NOT_AVAILABLE:
            ballot.unreachable(send.peer_id, now_ms + member.config.retry_backoff_ms)
        elif answer.error is ErrorCode.NONE and answer.granted:
            ballot.grant(send.peer_id, now_ms, answer.provisional)
        elif member.leader_is_gone(answer.epoch, answer.leader_id, send.peer_id):
            ballot.retries.again(send.peer_id, now_ms + member.backoff_ms(ballot.disbelieved))
            ballot.disbelieved += 1
        else:
            ballot.refuse(send.peer_id)
        self._count(role, now_ms)

    def on_vote_unanswered(self, send: SendRequest, why: Unanswered, now_ms: int) -> None:
        member, role = self._member, self._member.role
        if not isinstance(role, Prospective | Candidate) or not role.ballot.retries.is_waiting_for(send):
            return
        if why is Unanswered.REFUSED:
            role.ballot.unreachable(send.peer_id, now_ms + member.config.retry_backoff_ms)
        else:
            role.ballot.retries.again(send.peer_id, now_ms + member.config.retry_backoff_ms)
        self._count(role, now_ms)

    def _count(self, role: Prospective | Candidate, now_ms: int) -> None:
        """See whether the election is decided.

        A lost one is followed by a random back-off that grows (R-204); the first is short, because the usual reason
        is that two voters stood at once. A lost pre-vote has cost nobody anything, so it waits for voters to come,
        and asks all again in time.
        """
        member = self._member
        if role.ballot.won:
            if isinstance(role, Prospective):
                member.become_candidate(now_ms)
            else:
                member.become_leader(role.ballot, now_ms)
        elif isinstance(role, Candidate) and role.ballot.lost and not role.backing_off:
            limit_ms = min(SOON_MS << min(member.lost_elections, 3), member.config.election_backoff_max_ms)
            member.lost_elections += 1
            role.backing_off = True
            role.timeout_at_ms = now_ms + member.rng.randint(0, limit_ms)

    def on_time(self, now_ms: int) -> None:
        """Let what is due happen to a node that neither leads nor follows."""
        member, role = self._member, self._member.role
        if isinstance(role, Follower):
            return
        at_ms: int | None = None
        if isinstance(role, Unattached | Resigned):
            at_ms = role.election_at_ms
        elif isinstance(role, Prospective | Candidate):
            at_ms = role.timeout_at_ms
        if at_ms is not None and now_ms >= at_ms:
            member.become_prospective(now_ms)
        role = member.role
        if isinstance(role, Prospective) or (isinstance(role, Candidate) and not role.backing_off):
            self.ask(role, now_ms)
        elif isinstance(role, Resigned):
            self._send_end_epochs(role, now_ms)

    # --- beginnings and ends ---

    def on_begin(self, begin: BeginEpoch, token: Token, now_ms: int) -> None:
        member = self._member
        error = self._epoch_error(begin.leader_id, begin.epoch)
        if error is ErrorCode.NONE:
            member.observe(begin.epoch, begin.leader_id, now_ms, says=begin.leader_id)
            role = member.role
            if isinstance(role, Follower) and role.leader_id == begin.leader_id:
                role.heard_at_ms = now_ms
                role.timeout_at_ms = now_ms + member.config.fetch_timeout_ms
        member.emit(QuorumReply(token, EpochAnswer(error, member.role.leader_id, member.state.epoch)))

    def on_end(self, end: EndEpoch, token: Token, now_ms: int) -> None:
        """The leader resigned. The first of its successors stands at once, the others give it growing time (R-212).

        No pre-vote is needed: the leader itself says that nobody disturbs it.
        """
        member = self._member
        error = self._epoch_error(end.leader_id, end.epoch)
        if error is ErrorCode.NONE:
            member.observe(end.epoch, NO_NODE, now_ms, says=end.leader_id)  # who resigns is not to be followed
            if isinstance(member.role, Follower | Unattached | Prospective) and member.state.epoch == end.epoch:
                self._succeed(end, now_ms)
        member.emit(QuorumReply(token, EpochAnswer(error, member.role.leader_id, member.state.epoch)))

    def _succeed(self, end: EndEpoch, now_ms: int) -> None:
        member = self._member
        member.tell("leader_lost", "R-212", leader=end.leader_id, reason="it resigned", successors=end.successors)
        member.gone_in_epoch = end.epoch
        own = member.config.node_id
        place = end.successors.index(own) if own in end.successors and member.config.is_voter else None
        if place == 0:
            member.become_candidate(now_ms)
        elif place is None:
            member.become_unattached(end.epoch, now_ms)
        else:
            wait_ms = min(SOON_MS << min(place - 1, 3), member.config.election_backoff_max_ms)
            jitter_ms = member.rng.randint(0, SOON_MS)
            member.become_unattached(end.epoch, now_ms, election_in_ms=wait_ms + jitter_ms)

    def _epoch_error(self, leader_id: int, epoch: int) -> ErrorCode:
        if leader_id not in self._member.config.voters or leader_id == self._member.config.node_id:
            return ErrorCode.INCONSISTENT_VOTER_SET
        state = self._member.state
        if epoch < state.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch == state.epoch and state.leader_id not in (NO_NODE, leader_id):
            return ErrorCode.INVALID_REQUEST  # that epoch has a leader: nobody else begins or ends it
        return ErrorCode.NONE

    def _send_end_epochs(self, role: Resigned, now_ms: int) -> None:
        member = self._member
        for voter in role.retries.due(now_ms):
            send = SendRequest(voter, EndEpoch(member.config.node_id, member.state.epoch, role.successors))
            role.retries.asked(send)
            member.emit(send)

    def on_epoch_answer(self, send: SendRequest, answer: EpochAnswer, now_ms: int) -> None:
        member, role = self._member, self._member.role
        if isinstance(role, Resigned) and role.retries.is_waiting_for(send):
            if answer.error is ErrorCode.BROKER_NOT_AVAILABLE:
                role.retries.again(send.peer_id, now_ms + member.config.retry_backoff_ms)
            else:
                role.retries.done(send.peer_id)
        if isinstance(role, Leader) and answer.error is ErrorCode.NONE and answer.epoch == role.epoch:
            role.catch_ups.confirm(send)
        member.observe(answer.epoch, answer.leader_id, now_ms, says=send.peer_id)

    def on_epoch_unanswered(self, send: SendRequest, now_ms: int) -> None:
        role = self._member.role
        if isinstance(role, Resigned) and role.retries.is_waiting_for(send):
            role.retries.again(send.peer_id, now_ms + self._member.config.retry_backoff_ms)
