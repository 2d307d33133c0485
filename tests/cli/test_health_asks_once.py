"""What `odradek cluster health` asks of a cluster."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from odradek_broker.testing import Cluster
from odradek_proto.transport.grpc_network import GrpcNetwork

from tests.cli.conftest import Run


def test_each_question_is_asked_once(odradek: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for what the cluster knows, once each broker for its replicas; nobody is asked for what is not shown."""
    asked: Counter[str] = Counter()
    call = GrpcNetwork.call

    async def counted(self: GrpcNetwork, address: str, method: str, *rest: Any, **options: Any) -> bytes:
        asked[method.rpartition("/")[2]] += 1
        return await call(self, address, method, *rest, **options)

    with Cluster(1) as cluster:
        cluster.create_topic("orders")
        with monkeypatch.context() as patched:
            patched.setattr(GrpcNetwork, "call", counted)
            outcome = odradek("cluster", "health", "-b", cluster.bootstrap)
    assert outcome.code == 0, outcome
    assert asked == {
        "Metadata": 4,
        "ListOffsets": 1,
        "DescribeReplicas": 1,
    }  # two of them are the clients' own, before the first question
