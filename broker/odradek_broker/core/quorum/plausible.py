"""Plausibility checks: no message is compared, stored or answered before it has passed them.

Clients of the CONTROLLER listener need not identify themselves, so any request may be forged, and a faulty peer may
send any response (R-218). An epoch could do permanent harm: it never falls, and once all are used up no leader can be
elected any more.

Rules of this module.
- A request raises the epoch by the rest of an allowance at most: `BURST` epochs, and one more every `REFILL_MS`.
  Elections of a correct quorum are slower than that. An attacker that forges one vote after the other needs 3.4 years
  without a pause for half of all epochs, at one node; the others follow it, so three voters take a third of that.
- A response comes from the address that was called. It raises the epoch at once, up to half of all epochs: so a voter
  that was away for long recovers, however much it missed, because it requests the current epoch from the others. Above
  that half a response is limited like a request, so that no peer takes more than half.
- Values that could not be stored, or read again, are refused: `LAST_EPOCH` is the largest epoch.
"""

from __future__ import annotations

from odradek_proto.errors import ErrorCode

from odradek_broker.core.quorum.member import QuorumMember
from odradek_broker.core.quorum.messages import (
    LAST_EPOCH,
    NO_HIGH_WATERMARK,
    Answer,
    BeginEpoch,
    EndEpoch,
    EpochAnswer,
    Fetch,
    FetchSnapshot,
    FetchSnapshotAnswer,
    QuorumFetchAnswer,
    Request,
    SnapshotId,
    Vote,
    VoteAnswer,
)

BURST = 1_000  # more than a voter misses before it asks
REFILL_MS = 100  # a lost election and the next one take at least a round of votes, and 75 ms of back-off on average
TRUSTED_EPOCH = LAST_EPOCH // 2  # as far as the word of a peer that was asked counts by itself


class Allowance:
    """How many epochs others may still add to this node's one, by words that nobody asked for."""

    def __init__(self) -> None:
        self._spent = 0
        self._refilled_ms = 0

    def left(self, now_ms: int) -> int:
        refills = (now_ms - self._refilled_ms) // REFILL_MS
        if refills > 0:
            self._spent = max(0, self._spent - refills)
            self._refilled_ms += refills * REFILL_MS
        return BURST - self._spent

    def spend(self, epochs: int) -> None:
        self._spent += epochs


class Plausibility:
    """Judges requests and answers for one member."""

    def __init__(self, member: QuorumMember) -> None:
        self._member = member
        self._allowance = Allowance()

    def refusal(self, request: Request, now_ms: int) -> Answer | None:
        """INVALID_REQUEST for what no sound node says; None for what may be so."""
        if self._is_possible(request) and (
            isinstance(request, Fetch | FetchSnapshot)  # raise nothing
            or request.epoch <= self._member.state.epoch + self._allowance.left(now_ms)
        ):
            return None
        error, leader_id, epoch = ErrorCode.INVALID_REQUEST, self._member.role.leader_id, self._member.state.epoch
        match request:
            case Vote():
                return VoteAnswer(error, leader_id, epoch)
            case BeginEpoch() | EndEpoch():
                return EpochAnswer(error, leader_id, epoch)
            case Fetch():
                return QuorumFetchAnswer(error, leader_id, epoch)
            case FetchSnapshot():
                return FetchSnapshotAnswer(error, leader_id, epoch, request.snapshot, request.position)

    def believes(self, answer: Answer, now_ms: int) -> bool:
        """Whether a peer may have answered that. What it may not counts as no answer."""
        most = max(TRUSTED_EPOCH, self._member.state.epoch + self._allowance.left(now_ms))
        if not 0 <= answer.epoch <= min(most, LAST_EPOCH):
            return False
        match answer:
            case QuorumFetchAnswer():
                cut = answer.diverging
                return (
                    answer.high_watermark >= NO_HIGH_WATERMARK
                    and (cut is None or (0 <= cut.epoch <= answer.epoch and cut.offset >= 0))
                    and (answer.snapshot is None or _is_snapshot(answer.snapshot, answer.epoch))
                )
            case FetchSnapshotAnswer():
                return answer.position >= 0 and answer.size >= 0
        return True

    def raised(self, before: int, now_ms: int, *, asked: bool) -> None:
        """The epoch was `before` until this step, which somebody else caused; `asked`: by an answer."""
        after = self._member.state.epoch
        if after > before and not (asked and after <= TRUSTED_EPOCH):
            self._allowance.left(now_ms)
            self._allowance.spend(after - before)

    def _is_possible(self, request: Request) -> bool:
        """Whether a sound node can say it, whatever state it and this node are in."""
        if not 0 <= request.epoch <= LAST_EPOCH:
            return False
        config = self._member.config
        match request:
            case Vote():
                # No log holds records of an epoch whose election is only now; before, it can hold the current one's.
                newest = request.epoch if request.pre_vote else request.epoch - 1
                return (
                    0 <= request.last_epoch <= newest
                    and request.end_offset >= 0
                    and request.candidate_id != config.node_id
                )
            case EndEpoch():
                return len(request.successors) <= len(config.voters)
            case Fetch():
                return (
                    request.fetch_offset >= 0
                    and 0 <= request.last_epoch <= request.epoch
                    and request.replica_id != config.node_id
                )
            case FetchSnapshot():
                return request.position >= 0 and request.max_bytes > 0 and request.replica_id != config.node_id
        return True


def _is_snapshot(snapshot: SnapshotId, epoch: int) -> bool:
    """Whether there can be such a snapshot in this epoch."""
    return snapshot.end_offset > 0 and 0 <= snapshot.epoch <= epoch
