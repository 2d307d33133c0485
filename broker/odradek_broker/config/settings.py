"""Every setting of a broker: Kafka's name, type, default and meaning.

A field `replica_lag_time_max_ms` is the setting `replica.lag.time.max.ms`. Where a default is not Kafka's, the comment
says so and docs/differences.md lists it.
"""

from __future__ import annotations

from sys import float_info

from odradek_proto.values import Value, field

OWN_PREFIX = "odradek."  # of settings that Kafka does not have
HIDDEN = "[hidden]"  # as Kafka's tools show what is secret
NONE_LIMIT = (1 << 63) - 1  # Kafka's way to say "never"


class SettingError(ValueError):
    """A setting that cannot be: the message names it, its source, and the remedy."""


def _kafkas_name(field_name: str) -> str:
    return field_name.replace("_", ".")


class BrokerSettings(Value, frozen=True, rename=_kafkas_name):
    """One broker's static settings. Times in milliseconds, sizes in bytes, unless the name says otherwise."""

    # --- who and where
    node_id: int = -1
    cluster_id: str = ""
    process_roles: str = "broker,controller"
    controller_quorum_voters: str = ""  # 1@host:port,2@host:port
    controller_listener_names: str = "CONTROLLER"
    listeners: str = "GRPC://127.0.0.1:0,REPLICATION://127.0.0.1:0,CONTROLLER://127.0.0.1:0"  # Kafka: PLAINTEXT://:9092
    advertised_listeners: str = ""  # empty: the listeners
    # Kafka: each of its own protocols to itself
    listener_security_protocol_map: str = (
        "GRPC:GRPC,KAFKA:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,"
        "REPLICATION:GRPC,CONTROLLER:GRPC"
    )
    inter_broker_listener_name: str = "REPLICATION"  # for brokers alone. Kafka: PLAINTEXT, which clients share
    broker_rack: str = ""
    log_dirs: str = ""  # empty: ./data/<node.id> (Kafka: /tmp/kafka-logs)

    # --- topics
    num_partitions: int = 1
    default_replication_factor: int = 1
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    auto_create_topics_enable: bool = True
    delete_topic_enable: bool = True
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 300
    message_max_bytes: int = 1_048_588
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: str = field(default="CreateTime", name="log.message.timestamp.type")
    message_timestamp_before_max_ms: int = field(default=NONE_LIMIT, name="log.message.timestamp.before.max.ms")
    message_timestamp_after_max_ms: int = field(default=3_600_000, name="log.message.timestamp.after.max.ms")

    # --- replication
    replica_lag_time_max_ms: int = (
        10_000  # Kafka: 30000 (10000 before 2.5): shorter, so that a lesson fits into an hour
    )
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_min_bytes: int = 1
    replica_fetch_max_bytes: int = 1_048_576
    replica_fetch_response_max_bytes: int = 8_388_608  # Kafka: 10485760; ours must fit one gRPC message of 16 MiB
    replica_fetch_backoff_ms: int = 1_000
    replica_high_watermark_checkpoint_interval_ms: int = 5_000

    # --- the log
    log_segment_bytes: int = 1_073_741_824
    internal_segment_bytes: int = 0  # for tests: wins over segment.bytes, and may be smaller; 0: does not
    log_roll_ms: int = 604_800_000
    log_index_interval_bytes: int = 4_096
    log_index_size_max_bytes: int = 10_485_760
    log_flush_interval_messages: int = NONE_LIMIT
    log_flush_interval_ms: int = NONE_LIMIT
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    log_retention_ms: int = 604_800_000
    log_retention_bytes: int = -1
    log_retention_check_interval_ms: int = 300_000
    log_segment_delete_delay_ms: int = 60_000
    log_cleanup_policy: str = "delete"  # compact | compact,delete
    log_cleaner_enable: bool = True
    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_dedupe_buffer_size: int = 134_217_728  # counted as what Python takes for it; grows with the keys
    log_cleaner_io_max_bytes_per_second: float = float_info.max
    log_cleaner_delete_retention_ms: int = 86_400_000
    log_cleaner_min_compaction_lag_ms: int = 0
    log_cleaner_max_compaction_lag_ms: int = NONE_LIMIT
    log_cleaner_min_cleanable_ratio: str = "0.5"
    producer_id_expiration_ms: int = 86_400_000

    # --- the cluster
    broker_heartbeat_interval_ms: int = 2_000
    broker_session_timeout_ms: int = 9_000
    controller_quorum_election_timeout_ms: int = 1_000
    controller_quorum_fetch_timeout_ms: int = 2_000
    controller_quorum_election_backoff_max_ms: int = 1_000
    controller_quorum_request_timeout_ms: int = 2_000
    controller_quorum_retry_backoff_ms: int = 20
    metadata_log_max_record_bytes_between_snapshots: int = 20_971_520
    metadata_log_max_snapshot_interval_ms: int = 3_600_000
    metadata_log_segment_bytes: int = 1_073_741_824
    metadata_log_segment_ms: int = 604_800_000
    metadata_max_retention_bytes: int = 104_857_600
    metadata_max_retention_ms: int = 604_800_000
    controlled_shutdown_enable: bool = True

    # --- clients
    fetch_max_bytes: int = 8_388_608  # Kafka: 57671680; ours must fit one gRPC message of 16 MiB
    socket_request_max_bytes: int = 104_857_600  # of one request on a listener for Kafka's clients, as the next four
    queued_max_request_bytes: int = 268_435_456  # Kafka: -1, no bound
    connections_max_idle_ms: int = 600_000
    max_connections: int = 2_000  # Kafka: 2147483647, and so for one address
    max_connections_per_ip: int = 2_000
    request_timeout_ms: int = 30_000

    # --- TLS: see docs/security.md
    ssl_keystore_type: str = "PEM"  # Kafka: JKS, as ssl.truststore.type
    ssl_keystore_location: str = ""
    ssl_keystore_certificate_chain: str = ""
    ssl_keystore_key: str = ""
    ssl_truststore_type: str = "PEM"
    ssl_truststore_location: str = ""
    ssl_truststore_certificates: str = ""
    ssl_client_auth: str = "none"  # of clients; nodes among themselves always show certificates

    # --- SASL: see docs/security.md
    sasl_enabled_mechanisms: str = "SCRAM-SHA-256,SCRAM-SHA-512"  # and PLAIN. Kafka: GSSAPI
    sasl_server_max_receive_size: int = 65_536  # Kafka: 524288, for tokens of mechanisms that there are not here
    connection_failed_authentication_delay_ms: int = 100
    connections_max_reauth_ms: int = 0  # 0: never

    # --- consumer groups
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offsets_topic_segment_bytes: int = 104_857_600
    offsets_commit_timeout_ms: int = 5_000
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    offset_metadata_max_bytes: int = 4_096
    group_initial_rebalance_delay_ms: int = 3_000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2_147_483_647
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_max_size: int = 2_147_483_647
    group_consumer_assignors: str = "uniform,range"
    group_consumer_migration_policy: str = "bidirectional"
    odradek_group_max_groups: int = 2_000

    # --- ACLs: see docs/security.md
    authorizer_class_name: str = ""  # org.apache.kafka.metadata.authorizer.StandardAuthorizer; empty: none
    super_users: str = ""  # User:admin;User:CN=alice
    allow_everyone_if_no_acl_found: bool = False

    # --- odradek's own
    odradek_truncation_mode: str = "fetch"  # epoch-request | epoch-single-round | high-watermark
    odradek_fsync: str = "never"  # before-ack: nothing counts until it is on the disk
    odradek_session_grace_ms: int = 300
    odradek_session_early_fencing: bool = True
    odradek_elr_enable: bool = True  # eligible leader replicas (KIP-966)
    odradek_stray_retention_ms: int = 604_800_000  # logs that the metadata do not know; -1: kept
    odradek_legacy_fast_restart_keeps_isr: bool = False
    odradek_cache_bytes: int = 16_777_216  # recently appended batches kept in memory, per broker
    odradek_stream_credit_bytes: int = 16_777_216  # unanswered bytes that one produce stream may have
    odradek_events_enable: bool = True
    odradek_events_max_bytes: int = 67_108_864  # then a new file is begun; one older one is kept
    odradek_log_level: str = "INFO"  # INFO,odradek.quorum=DEBUG
    odradek_log_format: str = "text"  # json
    odradek_log_file: str = ""  # empty: standard error
    odradek_log_file_max_bytes: int = 67_108_864  # then a new file is begun; one older one is kept
    odradek_grpc_reflection_enable: bool = False  # for development: whoever asks is told all services
    odradek_metrics_listener: str = ""  # HTTP://127.0.0.1:9404; empty: none
    odradek_create_users: str = ""  # admin=secret,alice=other
    odradek_create_topics: str = ""  # orders:3:3,payments:6:3:retention.ms=60000


SECRETS = ("ssl_keystore_key", "odradek_create_users")  # fields whose values are not shown


class SettingField(Value, frozen=True):
    """A field of `BrokerSettings`; `key` is Kafka's dotted name, `type` as it is written there."""

    name: str
    key: str
    type: str
    default: object


FIELDS = tuple(
    SettingField(name, key, BrokerSettings.__annotations__[name], default)
    for name, key, default in zip(
        BrokerSettings.__struct_fields__,
        BrokerSettings.__struct_encode_fields__,
        BrokerSettings.__struct_defaults__,
        strict=True,
    )
)
FIELD_BY_KEY: dict[str, str] = {item.key: item.name for item in FIELDS}
_KEYS = {item.name: item.key for item in FIELDS}


def setting_key(name: str) -> str:
    """Kafka's dotted name of a field."""
    return _KEYS[name]


def as_text(value: object) -> str:
    """A value as a properties file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def shown(settings: BrokerSettings, name: str) -> str:
    """The value of a field as it may be told and logged."""
    value = getattr(settings, name)
    return HIDDEN if name in SECRETS and value else as_text(value)
