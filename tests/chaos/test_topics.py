"""A topic is made through lost answers, and what was there before is no success."""

from __future__ import annotations

import pytest
from odradek import Admin, NewTopic
from odradek.broker_errors import InvalidReplicationFactor, TopicAlreadyExists
from odradek_broker.testing import Cluster
from odradek_chaos.harness.topics import create_topic
from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.transport.ports import PeerUnavailable

CREATE_TOPICS = "/odradek.v1.Admin/CreateTopics"
PATIENCE_S = 60


@pytest.mark.parametrize("is_done", [True, False])
async def test_an_order_whose_answer_is_lost_is_given_again(is_done: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first order was carried out or was not; either way the topic is there in the end, made once."""
    call, lost = GrpcNetwork.call, [CREATE_TOPICS]

    async def lose_an_answer(self: GrpcNetwork, peer: str, method: str, request: bytes, timeout_ms: float) -> bytes:
        if method in lost:
            lost.remove(method)
            if is_done:
                await call(self, peer, method, request, timeout_ms)
            raise PeerUnavailable("the connection broke")
        return await call(self, peer, method, request, timeout_ms)

    async with Cluster() as cluster, Admin(cluster.bootstrap) as admin:
        monkeypatch.setattr(GrpcNetwork, "call", lose_an_answer)
        assert await create_topic(admin, NewTopic("orders", 4, 3), timeout_s=PATIENCE_S) == 4
        assert not lost


async def test_a_topic_that_was_there_before_is_an_error_unless_it_may_be() -> None:
    """Who needs an empty topic is told; who needs any is told how many partitions it has."""
    async with Cluster() as cluster, Admin(cluster.bootstrap) as admin:
        await cluster.create_topic("orders", partitions=2)
        with pytest.raises(TopicAlreadyExists):
            await create_topic(admin, NewTopic("orders", 5), timeout_s=PATIENCE_S)
        assert await create_topic(admin, NewTopic("orders", 5), timeout_s=PATIENCE_S, may_exist=True) == 2


async def test_too_few_brokers_are_waited_for_and_named_in_the_end() -> None:
    """A third broker may still register; when it does not, the controller's refusal is raised."""
    async with Cluster(brokers=2) as cluster, Admin(cluster.bootstrap) as admin:
        with pytest.raises(InvalidReplicationFactor):
            await create_topic(admin, NewTopic("orders", 1, 3), timeout_s=0.2)
