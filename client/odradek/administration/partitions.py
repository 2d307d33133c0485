"""The administrator's client, where it is about partitions: leaders, replicas, and the beginnings of logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from odradek_proto.topics import TopicPartition
from odradek_proto.v1 import admin_pb2, broker_pb2

from odradek.administration.calls import BROKER, AdminCalls
from odradek.administration.descriptions import PartitionReassignment
from odradek.shared.errors import BrokerError, broker_error, raise_for

ANSWER_MS = 500
ElectionType = Literal["preferred", "unclean"]


class PartitionAdmin(AdminCalls):
    """Methods of `Admin`."""

    async def elect_leaders(
        self, election_type: ElectionType = "preferred", partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, BrokerError | None]:
        """Elect leaders, of all partitions when none is named; says of each what refused it, or None."""
        request = admin_pb2.ElectLeadersRequest(election_type=election_type)
        for topic, partition in partitions or ():
            request.partitions.add(topic=topic, partition=partition)
        answer = await self._change("ElectLeaders", request, admin_pb2.ElectLeadersResponse, None)
        raise_for(answer.error_code)
        return {
            TopicPartition(result.topic, result.partition): broker_error(
                result.error_code, result.error_message, where=f"{result.topic}-{result.partition}"
            )
            if result.error_code
            else None
            for result in answer.partitions
        }

    async def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Raise log start offsets: what lies below is gone (-1: all below the high watermark).

        Returns the smallest log start offsets of the live replicas, once all of them have moved. The leader of each
        partition is asked. Raises the first partition's error.
        """
        cluster = self._require_running()
        timeout_ms = self._config.request_timeout_ms
        low_watermarks: dict[TopicPartition, int] = {}
        for (topic, number), offset in offsets.items():
            partition = TopicPartition(topic, number)
            await cluster.partitions_of(topic, self._config.default_api_timeout_ms)
            waits_ms = max(timeout_ms - ANSWER_MS, timeout_ms // 2)  # of the leader for its followers: it must answer
            request = broker_pb2.DeleteRecordsRequest(timeout_ms=waits_ms)
            request.partitions.add(topic=topic, partition=number, offset=offset)

            async def ask(
                partition: TopicPartition = partition, request: broker_pb2.DeleteRecordsRequest = request
            ) -> int:
                leader = cluster.view.leader_of(partition).leader_id
                answer = await cluster.call_broker(
                    leader, BROKER + "DeleteRecords", request, broker_pb2.DeleteRecordsResponse, timeout_ms
                )
                raise_for(answer.partitions[0].error_code, where=str(partition))
                return answer.partitions[0].low_watermark

            # Deleting twice up to the same offset is deleting once, so this may be repeated.
            low_watermarks[partition] = await self._patiently(
                f"delete records of {partition}", self._config.default_api_timeout_ms, ask
            )
        return low_watermarks

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout: float | None = None,
    ) -> dict[TopicPartition, BrokerError | None]:
        """Give partitions other replicas, preferred leader first (KIP-455); None goes back to those of before.

        It only begins here: `list_partition_reassignments` says what is on its way. Says of each partition what
        refused it, or None: INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS, UNKNOWN_TOPIC_OR_PARTITION, and
        INVALID_REPLICATION_FACTOR without `allow_replication_factor_change` (KIP-860).
        """
        for partition, replicas in reassignments.items():
            if replicas is not None and not replicas:
                raise ValueError(f"{partition}: a partition has at least one replica; None cancels a reassignment")
        request = admin_pb2.AlterPartitionReassignmentsRequest(
            timeout_ms=self._timeout_ms(timeout), keep_replication_factor=not allow_replication_factor_change
        )
        for (topic, number), replicas in reassignments.items():
            request.partitions.add(topic=topic, partition=number, replicas=replicas or ())
        kind = admin_pb2.AlterPartitionReassignmentsResponse
        answer = await self._change("AlterPartitionReassignments", request, kind, timeout)
        raise_for(answer.error_code, answer.error_message)
        return {
            TopicPartition(result.topic, result.partition): broker_error(
                result.error_code, result.error_message, where=f"{result.topic}-{result.partition}"
            )
            if result.error_code
            else None
            for result in answer.partitions
        }

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The reassignments that are on their way, of all partitions when none is named."""
        named = None if partitions is None else list(partitions)
        if named == []:
            return {}
        request = admin_pb2.ListPartitionReassignmentsRequest()
        for topic, number in named or ():
            request.partitions.add(topic=topic, partition=number)
        kind = admin_pb2.ListPartitionReassignmentsResponse
        answer = await self._ask("ListPartitionReassignments", request, kind)
        raise_for(answer.error_code, answer.error_message)
        return {
            TopicPartition(found.topic, found.partition): PartitionReassignment(
                tuple(found.replicas), tuple(found.adding_replicas), tuple(found.removing_replicas)
            )
            for found in answer.partitions
        }
