"""DeleteRecords is answered when every live replica has cut the beginning of its log (R-125)."""

from __future__ import annotations

import asyncio

import pytest
from odradek import Admin, Producer, TopicPartition
from odradek_broker.runtime.replicas.delayed_deletes import DelayedDeletes
from odradek_broker.testing import AsyncCluster, Cluster
from odradek_proto.errors import ErrorCode

ORDERS = TopicPartition("orders", 0)


async def starts(admin: Admin) -> dict[int, int]:
    """The log start offset of each replica, as its broker tells it."""
    described = await admin.describe_replicas(["orders"])
    return {replica.broker_id: replica.log_start_offset for replica in described.replicas}


async def write(cluster: AsyncCluster, count: int) -> None:
    async with Producer(cluster.bootstrap) as producer:
        for number in range(count):
            await producer.send("orders", str(number), partition=0)


def test_the_answer_comes_after_every_live_replica_has_cut() -> None:
    """No replica that is alive shows the old beginning any more; a dead one is not waited for, and catches up later."""

    async def story() -> None:
        async with Cluster(3) as cluster, Admin(cluster.bootstrap) as admin:
            await cluster.create_topic("orders")
            await write(cluster, 6)
            assert await admin.delete_records({ORDERS: 4}) == {ORDERS: 4}
            assert await starts(admin) == {1: 4, 2: 4, 3: 4}
            leader = await cluster.leader_of("orders")
            dead = min(broker for broker in cluster.brokers if broker != leader)
            await cluster.kill(dead)
            await cluster.wait_until_ready()  # by then everybody knows that it is not in sync
            assert await admin.delete_records({ORDERS: -1}) == {ORDERS: 6}
            alive = [broker for broker in cluster.brokers if broker != dead]
            assert await starts(admin) == dict.fromkeys(alive, 6)
            await cluster.heal()
            await cluster.wait_until_in_sync("orders")
            await write(cluster, 1)
            assert await admin.delete_records({ORDERS: 6}) == {ORDERS: 6}
            assert await starts(admin) == {1: 6, 2: 6, 3: 6}

    asyncio.run(story())


@pytest.mark.parametrize(("low_watermark", "done"), [(3, [False, False]), (4, [True, False]), (9, [True, True])])
def test_requests_end_in_the_order_of_their_offsets(low_watermark: int, done: list[bool]) -> None:
    """Each waits for its own offset; one that gave up is passed over, and the end of a leadership ends the rest."""

    async def story() -> None:
        waiting = DelayedDeletes()
        requests, given_up = [waiting.add(4), waiting.add(5)], waiting.add(1)
        given_up.cancel()
        waiting.on_low_watermark(low_watermark)
        assert [request.done() for request in requests] == done
        waiting.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert not waiting
        ended = [request.result() for request in requests]
        assert ended == [ErrorCode.NONE if each else ErrorCode.NOT_LEADER_OR_FOLLOWER for each in done]

    asyncio.run(story())
