"""What a consumer can be asked about offsets: beginnings, ends, times, whatever it reads itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import Clock, Network
from odradek_proto.v1 import broker_pb2 as pb

from odradek.cluster.client import Client
from odradek.consuming.positions import list_offsets
from odradek.core.fetch_state import EARLIEST, LATEST
from odradek.shared.config import ConsumerConfig
from odradek.shared.errors import ConfigError, NotAssigned, OdradekError
from odradek.shared.results import OffsetAndTimestamp, Watermarks

DESCRIBE_REPLICAS = "/odradek.v1.Broker/DescribeReplicas"
UNKNOWN_TOPIC_TIMEOUT_MS = 5_000  # Unlike Kafka, which waits without a limit for a topic that does not exist

Ends = dict[TopicPartition, int]


class ConsumerOffsets(Client):
    """Methods of `Consumer`."""

    def __init__(self, config: ConsumerConfig, clock: Clock | None, network: Network | None) -> None:
        super().__init__(config, clock, network)
        self._config = config

    async def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic. Raises `UnknownTopic`."""
        return await self._require_running().partitions_of(topic, UNKNOWN_TOPIC_TIMEOUT_MS)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> Ends:
        """Log start offsets."""
        found = await self._list_offsets(dict.fromkeys(partitions, EARLIEST))
        return {partition: answer.offset for partition, answer in found.items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> Ends:
        """High watermarks, or last stable offsets with isolation_level=read_committed."""
        found = await self._list_offsets(dict.fromkeys(partitions, LATEST))
        return {partition: answer.offset for partition, answer in found.items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time (milliseconds since 1970); None where there is none."""
        if any(timestamp < 0 for timestamp in timestamps.values()):
            raise ConfigError("offsets_for_times: a timestamp is negative")
        found = await self._list_offsets(timestamps)
        return {partition: answer if answer.offset >= 0 else None for partition, answer in found.items()}

    async def offsets_or_errors(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | OdradekError]:
        """Each leader asked once, within two seconds: an answer for every partition, or why there is none now.

        A time is milliseconds since 1970, `LATEST` (-1) or `EARLIEST` (-2). Offset -1: no record is so late.
        """
        asked = {TopicPartition(*partition): timestamp for partition, timestamp in timestamps.items()}
        cluster = self._require_running()
        committed = self._config.isolation_level == "read_committed"
        found = await list_offsets(cluster, asked, committed=committed)
        for error in found.values():
            if isinstance(error, OdradekError):
                cluster.request_refresh(f"offsets: {error.message}")
        return found

    async def watermarks(self, partition: TopicPartition) -> Watermarks:
        """Log start offset, high watermark and log end offset, as the leader knows them."""
        partition = TopicPartition(*partition)
        cluster = self._require_running()
        await cluster.partitions_of(partition.topic, UNKNOWN_TOPIC_TIMEOUT_MS)

        async def ask() -> Watermarks:
            leader = cluster.view.leader_of(partition).leader_id
            request = pb.DescribeReplicasRequest(topics=[partition.topic])
            answer = await cluster.call_broker(
                leader, DESCRIBE_REPLICAS, request, pb.DescribeReplicasResponse, self._config.request_timeout_ms
            )
            for replica in answer.replicas:
                if replica.partition == partition.partition and replica.topic == partition.topic:
                    return Watermarks(replica.log_start_offset, replica.high_watermark, replica.log_end_offset)
            raise NotAssigned(f"broker {leader} has no replica of {partition}")

        return await self._patiently(f"watermarks of {partition}", self._config.default_api_timeout_ms, ask)

    async def _list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp]:
        cluster = self._require_running()
        committed = self._config.isolation_level == "read_committed"
        left = {TopicPartition(*partition): timestamp for partition, timestamp in timestamps.items()}
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        for topic in dict.fromkeys(partition.topic for partition in left):
            await cluster.partitions_of(topic, UNKNOWN_TOPIC_TIMEOUT_MS)

        async def ask() -> dict[TopicPartition, OffsetAndTimestamp]:
            failure: OdradekError | None = None
            for partition, outcome in (await list_offsets(cluster, left, committed=committed)).items():
                if isinstance(outcome, OffsetAndTimestamp):
                    found[partition] = outcome
                    del left[partition]
                else:
                    failure = outcome
            if failure is not None:
                raise failure
            return found

        return await self._patiently("offsets", self._config.default_api_timeout_ms, ask)
