"""The permission that each request needs: one row for an API, by Kafka's name, for every protocol.

A row has the operation and the type of the resource; the request names the resource. A request for a type with a single
resource, the cluster, names none. Admin requests have theirs in their own rows (core/controller/admin.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from odradek_proto.errors import ErrorCode
from odradek_proto.security.acl_words import CLUSTER_NAME, Operation, ResourceType
from odradek_proto.v1 import admin_messages as messages
from odradek_proto.values import replace

from odradek_broker.core.context import RequiredPermission
from odradek_broker.core.controller.admin import ADMIN_REQUESTS

NEEDS: Final[Mapping[str, RequiredPermission]] = {
    "Produce": RequiredPermission(Operation.WRITE, ResourceType.TOPIC),
    "Fetch": RequiredPermission(Operation.READ, ResourceType.TOPIC),
    "ListOffsets": RequiredPermission(Operation.DESCRIBE, ResourceType.TOPIC),
    "OffsetForLeaderEpoch": RequiredPermission(Operation.DESCRIBE, ResourceType.TOPIC),
    "Metadata": RequiredPermission(Operation.DESCRIBE, ResourceType.TOPIC),
    "InitProducerId": RequiredPermission(
        Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER
    ),  # or WRITE on any topic (KIP-679)
    "DescribeProducers": RequiredPermission(Operation.READ, ResourceType.TOPIC),
    "DescribeTransactions": RequiredPermission(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
    "DeleteRecords": RequiredPermission(Operation.DELETE, ResourceType.TOPIC),
    "DescribeLogDirs": RequiredPermission(Operation.DESCRIBE, ResourceType.CLUSTER),
    "AlterReplicaLogDirs": RequiredPermission(Operation.ALTER, ResourceType.CLUSTER),
    "FindCoordinator": RequiredPermission(Operation.DESCRIBE, ResourceType.GROUP),
    "JoinGroup": RequiredPermission(Operation.READ, ResourceType.GROUP),
    "SyncGroup": RequiredPermission(Operation.READ, ResourceType.GROUP),
    "Heartbeat": RequiredPermission(Operation.READ, ResourceType.GROUP),
    "LeaveGroup": RequiredPermission(Operation.READ, ResourceType.GROUP),
    "ConsumerGroupHeartbeat": RequiredPermission(Operation.READ, ResourceType.GROUP),
    "ConsumerGroupHeartbeat of topic": RequiredPermission(Operation.DESCRIBE, ResourceType.TOPIC),
    "OffsetCommit": RequiredPermission(Operation.READ, ResourceType.GROUP),
    "OffsetCommit of topic": RequiredPermission(Operation.READ, ResourceType.TOPIC),
    "OffsetFetch": RequiredPermission(Operation.DESCRIBE, ResourceType.GROUP),
    "OffsetFetch of topic": RequiredPermission(Operation.DESCRIBE, ResourceType.TOPIC),
    "OffsetDelete": RequiredPermission(Operation.DELETE, ResourceType.GROUP),
    "OffsetDelete of topic": RequiredPermission(Operation.READ, ResourceType.TOPIC),
    "DeleteGroup": RequiredPermission(Operation.DELETE, ResourceType.GROUP),
    "DescribeGroup": RequiredPermission(Operation.DESCRIBE, ResourceType.GROUP),
    "DescribeConsumerGroup": RequiredPermission(Operation.DESCRIBE, ResourceType.GROUP),
    "DescribeConsumerGroup of topic": RequiredPermission(Operation.DESCRIBE, ResourceType.TOPIC),
    "ListGroups": RequiredPermission(
        Operation.DESCRIBE, ResourceType.GROUP
    ),  # each that is listed, or DESCRIBE on the cluster
    "UpdateFeatures": RequiredPermission(Operation.ALTER, ResourceType.CLUSTER),
    "AddRaftVoter": RequiredPermission(Operation.ALTER, ResourceType.CLUSTER),
    "RemoveRaftVoter": RequiredPermission(Operation.ALTER, ResourceType.CLUSTER),
    **{name: row.need for name, row in ADMIN_REQUESTS.items()},
    **{f"{name} of {kind}": need for name, row in ADMIN_REQUESTS.items() for kind, need in row.of.items()},
}

REFUSED: Final[Mapping[ResourceType, ErrorCode]] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


# --- Admin requests and ACLs -----------------------------------------------------------------------------------------
# The permitted part of a request, and the response for the rest.


Refusal = Callable[[str, str], ErrorCode]  # by the API's row and the resource's name; NONE: allowed
OF_ACLS = frozenset({"CreateAcls", "DeleteAcls", "DescribeAcls"})
MESSAGE = "Authorization failed."  # Kafka's words


def judge(method: str, request: Any, refusal: Refusal) -> tuple[Any | None, Any]:
    """What is left of the request, None for nothing, and an answer with what was refused of it."""
    if method == "CreateTopics":
        refused = _of_topics([topic.name for topic in request.topics], method, refusal)
        left = replace(request, topics=[topic for topic in request.topics if topic.name not in refused])
        told = [messages.CreatedTopic(name=n, error_code=code, error_message=MESSAGE) for n, code in refused.items()]
        return _unless_empty(left, left.topics, refused), messages.CreateTopicsResponse(topics=told)
    if method == "DeleteTopics":
        refused = _of_topics(request.topics, method, refusal)
        left = replace(request, topics=[name for name in request.topics if name not in refused])
        gone = [messages.TopicResult(name=n, error_code=code, error_message=MESSAGE) for n, code in refused.items()]
        return _unless_empty(left, left.topics, refused), messages.DeleteTopicsResponse(topics=gone)
    code = refusal(*_one_need(method, request))
    return (request, None) if code is ErrorCode.NONE else (None, refuse_all(method, request, code, MESSAGE))


def refuse_all(method: str, request: Any, code: ErrorCode, message: str) -> Any:
    """An answer with one error for the whole request: for all that it names where an answer has no place for one."""
    response: Any = ADMIN_REQUESTS[method].response
    fields: dict[str, Any] = {"error_code": code, "error_message": message}
    if method == "CreateTopics":
        names = dict.fromkeys(topic.name for topic in request.topics)
        return response(topics=[messages.CreatedTopic(name=name, **fields) for name in names])
    if method == "DeleteTopics":
        return response(topics=[messages.TopicResult(name=name, **fields) for name in dict.fromkeys(request.topics)])
    if method == "AlterUserScramCredentials":
        names = dict.fromkeys(change.name for change in (*request.deletions, *request.upsertions))
        return response(users=[messages.AlteredUser(name=name, **fields) for name in names])
    return response(**{name: value for name, value in fields.items() if name in response.__struct_fields__})


def merge(answer: Any, refused: Any) -> Any:
    """One answer of what was done and what was refused."""
    return answer if refused is None else replace(answer, topics=[*answer.topics, *refused.topics])


def _of_topics(names: Any, method: str, refusal: Refusal) -> dict[str, ErrorCode]:
    return {name: code for name in names if (code := refusal(method, name)) is not ErrorCode.NONE}


def _unless_empty(request: Any, left: Any, refused: Any) -> Any | None:
    return None if refused and not left else request


def _one_need(method: str, request: Any) -> tuple[str, str]:
    """The row of a request that is about one resource, and the resource's name."""
    row = ADMIN_REQUESTS[method]
    if row.need.kind is ResourceType.TOPIC:
        return method, request.topic
    if row.of and request.resource_type in row.of:
        return f"{method} of {request.resource_type}", request.resource_name
    return method, CLUSTER_NAME
