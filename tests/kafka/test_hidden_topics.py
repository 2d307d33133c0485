"""What Kafka's protocol says of topics to whoever may not know of them, although their ids or groups lead to them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from odradek import Admin
from odradek_broker.requests.groups import HIDDEN
from odradek_broker.testing import Cluster
from odradek_proto.errors import ErrorCode
from odradek_proto.security.acl_words import Operation, PatternType, Permission, ResourceType
from odradek_proto.security.acls import Acl

from tests.kafka.test_admin import ask

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:admin",
}
ME, OTHER = "User:ANONYMOUS", "User:alice"
DESCRIBE_TOPICS, DELETE_TOPICS, FIND_COORDINATOR, HEARTBEAT, DESCRIBE_GROUPS = 75, 20, 10, 68, 69


def allow(topic: str, user: str, operation: Operation) -> Acl:
    """With the first of a topic, everybody else may do nothing with it."""
    return Acl(ResourceType.TOPIC, topic, PatternType.LITERAL, user, "*", operation, Permission.ALLOW)


async def _allow(cluster: Cluster, *acls: Acl) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_acls(acls)


@pytest.mark.odradek(brokers=1, settings=SETTINGS)
def test_ids_and_groups_tell_no_names(odradek_cluster: Cluster, kafka_bootstrap: str) -> None:
    """DeleteTopics by id names what the caller may describe; ConsumerGroupDescribe hides members with hidden topics."""
    names = ["known", "open", "secret"]
    for name in names:
        odradek_cluster.create_topic(name, partitions=1)
    described = ask(kafka_bootstrap, DESCRIBE_TOPICS, 0, {
        "topics": [{"name": name} for name in names], "response_partition_limit": 9, "cursor": None,
    })  # fmt: skip
    ids = {each["name"]: each["topic_id"] for each in described["topics"]}
    join(kafka_bootstrap)
    assert group(kafka_bootstrap)["members"][0]["assignment"]["topic_partitions"][0]["topic_name"] == "secret"
    asyncio.run(_allow(
        odradek_cluster, allow("known", ME, Operation.DESCRIBE), allow("secret", OTHER, Operation.READ)
    ))  # fmt: skip
    hidden = group(kafka_bootstrap)
    assert (hidden["error_code"], hidden["error_message"]) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN)
    assert not hidden["members"]
    asked = [{"name": None, "topic_id": ids[name]} for name in names]
    answer = ask(kafka_bootstrap, DELETE_TOPICS, 6, {"topics": asked, "timeout_ms": 10_000})
    assert [(each["name"], each["error_code"]) for each in answer["responses"]] == [
        ("known", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("open", ErrorCode.NONE),
        (None, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]


def join(address: str) -> None:
    """The first that looks for a coordinator makes the topic of offsets."""
    first = {
        "group_id": "readers", "member_id": "me", "member_epoch": 0, "instance_id": None, "rack_id": None,
        "rebalance_timeout_ms": 9_000, "subscribed_topic_names": ["secret"], "subscribed_topic_regex": None,
        "server_assignor": None, "topic_partitions": [],
    }  # fmt: skip
    error = ErrorCode.NOT_COORDINATOR
    while error in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        ask(address, FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["readers"]})
        error = ErrorCode(ask(address, HEARTBEAT, 1, first)["error_code"])
    assert error is ErrorCode.NONE


def group(address: str) -> dict[str, Any]:
    asked = {"group_ids": ["readers"], "include_authorized_operations": False}
    (found,) = ask(address, DESCRIBE_GROUPS, 0, asked)["groups"]
    return dict(found)
