"""What holds for one topic: its own setting, else the cluster's dynamic default, else the broker's file."""

from __future__ import annotations

from collections.abc import Mapping

from odradek_proto.values import Value

from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.partition.messages import PartitionSettings
from odradek_broker.settings import BrokerSettings
from odradek_broker.storage.settings import LogSettings

CLUSTER_DEFAULT = ""

BROKER_NAME: Mapping[str, str] = {
    "retention.ms": "log.retention.ms",
    "retention.bytes": "log.retention.bytes",
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
    "segment.index.bytes": "log.index.size.max.bytes",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
}


class _Layers(Value, frozen=True):
    """The dynamic settings of one topic, nearest first."""

    topic: Mapping[str, str]
    cluster: Mapping[str, str]

    def integer(self, name: str, static: int) -> int:
        value = self.topic.get(name)
        if value is None:
            value = self.cluster.get(BROKER_NAME.get(name, name))
        return static if value is None else int(value)


def _layers(image: MetadataImage, topic: str) -> _Layers:
    return _Layers(image.topic_configs.get(topic, {}), image.broker_configs.get(CLUSTER_DEFAULT, {}))


def partition_settings(settings: BrokerSettings, image: MetadataImage, topic: str) -> PartitionSettings:
    """What the core of a partition of this topic goes by."""
    of = _layers(image, topic).integer
    return PartitionSettings(
        min_insync_replicas=of("min.insync.replicas", settings.min_insync_replicas),
        replica_lag_time_max_ms=settings.replica_lag_time_max_ms,
        max_message_bytes=of("max.message.bytes", settings.message_max_bytes),
        segment_bytes=of("segment.bytes", settings.log_segment_bytes),
        message_timestamp_before_max_ms=of("message.timestamp.before.max.ms", settings.message_timestamp_before_max_ms),
        message_timestamp_after_max_ms=of("message.timestamp.after.max.ms", settings.message_timestamp_after_max_ms),
        replica_fetch_backoff_ms=settings.replica_fetch_backoff_ms,
        replica_fetch_max_bytes=settings.replica_fetch_max_bytes,
        producer_id_expiration_ms=settings.producer_id_expiration_ms,
        flush_before_ack=settings.odradek_fsync == "before-ack",
    )


def log_settings(settings: BrokerSettings, image: MetadataImage, topic: str) -> LogSettings:
    """What the log of a partition of this topic goes by."""
    of = _layers(image, topic).integer
    return LogSettings(
        segment_bytes=of("segment.bytes", settings.log_segment_bytes),
        segment_ms=of("segment.ms", settings.log_roll_ms),
        segment_index_bytes=of("segment.index.bytes", settings.log_index_size_max_bytes),
        index_interval_bytes=of("index.interval.bytes", settings.log_index_interval_bytes),
        retention_ms=of("retention.ms", settings.log_retention_ms),
        retention_bytes=of("retention.bytes", settings.log_retention_bytes),
        file_delete_delay_ms=of("file.delete.delay.ms", settings.log_segment_delete_delay_ms),
        flush_messages=of("flush.messages", settings.log_flush_interval_messages),
        producer_id_expiration_ms=settings.producer_id_expiration_ms,
        flush_before_ack=settings.odradek_fsync == "before-ack",
        flush_ms=of("flush.ms", settings.log_flush_interval_ms),
        max_message_bytes=of("max.message.bytes", settings.message_max_bytes),
    )
