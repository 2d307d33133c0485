"""The settings of a log, by Kafka's names; the topic's value, else the broker's. Times are milliseconds."""

from __future__ import annotations

from odradek_proto.compression import Codec
from odradek_proto.values import Value

from odradek_broker.core.cleaning import CompactionSettings

WEEK_MS = 7 * 24 * 3600 * 1000
NEVER = (1 << 63) - 1


class Compression(Value, frozen=True):
    """How a topic's leaders compress what producers send in another codec."""

    codec: Codec
    level: int | None  # None: the codec's usual one


class LogSettings(Value, frozen=True):
    """Defaults are Kafka's. `flush_before_ack` is ours: `odradek.fsync=before-ack`."""

    segment_bytes: int = 1 << 30
    segment_ms: int = WEEK_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = WEEK_MS  # -1: no limit
    retention_bytes: int = -1  # -1: no limit
    file_delete_delay_ms: int = 60_000
    flush_messages: int = NEVER
    flush_ms: int = NEVER
    max_message_bytes: int = 1_048_588
    producer_id_expiration_ms: int = 86_400_000
    compaction: CompactionSettings | None = None  # None: cleanup.policy has no `compact`
    compression: Compression | None = None  # None: as the producers have compressed
    accept_straddling: bool = False  # the oldest protocol appends a batch that begins below the log end (L-9)
    flush_before_ack: bool = False
