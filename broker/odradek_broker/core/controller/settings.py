"""The settings of the node that the controller needs. Names and defaults are Kafka's where Kafka has them."""

from __future__ import annotations

from collections.abc import Mapping

from odradek_proto.values import Value, field

from odradek_broker.core.metadata.config_types import ConfigDefinition
from odradek_broker.core.metadata.group_configs import define_group_configs


class ControllerSettings(Value, frozen=True):
    """`topic_defaults` holds the node's own values for topic settings, by the topic's names (`retention.ms`)."""

    node_id: int
    cluster_id: str
    session_timeout_ms: int = 9_000  # broker.session.timeout.ms
    heartbeat_interval_ms: int = 2_000  # broker.heartbeat.interval.ms
    session_grace_ms: int = 300  # odradek.session.grace.ms
    early_fencing: bool = True  # odradek.session.early.fencing
    default_replication_factor: int = 1
    num_partitions: int = 1
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    delete_topic_enable: bool = True  # delete.topic.enable
    leader_imbalance_check_interval_s: int = 300  # leader.imbalance.check.interval.seconds
    auto_leader_rebalance: bool = True  # auto.leader.rebalance.enable
    unclean_election_check_interval_s: int = 300  # Kafka's is fixed at five minutes
    elr_enable: bool = True  # odradek.elr.enable (KIP-966)
    fast_restart_keeps_isr: bool = False  # odradek.legacy.fast.restart.keeps.isr (L-12)
    inter_broker_listener: str = "REPLICATION"  # the endpoint that is dialled when a session stream has ended
    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    group_configs: Mapping[str, ConfigDefinition] = field(default_factory=define_group_configs)

    @property
    def fences_early(self) -> bool:
        """A killed broker that is to keep its place in the ISR (L-12) must not be fenced before it comes back."""
        return self.early_fencing and not self.fast_restart_keeps_isr

    @property
    def node_defaults(self) -> dict[str, str]:
        """The node's own values for topic settings, by the topic's names."""
        own = {
            "min.insync.replicas": str(self.min_insync_replicas),
            "unclean.leader.election.enable": str(self.unclean_leader_election_enable).lower(),
        }
        return own | dict(self.topic_defaults)
