"""What holds for one topic on this broker: its own setting, else a dynamic default, else the broker's file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from odradek_broker.config.settings import FIELD_BY_KEY, BrokerSettings, as_text
from odradek_broker.core.cleaning import CompactionSettings
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.metadata.topic_configs import (
    CLEANUP_POLICY,
    CODECS,
    COMPACT,
    COMPRESSION_TYPE,
    DELETE,
    INTERNAL_SEGMENT_BYTES,
    PRODUCER,
    TOPIC_CONFIGS,
    effective_configs,
)
from odradek_broker.core.partition.messages import PartitionSettings, TruncationMode
from odradek_broker.storage.settings import Compression, LogSettings

_OF_BROKER = {
    name: FIELD_BY_KEY[definition.server_name]
    for name, definition in TOPIC_CONFIGS.items()
    if definition.server_name in FIELD_BY_KEY
}  # topic settings whose defaults a broker's file may have, and its fields


@lru_cache(maxsize=64)  # each log and each leader epoch asks for them
def topic_defaults(settings: BrokerSettings) -> Mapping[str, str]:
    """The broker's own values of topic settings by the topics' names, as the controller shows and checks them."""
    found = {name: as_text(getattr(settings, field)) for name, field in _OF_BROKER.items()}
    if settings.internal_segment_bytes:
        found[INTERNAL_SEGMENT_BYTES] = str(settings.internal_segment_bytes)
    return found


class _TopicReader:
    """Reads one topic's settings as numbers."""

    def __init__(self, settings: BrokerSettings, image: MetadataImage, topic: str) -> None:
        self._values = effective_configs(image, topic, topic_defaults(settings), settings.node_id)

    def text(self, name: str) -> str:
        return self._values[name]

    def integer(self, name: str) -> int:
        return int(self.text(name))

    def has_policy(self, policy: str) -> bool:
        return policy in map(str.strip, self.text(CLEANUP_POLICY).split(","))

    def segment_bytes(self) -> int:
        return self.integer(INTERNAL_SEGMENT_BYTES) or self.integer("segment.bytes")


def partition_settings(settings: BrokerSettings, image: MetadataImage, topic: str) -> PartitionSettings:
    """What the core of a partition of this topic goes by."""
    reader = _TopicReader(settings, image, topic)
    of = reader.integer
    return PartitionSettings(
        min_insync_replicas=of("min.insync.replicas"),
        replica_lag_time_max_ms=settings.replica_lag_time_max_ms,
        max_message_bytes=of("max.message.bytes"),
        segment_bytes=reader.segment_bytes(),
        message_timestamp_before_max_ms=of("message.timestamp.before.max.ms"),
        message_timestamp_after_max_ms=of("message.timestamp.after.max.ms"),
        log_append_time=reader.text("message.timestamp.type") == "LogAppendTime",
        replica_fetch_backoff_ms=settings.replica_fetch_backoff_ms,
        replica_fetch_max_bytes=settings.replica_fetch_max_bytes,
        producer_id_expiration_ms=settings.producer_id_expiration_ms,
        flush_before_ack=settings.odradek_fsync == "before-ack",
    )


def _compaction(reader: _TopicReader) -> CompactionSettings:
    return CompactionSettings(
        min_cleanable_dirty_ratio=float(reader.text("min.cleanable.dirty.ratio")),
        min_compaction_lag_ms=reader.integer("min.compaction.lag.ms"),
        max_compaction_lag_ms=reader.integer("max.compaction.lag.ms"),
        delete_retention_ms=reader.integer("delete.retention.ms"),
        deletes=reader.has_policy(DELETE),
    )


def _compression(reader: _TopicReader) -> Compression | None:
    """A level that is Kafka's default is the codec's usual one, for Kafka's libraries as for ours."""
    name = reader.text(COMPRESSION_TYPE)
    if name == PRODUCER:
        return None
    level = TOPIC_CONFIGS.get(f"compression.{name}.level")
    chosen = None if level is None else reader.text(level.name)
    return Compression(CODECS[name], None if level is None or chosen == level.default else int(chosen or 0))


def log_settings(settings: BrokerSettings, image: MetadataImage, topic: str) -> LogSettings:
    """What the log of a partition of this topic goes by."""
    reader = _TopicReader(settings, image, topic)
    of = reader.integer
    deletes = reader.has_policy(DELETE)
    return LogSettings(
        segment_bytes=reader.segment_bytes(),
        segment_ms=of("segment.ms"),
        segment_jitter_ms=of("segment.jitter.ms"),
        segment_index_bytes=of("segment.index.bytes"),
        index_interval_bytes=of("index.interval.bytes"),
        compaction=_compaction(reader) if reader.has_policy(COMPACT) else None,
        compression=_compression(reader),
        retention_ms=of("retention.ms") if deletes else -1,
        retention_bytes=of("retention.bytes") if deletes else -1,
        file_delete_delay_ms=of("file.delete.delay.ms"),
        producer_id_expiration_ms=settings.producer_id_expiration_ms,
        accept_straddling=settings.odradek_truncation_mode == TruncationMode.HIGH_WATERMARK.value,
        flush_before_ack=settings.odradek_fsync == "before-ack",
        flush_messages=of("flush.messages"),
        flush_ms=of("flush.ms"),
        max_message_bytes=of("max.message.bytes"),
    )
