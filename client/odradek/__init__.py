"""odradek's client: `Producer`, `Consumer` and `Admin` for asyncio; `odradek.sync` has the same three without it."""

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition

from odradek import broker_errors
from odradek.admin import Admin
from odradek.consumer import Consumer
from odradek.delivery import Delivery
from odradek.descriptions import (
    BrokerDescription,
    ClusterDescription,
    ConfigEntry,
    CreatedTopic,
    EpochStart,
    NewTopic,
    PartitionDescription,
    QuorumDescription,
    QuorumReplica,
    RemoteReplicaDescription,
    ReplicaDescription,
    ReplicasDescription,
    TopicDescription,
)
from odradek.errors import (
    BootstrapError,
    BrokerError,
    BrokerUnreachable,
    BufferFull,
    ClientClosed,
    ClientError,
    ConfigError,
    CorruptRecords,
    DeliveryTimeout,
    LogTruncated,
    NoOffset,
    NotAssigned,
    OdradekError,
    RecordTooLarge,
    RequestTimeout,
    SerializationError,
    UnknownTopic,
    UnsupportedFeature,
)
from odradek.producer import Producer
from odradek.results import ConsumerRecord, OffsetAndTimestamp, RecordMetadata, Watermarks

__all__ = [
    "Admin",
    "BootstrapError",
    "BrokerDescription",
    "BrokerError",
    "BrokerUnreachable",
    "BufferFull",
    "ClientClosed",
    "ClientError",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigError",
    "Consumer",
    "ConsumerRecord",
    "CorruptRecords",
    "CreatedTopic",
    "Delivery",
    "DeliveryTimeout",
    "EpochStart",
    "ErrorCode",
    "LogTruncated",
    "NewTopic",
    "NoOffset",
    "NotAssigned",
    "OdradekError",
    "OffsetAndTimestamp",
    "PartitionDescription",
    "Producer",
    "QuorumDescription",
    "QuorumReplica",
    "RecordMetadata",
    "RecordTooLarge",
    "RemoteReplicaDescription",
    "ReplicaDescription",
    "ReplicasDescription",
    "RequestTimeout",
    "SerializationError",
    "TopicDescription",
    "TopicPartition",
    "UnknownTopic",
    "UnsupportedFeature",
    "Watermarks",
    "broker_errors",
]
