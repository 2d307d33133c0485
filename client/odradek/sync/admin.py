"""The administrator's client without asyncio."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, Unpack

from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import Clock, Network

import odradek.administration.admin
from odradek.administration.admin import ElectionType, ResourceType
from odradek.administration.descriptions import (
    ClusterDescription,
    ConfigEntry,
    CreatedTopic,
    NewTopic,
    PartitionReassignment,
    QuorumDescription,
    ReplicasDescription,
    TopicDescription,
)
from odradek.shared.config import AdminSettings, BootstrapServers
from odradek.shared.errors import BrokerError
from odradek.sync.background import Facade, background_loop


class Admin(Facade):
    """`odradek.Admin` for code without asyncio."""

    _client: odradek.administration.admin.Admin

    def __init__(
        self,
        bootstrap_servers: BootstrapServers,
        *,
        clock: Clock | None = None,
        network: Network | None = None,
        **settings: Unpack[AdminSettings],
    ) -> None:
        self._loop = background_loop()
        self._client = odradek.administration.admin.Admin(bootstrap_servers, clock=clock, network=network, **settings)

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], *, clock: Clock | None = None, network: Network | None = None
    ) -> Self:
        """The same from Kafka's dotted names."""
        made = cls.__new__(cls)
        made._loop = background_loop()
        made._client = odradek.administration.admin.Admin.from_config(config, clock=clock, network=network)
        return made

    def close(self) -> None:
        """End."""
        self._loop.run(self._client.close())

    def create_topics(
        self, topics: Iterable[NewTopic], *, timeout: float | None = None, validate_only: bool = False
    ) -> list[CreatedTopic]:
        """Create topics."""
        return self._loop.run(self._client.create_topics(topics, timeout=timeout, validate_only=validate_only))

    def delete_topics(self, topics: Iterable[str], *, timeout: float | None = None) -> None:
        """Delete topics."""
        self._loop.run(self._client.delete_topics(topics, timeout=timeout))

    def create_partitions(self, topic: str, count: int, *, timeout: float | None = None) -> None:
        """Let a topic have `count` partitions in all."""
        self._loop.run(self._client.create_partitions(topic, count, timeout=timeout))

    def list_topics(self) -> list[str]:
        """The names of all topics."""
        return self._loop.run(self._client.list_topics())

    def describe_topics(self, topics: Iterable[str] | None = None) -> list[TopicDescription]:
        """Partitions, leaders, ISRs."""
        return self._loop.run(self._client.describe_topics(topics))

    def describe_configs(self, resource_type: ResourceType, resource_name: str) -> list[ConfigEntry]:
        """The settings of a topic or of a broker."""
        return self._loop.run(self._client.describe_configs(resource_type, resource_name))

    def incremental_alter_configs(
        self,
        resource_type: ResourceType,
        resource_name: str,
        *,
        set: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Set some settings and take others back to their defaults."""
        self._loop.run(
            self._client.incremental_alter_configs(
                resource_type, resource_name, set=set, unset=unset, validate_only=validate_only
            )
        )

    def alter_configs(
        self,
        resource_type: ResourceType,
        resource_name: str,
        *,
        set: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Set some settings and take others back to their defaults."""
        self._loop.run(
            self._client.alter_configs(resource_type, resource_name, set=set, unset=unset, validate_only=validate_only)
        )

    def elect_leaders(
        self, election_type: ElectionType = "preferred", partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, BrokerError | None]:
        """Elect leaders."""
        return self._loop.run(self._client.elect_leaders(election_type, partitions))

    def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout: float | None = None,
    ) -> dict[TopicPartition, BrokerError | None]:
        """Give partitions other replicas; None goes back to those of before."""
        return self._loop.run(
            self._client.alter_partition_reassignments(
                reassignments, allow_replication_factor_change=allow_replication_factor_change, timeout=timeout
            )
        )

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The reassignments that are on their way."""
        return self._loop.run(self._client.list_partition_reassignments(partitions))

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Raise log start offsets."""
        return self._loop.run(self._client.delete_records(offsets))

    def describe_cluster(self) -> ClusterDescription:
        """Brokers with their endpoints, and who is the active controller."""
        return self._loop.run(self._client.describe_cluster())

    def describe_quorum(self) -> QuorumDescription:
        """The metadata quorum."""
        return self._loop.run(self._client.describe_quorum())

    def describe_replicas(self, topics: Iterable[str] = ()) -> ReplicasDescription:
        """What every broker says of the replicas that it hosts."""
        return self._loop.run(self._client.describe_replicas(topics))
