"""A world as invariants see it, made by hand: three brokers, one partition, and records committed up to 8."""

from __future__ import annotations

import random

from odradek_broker.core.metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage
from odradek_chaos.worlds.simulated.checks.history import BatchSummary
from odradek_chaos.worlds.simulated.checks.invariant import Invariant, ReplicaChange, Violation, changes_of
from odradek_chaos.worlds.simulated.checks.state import METADATA, ClusterState, QuorumNodeState, ReplicaState
from odradek_chaos.worlds.simulated.cluster.timeline import TimelineEvent
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.disk.inodes import Inode
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop

T = "t-0"
LEADER = ReplicaState(1, 1, T, 5, 10, 8, is_leader=True, leader=1, isr=(1, 2), maximal_isr=(1, 2))
FOLLOWER = ReplicaState(2, 1, T, 5, 10, 8, leader=1)
QUORUM_LEADER = QuorumNodeState(1, 1, 3, 8, 10, True)

REGISTRATION = PartitionRegistration((1, 2, 3), (1, 2), 1, leader_epoch=5, partition_epoch=7)
BEHIND_A_LAST_MEMBER = PartitionRegistration((1, 2, 3), (2,), -1, leader_epoch=5, partition_epoch=7)
TAKEN_OUT = PartitionRegistration((1, 2, 3), (3,), 3, leader_epoch=5, partition_epoch=7)
ALONE = PartitionRegistration((1, 2, 3), (1,), 1, leader_epoch=5, partition_epoch=7)


def image(
    of: PartitionRegistration, *fenced: int, offset: int = 9, incarnation: bytes = b"a", broker_epoch: int = 1
) -> MetadataImage:
    return MetadataImage(
        offset=offset,
        brokers={
            each: BrokerRegistration(each, broker_epoch, incarnation, {}, fenced=each in fenced) for each in (1, 2, 3)
        },
        topics={"t": TopicImage("t", b"id", {0: of})},
    )


def everything(*seen: ReplicaState, of: PartitionRegistration | None = None) -> ClusterState:
    """The world as it is, with committed records up to 8."""
    now = ClusterState(replicas={(each.broker_id, each.partition): each for each in seen})
    now.image = image(of or REGISTRATION)
    now.newest_epochs[T] = 5
    now.disks = {each: SimDisk(random.Random(1)) for each in (1, 2, 3)}
    for each in (1, 2, 3):
        fill(now, each, 8)
    assert now.history(T).commit(1, 8) is None
    return now


def fill(now: ClusterState, replica: int, end: int, epoch: int = 5, segment: Inode | None = None) -> None:
    view = now.history(T).view(replica)
    view.batches = [BatchSummary(at, at + 1, epoch, at, -1, -1, -1, segment, at + 1) for at in range(end)]


def write_metadata_file(now: ClusterState, name: str, content: bytes = b"", *, flushed: bool = True) -> None:
    """A file beside the metadata log of broker 1."""
    files = SimFiles(now.disks[1], SimLoop(1), random.Random(2))
    files.makedirs(f"/data/{METADATA}")
    file = files.open(f"/data/{METADATA}/{name}", create=True)
    file.pwritev([content], 0)
    if flushed:
        file.fsync()


def moment(event: str, broker_id: int, **facts: object) -> TimelineEvent:
    return TimelineEvent(0, broker_id, event, T, facts)


def told(invariant: Invariant, now: ClusterState, seen: ReplicaState, before: ReplicaState | None) -> list[Violation]:
    """What it says of a replica, if the watcher asks it."""
    return (
        list(invariant.on_replica(now, seen, before))
        if invariant.is_asked(ReplicaChange(changes_of(seen, before)))
        else []
    )
