"""The messages between the core of the metadata quorum and its rim: state, messages of other nodes, effects.

Requests and responses are exchanged between two nodes, in the core's own form. *Effects* are commands to the rim, which
carries them out in the order given, disk before messages.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import Enum

from odradek_proto.errors import ErrorCode
from odradek_proto.records import BatchHeader
from odradek_proto.values import Value

from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.core.partition.messages import Transition, WriteEpochs

NO_NODE = -1
NO_HIGH_WATERMARK = -1  # a leader that has not committed anything of its own epoch has none
FIRST_EPOCH = 0  # of a node that has never heard of an election; epoch 1 is the first that has a leader
LAST_EPOCH = 2**31 - 2  # an int32 in files and messages; the one above it is never spoken of

Token = Hashable
"""What the rim uses to find the caller of a request again; the core hands it back in the answer and looks at nothing
of it.
"""


# --- State ---------------------------------------------------------------------------------------------------------


class QuorumState(Value, frozen=True):
    """The state that a node must not forget (R-201): written and flushed before any action or message that follows from
    it.

    `catching_up` means that the node may have had more than it has: it is new, or it has lost its disk (R-217).
    """

    epoch: int = FIRST_EPOCH
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE
    catching_up: bool = False


class SnapshotId(Value, frozen=True):
    """A snapshot holds everything below `end_offset`; the record before that is of `epoch`."""

    end_offset: int
    epoch: int


class Snapshot(Value, frozen=True):
    """One on the disk. `timestamp` is that of the last record which it contains, wall time in ms; `size` in bytes."""

    id: SnapshotId
    size: int
    timestamp: int


class SegmentSize(Value, frozen=True):
    """A closed segment of the log: where it ends, and its bytes."""

    end_offset: int
    size: int


class QuorumConfig(Value, frozen=True):
    """The identity of the node and its timeouts. Voters are fixed; a node that is not among them is an observer. Times
    in ms.
    """

    node_id: int
    voters: tuple[int, ...]  # ascending
    election_timeout_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    election_backoff_max_ms: int = 1_000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 1_048_576
    snapshot_max_bytes: int = 20_971_520  # metadata.log.max.record.bytes.between.snapshots
    snapshot_max_interval_ms: int = 3_600_000  # metadata.log.max.snapshot.interval.ms; 0: only by bytes
    retention_bytes: int = 104_857_600  # metadata.max.retention.bytes: log and snapshots together; -1: no limit
    retention_ms: int = 604_800_000  # metadata.max.retention.ms; -1: no limit

    @property
    def is_voter(self) -> bool:
        return self.node_id in self.voters

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def other_voters(self) -> tuple[int, ...]:
        return tuple(voter for voter in self.voters if voter != self.node_id)


# --- What nodes say to each other ----------------------------------------------------------------------------------


class Vote(Value, frozen=True):
    """Request a vote in `epoch`, or, before an election, check whether there would be one (R-203, R-215)."""

    epoch: int  # of the election; with `pre_vote`, the sender's current one
    candidate_id: int
    last_epoch: int  # of the candidate's log
    end_offset: int  # the candidate's log end offset
    pre_vote: bool


class VoteAnswer(Value, frozen=True):
    """`provisional`: granted by a voter that may have lost its disk; it counts only if all voters grant (R-217)."""

    error: ErrorCode
    leader_id: int
    epoch: int
    granted: bool = False
    provisional: bool = False


class BeginEpoch(Value, frozen=True):
    """ "I lead in this epoch", to voters that have not fetched yet (R-205)."""

    leader_id: int
    epoch: int


class EndEpoch(Value, frozen=True):
    """The sender no longer leads in this epoch; with the preferred successors, the best first (R-212)."""

    leader_id: int
    epoch: int
    successors: tuple[int, ...]


class EpochAnswer(Value, frozen=True):
    """The answer to `BeginEpoch` and `EndEpoch`."""

    error: ErrorCode
    leader_id: int
    epoch: int


class Fetch(Value, frozen=True):
    """Request records. From a voter, `fetch_offset` acknowledges everything below: it is flushed there (R-207)."""

    replica_id: int
    epoch: int  # the leader's, as the sender knows it
    fetch_offset: int
    last_epoch: int  # of the sender's log; 0 when that is empty
    high_watermark: int  # that the sender knows
    max_wait_ms: int
    max_bytes: int
    catching_up: bool = False  # the sender may have had more than it has
    voted: bool = False  # and knows that it has voted for this leader in this epoch


class QuorumFetchAnswer(Value, frozen=True):
    """`headers` are those of `batches`, which are contiguous; the rim has checked their CRCs.

    With `snapshot` there is nothing else: the sender has to fetch that snapshot first.
    """

    error: ErrorCode
    leader_id: int
    epoch: int
    high_watermark: int = NO_HIGH_WATERMARK
    log_start_offset: int = 0
    diverging: EpochEntry | None = None
    batches: bytes = b""
    headers: Sequence[BatchHeader] = ()
    snapshot: SnapshotId | None = None
    caught_up: bool = False  # what was fetched for has everything committed below it, and a majority knows this leader


class FetchSnapshot(Value, frozen=True):
    """Request a chunk of a snapshot, from `position` on."""

    replica_id: int
    epoch: int  # the leader's, as the sender knows it
    snapshot: SnapshotId
    position: int
    max_bytes: int
    catching_up: bool = False  # as in `Fetch`
    voted: bool = False


class FetchSnapshotAnswer(Value, frozen=True):
    """`size` is that of the whole file."""

    error: ErrorCode
    leader_id: int
    epoch: int
    snapshot: SnapshotId
    position: int
    size: int = 0
    data: bytes = b""


Request = Vote | BeginEpoch | EndEpoch | Fetch | FetchSnapshot
Answer = VoteAnswer | EpochAnswer | QuorumFetchAnswer | FetchSnapshotAnswer


class Unanswered(Enum):
    """Why a request got no answer."""

    REFUSED = "refused"  # nobody listens there: proof that the peer's process is gone
    BROKEN = "broken"  # the connection went; the peer may have
    TIMED_OUT = "timed out"  # proof of nothing


class NotLeader(Exception):
    """This node does not lead the quorum (any more). `leader_id` is the leader that it knows, -1 for none."""

    def __init__(self, leader_id: int, epoch: int) -> None:
        super().__init__(f"not the leader of the quorum: the leader is {leader_id}, the epoch {epoch}")


# --- Effects -------------------------------------------------------------------------------------------------------


class PersistState(Value, frozen=True):
    """Write `quorum-state` and flush it, before the next effect."""

    state: QuorumState


class AppendLeaderChange(Value, frozen=True):
    """Write the control record that opens an epoch."""

    base_offset: int
    epoch: int
    voters: tuple[int, ...]
    granting: tuple[int, ...]


class AppendRecords(Value, frozen=True):
    """Write the records as one batch with this base offset and leader epoch."""

    base_offset: int
    epoch: int
    records: tuple[bytes, ...]


class AppendFetched(Value, frozen=True):
    """Write the batches as the leader sent them."""

    batches: bytes
    headers: Sequence[BatchHeader]


class TruncateLog(Value, frozen=True):
    """Cut the log: records at `offset` and above go."""

    offset: int
    reason: str


class FlushLog(Value, frozen=True):
    """Start to flush; `on_flushed` is called with the log end offset that is on the disk."""


class SendRequest(Value, frozen=True):
    """Send a request; its result is passed to `on_answer` or `on_unanswered`, with this effect."""

    peer_id: int
    request: Request


class Dial(Value, frozen=True):
    """Check whether a process listens at the peer; the result is passed to `on_dialled`."""

    peer_id: int


class QuorumReply(Value, frozen=True):
    """Answer a request."""

    token: Token
    answer: VoteAnswer | EpochAnswer | QuorumFetchAnswer | FetchSnapshotAnswer


class ReplyRecords(Value, frozen=True):
    """Answer a fetch with the batches from `fetch_offset` up to `limit`, which was captured once (R-229)."""

    token: Token
    answer: QuorumFetchAnswer
    fetch_offset: int
    limit: int
    max_bytes: int


class AnswerFetches(Value, frozen=True):
    """There is news for fetches that wait: call `answer_fetches` in the next turn.

    By then more may have been appended or committed, and one answer brings all of it.
    """


class ReplyChunk(Value, frozen=True):
    """Answer the fetch of a snapshot with the bytes at the answer's position, at most `max_bytes` of them."""

    token: Token
    answer: FetchSnapshotAnswer
    max_bytes: int


class TakeSnapshot(Value, frozen=True):
    """Write a snapshot of the current state machine; `on_snapshot_taken` reports that it is on disk."""


class StartLogAt(Value, frozen=True):
    """The log starts where this snapshot ends: older snapshots and segments that lie wholly below go."""

    snapshot: SnapshotId


class ReceiveChunk(Value, frozen=True):
    """Write a piece of a snapshot that the leader sends."""

    snapshot: SnapshotId
    position: int
    data: bytes


class CheckSnapshot(Value, frozen=True):
    """It is complete: read it to its end; the result is passed to `on_snapshot_checked`."""

    snapshot: SnapshotId


class InstallSnapshot(Value, frozen=True):
    """Make the snapshot durable, restart the log at its end, and replace the state, before the next effect."""

    snapshot: SnapshotId


class QuorumHighWatermarkAdvanced(Value, frozen=True):
    """Records below `new` will never be undone: hand them to the state machine."""

    old: int
    new: int


class LeadershipBegan(Value, frozen=True):
    """This node leads `epoch`, and everything in front of it lies below the announced high watermark."""

    epoch: int


class LeadershipEnded(Value, frozen=True):
    """Requests that wait for a commit in `epoch` fail."""

    epoch: int


class LeaderChanged(Value, frozen=True):
    """The leader, as far as this node knows; `NO_NODE` for none."""

    leader_id: int
    epoch: int


class Fail(Value, frozen=True):
    """A state that is impossible in a correct quorum. The node stops permanently to avoid further harm."""

    reason: str


Effect = (
    PersistState
    | WriteEpochs
    | AppendLeaderChange
    | AppendRecords
    | AppendFetched
    | TruncateLog
    | FlushLog
    | SendRequest
    | Dial
    | QuorumReply
    | ReplyRecords
    | AnswerFetches
    | ReplyChunk
    | TakeSnapshot
    | StartLogAt
    | ReceiveChunk
    | CheckSnapshot
    | InstallSnapshot
    | QuorumHighWatermarkAdvanced
    | LeadershipBegan
    | LeadershipEnded
    | LeaderChanged
    | Transition
    | Fail
)
