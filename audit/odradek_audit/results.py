"""What the checks of one partition give back: findings, notes, and how much they compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from odradek_proto.topics import TopicPartition

from odradek_audit.findings import Finding, Note

SHOWN_EPOCHS = 100
"""Leader epochs of a replica that a summary names."""


@dataclass
class ReplicaSummary:
    """What was read of one replica, for the report."""

    replica: str
    log_start: int
    log_end: int
    high_watermark: int | None
    recovery_point: int | None
    last_epoch: int
    batches: int
    records: int
    bytes: int
    segments: int
    unread_bytes: int = 0
    epochs: list[list[int]] = field(default_factory=list)
    """[epoch, first offset] as the batches say, the newest `SHOWN_EPOCHS` of them."""
    epoch_file: list[list[int]] | None = None
    """The same as `leader-epoch-checkpoint` says; None without such a file."""


class LossCause(StrEnum):
    """What explains that records are gone. Only the first is what acks=1 allows."""

    LEADER_CHANGE = "leader-change"  # truncated, or replaced by a later epoch, above all that was known replicated
    PROBABLY_LEADER_CHANGE = "probably-leader-change"  # a later epoch begins there; nothing shows who acknowledged them
    PERHAPS_LEADER_CHANGE = "perhaps-leader-change"  # events are missing that might say so
    BELOW_HIGH_WATERMARK = "below-high-watermark"  # truncated, and the replicas in sync had them
    GAP = "gap"  # the logs go on behind them
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True)
class Loss:
    """Records that were acknowledged with `acks` ("all" or "1") and that none of the replicas that were read has.

    They lie in offsets `first_offset` to `end_offset` (exclusive), not all of which need be lost; both are -1 for
    records that were acknowledged without an offset.
    """

    topic: str
    partition: int
    acks: str
    records: int
    first_offset: int
    end_offset: int
    acknowledged_ms: tuple[int, int] = (-1, -1)
    """Wall times of the first and the last acknowledgement, by the clients' clocks; -1 where they do not say."""
    values: tuple[str, str] = ("", "")
    """How the first and the last of them begin; empty without offsets."""
    story: str = ""
    """Which broker truncated them, to follow whom, as the brokers wrote it down."""
    cause: LossCause | None = None
    high_watermark: int = -1
    """The highest that the leader who had acknowledged them wrote down meanwhile, of what a change of leader explains;
    -1: none was found."""


@dataclass
class PartitionSummary:
    """What was compared in one partition."""

    topic: str
    partition: int
    bound: int
    compared_from: int
    compared_to: int
    compared_batches: int
    compared_records: int
    reference_replica: str
    replicas: list[ReplicaSummary] = field(default_factory=list)
    history: dict[str, int] = field(default_factory=dict)
    suppressed: dict[str, int] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    """Replicas that have the partition, and whose log cannot be read: nothing is known of it."""

    @property
    def above_bound(self) -> int:
        """Offsets that no checkpoint or client says to be replicated: they may differ, and were searched for forks."""
        return max(0, max(self._ends, default=0) - self.bound)

    @property
    def on_one_replica(self) -> int:
        """Offsets of the longest log that no other replica has (yet)."""
        return self._ends[0] - self._ends[1] if len(self._ends) > 1 else 0

    @property
    def _ends(self) -> list[int]:
        return sorted((replica.log_end for replica in self.replicas), reverse=True)


class GroupOffset(NamedTuple):
    """The next offset that a consumer group reads of a partition."""

    group: str
    topic: str
    partition: int
    offset: int


class LeaderEpochs(NamedTuple):
    """What the metadata log says of a partition's leader epochs: the newest one, and who led in those that it names
    (-1: nobody)."""

    newest_epoch: int
    leaders: dict[int, int]
    replicas: tuple[int, ...] = ()


@dataclass(frozen=True)
class Replayed:
    """What the metadata log says of leader epochs, by topic id in place of a name, and of brokers that ever registered,
    none where the log does not begin with the cluster."""

    elected: Mapping[TopicPartition, LeaderEpochs] = field(default_factory=dict)
    brokers: frozenset[int] = frozenset()
    topics: Mapping[str, str] = field(default_factory=dict)
    """The id of each topic that there is at the end."""
    removed: Mapping[str, str] = field(default_factory=dict)
    """The name of each topic that was removed, by its id."""
    whole: bool | None = None
    """Whether the log begins with the cluster; None: it was not replayed to its end."""


@dataclass(frozen=True)
class PartitionResult:
    """What the checks of one partition found, and how much they compared."""

    findings: list[Finding]
    notes: list[Note]
    summary: PartitionSummary
    committed: tuple[GroupOffset, ...] = ()
    """What a partition of `__consumer_offsets` says of consumer groups."""
    replayed: Replayed = field(default_factory=Replayed)
    """What the metadata log says, where it was replayed to its end."""
