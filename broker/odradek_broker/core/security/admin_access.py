"""Admin requests and ACLs: the permitted part of a request, and the response for the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek_proto.errors import ErrorCode
from odradek_proto.security.acl_words import CLUSTER_NAME, ResourceType
from odradek_proto.v1 import admin_messages as messages
from odradek_proto.values import replace

from odradek_broker.core.controller.admin import ADMIN_REQUESTS

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
    if code is ErrorCode.NONE:
        return request, None
    if method == "AlterUserScramCredentials":
        names = dict.fromkeys(change.name for change in (*request.deletions, *request.upsertions))
        users = [messages.AlteredUser(name=name, error_code=code, error_message=MESSAGE) for name in names]
        return None, messages.AlterUserScramCredentialsResponse(users=users)
    return None, answer_all(method, code, MESSAGE)


def answer_all(method: str, code: ErrorCode, message: str) -> Any:
    """An answer with one error for the whole request."""
    response: Any = ADMIN_REQUESTS[method].response
    fields = {"error_code": code, "error_message": message}
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
