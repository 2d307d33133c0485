"""DeleteRecords is answered when every live replica has cut the beginning of its log (R-125)."""

from __future__ import annotations

from odradek import Admin, Producer, TopicPartition
from odradek_broker.testing import AsyncCluster, Cluster

ORDERS = TopicPartition("orders", 0)


async def starts(admin: Admin) -> dict[int, int]:
    """The log start offset of each replica, as its broker tells it."""
    described = await admin.describe_replicas(["orders"])
    return {replica.broker_id: replica.log_start_offset for replica in described.replicas}


async def write(cluster: AsyncCluster, count: int) -> None:
    async with Producer(cluster.bootstrap) as producer:
        for number in range(count):
            await producer.send("orders", str(number), partition=0)


async def test_the_answer_comes_after_every_live_replica_has_cut() -> None:
    """No replica that is alive shows the old beginning any more; a dead one is not waited for, and catches up later."""
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
