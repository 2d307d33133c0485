"""A broker that is gone for good leaves the metadata, by Kafka's request and by the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from odradek import NewTopic
from odradek.sync import Admin
from odradek_broker.testing import Cluster
from odradek_proto.errors import ErrorCode

from tests.kafka.test_admin import ask

UNREGISTER_BROKER = 64


def test_a_dead_broker_without_replicas_is_forgotten(odradek: Callable[..., Any]) -> None:
    """Not while it is in session, nor while it is a replica; and it may come back."""
    with Cluster(3) as cluster, Admin(cluster.bootstrap) as admin:
        cluster.wait_until_ready()
        admin.create_topics([NewTopic("orders", assignments={0: [1, 3]})])

        def unregister(broker: int) -> ErrorCode:
            return ErrorCode(ask(cluster.kafka_addresses[1], UNREGISTER_BROKER, 0, {"broker_id": broker})["error_code"])

        def fenced() -> list[int]:
            return [broker.broker_id for broker in admin.describe_cluster().brokers if broker.fenced]

        assert unregister(3) == ErrorCode.INVALID_REQUEST
        assert unregister(4) == ErrorCode.BROKER_ID_NOT_REGISTERED
        cluster.kill(3)
        cluster.wait_until_ready()
        assert fenced() == [3]
        refused = odradek("cluster", "unregister", "3", "-b", cluster.bootstrap)
        assert (refused.code, "is a replica of 1 partition: reassign them first" in refused.err) == (1, True)
        admin.delete_topics(["orders"])
        done = odradek("cluster", "unregister", "3", "-b", cluster.bootstrap, "--json")
        assert json.loads(done.out) == {"broker": 3, "unregistered": True}
        cluster.wait_until_told()
        assert [broker.broker_id for broker in admin.describe_cluster().brokers] == [1, 2]
        cluster.start(3)
        cluster.wait_until_ready()
        assert fenced() == []
