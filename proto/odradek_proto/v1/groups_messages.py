"""Values of the messages of groups.proto. Written by `make proto`: change the .proto file instead."""

from __future__ import annotations

from collections.abc import Sequence

from odradek_proto.messages import Message


class FindCoordinatorRequest(Message, frozen=True):
    group_id: str = ""


class FindCoordinatorResponse(Message, frozen=True):
    error_code: int = 0
    error_message: str = ""
    broker_id: int = 0  # -1 with an error


class TopicPartitions(Message, frozen=True):
    topic_id: bytes = b""
    topic: str = ""  # in answers; empty when the broker knows it no more
    partitions: Sequence[int] = ()


class Assignment(Message, frozen=True):
    topics: Sequence[TopicPartitions] = ()


class ConsumerGroupHeartbeatRequest(Message, frozen=True):
    """What is absent has not changed since the member's last heartbeat."""

    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0  # 0 joins, -1 leaves, -2 leaves as a static member that comes back
    group_instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    subscription: Subscription | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None
    client_id: str = ""


class Subscription(Message, frozen=True):
    topics: Sequence[str] = ()
    pattern: str = ""  # a regular expression as RE2 has them; empty for none


class ConsumerGroupHeartbeatResponse(Message, frozen=True):
    error_code: int = 0
    error_message: str = ""
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None  # only when it changed


class OffsetCommitRequest(Message, frozen=True):
    group_id: str = ""
    member_epoch: int = 0  # or generation; -1 of who is no member
    member_id: str = ""
    group_instance_id: str | None = None
    offsets: Sequence[PartitionOffset] = ()


class PartitionOffset(Message, frozen=True):
    topic: str = ""
    partition: int = 0
    offset: int = 0  # -1: none is committed
    leader_epoch: int = 0  # of the record before it, -1: not known
    metadata: str = ""
    error_code: int = 0  # in answers


class OffsetCommitResponse(Message, frozen=True):
    error_code: int = 0
    partitions: Sequence[PartitionOutcome] = ()


class PartitionOutcome(Message, frozen=True):
    topic: str = ""
    partition: int = 0
    error_code: int = 0


class OffsetFetchRequest(Message, frozen=True):
    group_id: str = ""
    all_partitions: bool = False  # that have a committed offset
    partitions: Sequence[NamedPartition] = ()
    member_id: str = ""  # empty: no member asks
    member_epoch: int = 0


class NamedPartition(Message, frozen=True):
    topic: str = ""
    partition: int = 0


class OffsetFetchResponse(Message, frozen=True):
    error_code: int = 0
    offsets: Sequence[PartitionOffset] = ()


class OffsetDeleteRequest(Message, frozen=True):
    group_id: str = ""
    partitions: Sequence[NamedPartition] = ()


class OffsetDeleteResponse(Message, frozen=True):
    error_code: int = 0
    partitions: Sequence[PartitionOutcome] = ()


class ListGroupsRequest(Message, frozen=True):
    states: Sequence[str] = ()  # none: all
    types: Sequence[str] = ()


class ListGroupsResponse(Message, frozen=True):
    error_code: int = 0
    groups: Sequence[ListedGroup] = ()


class ListedGroup(Message, frozen=True):
    group_id: str = ""
    protocol_type: str = ""
    state: str = ""
    type: str = ""  # "classic" or "consumer"


class DescribeGroupRequest(Message, frozen=True):
    group_id: str = ""


class DescribeGroupResponse(Message, frozen=True):
    error_code: int = 0
    error_message: str = ""
    type: str = ""  # "classic" or "consumer"
    state: str = ""
    protocol_type: str = ""  # "consumer" of consumers
    assignor: str = ""  # of a classic group: the protocol that its members agreed on
    group_epoch: int = 0  # of a group of KIP-848
    assignment_epoch: int = 0
    members: Sequence[GroupMember] = ()


class GroupMember(Message, frozen=True):
    member_id: str = ""
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    member_epoch: int = 0
    assignment: Assignment | None = None
    target: Assignment | None = None
    classic_assignment: bytes = b""  # as the leader of a classic group wrote it


class DeleteGroupRequest(Message, frozen=True):
    group_id: str = ""


class DeleteGroupResponse(Message, frozen=True):
    error_code: int = 0
