"""What the checks of one partition give back: findings, notes, and how much they compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

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
    story: str = ""
    """Which broker cut them, to follow whom, as the brokers wrote it down."""


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


class CommittedOffset(NamedTuple):
    """The next offset that a consumer group reads of a partition."""

    group: str
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True)
class PartitionResult:
    """What the checks of one partition found, and how much they compared."""

    findings: list[Finding]
    notes: list[Note]
    summary: PartitionSummary
    committed: tuple[CommittedOffset, ...] = ()
    """What a partition of `__consumer_offsets` says of consumer groups."""
