"""The least and largest values of a broker's numbers, as Kafka's validators have them.

Where Kafka checks nothing and a value could do nothing but harm (an interval of 0 ms between heartbeats), the range
says so here. Topic settings among a broker's have theirs with the topic's, in `topic_configs`.
"""

from __future__ import annotations

from typing import Final

from odradek_broker.config.settings import BrokerSettings, SettingError, setting_key
from odradek_broker.core.metadata.config_types import INT_MAX, LONG_MAX

SMALLEST_METADATA_SEGMENT: Final = 14  # Kafka: 8 MiB; it rolls seldom anyhow

RANGES: Final[dict[str, tuple[int, int]]] = {
    "node_id": (0, INT_MAX),
    "num_partitions": (1, INT_MAX),
    "default_replication_factor": (1, INT_MAX),
    "leader_imbalance_check_interval_seconds": (1, LONG_MAX),
    "replica_lag_time_max_ms": (1, LONG_MAX),
    "replica_fetch_wait_max_ms": (0, INT_MAX),
    "replica_fetch_min_bytes": (0, INT_MAX),
    "replica_fetch_max_bytes": (1, INT_MAX),  # Kafka: from 0 on, which means one batch at a time; so does 1
    "replica_fetch_response_max_bytes": (1, INT_MAX),  # the same
    "replica_fetch_backoff_ms": (0, INT_MAX),
    "replica_high_watermark_checkpoint_interval_ms": (1, LONG_MAX),
    "log_flush_offset_checkpoint_interval_ms": (1, INT_MAX),  # Kafka: from 0 on; that would write without a pause
    "log_flush_start_offset_checkpoint_interval_ms": (1, INT_MAX),  # the same
    "log_retention_check_interval_ms": (1, LONG_MAX),
    "log_cleaner_backoff_ms": (1, LONG_MAX),  # Kafka: from 0 on; that would look for work without a pause
    "log_cleaner_dedupe_buffer_size": (1_024, LONG_MAX),
    "producer_id_expiration_ms": (1, INT_MAX),
    "internal_segment_bytes": (0, INT_MAX),
    "broker_heartbeat_interval_ms": (1, INT_MAX),
    "broker_session_timeout_ms": (1, INT_MAX),
    "controller_quorum_election_timeout_ms": (1, INT_MAX),
    "controller_quorum_fetch_timeout_ms": (1, INT_MAX),
    "controller_quorum_election_backoff_max_ms": (1, INT_MAX),
    "controller_quorum_request_timeout_ms": (1, INT_MAX),
    "controller_quorum_retry_backoff_ms": (1, INT_MAX),
    "metadata_log_max_record_bytes_between_snapshots": (1, LONG_MAX),
    "metadata_log_max_snapshot_interval_ms": (0, LONG_MAX),
    "metadata_log_segment_bytes": (SMALLEST_METADATA_SEGMENT, INT_MAX),
    "metadata_log_segment_ms": (1, LONG_MAX),
    "metadata_max_retention_bytes": (-1, LONG_MAX),
    "metadata_max_retention_ms": (-1, LONG_MAX),
    "fetch_max_bytes": (1_024, INT_MAX),
    "socket_request_max_bytes": (1, INT_MAX),
    "queued_max_request_bytes": (1, LONG_MAX),  # Kafka: -1 as well, which is no bound
    "connections_max_idle_ms": (1, LONG_MAX),  # Kafka: negative as well, never
    "max_connections": (1, INT_MAX),
    "max_connections_per_ip": (1, INT_MAX),  # Kafka: from 0 on, for overrides that odradek does not have
    "request_timeout_ms": (1, INT_MAX),
    "sasl_server_max_receive_size": (1, INT_MAX),  # Kafka: from 0 on, which lets nobody in
    "connection_failed_authentication_delay_ms": (0, INT_MAX),
    "connections_max_reauth_ms": (0, LONG_MAX),  # Kafka: negative as well, never
    "offsets_topic_num_partitions": (1, INT_MAX),
    "offsets_topic_replication_factor": (1, 32_767),
    "offsets_topic_segment_bytes": (1_048_576, INT_MAX),  # Kafka: from 1 on
    "offsets_commit_timeout_ms": (1, INT_MAX),
    "offsets_retention_minutes": (1, INT_MAX),
    "offsets_retention_check_interval_ms": (1, LONG_MAX),
    "offset_metadata_max_bytes": (0, INT_MAX),
    "group_initial_rebalance_delay_ms": (0, INT_MAX),
    "group_min_session_timeout_ms": (1, INT_MAX),
    "group_max_session_timeout_ms": (1, INT_MAX),
    "group_max_size": (1, INT_MAX),
    "group_consumer_session_timeout_ms": (1, INT_MAX),
    "group_consumer_min_session_timeout_ms": (1, INT_MAX),
    "group_consumer_max_session_timeout_ms": (1, INT_MAX),
    "group_consumer_heartbeat_interval_ms": (1, INT_MAX),
    "group_consumer_min_heartbeat_interval_ms": (1, INT_MAX),
    "group_consumer_max_heartbeat_interval_ms": (1, INT_MAX),
    "group_consumer_max_size": (1, INT_MAX),
    "odradek_group_max_groups": (1, INT_MAX),
    "odradek_session_grace_ms": (0, INT_MAX),
    "odradek_cache_bytes": (0, LONG_MAX),
    "odradek_stream_credit_bytes": (1, LONG_MAX),
    "odradek_events_max_bytes": (65_536, LONG_MAX),
    "odradek_log_file_max_bytes": (65_536, LONG_MAX),
    "odradek_stray_retention_ms": (-1, LONG_MAX),
}


def check_ranges(settings: BrokerSettings) -> None:
    """Raises `SettingError` for the first number that is out of its range."""
    for name, (least, largest) in RANGES.items():
        value = getattr(settings, name)
        if not least <= value <= largest:
            limit = f"at least {least}" if value < least else f"at most {largest}"
            raise SettingError(f"{setting_key(name)}={value} cannot work: it must be {limit}")
    interval, timeout = settings.broker_heartbeat_interval_ms, settings.broker_session_timeout_ms
    if timeout <= interval:
        raise SettingError(
            f"broker.session.timeout.ms={timeout} cannot work: between two heartbeats, broker.heartbeat.interval.ms="
            f"{interval}, every broker would be fenced; make it several times the interval"
        )
    least, most = settings.group_consumer_min_session_timeout_ms, settings.group_consumer_max_session_timeout_ms
    _check_between("session.timeout.ms", settings.group_consumer_session_timeout_ms, least, most)
    least, most = settings.group_consumer_min_heartbeat_interval_ms, settings.group_consumer_max_heartbeat_interval_ms
    _check_between("heartbeat.interval.ms", settings.group_consumer_heartbeat_interval_ms, least, most)


def _check_between(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise SettingError(
            f"group.consumer.{name}={value} cannot work: it must lie between group.consumer.min.{name}={least} and "
            f"group.consumer.max.{name}={most}; change one of them, too"
        )
