"""DescribeCluster, DescribeQuorum and its voters, UnregisterBroker, ElectLeaders, and reassignments (KIP-455)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek_proto.errors import ErrorCode
from odradek_proto.transport.ports import Clock
from odradek_proto.v1 import admin_messages

from odradek_broker.kafka.apis.admin import AdminApi, NoController, by_topic, failed, told
from odradek_broker.kafka.apis.metadata import any_live, broker_row, live_brokers
from odradek_broker.kafka.messages.request import Body, KafkaRequest
from odradek_broker.requests.metadata import MetadataRequests

BROKERS, CONTROLLERS = 1, 2  # endpoint types of DescribeCluster; brokers answer the first
NO_REPLICAS = (ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no replicas are named: null cancels a reassignment")
METADATA_TOPIC = "__cluster_metadata"
FIXED_VOTERS = "the voters are those of controller.quorum.voters: none is added or removed while the cluster runs"
ELECTION_TYPES = {0: "preferred", 1: "unclean"}


class ClusterApi:
    def __init__(self, admin: AdminApi, metadata: MetadataRequests, clock: Clock) -> None:
        self._admin = admin
        self._metadata = metadata
        self._clock = clock

    async def describe(self, request: KafkaRequest) -> Body:
        asked = request.read()
        if (endpoints := asked.get("endpoint_type", BROKERS)) != BROKERS:
            message = "brokers answer for brokers: ask for endpoint type 1"
            unknown = endpoints != CONTROLLERS
            error = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE if unknown else ErrorCode.MISMATCHED_ENDPOINT_TYPE
            return request.answered({**failed(error, message), "cluster_id": ""})
        listener = request.context.listener
        cluster = await self._metadata.metadata(request.context, ())
        live = live_brokers(cluster, listener)
        fenced = [broker_row(broker, listener) for broker in cluster.brokers if broker.fenced]
        shown = live + [{**broker, "is_fenced": True} for broker in fenced if asked.get("include_fenced_brokers")]
        answer = {"cluster_id": cluster.cluster_id, "controller_id": any_live(cluster, live), "brokers": shown}
        if asked["include_cluster_authorized_operations"]:
            answer["cluster_authorized_operations"] = self._metadata.operations_on_cluster(request.context)
        return request.answered(answer)

    async def describe_quorum(self, request: KafkaRequest) -> Body:
        """Of the one partition that has a quorum of its own."""
        topics = request.read()["topics"]
        named = [(topic["topic_name"], each["partition_index"]) for topic in topics for each in topic["partitions"]]
        if named != [(METADATA_TOPIC, 0)]:
            return request.answered({"topics": [_without_quorum(topic) for topic in topics]})
        try:
            quorum = await self._admin.ask(request, "DescribeQuorum", admin_messages.DescribeQuorumRequest())
        except NoController as nobody:
            return request.answered(failed(nobody.error, str(nobody)))
        wall_ms = self._clock.wall_ms()
        partition = {
            "partition_index": 0,
            "error_code": quorum.error_code,
            "leader_id": quorum.leader_id,
            "leader_epoch": quorum.leader_epoch,
            "high_watermark": quorum.high_watermark,
            "current_voters": [_quorum_replica(each, wall_ms) for each in quorum.voters],
            "observers": [_quorum_replica(each, wall_ms) for each in quorum.observers],
        }
        return request.answered({"topics": [{"topic_name": METADATA_TOPIC, "partitions": [partition]}]})

    async def unregister_broker(self, request: KafkaRequest) -> Body:
        wanted = admin_messages.UnregisterBrokerRequest(broker_id=request.read()["broker_id"])
        return request.answered(told(await self._admin.call(request, "UnregisterBroker", wanted)))

    async def add_voter(self, request: KafkaRequest) -> Body:
        return self._refuse_voters(request, "AddRaftVoter")

    async def remove_voter(self, request: KafkaRequest) -> Body:
        return self._refuse_voters(request, "RemoveRaftVoter")

    def _refuse_voters(self, request: KafkaRequest, api: str) -> Body:
        """As a Kafka whose voters are those of its configuration (kraft.version 0)."""
        request.read()
        if refused := self._metadata.refusal(request.context, api):
            return request.answered({"error_code": refused, "error_message": None})
        return request.answered(failed(ErrorCode.UNSUPPORTED_VERSION, FIXED_VOTERS))

    async def elect_leaders(self, request: KafkaRequest) -> Body:
        asked = request.read()
        kind = ELECTION_TYPES.get(asked.get("election_type", 0))
        if kind is None:
            return request.answered({"error_code": ErrorCode.INVALID_REQUEST})
        partitions = [
            admin_messages.ElectPartition(topic=topic["topic"], partition=partition)
            for topic in asked["topic_partitions"] or ()
            for partition in topic["partitions"]
        ]
        wanted = admin_messages.ElectLeadersRequest(election_type=kind, partitions=partitions)
        if asked["topic_partitions"] is not None and not wanted.partitions:
            return request.answered({})
        answer = await self._admin.call(request, "ElectLeaders", wanted, asked["timeout_ms"])
        results = ((each.topic, {"partition_id": each.partition, **told(each)}) for each in answer.partitions)
        rows = by_topic(results, "topic", "partition_result")
        return request.answered({"error_code": answer.error_code, "replica_election_results": rows})

    async def alter_reassignments(self, request: KafkaRequest) -> Body:
        """No replicas at all are a mistake; to cancel is to say null."""
        asked = request.read()
        may_change = asked.get("allow_replication_factor_change", True)
        refused = [
            (topic["name"], {"partition_index": each["partition_index"], **failed(*NO_REPLICAS)})
            for topic in asked["topics"]
            for each in topic["partitions"]
            if each["replicas"] == []
        ]
        wanted = admin_messages.AlterPartitionReassignmentsRequest(
            timeout_ms=asked["timeout_ms"],
            keep_replication_factor=not may_change,
            partitions=[
                admin_messages.ReassignedPartition(
                    topic=topic["name"], partition=each["partition_index"], replicas=each["replicas"] or ()
                )
                for topic in asked["topics"]
                for each in topic["partitions"]
                if each["replicas"] != []
            ],
        )
        try:
            answer = await self._admin.ask(request, "AlterPartitionReassignments", wanted, asked["timeout_ms"])
        except NoController as nobody:
            return request.answered(failed(nobody.error, str(nobody)))
        done = [(each.topic, {"partition_index": each.partition, **told(each)}) for each in answer.partitions]
        rows = by_topic([*done, *refused])
        return request.answered({**told(answer), "allow_replication_factor_change": may_change, "responses": rows})

    async def list_reassignments(self, request: KafkaRequest) -> Body:
        asked = request.read()
        partitions = [
            admin_messages.ElectPartition(topic=topic["name"], partition=partition)
            for topic in asked["topics"] or ()
            for partition in topic["partition_indexes"]
        ]
        wanted = admin_messages.ListPartitionReassignmentsRequest(partitions=partitions)
        if asked["topics"] is not None and not wanted.partitions:
            return request.answered({})
        answer = await self._admin.call(request, "ListPartitionReassignments", wanted, asked["timeout_ms"])
        rows = by_topic(
            (
                each.topic,
                {
                    "partition_index": each.partition,
                    "replicas": each.replicas,
                    "adding_replicas": each.adding_replicas,
                    "removing_replicas": each.removing_replicas,
                },
            )
            for each in answer.partitions
        )
        return request.answered({**told(answer), "topics": rows})


def _without_quorum(topic: Mapping[str, Any]) -> dict[str, Any]:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partitions = [
        {
            "partition_index": each["partition_index"],
            "error_code": unknown,
            "leader_id": 0,
            "leader_epoch": 0,
            "high_watermark": 0,
            "current_voters": [],
            "observers": [],
        }
        for each in topic["partitions"]
    ]
    return {"topic_name": topic["topic_name"], "partitions": partitions}


def _quorum_replica(replica: admin_messages.QuorumReplica, wall_ms: int) -> dict[str, int]:
    return {
        "replica_id": replica.node_id,
        "log_end_offset": replica.log_end_offset,
        "last_fetch_timestamp": wall_ms - replica.last_fetch_ms,
        "last_caught_up_timestamp": wall_ms - replica.last_caught_up_ms,
    }
