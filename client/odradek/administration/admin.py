"""The administrator's client: topics, partitions, settings, and what the cluster says of itself.

How it asks and orders, and what it repeats, is in `admin_calls`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import topic_id_to_text
from odradek_proto.v1 import admin_pb2, broker_pb2

from odradek.administration.calls import ADMIN, BROKER, raise_first
from odradek.administration.descriptions import (
    ClusterDescription,
    ConfigEntry,
    CreatedTopic,
    NewTopic,
    QuorumDescription,
    ReplicaDescription,
    ReplicasDescription,
    TopicDescription,
)
from odradek.administration.from_wire import (
    describe_brokers,
    describe_config,
    describe_quorum_replica,
    describe_replica,
    describe_topic,
    topic_request,
)
from odradek.administration.partitions import ElectionType, PartitionAdmin
from odradek.shared.errors import ClientError, broker_error, raise_for

__all__ = ["Admin", "ElectionType", "ResourceType"]

DESCRIBE_TIMEOUT_MS = 2_000  # of one broker that describes its replicas: a frozen one is reported, not waited for

ResourceType = Literal["topic", "broker"]


class Admin(PartitionAdmin):
    """Use it with `async with`. Methods raise a `BrokerError` that says what the cluster refused, `BootstrapError`
    when nobody can be reached, `RequestTimeout`. Timeouts are seconds."""

    # --- topics ----------------------------------------------------------------------------------------------------

    async def create_topics(
        self, topics: Iterable[NewTopic], *, timeout: float | None = None, validate_only: bool = False
    ) -> list[CreatedTopic]:
        """Create topics. Raises the first topic's error, with notes on the others; those without one were created."""
        request = admin_pb2.CreateTopicsRequest(timeout_ms=self._timeout_ms(timeout), validate_only=validate_only)
        request.topics.extend([topic_request(topic) for topic in topics])
        answer = await self._change("CreateTopics", request, admin_pb2.CreateTopicsResponse, timeout)
        raise_first([(made.name, made.error_code, made.error_message) for made in answer.topics])
        return [
            CreatedTopic(
                made.name,
                topic_id_to_text(made.topic_id) if made.topic_id else "",
                made.partitions,
                made.replication_factor,
            )
            for made in answer.topics
        ]

    async def delete_topics(self, topics: Iterable[str], *, timeout: float | None = None) -> None:
        """Delete topics. Raises the first topic's error; those without one were deleted."""
        request = admin_pb2.DeleteTopicsRequest(topics=list(topics), timeout_ms=self._timeout_ms(timeout))
        answer = await self._change("DeleteTopics", request, admin_pb2.DeleteTopicsResponse, timeout)
        raise_first([(gone.name, gone.error_code, gone.error_message) for gone in answer.topics])

    async def create_partitions(self, topic: str, count: int, *, timeout: float | None = None) -> None:
        """Let a topic have `count` partitions in all. Keys may go to other partitions from then on."""
        request = admin_pb2.CreatePartitionsRequest(topic=topic, count=count, timeout_ms=self._timeout_ms(timeout))
        answer = await self._change("CreatePartitions", request, admin_pb2.CreatePartitionsResponse, timeout)
        raise_for(answer.error_code, answer.error_message, where=topic)

    async def list_topics(self) -> list[str]:
        """The names of all topics, sorted, internal ones left out."""
        answer = await self._metadata(broker_pb2.MetadataRequest(all_topics=True))
        return sorted(topic.topic for topic in answer.topics if not topic.internal)

    async def describe_topics(self, topics: Iterable[str] | None = None) -> list[TopicDescription]:
        """Partitions, leaders, ISRs; of all topics when none is named. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        names = None if topics is None else list(topics)
        if names == []:
            return []
        answer = await self._metadata(broker_pb2.MetadataRequest(topics=names or [], all_topics=names is None))
        raise_first([(topic.topic, topic.error_code, topic.error_message) for topic in answer.topics])
        found = [describe_topic(topic) for topic in answer.topics]
        return found if names is not None else sorted(found, key=lambda topic: topic.name)

    # --- settings -----------------------------------------------------------------------------------------------------

    async def describe_configs(self, resource_type: ResourceType, resource_name: str) -> list[ConfigEntry]:
        """The settings of a topic, of a broker (its id as text), or of all brokers (""), with their sources.

        A broker tells its own, so it must be up: `BrokerUnreachable` otherwise.
        """
        request = admin_pb2.DescribeConfigsRequest(resource_type=resource_type, resource_name=resource_name)
        if resource_type == "broker" and resource_name.isdecimal():
            answer = await self._ask_broker(int(resource_name), request)
        else:
            answer = await self._ask("DescribeConfigs", request, admin_pb2.DescribeConfigsResponse)
        raise_for(answer.error_code, answer.error_message, where=resource_name)
        return [describe_config(entry) for entry in answer.entries]

    async def _ask_broker(
        self, broker_id: int, request: admin_pb2.DescribeConfigsRequest
    ) -> admin_pb2.DescribeConfigsResponse:
        cluster = self._require_running()
        known = {broker.broker_id: broker for broker in (await self.describe_cluster()).brokers}
        broker = known.get(broker_id)
        if broker is None:
            words = f"there is no broker {broker_id}; there are {', '.join(map(str, sorted(known)))}"
            raise broker_error(ErrorCode.INVALID_REQUEST, words)
        return await cluster.call_address(
            broker.endpoints.get(cluster.view.listener, ""),
            ADMIN + "DescribeConfigs",
            request,
            admin_pb2.DescribeConfigsResponse,
            self._config.request_timeout_ms,
        )

    async def incremental_alter_configs(
        self,
        resource_type: ResourceType,
        resource_name: str,
        *,
        set: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Set some settings and take others back to their defaults; what is not named stays (KIP-339).

        It holds on every broker as soon as that one has read it, without a restart. Raises INVALID_CONFIG for a
        name or a value that cannot be, and changes nothing then.
        """
        request = admin_pb2.AlterConfigsRequest(
            resource_type=resource_type,
            resource_name=resource_name,
            set=dict(set or {}),
            unset=unset,
            validate_only=validate_only,
        )
        answer = await self._change("AlterConfigs", request, admin_pb2.AlterConfigsResponse, None)
        raise_for(answer.error_code, answer.error_message, where=resource_name)

    async def alter_configs(
        self,
        resource_type: ResourceType,
        resource_name: str,
        *,
        set: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        validate_only: bool = False,
    ) -> None:
        """The short name of `incremental_alter_configs`. Unlike Kafka's old call it keeps what is not named."""
        await self.incremental_alter_configs(
            resource_type, resource_name, set=set, unset=unset, validate_only=validate_only
        )

    # --- the cluster -------------------------------------------------------------------------------------------------

    async def describe_cluster(self) -> ClusterDescription:
        """Brokers with their endpoints, and who is the active controller."""
        answer = await self._metadata(broker_pb2.MetadataRequest())
        return ClusterDescription(answer.cluster_id, answer.controller_id, describe_brokers(answer))

    async def describe_quorum(self) -> QuorumDescription:
        """The metadata quorum: its leader, voters and observers."""
        request = admin_pb2.DescribeQuorumRequest()
        answer = await self._ask("DescribeQuorum", request, admin_pb2.DescribeQuorumResponse)
        raise_for(answer.error_code)
        return QuorumDescription(
            answer.leader_id,
            answer.leader_epoch,
            answer.high_watermark,
            [describe_quorum_replica(voter) for voter in answer.voters],
            [describe_quorum_replica(observer) for observer in answer.observers],
            answer.log_start_offset,
            answer.snapshot_end_offset if answer.HasField("snapshot_end_offset") else None,
        )

    async def describe_replicas(self, topics: Iterable[str] = ()) -> ReplicasDescription:
        """What every broker says of the replicas that it hosts: log end offset, high watermark, epochs.

        All brokers are asked at once; one that does not answer is named with the reason.
        """
        cluster = self._require_running()
        described = await self.describe_cluster()
        request = broker_pb2.DescribeReplicasRequest(topics=list(topics))
        addresses = {broker.broker_id: broker.endpoints.get(cluster.view.listener, "") for broker in described.brokers}

        async def ask(broker_id: int) -> list[ReplicaDescription] | str:
            try:
                answer = await cluster.call_address(
                    addresses[broker_id],
                    BROKER + "DescribeReplicas",
                    request,
                    broker_pb2.DescribeReplicasResponse,
                    DESCRIBE_TIMEOUT_MS,
                )
            except ClientError as error:
                return error.message
            return [describe_replica(broker_id, replica) for replica in answer.replicas]

        answers = await asyncio.gather(*[ask(broker_id) for broker_id in addresses])
        replicas: list[ReplicaDescription] = []
        unreachable: dict[int, str] = {}
        for broker_id, outcome in zip(addresses, answers, strict=True):
            if isinstance(outcome, str):
                unreachable[broker_id] = outcome
            else:
                replicas += outcome
        replicas.sort(key=lambda replica: (replica.topic, replica.partition, replica.broker_id))
        return ReplicasDescription(replicas, unreachable)
