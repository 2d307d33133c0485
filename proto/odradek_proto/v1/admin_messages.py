"""Values of the messages of admin.proto. Written by `make proto`: change the .proto file instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek_proto.messages import Message


class CreateTopicsRequest(Message, frozen=True):
    topics: Sequence[NewTopic] = ()
    timeout_ms: int = 0
    validate_only: bool = False


class NewTopic(Message, frozen=True):
    name: str = ""
    partitions: int = 0  # -1: num.partitions
    replication_factor: int = 0  # -1: default.replication.factor
    configs: Mapping[str, str] = {}
    assignments: Sequence[ReplicaAssignment] = ()  # when given, the two counts must be -1


class ReplicaAssignment(Message, frozen=True):
    partition: int = 0
    broker_ids: Sequence[int] = ()


class CreateTopicsResponse(Message, frozen=True):
    topics: Sequence[CreatedTopic] = ()


class CreatedTopic(Message, frozen=True):
    name: str = ""
    error_code: int = 0
    error_message: str = ""
    topic_id: bytes = b""
    partitions: int = 0
    replication_factor: int = 0


class DeleteTopicsRequest(Message, frozen=True):
    topics: Sequence[str] = ()
    timeout_ms: int = 0


class DeleteTopicsResponse(Message, frozen=True):
    topics: Sequence[TopicResult] = ()


class TopicResult(Message, frozen=True):
    name: str = ""
    error_code: int = 0
    error_message: str = ""


class CreatePartitionsRequest(Message, frozen=True):
    topic: str = ""
    count: int = 0  # the new total
    timeout_ms: int = 0
    assignments: Sequence[ReplicaAssignment] = ()  # of the new partitions; none: the controller places them
    validate_only: bool = False


class CreatePartitionsResponse(Message, frozen=True):
    error_code: int = 0
    error_message: str = ""


class DescribeConfigsRequest(Message, frozen=True):
    resource_type: str = ""  # topic, broker, group, broker-logger
    resource_name: str = ""


class DescribeConfigsResponse(Message, frozen=True):
    error_code: int = 0
    error_message: str = ""
    entries: Sequence[ConfigEntry] = ()


class ConfigEntry(Message, frozen=True):
    name: str = ""
    value: str = ""
    source: str = ""  # topic, group, broker, cluster, node, default
    read_only: bool = False
    sensitive: bool = False  # the value is not told
    type: str = ""  # boolean, int, long, double, string, list
    synonyms: Sequence[ConfigSynonym] = ()  # what would hold in its place, the value itself first


class ConfigSynonym(Message, frozen=True):
    """A value from one of the places where a setting may be given, by the name that it has there."""

    name: str = ""
    value: str = ""
    source: str = ""


class ListConfigResourcesRequest(Message, frozen=True):
    resource_types: Sequence[str] = ()  # topic, broker, group; none: all


class ListConfigResourcesResponse(Message, frozen=True):
    error_code: int = 0
    error_message: str = ""
    resources: Sequence[ConfigResource] = ()


class ConfigResource(Message, frozen=True):
    """A topic, a group, a broker, or all brokers, whose name is empty, with the settings that it was given while the
    cluster ran.
    """

    resource_type: str = ""
    resource_name: str = ""
    configs: Mapping[str, str] = {}


class AlterConfigsRequest(Message, frozen=True):
    resource_type: str = ""
    resource_name: str = ""
    set: Mapping[str, str] = {}
    unset: Sequence[str] = ()
    validate_only: bool = False
    append: Mapping[str, str] = {}  # to lists, and what is taken out of them, with commas
    subtract: Mapping[str, str] = {}
    replace: bool = False  # what is not named goes back to its default


class AlterConfigsResponse(Message, frozen=True):
    error_code: int = 0
    error_message: str = ""


class ElectLeadersRequest(Message, frozen=True):
    election_type: str = ""  # preferred, unclean
    partitions: Sequence[ElectPartition] = ()  # none: all


class ElectPartition(Message, frozen=True):
    topic: str = ""
    partition: int = 0


class ElectLeadersResponse(Message, frozen=True):
    error_code: int = 0
    partitions: Sequence[ElectionResult] = ()


class ElectionResult(Message, frozen=True):
    topic: str = ""
    partition: int = 0
    error_code: int = 0
    error_message: str = ""


class UnregisterBrokerRequest(Message, frozen=True):
    broker_id: int = 0


class UnregisterBrokerResponse(Message, frozen=True):
    error_code: int = 0
    error_message: str = ""


class DescribeQuorumRequest(Message, frozen=True):
    pass


class DescribeQuorumResponse(Message, frozen=True):
    error_code: int = 0
    leader_id: int = 0
    leader_epoch: int = 0
    high_watermark: int = 0
    voters: Sequence[QuorumReplica] = ()
    observers: Sequence[QuorumReplica] = ()
    snapshot_end_offset: int | None = None  # of the leader's newest snapshot; absent: it has none
    log_start_offset: int = 0  # of the leader's metadata log


class QuorumReplica(Message, frozen=True):
    node_id: int = 0
    log_end_offset: int = 0
    last_fetch_ms: int = 0  # milliseconds ago
    last_caught_up_ms: int = 0  # milliseconds ago


class AlterPartitionReassignmentsRequest(Message, frozen=True):
    """Other replicas for partitions (KIP-455)."""

    partitions: Sequence[ReassignedPartition] = ()
    timeout_ms: int = 0
    keep_replication_factor: bool = False  # refuse a target of another size (KIP-860)


class ReassignedPartition(Message, frozen=True):
    topic: str = ""
    partition: int = 0
    replicas: Sequence[int] = ()  # the target, preferred leader first; none: cancel what is on its way


class AlterPartitionReassignmentsResponse(Message, frozen=True):
    error_code: int = 0
    error_message: str = ""
    partitions: Sequence[ReassignmentResult] = ()


class ReassignmentResult(Message, frozen=True):
    topic: str = ""
    partition: int = 0
    error_code: int = 0
    error_message: str = ""


class ListPartitionReassignmentsRequest(Message, frozen=True):
    partitions: Sequence[ElectPartition] = ()  # none: all


class ListPartitionReassignmentsResponse(Message, frozen=True):
    error_code: int = 0
    error_message: str = ""
    partitions: Sequence[OngoingReassignment] = ()


class OngoingReassignment(Message, frozen=True):
    """A partition whose replicas are on their way from `replicas` without the adding ones to it without the removing
    ones.
    """

    topic: str = ""
    partition: int = 0
    replicas: Sequence[int] = ()
    adding_replicas: Sequence[int] = ()
    removing_replicas: Sequence[int] = ()


class DescribeUserScramCredentialsRequest(Message, frozen=True):
    users: Sequence[str] = ()  # none: all


class DescribeUserScramCredentialsResponse(Message, frozen=True):
    users: Sequence[DescribedUser] = ()
    error_code: int = 0
    error_message: str = ""


class DescribedUser(Message, frozen=True):
    name: str = ""
    error_code: int = 0
    error_message: str = ""
    credentials: Sequence[ScramCredentialInfo] = ()


class ScramCredentialInfo(Message, frozen=True):
    mechanism: str = ""
    iterations: int = 0


class AlterUserScramCredentialsRequest(Message, frozen=True):
    deletions: Sequence[ScramCredentialDeletion] = ()
    upsertions: Sequence[ScramCredentialUpsertion] = ()


class ScramCredentialDeletion(Message, frozen=True):
    name: str = ""
    mechanism: str = ""


class ScramCredentialUpsertion(Message, frozen=True):
    name: str = ""
    mechanism: str = ""
    iterations: int = 0
    salt: bytes = b""
    salted_password: bytes = b""


class AlterUserScramCredentialsResponse(Message, frozen=True):
    users: Sequence[AlteredUser] = ()


class AlteredUser(Message, frozen=True):
    name: str = ""
    error_code: int = 0
    error_message: str = ""


class AclBinding(Message, frozen=True):
    """The numbers are those of Kafka's ResourceType, PatternType, AclOperation and AclPermissionType."""

    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 0
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


class AclFilter(Message, frozen=True):
    resource_type: int = 0
    resource_name: str | None = None  # absent: any
    pattern_type: int = 0
    principal: str | None = None
    host: str | None = None
    operation: int = 0
    permission_type: int = 0


class DescribeAclsRequest(Message, frozen=True):
    filter: AclFilter | None = None


class DescribeAclsResponse(Message, frozen=True):
    error_code: int = 0
    error_message: str = ""
    acls: Sequence[AclBinding] = ()


class CreateAclsRequest(Message, frozen=True):
    acls: Sequence[AclBinding] = ()


class CreateAclsResponse(Message, frozen=True):
    results: Sequence[AclResult] = ()  # in the order of the request
    error_code: int = 0  # of the whole request: there are no results then
    error_message: str = ""


class AclResult(Message, frozen=True):
    error_code: int = 0
    error_message: str = ""


class DeleteAclsRequest(Message, frozen=True):
    filters: Sequence[AclFilter] = ()


class DeleteAclsResponse(Message, frozen=True):
    results: Sequence[DeletedAcls] = ()  # in the order of the request
    error_code: int = 0  # of the whole request: there are no results then
    error_message: str = ""


class DeletedAcls(Message, frozen=True):
    error_code: int = 0
    error_message: str = ""
    acls: Sequence[AclBinding] = ()


class QuotaName(Message, frozen=True):
    """One half of an entity, or all of it."""

    type: str = ""  # user, client-id
    name: str | None = None  # unset: all who have no quota by name


class QuotaValue(Message, frozen=True):
    key: str = ""  # producer_byte_rate, consumer_byte_rate, request_percentage
    value: float | None = None  # unset: it is removed


class QuotaFilter(Message, frozen=True):
    type: str = ""
    match_type: int = 0  # Kafka's: 0 the name `match`, 1 the default, 2 whoever is named at all
    match: str = ""


class DescribeClientQuotasRequest(Message, frozen=True):
    filters: Sequence[QuotaFilter] = ()
    strict: bool = False  # and about nothing else


class DescribeClientQuotasResponse(Message, frozen=True):
    entries: Sequence[DescribedQuota] = ()
    error_code: int = 0
    error_message: str = ""


class DescribedQuota(Message, frozen=True):
    entity: Sequence[QuotaName] = ()
    values: Sequence[QuotaValue] = ()


class AlterClientQuotasRequest(Message, frozen=True):
    entries: Sequence[QuotaAlteration] = ()
    validate_only: bool = False


class QuotaAlteration(Message, frozen=True):
    entity: Sequence[QuotaName] = ()
    values: Sequence[QuotaValue] = ()


class AlterClientQuotasResponse(Message, frozen=True):
    entries: Sequence[AlteredQuota] = ()  # in the order of the request
    error_code: int = 0
    error_message: str = ""


class AlteredQuota(Message, frozen=True):
    error_code: int = 0
    error_message: str = ""
    entity: Sequence[QuotaName] = ()
