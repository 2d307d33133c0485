"""What `Admin` tells: topics, brokers, replicas, the quorum. Plain frozen dataclasses, in Kafka's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from odradek_proto.topics import TopicPartition


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created. -1 takes the broker's default; with `assignments` both counts must be -1."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """What became of a `NewTopic`. `topic_id` is Kafka's text form, 22 characters."""

    name: str
    topic_id: str
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """`endpoints` maps listener names to `host:port`."""

    broker_id: int
    endpoints: Mapping[str, str]
    rack: str
    fenced: bool
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """`controller_id` is -1 when no controller is known, `listener` the one on which the broker was asked."""

    cluster_id: str
    controller_id: int
    brokers: Sequence[BrokerDescription]
    listener: str = ""


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """`leader_id` is -1 when there is no leader.

    `elr`: eligible leader replicas, which may lead although they left the ISR, once that is empty. `last_known_elr`:
    who led when it became empty, elected when nobody else can be (KIP-966).
    """

    partition: int
    leader_id: int
    leader_epoch: int
    partition_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    offline_replicas: Sequence[int]
    elr: Sequence[int] = ()
    last_known_elr: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as the metadata have it. `topic_id` is Kafka's text form; `internal`: brokers keep it for themselves."""

    name: str
    topic_id: str
    internal: bool
    partitions: Sequence[PartitionDescription]


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A value from one of the places where a setting may be given, under the name that it has there."""

    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting. `source` has Kafka's names: DYNAMIC_TOPIC_CONFIG, DYNAMIC_BROKER_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG.

    `synonyms` begins with the value that holds; the next would hold if that were taken away. The value of a
    `sensitive` setting is empty.
    """

    name: str
    value: str
    source: str
    read_only: bool
    sensitive: bool = False
    type: str = ""
    synonyms: Sequence[ConfigSynonym] = ()

    @property
    def is_default(self) -> bool:
        return self.source == "DEFAULT_CONFIG"


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A partition on its way to other replicas (KIP-455): `replicas` is the target and behind it the removing ones."""

    replicas: Sequence[int]
    adding_replicas: Sequence[int]
    removing_replicas: Sequence[int]

    @property
    def original(self) -> Sequence[int]:
        """What a cancellation goes back to."""
        return tuple(replica for replica in self.replicas if replica not in self.adding_replicas)

    @property
    def target(self) -> Sequence[int]:
        return tuple(replica for replica in self.replicas if replica not in self.removing_replicas)


@dataclass(frozen=True, slots=True)
class RemoteReplicaDescription:
    """What a leader knows of a follower by its last fetch. `log_end_offset` is -1 when it has not heard of it yet.

    `lag_ms`: how long ago it was last caught up, 0 when it is now, -1 when it never was.
    """

    broker_id: int
    log_end_offset: int
    lag_ms: int
    in_sync: bool


@dataclass(frozen=True, slots=True)
class EpochStart:
    """Where a leader epoch begins in a replica's log."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class ReplicaDescription:
    """One replica, as the broker that hosts it describes it. `role` is leader, follower or offline."""

    broker_id: int
    topic: str
    partition: int
    role: str
    leader_id: int
    leader_epoch: int
    partition_epoch: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    size_bytes: int
    isr: Sequence[int]
    remote_replicas: Sequence[RemoteReplicaDescription]
    epochs: Sequence[EpochStart]
    waiting_produces: int = 0  # requests in the broker's purgatory
    waiting_fetches: int = 0

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class ReplicasDescription:
    """The replicas of all brokers that answered; `unreachable` says of each other broker why it did not.

    `full`: the brokers whose log directory has no room.
    """

    replicas: Sequence[ReplicaDescription]
    unreachable: Mapping[int, str]
    full: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """Times are milliseconds ago."""

    node_id: int
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The metadata quorum, as its leader describes it: who votes, who only follows, and how far each is."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: Sequence[QuorumReplica]
    observers: Sequence[QuorumReplica]
    log_start_offset: int = 0  # of the leader's metadata log
    snapshot_end_offset: int | None = None  # of its newest snapshot, if it has one
