"""Values of the messages of metadata.proto. Written by `make proto`: change the .proto file instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek_proto.messages import Message


class MetadataRecord(Message, frozen=True):
    register_broker: RegisterBrokerRecord | None = None
    broker_state: BrokerStateRecord | None = None
    topic: TopicRecord | None = None
    remove_topic: RemoveTopicRecord | None = None
    partition: PartitionRecord | None = None
    partition_change: PartitionChangeRecord | None = None
    config: ConfigRecord | None = None
    producer_ids: ProducerIdsRecord | None = None
    no_op: NoOpRecord | None = None
    cluster: ClusterRecord | None = None
    user_scram_credential: UserScramCredentialRecord | None = None
    remove_user_scram_credential: RemoveUserScramCredentialRecord | None = None
    access_control_entry: AccessControlEntryRecord | None = None
    remove_access_control_entry: RemoveAccessControlEntryRecord | None = None
    client_quota: ClientQuotaRecord | None = None
    unregister_broker: UnregisterBrokerRecord | None = None


class ClusterRecord(Message, frozen=True):
    cluster_id: str = ""


class RegisterBrokerRecord(Message, frozen=True):
    """The broker epoch is the offset of this record."""

    broker_id: int = 0
    incarnation_id: bytes = b""
    endpoints: Mapping[str, str] = {}
    rack: str = ""
    log_directory_id: bytes = b""
    fenced: bool = False
    # Set when a standing registration of the same incarnation is amended: the epoch stays.
    broker_epoch: int | None = None
    in_controlled_shutdown: bool = False  # only in a snapshot


class BrokerStateRecord(Message, frozen=True):
    broker_id: int = 0
    broker_epoch: int = 0
    fenced: bool = False
    in_controlled_shutdown: bool = False


class UnregisterBrokerRecord(Message, frozen=True):
    broker_id: int = 0
    broker_epoch: int = 0


class TopicRecord(Message, frozen=True):
    name: str = ""
    topic_id: bytes = b""


class RemoveTopicRecord(Message, frozen=True):
    topic_id: bytes = b""


class PartitionRecord(Message, frozen=True):
    topic_id: bytes = b""
    partition: int = 0
    replicas: Sequence[int] = ()
    isr: Sequence[int] = ()
    leader: int = 0
    leader_epoch: int = 0
    partition_epoch: int = 0
    recovering: bool = False  # Of a new partition none of these is set; a snapshot has them (KIP-630).
    eligible: Sequence[int] = ()
    last_known_eligible: Sequence[int] = ()
    adding_replicas: Sequence[int] = ()
    removing_replicas: Sequence[int] = ()


class PartitionChangeRecord(Message, frozen=True):
    """What is absent stays as it is. The partition epoch goes up by one with each of these."""

    topic_id: bytes = b""
    partition: int = 0
    isr: Sequence[int] = ()
    isr_changed: bool = False
    leader: int | None = None
    bump_leader_epoch: bool = False
    recovering: bool | None = None
    unclean: bool = False  # this election was unclean
    eligible: Sequence[int] = ()  # eligible leader replicas (KIP-966)
    eligible_changed: bool = False
    last_known_eligible: Sequence[int] = ()
    replicas: Sequence[int] = ()
    replicas_changed: bool = False
    # Of a reassignment on its way (KIP-455), both lists together; both empty: it is over.
    adding_replicas: Sequence[int] = ()
    removing_replicas: Sequence[int] = ()
    reassignment_changed: bool = False


class ConfigRecord(Message, frozen=True):
    resource_type: str = ""  # topic, broker, group
    resource_name: str = ""
    name: str = ""
    value: str | None = None  # absent: removed


class ProducerIdsRecord(Message, frozen=True):
    broker_id: int = 0
    broker_epoch: int = 0
    next_producer_id: int = 0


class NoOpRecord(Message, frozen=True):
    pass


class UserScramCredentialRecord(Message, frozen=True):
    """What RFC 5802 has a server keep of a password, which is not the password."""

    name: str = ""
    mechanism: str = ""  # SCRAM-SHA-256, SCRAM-SHA-512
    salt: bytes = b""
    stored_key: bytes = b""
    server_key: bytes = b""
    iterations: int = 0


class RemoveUserScramCredentialRecord(Message, frozen=True):
    name: str = ""
    mechanism: str = ""


class AccessControlEntryRecord(Message, frozen=True):
    """An ACL. The numbers are those of Kafka's ResourceType, PatternType, AclOperation and AclPermissionType."""

    id: bytes = b""
    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 0
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


class RemoveAccessControlEntryRecord(Message, frozen=True):
    id: bytes = b""


class ClientQuotaRecord(Message, frozen=True):
    """What a user, a client id, or one with the other may take in a second (KIP-546). `<default>` is for all without a
    name.
    """

    user: str | None = None
    client_id: str | None = None
    key: str = ""  # producer_byte_rate, consumer_byte_rate, request_percentage
    value: float | None = None  # unset: removed
