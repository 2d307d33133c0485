"""A node's settings in the words of its parts."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping

from odradek_proto.transport.ports import Clock, Files

from odradek_broker.config.assignors import parse_assignors
from odradek_broker.config.listeners import (
    CLIENTS,
    controller_listeners,
    inter_broker_listener,
    kind_of,
    parse_listeners,
    parse_voters,
    protocol_of,
)
from odradek_broker.config.settings import BrokerSettings
from odradek_broker.config.startup_users import enabled_mechanisms, parse_users
from odradek_broker.config.topic_settings import topic_defaults
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.groups.messages import GroupSettings
from odradek_broker.core.metadata.group_configs import define_group_configs
from odradek_broker.kafka.listener import KafkaListener
from odradek_broker.kafka.shared import Shared
from odradek_broker.kafka.versions import served
from odradek_broker.requests.authentication import Authentication
from odradek_broker.requests.layer import Requests
from odradek_broker.rpc.authentication import Identities
from odradek_broker.runtime.counters import Counters
from odradek_broker.runtime.membership.metadata_feed import MetadataFeed
from odradek_broker.runtime.quorum.settings import QuorumSettings

RECORD_AND_BATCH_BYTES = 588  # more than a record and a batch around it add to a key and a value
SECRET_BYTES = 24  # of a nonce or a token: nobody guesses it


def advertised_endpoints(settings: BrokerSettings, listening: Mapping[str, str]) -> dict[str, str]:
    """Where clients and brokers are told to find this one: listener names to `host:port`.

    `listening` is where the node listens in fact: with port 0 only the system knows which.
    """
    hidden = controller_listeners(settings)
    advertised = {**listening, **parse_listeners(settings.advertised_listeners)}
    return {name: address for name, address in advertised.items() if name not in hidden}


def group_settings(settings: BrokerSettings) -> GroupSettings:
    return GroupSettings(
        min_session_timeout_ms=settings.group_min_session_timeout_ms,
        max_session_timeout_ms=settings.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        max_size=settings.group_max_size,
        offset_metadata_max_bytes=settings.offset_metadata_max_bytes,
        max_record_bytes=settings.message_max_bytes - RECORD_AND_BATCH_BYTES,
        consumer_session_timeout_ms=settings.group_consumer_session_timeout_ms,
        consumer_heartbeat_interval_ms=settings.group_consumer_heartbeat_interval_ms,
        consumer_max_size=settings.group_consumer_max_size,
        consumer_assignors=parse_assignors(settings),
        upgrades=settings.group_consumer_migration_policy in ("bidirectional", "upgrade"),
        downgrades=settings.group_consumer_migration_policy in ("bidirectional", "downgrade"),
        max_groups=settings.odradek_group_max_groups,
        offsets_retention_ms=settings.offsets_retention_minutes * 60_000,
        offsets_retention_check_interval_ms=settings.offsets_retention_check_interval_ms,
    )


def quorum_settings(settings: BrokerSettings, cluster_id: str) -> QuorumSettings:
    return QuorumSettings(
        node_id=settings.node_id,
        cluster_id=cluster_id,
        voters=parse_voters(settings.controller_quorum_voters),
        election_timeout_ms=settings.controller_quorum_election_timeout_ms,
        fetch_timeout_ms=settings.controller_quorum_fetch_timeout_ms,
        election_backoff_max_ms=settings.controller_quorum_election_backoff_max_ms,
        request_timeout_ms=settings.controller_quorum_request_timeout_ms,
        retry_backoff_ms=settings.controller_quorum_retry_backoff_ms,
        snapshot_max_bytes=settings.metadata_log_max_record_bytes_between_snapshots,
        snapshot_max_interval_ms=settings.metadata_log_max_snapshot_interval_ms,
        retention_bytes=settings.metadata_max_retention_bytes,
        retention_ms=settings.metadata_max_retention_ms,
        segment_bytes=settings.metadata_log_segment_bytes,
        segment_ms=settings.metadata_log_segment_ms,
    )


def controller_settings(settings: BrokerSettings, cluster_id: str) -> ControllerSettings:
    return ControllerSettings(
        node_id=settings.node_id,
        cluster_id=cluster_id,
        session_timeout_ms=settings.broker_session_timeout_ms,
        heartbeat_interval_ms=settings.broker_heartbeat_interval_ms,
        session_grace_ms=settings.odradek_session_grace_ms,
        early_fencing=settings.odradek_session_early_fencing,
        default_replication_factor=settings.default_replication_factor,
        num_partitions=settings.num_partitions,
        min_insync_replicas=settings.min_insync_replicas,
        unclean_leader_election_enable=settings.unclean_leader_election_enable,
        leader_imbalance_check_interval_s=settings.leader_imbalance_check_interval_seconds,
        auto_leader_rebalance=settings.auto_leader_rebalance_enable,
        elr_enable=settings.odradek_elr_enable,
        fast_restart_keeps_isr=settings.odradek_legacy_fast_restart_keeps_isr,
        inter_broker_listener=inter_broker_listener(settings),
        delete_topic_enable=settings.delete_topic_enable,
        topic_defaults=topic_defaults(settings),
        group_configs=define_group_configs(
            session_timeout_ms=(
                settings.group_consumer_session_timeout_ms,
                settings.group_consumer_min_session_timeout_ms,
                settings.group_consumer_max_session_timeout_ms,
            ),
            heartbeat_interval_ms=(
                settings.group_consumer_heartbeat_interval_ms,
                settings.group_consumer_min_heartbeat_interval_ms,
                settings.group_consumer_max_heartbeat_interval_ms,
            ),
        ),
    )


def new_salt() -> bytes:
    return secrets.token_bytes(SECRET_BYTES)


def authentication(
    settings: BrokerSettings, feed: MetadataFeed, clock: Clock, files: Files, users_created: asyncio.Event
) -> Authentication:
    """SASL for all listeners that want it, with the credentials of the metadata."""
    expected = set(parse_users(settings.odradek_create_users))
    return Authentication(
        enabled_mechanisms(settings),
        credentials=lambda: feed.image.scram,
        prepared=lambda: feed.wait_for(lambda image: users_created.is_set() or expected <= image.scram.keys()),
        new_nonce=lambda: secrets.token_urlsafe(SECRET_BYTES),
        clock=clock,
        files=files,
        refusal_delay_ms=settings.connection_failed_authentication_delay_ms,
        session_ms=settings.connections_max_reauth_ms,
    )


def identities(name: str, requests: Requests, settings: BrokerSettings) -> Identities | None:
    """Of the callers of a gRPC listener, if they have to authenticate."""
    if not protocol_of(name, settings).sasl:
        return None
    most_bytes = settings.sasl_server_max_receive_size
    return Identities(requests.authentication, lambda: secrets.token_urlsafe(SECRET_BYTES), most_bytes)


def kafka_listener(
    name: str, requests: Requests, settings: BrokerSettings, clock: Clock, counters: Counters, feed: MetadataFeed
) -> KafkaListener:
    """A listener for Kafka's clients, by its name."""
    sasl, directory = protocol_of(name, settings).sasl, settings.log_dirs.split(",")[0].strip()
    elr = settings.odradek_elr_enable

    def grpc() -> str:
        known = feed.image.brokers.get(settings.node_id)
        endpoints = {} if known is None else known.endpoints
        return ", ".join(address for each, address in endpoints.items() if kind_of(each, settings) is CLIENTS)

    shared = Shared(
        name,
        lambda: served(requests, clock=clock, log_directory=directory, needs_sasl=sasl, elr_enable=elr),
        clock=clock,
        settings=settings,
        counters=counters,
        needs_sasl=sasl,
        throttle=requests.throttle,
        grpc=grpc,
    )
    return KafkaListener(shared)
