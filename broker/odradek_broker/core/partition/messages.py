"""The messages between the core of a partition and the rim.

Three kinds of values. *State* is kept by a replica. *Inputs* are events (a fetch, a response). *Effects* are commands
to the rim, which carries them out in the order given, synchronously, disk before messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from odradek_proto.errors import ErrorCode
from odradek_proto.records import BatchHeader
from odradek_proto.topics import TopicPartition
from odradek_proto.values import Value

from odradek_broker.core.metadata.image import BrokerRegistration
from odradek_broker.core.partition.epochs import EpochCache, EpochEntry
from odradek_broker.core.partition.producers import ProducerStates

NO_OFFSET = -1
NO_EPOCH = -1


# --- State ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ReplicaLog:
    """One replica's log as the core sees it (R-1). Offsets are exclusive ends.

    Always: log_start_offset <= high_watermark <= log_end_offset, and flushed_offset <= log_end_offset.
    Storage's `open` makes it; afterwards only the core changes it.
    """

    topic_partition: TopicPartition
    topic_id: bytes
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    epochs: EpochCache
    producers: ProducerStates
    flushed_offset: int = 0  # everything below is known to be on the disk; counts only with odradek.fsync=before-ack
    damaged_at: int | None = None  # from this offset on the log cannot be read as it was written
    gaps: bool = False  # offsets may be missing, as in a log that was compacted; without, that is damage


class PartitionSettings(Value, frozen=True):
    """The settings that the core of a partition reads; the topic's value, else the broker's. Times in ms."""

    min_insync_replicas: int = 1
    replica_lag_time_max_ms: int = 10_000
    max_message_bytes: int = 1_048_588
    segment_bytes: int = 1 << 30
    message_timestamp_before_max_ms: int = (1 << 63) - 1
    message_timestamp_after_max_ms: int = 3_600_000
    log_append_time: bool = False  # message.timestamp.type=LogAppendTime
    replica_fetch_backoff_ms: int = 1_000
    replica_fetch_max_bytes: int = 1_048_576
    producer_id_expiration_ms: int = 86_400_000
    flush_before_ack: bool = False  # odradek.fsync=before-ack


class TruncationMode(Enum):
    """`odradek.truncation.mode`: how a follower's truncation is decided."""

    FETCH = "fetch"
    EPOCH_REQUEST = "epoch-request"
    EPOCH_SINGLE_ROUND = "epoch-single-round"
    HIGH_WATERMARK = "high-watermark"


class BrokerView(Protocol):
    """A leader's view of the other brokers, from this broker's own metadata image (R-47)."""

    def broker(self, broker_id: int) -> BrokerRegistration | None: ...


# --- Inputs --------------------------------------------------------------------------------------------------------


class FollowerFetch(Value, frozen=True):
    """A follower's fetch of one partition (R-35 to R-42)."""

    replica_id: int
    replica_epoch: int  # broker epoch of the follower, -1 unknown
    fetch_offset: int
    current_leader_epoch: int  # -1: absent
    last_fetched_epoch: int  # -1: absent
    log_start_offset: int


class FetchDecision(Value, frozen=True):
    """The decision of a leader (or a follower that serves consumers) on one fetch of one partition.

    With an error or a divergence nothing is read. Otherwise read from `fetch_offset` up to `limit` (exclusive), which
    was captured once (R-229). `high_watermark` and `log_start_offset` are from before the fetch was recorded (R-24).
    """

    error: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    limit: int = NO_OFFSET
    diverging: EpochEntry | None = None  # (epoch, end offset)


class AppendDecision(Value, frozen=True):
    """The decision of a leader on one produced batch, before anything is written.

    Exactly one of three: an error; a duplicate (`duplicate` is true, the offsets are the original ones, R-16); or a
    header with base offset and leader epoch assigned, which the rim now writes and then passes to `on_appended`. With
    LogAppendTime the header has the append time, too, and the rim computes the CRC, which covers it.
    """

    error: ErrorCode
    message: str = ""
    header: BatchHeader | None = None
    duplicate: bool = False
    base_offset: int = NO_OFFSET
    required_offset: int = NO_OFFSET  # acks=all waits until the high watermark reaches it
    log_append_time_ms: int = -1  # -1 with CreateTime


class IsrMember(Value, frozen=True):
    broker_id: int
    broker_epoch: int  # -1: none seen


class IsrProposal(Value, frozen=True):
    """An AlterPartition item (R-49)."""

    topic_id: bytes
    topic_partition: TopicPartition
    leader_epoch: int
    partition_epoch: int
    new_isr: tuple[IsrMember, ...]
    recovering: bool = False


class IsrAnswer(Value, frozen=True):
    """The controller's answer to one proposal (R-51). The other fields count only when `error` is NONE."""

    error: ErrorCode
    leader: int = -1
    leader_epoch: int = -1
    partition_epoch: int = -1
    isr: tuple[int, ...] = ()
    recovering: bool = False


class FollowerFetchRequest(Value, frozen=True):
    """A follower's request to its leader for one partition."""

    topic_partition: TopicPartition
    topic_id: bytes
    fetch_offset: int
    current_leader_epoch: int  # -1 in the oldest protocol: absent
    last_fetched_epoch: int  # -1: absent
    log_start_offset: int
    max_bytes: int


class EpochRequest(Value, frozen=True):
    """An OffsetsForLeaderEpoch question of one partition (R-73)."""

    topic_partition: TopicPartition
    current_leader_epoch: int
    leader_epoch: int


class OffsetsRequest(Value, frozen=True):
    """A question for the leader's log end offset and log start offset (R-84), ListOffsets with isolation none."""

    topic_partition: TopicPartition
    current_leader_epoch: int


FollowerRequest = FollowerFetchRequest | EpochRequest | OffsetsRequest


class FetchAnswer(Value, frozen=True):
    """The leader's response for one partition. `headers` are the batches in the response, checked by the rim."""

    fetch_offset: int  # of the request that this answers
    error: ErrorCode
    high_watermark: int
    log_start_offset: int
    headers: Sequence[BatchHeader] = ()
    diverging: EpochEntry | None = None
    current_leader_epoch: int = NO_EPOCH  # of the request, when the rim knows it: an answer of an old epoch is dropped


# --- Effects -------------------------------------------------------------------------------------------------------


class AppendBatches(Value, frozen=True):
    """Write these batches, which the rim holds, at the end of the log; then call `on_appended`."""

    headers: Sequence[BatchHeader]


class WriteEpochs(Value, frozen=True):
    """Write the leader epoch file (R-60: before the data that it speaks of)."""

    entries: tuple[EpochEntry, ...]


class Truncate(Value, frozen=True):
    """Cut the log: records at `offset` and above go (R-230). The rim then calls `on_truncated(log end offset)`."""

    offset: int
    rule: str
    leader: int
    leader_epoch: int


class RestartLog(Value, frozen=True):
    """Drop everything and start empty at `offset` (R-231)."""

    offset: int
    rule: str


class AdvanceLogStart(Value, frozen=True):
    """Records below `offset` are gone (R-160, R-162)."""

    offset: int


class ProposeIsr(Value, frozen=True):
    proposal: IsrProposal


class HighWatermarkAdvanced(Value, frozen=True):
    """The high watermark rose: look into both purgatories (R-123, R-124)."""

    old: int
    new: int


class IsrChanged(Value, frozen=True):
    """The committed ISR changed: waiting produce requests are checked again."""

    isr: tuple[int, ...]


class RequestReady(Value, frozen=True):
    """The follower has a request to send now; the rim calls `next_request`."""


class PartitionFailed(Value, frozen=True):
    """This replica stops until new metadata comes (R-86, R-91)."""

    reason: str


class Transition(Value, frozen=True):
    """A line of evidence, written before the act: `event` in past tense, facts by name, and the rule behind it."""

    event: str
    rule: str
    facts: Mapping[str, object]


Effect = (
    AppendBatches
    | WriteEpochs
    | Truncate
    | RestartLog
    | AdvanceLogStart
    | ProposeIsr
    | HighWatermarkAdvanced
    | IsrChanged
    | RequestReady
    | PartitionFailed
    | Transition
)
