"""What a checker that sees everybody knows: plain values of the running brokers, gathered as they change.

Invariants look at these and at nothing else, so that a test can make them by hand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct
from odradek_broker.core.metadata.image import MetadataImage, PartitionRegistration
from odradek_broker.core.partition.producers import ProducerStates
from odradek_proto.values import Value

from odradek_chaos.worlds.simulated.checks.history import ReplicasHistory
from odradek_chaos.worlds.simulated.disk.disk import SimDisk

METADATA = "__cluster_metadata-0"
MIN_ISR = "min.insync.replicas"
ALL_BROKERS = ""  # whose settings are the cluster's defaults


@lru_cache(maxsize=256)
def _parts_of(partition: str) -> tuple[str, int]:
    topic, _, number = partition.rpartition("-")
    return topic, int(number)


class RemoteState(Value, frozen=True):
    """What a leader knows of one follower."""

    log_end_offset: int
    broker_epoch: int


class ReplicaState(Struct):
    """One replica on a running broker that has a role. `leader_epoch` is that of its role. Made by the thousand."""

    broker_id: int
    incarnation: int
    partition: str
    leader_epoch: int
    log_end_offset: int
    high_watermark: int
    is_leader: bool = False
    leader: int = -1  # whom it follows, or itself
    isr: tuple[int, ...] = ()  # as a leader: what it believes to be committed
    maximal_isr: tuple[int, ...] = ()
    is_proposing: bool = False  # another ISR, of which it has not heard yet whether it was taken
    partition_epoch: int = -1
    min_isr: int = 1
    remotes: dict[int, RemoteState] = {}
    producers: ProducerStates | None = None


class QuorumNodeState(NamedTuple):
    """One node of the quorum."""

    broker_id: int
    incarnation: int
    epoch: int
    high_watermark: int
    log_end_offset: int
    is_leader: bool
    log_start_offset: int = 0


@dataclass(slots=True)
class ClusterState:
    """The present state of all who run. `replicas` is by (broker, partition)."""

    disks: dict[int, SimDisk] = field(default_factory=dict)
    replicas: dict[tuple[int, str], ReplicaState] = field(default_factory=dict)
    quorum: dict[int, QuorumNodeState] = field(default_factory=dict)
    voter_ends: dict[int, int] = field(default_factory=dict)  # last known log end of each voter, dead ones included
    image: MetadataImage = field(default_factory=MetadataImage)
    images: dict[int, MetadataImage] = field(default_factory=dict)  # what each running broker has read of the metadata
    histories: dict[str, ReplicasHistory] = field(default_factory=dict)
    newest_epochs: dict[str, int] = field(default_factory=dict)  # newest leader epoch that anybody ever knew
    ended_uncleanly: dict[bytes, None] = field(default_factory=dict)  # ids of brokers' incarnations
    coordinators: dict[tuple[str, int], int] = field(default_factory=dict)  # by offsets partition and leader epoch
    damaged: dict[tuple[int, str], int] = field(default_factory=dict)  # and the incarnation that was replaced, or -1
    lacking: dict[tuple[int, str], None] = field(default_factory=dict)  # copies that lacked records at a start
    lost_disks: dict[int, None] = field(default_factory=dict)  # brokers that came back with an empty one
    min_isr: int = 1  # min.insync.replicas of the nodes
    flushes_before_ack: bool = False
    holds_under_min_isr: bool = True  # the old protocol does not (L-4)
    root: str = "/data"

    def history(self, partition: str) -> ReplicasHistory:
        found = self.histories.get(partition)
        if found is None:
            found = self.histories[partition] = ReplicasHistory(f"{self.root}/{partition}")
        return found

    def committed_end(self, partition: str) -> int:
        """TrueHW: everything below was once below a high watermark."""
        found = self.histories.get(partition)
        return found.committed_end if found is not None else 0

    def registration(self, partition: str) -> PartitionRegistration | None:
        topic, number = _parts_of(partition)
        found = self.image.topics.get(topic)
        return found.partitions.get(number) if found is not None else None

    def min_isr_of(self, partition: str, image: MetadataImage) -> int:
        """min.insync.replicas by an image: of the topic, of the cluster, of the nodes. It may be more than there are
        replicas."""
        for configs in (image.topic_configs.get(_parts_of(partition)[0]), image.broker_configs.get(ALL_BROKERS)):
            if configs and MIN_ISR in configs:
                return int(configs[MIN_ISR])
        return self.min_isr

    def registered_epoch(self, reader: int, broker_id: int) -> int:
        """The broker epoch of another broker that this one has read of, -1 for none."""
        image = self.images.get(reader)
        found = image.brokers.get(broker_id) if image is not None else None
        return found.broker_epoch if found is not None else -1

    def is_newest(self, seen: ReplicaState) -> bool:
        """Whether nobody has ever known a newer leader epoch than this replica is in."""
        return seen.leader_epoch >= self.newest_epochs.get(seen.partition, -1)
