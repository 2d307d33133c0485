"""The in-sync replicas of a partition as its leader keeps them: the committed set and the pending change.

A leader changes the ISR by a request to the controller (AlterPartition, KIP-497), and until the response arrives it
must be ready for both outcomes. Hence two sets: the *committed* ISR, which the controller has confirmed, and the
*maximal* ISR, which also holds the replica that a pending proposal would add. A pending shrink removes no member from
either (R-44, R-46).

Rules of this module. One change at a time (R-48). A proposal that may have been applied is never withdrawn by guessing:
only proof that it was not, or newer metadata, ends it (R-51 to R-53).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from odradek_proto.errors import ErrorCode

from odradek_broker.core.partition.messages import IsrAnswer, IsrProposal

RETRY_BACKOFF_MS = 50  # the delay after which AlterPartition is sent again

_PROVEN_NOT_APPLIED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
_WAIT_FOR_METADATA = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


class AnswerMeans(Enum):
    """The leader's reaction to the response to a proposal (R-51)."""

    NOTHING = auto()  # an answer to something else, or about another leader epoch
    COMMITTED = auto()  # take the ISR and the partition epoch of the answer
    TAKEN_BACK = auto()  # the change was not made: back to the committed ISR
    WAIT_FOR_METADATA = auto()  # it may have been made: stay as we are, and ask no more
    RETRY = auto()  # the same proposal again, after a while


class IsrState:
    """Committed, or with a pending proposal that expands or shrinks (R-4). The high watermark waits for `maximal`."""

    __slots__ = ("_unanswered", "committed", "maximal", "pending", "retry_at_ms")

    def __init__(self, committed: Sequence[int]) -> None:
        self.committed = tuple(committed)
        self.maximal = self.committed
        self.pending: IsrProposal | None = None
        self.retry_at_ms: int | None = None
        self._unanswered: IsrProposal | None = None

    @property
    def may_propose(self) -> bool:
        """No change is pending, and no old proposal, overtaken by metadata, still waits for its answer (R-48)."""
        return self.pending is None and self._unanswered is None

    def propose(self, proposal: IsrProposal) -> None:
        """Make a proposal pending. From this moment on its new members count (R-46)."""
        assert self.may_propose, (proposal, self.pending, self._unanswered)
        self.pending = self._unanswered = proposal
        added = tuple(member.broker_id for member in proposal.new_isr if member.broker_id not in self.committed)
        self.maximal = self.committed + added

    def commit(self, isr: Sequence[int]) -> bool:
        """The controller has set the ISR; that ends a pending change (R-53). Returns whether it is another set."""
        changed = sorted(isr) != sorted(self.committed)
        self.committed = self.maximal = tuple(isr)
        self.pending = None
        self.retry_at_ms = None
        return changed

    def judge(
        self, proposal: IsrProposal, answer: IsrAnswer, leader_epoch: int, partition_epoch: int, now_ms: int
    ) -> AnswerMeans:
        """Take in the answer to `proposal`, by the table of R-51. The epochs are the leader's own.

        For COMMITTED the caller calls `commit`, since the partition epoch is the caller's too.
        """
        if proposal == self._unanswered:
            self._unanswered = None
        if self.pending is None or proposal != self.pending:
            return AnswerMeans.NOTHING
        error = answer.error
        if error == ErrorCode.NONE:
            if answer.leader_epoch != leader_epoch or answer.partition_epoch < partition_epoch:
                return AnswerMeans.NOTHING
            return AnswerMeans.COMMITTED
        if error in _PROVEN_NOT_APPLIED:
            self.pending = None
            self.maximal = self.committed
            return AnswerMeans.TAKEN_BACK
        if error in _WAIT_FOR_METADATA:
            return AnswerMeans.WAIT_FOR_METADATA
        self.retry_at_ms = now_ms + RETRY_BACKOFF_MS
        return AnswerMeans.RETRY

    def take_retry(self, now_ms: int) -> IsrProposal | None:
        """The pending proposal when it is time to send it again, else None."""
        if self.retry_at_ms is None or now_ms < self.retry_at_ms or self.pending is None:
            return None
        self.retry_at_ms = None
        self._unanswered = self.pending
        return self.pending
