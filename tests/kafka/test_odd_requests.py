"""Requests that are legal and that no client makes, and the errors that Apache Kafka 4.1.1 answered to them.

The last rows are those that are answered differently: docs/differences.md has both answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from odradek_broker.testing import Cluster
from odradek_proto.errors import ErrorCode

from tests.kafka.test_admin import ask

ODD = "odd"  # a topic with one partition
MEMBER = {"group_id": "g", "member_id": "m", "member_epoch": 0, "rebalance_timeout_ms": 5000}
JOINS = {**MEMBER, "subscribed_topic_names": [ODD], "topic_partitions": []}
PARTITION_0 = {"partition_index": 0}


def config(*configs: tuple[str, str | None], topic: str = ODD) -> dict[str, Any]:
    named = [{"name": name, "value": value} for name, value in configs]
    return {"resources": [{"resource_type": 2, "resource_name": topic, "configs": named}], "validate_only": True}


def grown(*assignments: Any) -> dict[str, Any]:
    topics = [{"name": ODD, "count": 2, "assignments": each} for each in assignments]
    return {"topics": topics, "timeout_ms": 5000, "validate_only": True}


def reassigned(replicas: list[int] | None) -> dict[str, Any]:
    topic = {"name": ODD, "partitions": [{**PARTITION_0, "replicas": replicas}]}
    return {"timeout_ms": 5000, "topics": [topic], "allow_replication_factor_change": False}


def quorum(*partitions: tuple[str, int]) -> dict[str, Any]:
    return {"topics": [{"topic_name": name, "partitions": [{"partition_index": each}]} for name, each in partitions]}


def errors_in(answer: Any) -> list[ErrorCode]:
    """All of them, from the outside in."""
    if isinstance(answer, Mapping):
        own = [ErrorCode(answer["error_code"])] if answer.get("error_code") else []
        return own + [error for each in answer.values() for error in errors_in(each)]
    return [error for each in answer for error in errors_in(each)] if isinstance(answer, list) else []


INVALID = ErrorCode.INVALID_REQUEST
ROWS: list[tuple[str, int, int, dict[str, Any], list[ErrorCode]]] = [
    (
        "a producer id without an epoch",
        22,
        4,
        {"transactional_id": None, "producer_id": 5, "producer_epoch": -1},
        [INVALID],
    ),
    (
        "an epoch without a producer id",
        22,
        4,
        {"transactional_id": None, "producer_id": -1, "producer_epoch": 5},
        [INVALID],
    ),
    ("a config without a value", 33, 2, config(("retention.ms", None)), [INVALID]),
    ("a config twice", 33, 2, config(("retention.ms", "1"), ("retention.ms", "2")), [INVALID]),
    ("partitions with nobody", 37, 3, grown([]), [ErrorCode.INVALID_REPLICA_ASSIGNMENT]),
    ("partitions twice", 37, 3, grown(None, None), [INVALID]),
    ("a reassignment to nobody", 45, 1, reassigned([]), [ErrorCode.INVALID_REPLICA_ASSIGNMENT]),
    ("a cancellation of nothing", 45, 1, reassigned(None), [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]),
    ("a match of no kind", 48, 1, {"components": [{"entity_type": "user", "match_type": 9}]}, [INVALID]),
    ("the quorum of a topic", 55, 2, quorum((ODD, 0)), [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
    ("another quorum", 55, 2, quorum(("__cluster_metadata", 5)), [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
    ("no quorum", 55, 2, quorum(), []),
    ("endpoints of controllers", 60, 1, {"endpoint_type": 2}, [ErrorCode.MISMATCHED_ENDPOINT_TYPE]),
    ("endpoints of nobody", 60, 1, {"endpoint_type": 3}, [ErrorCode.UNSUPPORTED_ENDPOINT_TYPE]),
    ("a member of a blank group", 68, 0, {**JOINS, "group_id": " "}, [INVALID]),
    ("a member without an id", 68, 1, {**JOINS, "member_id": ""}, [INVALID]),
    (
        "configs of a name that is none",
        32,
        4,
        {"resources": [{"resource_type": 2, "resource_name": "a b", "configuration_keys": None}]},
        [ErrorCode.INVALID_TOPIC_EXCEPTION],
    ),
]


def created(*names: str, timeout_ms: int = 5000) -> dict[str, Any]:
    made = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    return {"topics": [{"name": name, **made} for name in names], "timeout_ms": timeout_ms, "validate_only": False}


def altered(name: str, operation: int, value: str | None) -> dict[str, Any]:
    change = {"name": name, "config_operation": operation, "value": value}
    resource = {"resource_type": 2, "resource_name": ODD, "configs": [change]}
    return {"resources": [resource], "validate_only": True}


QUOTA = {"key": "producer_byte_rate", "value": 1.0, "remove": False}


def twice(asked: dict[str, Any]) -> dict[str, Any]:
    return {**asked, "resources": asked["resources"] * 2}


def limited(entity_type: str, times: int = 1) -> dict[str, Any]:
    entry = {"entity": [{"entity_type": entity_type, "entity_name": "x"}], "ops": [QUOTA]}
    return {"entries": [entry] * times, "validate_only": True}


DIFFERENT: list[tuple[str, int, int, dict[str, Any], list[ErrorCode]]] = [  # docs/differences.md has Kafka's answers
    ("a resource twice", 33, 2, twice(config(("retention.ms", "1"))), [INVALID, INVALID]),
    ("nothing, appended", 44, 1, altered("cleanup.policy", 2, ""), []),
    (
        "a cursor behind all topics",
        75,
        0,
        {
            "topics": [{"name": ODD}],
            "response_partition_limit": 10,
            "cursor": {"topic_name": "zzz", "partition_index": 0},
        },
        [],
    ),
]
AS_KAFKA: list[tuple[str, int, int, dict[str, Any], list[ErrorCode]]] = [
    ("a topic twice", 19, 7, created("twice", "twice"), [INVALID]),  # librdkafka cannot read two results of one topic
    ("a topic that is none twice", 19, 7, created("a b", "a b"), [INVALID]),
    ("a resource twice, incrementally", 44, 1, twice(altered("retention.ms", 0, "1")), [INVALID, INVALID]),
    ("a quota of a planet", 49, 1, limited("planet"), [ErrorCode.UNSUPPORTED_VERSION]),
    ("a quota twice", 49, 1, limited("user", times=2), [INVALID]),
]
ROWS += [*AS_KAFKA, *DIFFERENT]


@pytest.mark.parametrize(("key", "version", "asked", "errors"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_odd_requests_get_the_errors_of_the_table(
    odradek_cluster: Cluster, key: int, version: int, asked: dict[str, Any], errors: list[ErrorCode]
) -> None:
    """The same error, once, and nothing is done."""
    odradek_cluster.create_topic(ODD)
    address = odradek_cluster.kafka_addresses[1]
    assert errors_in(ask(address, key, version, asked)) == errors


def test_nobody_is_given_the_producer_id_that_he_names(kafka_bootstrap: str) -> None:
    """Without transactions it may be somebody else's, who would be fenced by the next epoch."""
    address = kafka_bootstrap.partition(",")[0]
    first = ask(address, 22, 4, {"transactional_id": None, "producer_id": -1, "producer_epoch": -1})
    named = {"transactional_id": None, "producer_id": first["producer_id"], "producer_epoch": 0}
    second = ask(address, 22, 4, named)
    assert second["producer_id"] != first["producer_id"]
    assert (first["producer_epoch"], second["producer_epoch"]) == (0, 0)
