"""The permission that each request needs: one row for an API, by Kafka's name, for every protocol.

A row has the operation and the type of the resource; the request names the resource. A request for a type with a single
resource, the cluster, names none. Admin requests have theirs in their own rows (core/controller/admin.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek_proto.errors import ErrorCode
from odradek_proto.security.acl_words import Operation, ResourceType

from odradek_broker.core.context import Need
from odradek_broker.core.controller.admin import ADMIN_REQUESTS

NEEDS: Final[Mapping[str, Need]] = {
    "Produce": Need(Operation.WRITE, ResourceType.TOPIC),
    "Fetch": Need(Operation.READ, ResourceType.TOPIC),
    "ListOffsets": Need(Operation.DESCRIBE, ResourceType.TOPIC),
    "OffsetForLeaderEpoch": Need(Operation.DESCRIBE, ResourceType.TOPIC),
    "Metadata": Need(Operation.DESCRIBE, ResourceType.TOPIC),
    "InitProducerId": Need(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER),  # or WRITE on any topic (KIP-679)
    "DescribeProducers": Need(Operation.READ, ResourceType.TOPIC),
    "DescribeTransactions": Need(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
    "DeleteRecords": Need(Operation.DELETE, ResourceType.TOPIC),
    "DescribeLogDirs": Need(Operation.DESCRIBE, ResourceType.CLUSTER),
    "AlterReplicaLogDirs": Need(Operation.ALTER, ResourceType.CLUSTER),
    "FindCoordinator": Need(Operation.DESCRIBE, ResourceType.GROUP),
    "JoinGroup": Need(Operation.READ, ResourceType.GROUP),
    "SyncGroup": Need(Operation.READ, ResourceType.GROUP),
    "Heartbeat": Need(Operation.READ, ResourceType.GROUP),
    "LeaveGroup": Need(Operation.READ, ResourceType.GROUP),
    "ConsumerGroupHeartbeat": Need(Operation.READ, ResourceType.GROUP),
    "ConsumerGroupHeartbeat of topic": Need(Operation.DESCRIBE, ResourceType.TOPIC),
    "OffsetCommit": Need(Operation.READ, ResourceType.GROUP),
    "OffsetCommit of topic": Need(Operation.READ, ResourceType.TOPIC),
    "OffsetFetch": Need(Operation.DESCRIBE, ResourceType.GROUP),
    "OffsetFetch of topic": Need(Operation.DESCRIBE, ResourceType.TOPIC),
    "OffsetDelete": Need(Operation.DELETE, ResourceType.GROUP),
    "OffsetDelete of topic": Need(Operation.READ, ResourceType.TOPIC),
    "DeleteGroup": Need(Operation.DELETE, ResourceType.GROUP),
    "DescribeGroup": Need(Operation.DESCRIBE, ResourceType.GROUP),
    "DescribeConsumerGroup": Need(Operation.DESCRIBE, ResourceType.GROUP),
    "DescribeConsumerGroup of topic": Need(Operation.DESCRIBE, ResourceType.TOPIC),
    "ListGroups": Need(Operation.DESCRIBE, ResourceType.GROUP),  # each that is listed, or DESCRIBE on the cluster
    "UpdateFeatures": Need(Operation.ALTER, ResourceType.CLUSTER),
    "AddRaftVoter": Need(Operation.ALTER, ResourceType.CLUSTER),
    "RemoveRaftVoter": Need(Operation.ALTER, ResourceType.CLUSTER),
    **{name: row.need for name, row in ADMIN_REQUESTS.items()},
    **{f"{name} of {kind}": need for name, row in ADMIN_REQUESTS.items() for kind, need in row.of.items()},
}

REFUSED: Final[Mapping[ResourceType, ErrorCode]] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
