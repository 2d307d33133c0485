"""The messages between the core of consumer groups and the rim: requests, their responses, and effects.

One `GroupCoordinatorShard` (shard.py) holds the groups and the committed offsets of one partition of
`__consumer_offsets` that this broker leads, for one leader epoch (K-42). It gets requests with a token that identifies
the caller, and returns effects: `WriteRecords` is one batch, appended to the partition at once by the rim, and reported
back by `on_written` when it is committed; `GroupReply` answers the caller of a token, once.

State changes when a batch is appended; a response that depends on it is sent when it is committed (K-43). If a commit
is uncertain (an error, a timeout) the rim unloads the shard and loads it again.

Values have the nouns of Kafka's messages; times are ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeAlias

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.values import Value

NO_GENERATION = -1
NO_OFFSET = -1
NO_EPOCH = -1
MAX_METADATA_BYTES = 4_096  # offset.metadata.max.bytes

JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH = 0, -1, -2  # as the member epoch of a ConsumerGroupHeartbeat


class GroupSettings(Value, frozen=True):
    """Kafka's settings of the same names, with dots: group.min.session.timeout.ms and so on."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = MAX_METADATA_BYTES
    max_record_bytes: int = 1_048_000  # max.message.bytes of the offsets topic, without what a batch adds
    offsets_retention_ms: int = 604_800_000
    offsets_retention_check_interval_ms: int = 600_000
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_max_size: int = 2_147_483_647
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    upgrades: bool = True  # group.consumer.migration.policy: of classic groups with members
    downgrades: bool = True
    max_groups: int = 2_000  # odradek.group.max.groups


class MetadataView(Protocol):
    """What groups must know of topics and of their own settings: the broker's metadata image, as it is now."""

    def topic_id(self, name: str) -> bytes | None: ...

    def topic_name(self, topic_id: bytes) -> str | None: ...

    def partition_count(self, name: str) -> int | None: ...

    def topic_names(self) -> Iterable[str]: ...

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        """What is set for this group alone (`core.metadata.group_configs`)."""
        ...


# --- Classic groups -------------------------------------------------------------------------------------------------


class MemberProtocol(Value, frozen=True):
    name: str
    metadata: bytes  # opaque (K-44)


class JoinGroup(Value, frozen=True):
    group_id: str
    member_id: str  # "" at first
    group_instance_id: str | None
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int  # of version 0: the session timeout
    client_id: str = ""
    client_host: str = ""
    requires_known_member_id: bool = True  # v4+: MEMBER_ID_REQUIRED for a dynamic member without an id
    supports_skipping_assignment: bool = True  # v9+


class JoinedMember(Value, frozen=True):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinGroupAnswer(Value, frozen=True):
    error: ErrorCode
    member_id: str = ""
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()  # for the leader only


class SyncGroup(Value, frozen=True):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = {}  # the leader's, by member id


class SyncGroupAnswer(Value, frozen=True):
    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Heartbeat(Value, frozen=True):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


class ErrorAnswer(Value, frozen=True):
    """All that Heartbeat, DeleteGroup and a refusal of a whole request have to say."""

    error: ErrorCode
    message: str | None = None


class LeavingMember(Value, frozen=True):
    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class LeaveGroup(Value, frozen=True):
    group_id: str
    members: tuple[LeavingMember, ...]


class LeaveGroupAnswer(Value, frozen=True):
    error: ErrorCode
    members: tuple[tuple[LeavingMember, ErrorCode], ...] = ()  # in the order of the request


# --- KIP-848 --------------------------------------------------------------------------------------------------------

Assignment: TypeAlias = Mapping[bytes, tuple[int, ...]]
"""Partitions by topic id, ascending."""


class ConsumerGroupHeartbeat(Value, frozen=True):
    """None: unchanged since the last heartbeat; -1 as `rebalance_timeout_ms` likewise."""

    group_id: str
    member_id: str
    member_epoch: int
    group_instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None  # topic_partitions
    client_id: str = ""
    client_host: str = ""
    may_describe: Callable[[str], bool] | None = None  # the topics that an expression may find; None: all


class ConsumerGroupHeartbeatAnswer(Value, frozen=True):
    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None  # only when it changed


# --- Offsets, for both kinds ----------------------------------------------------------------------------------------


class OffsetToCommit(Value, frozen=True):
    topic_partition: TopicPartition
    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str | None = None
    error: ErrorCode = ErrorCode.NONE  # found by the rim: an unknown topic; reported and not written


class OffsetCommit(Value, frozen=True):
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    offsets: tuple[OffsetToCommit, ...]
    retention_time_ms: int = -1  # v2 to v4


class OffsetCommitAnswer(Value, frozen=True):
    """`error` is of the whole request, and then of each of its partitions."""

    error: ErrorCode
    partitions: tuple[tuple[TopicPartition, ErrorCode], ...] = ()


class OffsetFetch(Value, frozen=True):
    group_id: str
    topic_partitions: tuple[TopicPartition, ...] | None  # None: all that are committed
    member_id: str | None = None  # v9+
    member_epoch: int = NO_EPOCH


class FetchedOffset(Value, frozen=True):
    topic_partition: TopicPartition
    offset: int = NO_OFFSET
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


class OffsetFetchAnswer(Value, frozen=True):
    error: ErrorCode
    offsets: tuple[FetchedOffset, ...] = ()


class OffsetDelete(Value, frozen=True):
    group_id: str
    topic_partitions: tuple[TopicPartition, ...]


class OffsetDeleteAnswer(Value, frozen=True):
    error: ErrorCode
    partitions: tuple[tuple[TopicPartition, ErrorCode], ...] = ()


# --- Groups as a whole ----------------------------------------------------------------------------------------------


class DeleteGroup(Value, frozen=True):
    group_id: str


class ListGroups(Value, frozen=True):
    states: tuple[str, ...] = ()  # compared without case; none: all
    types: tuple[str, ...] = ()


class ListedGroup(Value, frozen=True):
    group_id: str
    protocol_type: str
    state: str
    type: str  # "classic" or "consumer"


class ListGroupsAnswer(Value, frozen=True):
    error: ErrorCode
    groups: tuple[ListedGroup, ...] = ()


class DescribeGroup(Value, frozen=True):
    """DescribeGroups, one group of it: classic groups."""

    group_id: str


class DescribedMember(Value, frozen=True):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribeGroupAnswer(Value, frozen=True):
    error: ErrorCode
    state: str = ""
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()
    message: str | None = None


class DescribeConsumerGroup(Value, frozen=True):
    """ConsumerGroupDescribe, one group of it."""

    group_id: str


class DescribedConsumer(Value, frozen=True):
    member_id: str
    group_instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    assignment: Assignment
    target_assignment: Assignment
    is_classic: bool = False


class DescribeConsumerGroupAnswer(Value, frozen=True):
    error: ErrorCode
    message: str | None = None
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedConsumer, ...] = ()


Request: TypeAlias = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | ConsumerGroupHeartbeat
    | OffsetCommit
    | OffsetFetch
    | OffsetDelete
    | DeleteGroup
    | ListGroups
    | DescribeGroup
    | DescribeConsumerGroup
)

Answer: TypeAlias = (
    JoinGroupAnswer
    | SyncGroupAnswer
    | ErrorAnswer
    | LeaveGroupAnswer
    | ConsumerGroupHeartbeatAnswer
    | OffsetCommitAnswer
    | OffsetFetchAnswer
    | OffsetDeleteAnswer
    | ListGroupsAnswer
    | DescribeGroupAnswer
    | DescribeConsumerGroupAnswer
)

# --- Effects --------------------------------------------------------------------------------------------------------

CoordinatorRecord: TypeAlias = tuple[bytes, bytes | None]
"""Key and value as they stand in `__consumer_offsets`; None: a tombstone."""


class WriteRecords(Value, frozen=True):
    """One batch, acks=all. `write_id` rises by one; batches are committed in its order."""

    write_id: int
    records: tuple[CoordinatorRecord, ...]


class GroupReply(Value, frozen=True):
    token: object
    answer: Answer


Effect: TypeAlias = WriteRecords | GroupReply
