"""The base of all invariants, and what one that is broken says."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntFlag
from typing import ClassVar

from odradek_broker.core.metadata.image import MetadataImage

from odradek_chaos.worlds.simulated.checks.exchanges import (
    AnsweredRequest,
    EndOffsetReceived,
    EndOffsetSent,
    PartitionAltered,
    VoteGranted,
)
from odradek_chaos.worlds.simulated.checks.state import ClusterState, QuorumNodeState, ReplicaState
from odradek_chaos.worlds.simulated.cluster.timeline import TimelineEvent

Violation = tuple[int, str, str]  # broker id, partition, sentence
Violations = Iterator[Violation]


class ReplicaChange(IntFlag):
    """What is different about a replica, and whether it leads. A first look is all of it."""

    LOG_END = 1
    HIGH_WATERMARK = 2
    TERM = 4  # leader epoch, leader, or role
    ISR = 8  # either of the two sets, whether one is proposed, partition epoch or effective min.insync.replicas
    REMOTES = 16  # what a leader knows of its followers
    LEADS = 32  # no change, but who it is that changed
    ANYTHING = 63


LOG_END, HIGH_WATERMARK, TERM, ISR, REMOTES, LEADS = (each.value for each in ReplicaChange)  # plain numbers are faster
FIRST_LOOK = LOG_END | HIGH_WATERMARK | TERM | ISR | REMOTES


def changes_of(seen: ReplicaState, before: ReplicaState | None) -> int:
    """The set of `ReplicaChange` between two looks at a replica, as a number."""
    found = LEADS if seen.is_leader else 0
    if before is None:
        return found | FIRST_LOOK
    if seen.log_end_offset != before.log_end_offset:
        found |= LOG_END
    if seen.high_watermark != before.high_watermark:
        found |= HIGH_WATERMARK
    if (
        seen.leader_epoch != before.leader_epoch
        or seen.is_leader is not before.is_leader
        or seen.leader != before.leader
        or seen.incarnation != before.incarnation
    ):
        found |= TERM
    if (
        seen.maximal_isr != before.maximal_isr
        or seen.isr != before.isr
        or seen.is_proposing is not before.is_proposing
        or seen.partition_epoch != before.partition_epoch
        or seen.min_isr != before.min_isr
    ):
        found |= ISR
    if seen.remotes != before.remotes:
        found |= REMOTES
    return found


class Invariant:
    """One promise. Each method is told of one change right after the event that made it; `now` has it already.

    An invariant reads and changes nothing but its own memory, and names the broker, the partition and the numbers.
    """

    name: ClassVar[str]
    rules: ClassVar[str] = ""  # N-numbers and the invariants of the specification
    leaders_only: ClassVar[bool] = False  # `on_replica` has nothing to say of followers
    looks_at: ClassVar[ReplicaChange] = ReplicaChange.ANYTHING  # and nothing when none of this has changed
    flushed_only: ClassVar[bool] = False  # it holds with odradek.fsync=before-ack alone

    def is_asked(self, changes: ReplicaChange) -> bool:
        """Whether `on_replica` has anything to say when these have changed."""
        return bool(changes & self.looks_at & ~ReplicaChange.LEADS) and (
            ReplicaChange.LEADS in changes or not self.leaders_only
        )

    def on_replica(self, now: ClusterState, seen: ReplicaState, before: ReplicaState | None) -> Violations:
        """A replica changed, in what this invariant looks at; `before` is None when it has just got its first role in
        this incarnation."""
        yield from ()

    def on_quorum(self, now: ClusterState, seen: QuorumNodeState, before: QuorumNodeState | None) -> Violations:
        """A node of the quorum changed."""
        yield from ()

    def on_image(self, now: ClusterState, broker_id: int, image: MetadataImage, before: MetadataImage) -> Violations:
        """A broker applied committed metadata; `now.image` is the newest of all."""
        yield from ()

    def on_event(self, now: ClusterState, moment: TimelineEvent) -> Violations:
        """A broker wrote an event down, before it acts on it."""
        yield from ()

    def on_acknowledged(self, now: ClusterState, partition: str, offset: int) -> Violations:
        """A client with acks=all was told that its record stands at an offset."""
        yield from ()

    def on_delivered(self, now: ClusterState, partition: str, offset: int) -> Violations:
        """A reader was given a record."""
        yield from ()

    def on_answered(self, now: ClusterState, answered: AnsweredRequest) -> Violations:
        """A broker answered a request that named an epoch or came from an incarnation of a broker."""
        yield from ()

    def on_partition_altered(self, now: ClusterState, altered: PartitionAltered) -> Violations:
        """A controller says that a proposed ISR was taken."""
        yield from ()

    def on_vote_granted(self, now: ClusterState, granted: VoteGranted) -> Violations:
        """A voter is about to say that a candidate has its vote."""
        yield from ()

    def on_end_told(self, now: ClusterState, told: EndOffsetSent) -> Violations:
        """A leader tells a client where a log ends."""
        yield from ()

    def on_end_heard(self, now: ClusterState, heard: EndOffsetReceived) -> Violations:
        """A client hears where a log ends."""
        yield from ()
