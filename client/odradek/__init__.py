"""odradek's client: `Producer`, `Consumer` and `Admin` for asyncio; `odradek.sync` has the same three without it."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as type checkers know it: `typing` is not loaded before the command can be interrupted
if TYPE_CHECKING:
    from typing import Any

    from odradek_proto.errors import ErrorCode
    from odradek_proto.topics import TopicPartition

    from odradek import broker_errors
    from odradek.administration.admin import Admin
    from odradek.administration.descriptions import (
        BrokerDescription,
        ClusterDescription,
        ConfigEntry,
        ConfigSynonym,
        CreatedTopic,
        EpochStart,
        NewTopic,
        PartitionDescription,
        PartitionReassignment,
        QuorumDescription,
        QuorumReplica,
        RemoteReplicaDescription,
        ReplicaDescription,
        ReplicasDescription,
        TopicDescription,
    )
    from odradek.administration.groups import GroupDescription, GroupListing, MemberDescription
    from odradek.consuming.consumer import Consumer
    from odradek.producing.delivery import Delivery
    from odradek.producing.producer import Producer
    from odradek.shared.errors import (
        BootstrapError,
        BrokerError,
        BrokerUnreachable,
        BufferFull,
        ClientClosed,
        ClientError,
        ClientFailed,
        CommitFailed,
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
    from odradek.shared.results import ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp, RecordMetadata, Watermarks

__all__ = [
    "Admin", "BootstrapError", "BrokerDescription", "BrokerError", "BrokerUnreachable", "BufferFull", "ClientClosed",
    "ClientError", "ClientFailed", "ClusterDescription", "CommitFailed", "ConfigEntry", "ConfigError", "ConfigSynonym",
    "Consumer", "ConsumerRecord", "CorruptRecords", "CreatedTopic", "Delivery", "DeliveryTimeout", "EpochStart",
    "ErrorCode", "GroupDescription", "GroupListing", "LogTruncated", "MemberDescription", "NewTopic", "NoOffset",
    "NotAssigned", "OdradekError", "OffsetAndMetadata", "OffsetAndTimestamp", "PartitionDescription",
    "PartitionReassignment", "Producer", "QuorumDescription", "QuorumReplica", "RecordMetadata", "RecordTooLarge",
    "RemoteReplicaDescription", "ReplicaDescription", "ReplicasDescription", "RequestTimeout", "SerializationError",
    "TopicDescription", "TopicPartition", "UnknownTopic", "UnsupportedFeature", "Watermarks", "broker_errors",
]  # fmt: skip

# A module is loaded when one of its names is asked for: `odradek --help` needs none, an admin needs no producer.
_NAMES = {
    "odradek_proto.errors": "ErrorCode",
    "odradek_proto.topics": "TopicPartition",
    "odradek.administration.admin": "Admin",
    "odradek.consuming.consumer": "Consumer",
    "odradek.producing.delivery": "Delivery",
    "odradek.administration.descriptions": (
        "BrokerDescription ClusterDescription ConfigEntry ConfigSynonym CreatedTopic EpochStart NewTopic "
        "PartitionDescription PartitionReassignment QuorumDescription QuorumReplica RemoteReplicaDescription "
        "ReplicaDescription ReplicasDescription TopicDescription"
    ),
    "odradek.administration.groups": "GroupDescription GroupListing MemberDescription",
    "odradek.shared.errors": (
        "BootstrapError BrokerError BrokerUnreachable BufferFull ClientClosed ClientError ClientFailed CommitFailed "
        "ConfigError CorruptRecords DeliveryTimeout LogTruncated NoOffset NotAssigned OdradekError RecordTooLarge "
        "RequestTimeout SerializationError UnknownTopic UnsupportedFeature"
    ),
    "odradek.producing.producer": "Producer",
    "odradek.shared.results": "ConsumerRecord OffsetAndMetadata OffsetAndTimestamp RecordMetadata Watermarks",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

if not TYPE_CHECKING:  # type checkers shall see the names above, and complain about others

    def __getattr__(name: str) -> Any:
        """An exported name, or a submodule, on its first use."""
        if name in _MODULE_OF:
            value = getattr(import_module(_MODULE_OF[name]), name)
        elif name in __all__:
            value = import_module(f"odradek.{name}")
        else:
            from odradek.shared.kafka import CLASSES

            if name in CLASSES:
                raise ImportError(f"odradek has no {name}; its name here is {CLASSES[name]}", name="odradek")
            raise AttributeError(f"module 'odradek' has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted(__all__)
