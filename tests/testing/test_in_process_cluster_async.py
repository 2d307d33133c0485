"""The cluster for code with asyncio: on the running loop, or beside it."""

from __future__ import annotations

import asyncio
import logging

import pytest
from odradek import Consumer, Producer
from odradek_broker.testing import AsyncCluster, Cluster, ClusterError
from odradek_broker.testing.async_cluster import CREATE_TOPICS
from odradek_broker.testing.network import BrokerNetwork
from odradek_proto.transport.ports import PeerUnavailable

RECORDS = 300


def logged_errors(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """But for what gRPC up to some version logs beside a second loop: that both were woken for one event.

    A second loop is there as soon as an earlier test of this process has used the background loop.
    """
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    return [each for each in errors if not (each.exc_info and isinstance(each.exc_info[1], BlockingIOError))]


async def write_over_a_kill(cluster: AsyncCluster) -> list[bytes | None]:
    """Records before, during and after the death of their leader; what a consumer then reads."""
    await cluster.create_topic("orders")
    async with Producer(cluster.bootstrap) as producer:
        sends = [asyncio.create_task(producer.send("orders", str(number), partition=0)) for number in range(RECORDS)]
        leader = await cluster.leader_of("orders")
        await cluster.kill(leader)
        await asyncio.gather(*sends)
        await cluster.start(leader)
        await cluster.wait_until_in_sync("orders")
    async with Consumer(cluster.bootstrap, "orders", auto_offset_reset="earliest") as consumer:
        return [record.value async for record in consumer.records(until="end")]


def test_a_killed_leader_loses_nothing_on_the_running_loop(caplog: pytest.LogCaptureFixture) -> None:
    """Cluster and clients share the loop that runs; nothing is logged as an error."""

    async def story() -> list[bytes | None]:
        async with Cluster() as cluster:
            return await write_over_a_kill(cluster)

    seen = asyncio.run(story())
    assert sorted(int(value or b"-1") for value in seen) == list(range(RECORDS))
    assert logged_errors(caplog) == []


async def test_a_topic_whose_creation_was_not_answered_has_been_created(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first broker did it and its answer got lost: the next one's "exists" is no error, but a second order's is."""
    call, lost = BrokerNetwork.call, [CREATE_TOPICS]

    async def lose_an_answer(self: BrokerNetwork, peer: str, method: str, request: bytes, timeout_ms: float) -> bytes:
        answer = await call(self, peer, method, request, timeout_ms)
        if method in lost:
            lost.remove(method)
            raise PeerUnavailable("the connection broke")
        return answer

    async with Cluster() as cluster:
        monkeypatch.setattr(BrokerNetwork, "call", lose_an_answer)
        await cluster.create_topic("orders")
        assert not lost
        lost.append(CREATE_TOPICS)
        with pytest.raises(ClusterError, match="exists"):
            await cluster.create_topic("orders")


def test_asynchronous_clients_may_have_a_loop_of_their_own(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """The cluster is on the background loop and the test's clients on another one; nothing is logged as an error."""
    cluster.create_topic("orders")

    async def story() -> list[bytes | None]:
        async with Producer(cluster.bootstrap) as producer:
            await asyncio.gather(*(producer.send("orders", str(number), partition=0) for number in range(RECORDS)))
        async with Consumer(cluster.bootstrap, "orders", auto_offset_reset="earliest") as consumer:
            return [record.value async for record in consumer.records(until="end")]

    for round_ in range(1, 3):  # a second loop after the first one is closed
        assert len(asyncio.run(story())) == round_ * RECORDS
    assert logged_errors(caplog) == []


def test_the_asynchronous_cluster_needs_no_background_loop() -> None:
    """All of it runs on the loop that is there: no task is left on it at the end."""

    async def story() -> set[asyncio.Task[object]]:
        before = asyncio.all_tasks()
        async with Cluster(brokers=2) as cluster:
            assert len(asyncio.all_tasks() - before) > 0
            await cluster.create_topic("orders")
            await cluster.kill(2)
        left = asyncio.all_tasks() - before
        if left:  # gRPC's own, cancelled, which have not had their turn
            await asyncio.wait(left, timeout=30)
        return {task for task in left if not task.done()}

    assert asyncio.run(story()) == set()
