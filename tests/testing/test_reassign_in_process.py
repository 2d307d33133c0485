"""Partitions move between real brokers while they are written, and lose their oldest records by order (R-125)."""

from __future__ import annotations

import asyncio

from odradek import Admin, Consumer, Producer, TopicPartition, broker_errors
from odradek_broker.testing import AsyncCluster, Cluster

ORDERS = TopicPartition("orders", 0)
SETTINGS = {"min.insync.replicas": 2}
SIDES = ("leader", "follower")
PATIENCE_S = 60.0


class Writer:
    """Writes numbers with acks=all until it is told to stop; `acknowledged` are those that the cluster has promised."""

    def __init__(self, cluster: AsyncCluster) -> None:
        self._cluster = cluster
        self._stop = asyncio.Event()
        self._progress = asyncio.Condition()
        self.acknowledged: list[int] = []

    async def __aenter__(self) -> Writer:
        self._task = asyncio.create_task(self._write())
        return self

    async def __aexit__(self, *ending: object) -> None:
        self._stop.set()
        await self._task

    async def _write(self) -> None:
        async with Producer(self._cluster.bootstrap) as producer:
            number = 0
            while not self._stop.is_set():
                await producer.send("orders", str(number), partition=0)
                number += 1
                async with self._progress:
                    self.acknowledged.append(number - 1)
                    self._progress.notify_all()

    async def more(self, count: int = 50) -> None:
        """Wait until so many more are acknowledged."""
        wanted = len(self.acknowledged) + count
        async with asyncio.timeout(PATIENCE_S), self._progress:
            await self._progress.wait_for(lambda: len(self.acknowledged) >= wanted)


async def read_all(cluster: AsyncCluster) -> list[int]:
    async with Consumer(cluster.bootstrap, "orders", auto_offset_reset="earliest") as consumer:
        return [int(record.value or b"-1") async for record in consumer.records(until="end")]


def replica(cluster: AsyncCluster, topic: str = "orders") -> set[int]:
    """The brokers on whose disks the partition is, under its own name."""
    return {int(name) for name, path in cluster.replicas().items() if (path / f"{topic}-0").exists()}


async def settle(cluster: AsyncCluster, wanted: tuple[int, ...]) -> None:
    """Wait for the end of a reassignment, which must be these replicas, all in sync, and known to everybody."""
    await cluster.wait_until_reassigned("orders")
    await cluster.wait_until_told()
    assert set(cluster.isr_of("orders")) == set(wanted)


async def test_a_partition_moves_under_load_and_kills_without_a_loss() -> None:
    """All replicas are exchanged, the leader and a target die on the way; every acknowledged record stays."""
    async with Cluster(5, settings=SETTINGS) as cluster, Admin(cluster.bootstrap) as admin:
        await cluster.create_topic("orders", replication_factor=1)
        assert await admin.alter_partition_reassignments({ORDERS: [1, 2, 3]}) == {ORDERS: None}
        await settle(cluster, (1, 2, 3))
        async with Writer(cluster) as writer:
            await writer.more()
            await admin.alter_partition_reassignments({ORDERS: [3, 4, 5]})
            await cluster.kill(await cluster.leader_of("orders"))
            await writer.more()
            await cluster.kill(4)
            await cluster.heal()
            await settle(cluster, (3, 4, 5))
            await writer.more()
            acknowledged = writer.acknowledged
        assert await read_all(cluster) == acknowledged
        assert replica(cluster) == {3, 4, 5}


async def test_a_throttled_reassignment_waits_and_its_partition_does_not() -> None:
    """KIP-73: at a byte a second a copy takes hours, and acks=all no longer than ever; without a rate it is done."""
    throttled = [f"{side}.replication.throttled.{what}" for what in ("rate", "replicas") for side in SIDES]
    small = SETTINGS | {"replica.fetch.max.bytes": 1000}  # of an answer
    async with Cluster(3, settings=small) as cluster, Admin(cluster.bootstrap) as admin:
        await cluster.create_topic("orders", replication_factor=1)
        await admin.alter_partition_reassignments({ORDERS: [1, 2]})
        await settle(cluster, (1, 2))
        async with Writer(cluster) as writer:
            await writer.more(1_000)
            await admin.incremental_alter_configs("broker", "", set=dict.fromkeys(throttled[:2], "1"))
            await admin.incremental_alter_configs("topic", "orders", set=dict.fromkeys(throttled[2:], "*"))
            await admin.alter_partition_reassignments({ORDERS: [2, 3]})
            await writer.more()
            assert list(await admin.list_partition_reassignments()) == [ORDERS]
            assert set(cluster.isr_of("orders")) == {1, 2}
            await admin.incremental_alter_configs("broker", "", unset=throttled[:2])
            await settle(cluster, (2, 3))
            acknowledged = writer.acknowledged
        assert await read_all(cluster) == acknowledged


async def test_a_leader_that_stays_keeps_its_writers() -> None:
    """A replica is taken away: the leader leads on in the next epoch, and no write fails or is written twice."""
    async with Cluster(3, settings=SETTINGS) as cluster, Admin(cluster.bootstrap) as admin:
        await cluster.create_topic("orders", replication_factor=3)
        leader = await cluster.leader_of("orders")
        other, gone = (broker for broker in cluster.brokers if broker != leader)
        async with Writer(cluster) as writer:
            await writer.more()
            await admin.alter_partition_reassignments({ORDERS: [leader, other]})
            await settle(cluster, (leader, other))
            await writer.more()
            acknowledged = writer.acknowledged
        partition = (await admin.describe_topics(["orders"]))[0].partitions[0]
        assert (partition.leader_id, partition.leader_epoch) == (leader, 1)
        assert await read_all(cluster) == acknowledged
        assert replica(cluster) == {leader, other}
        set_aside = [path.name for path in cluster.replicas()[str(gone)].iterdir() if path.name.endswith("-delete")]
        assert len(set_aside) == 1
        assert set_aside[0].startswith("orders-0.")


async def test_a_broker_that_was_away_removes_what_was_reassigned_meanwhile() -> None:
    """It comes back, finds that it is no replica any more, and sets the log aside to be removed."""
    async with Cluster(4, settings=SETTINGS) as cluster, Admin(cluster.bootstrap) as admin:
        await cluster.create_topic("orders", replication_factor=3)
        before = {*(await admin.describe_topics(["orders"]))[0].partitions[0].replicas}
        leader = await cluster.leader_of("orders")
        away = min(before - {leader})
        (new,) = {*cluster.brokers} - before
        wanted = (*sorted(before - {away}), new)
        await cluster.kill(away)
        await cluster.wait_until_ready()  # an order on its way to a controller that dies is not repeated
        await admin.alter_partition_reassignments({ORDERS: wanted})
        await settle(cluster, wanted)
        await cluster.start(away)
        await settle(cluster, wanted)
        assert replica(cluster) == {*wanted}
        assert [path.name for path in cluster.replicas()[str(away)].glob("orders-0.*-delete")]


async def test_a_cancelled_reassignment_leaves_nothing_on_the_new_broker() -> None:
    """The target's broker is down, so it waits; cancelling takes it back, and what is refused says why by its class."""
    async with Cluster(4, settings=SETTINGS) as cluster, Admin(cluster.bootstrap) as admin:
        await cluster.create_topic("orders", replication_factor=3)
        before = tuple((await admin.describe_topics(["orders"]))[0].partitions[0].replicas)
        (new,) = {*cluster.brokers} - {*before}
        nothing = (await admin.alter_partition_reassignments({ORDERS: None}))[ORDERS]
        assert isinstance(nothing, broker_errors.NoReassignmentInProgress)
        unknown = (await admin.alter_partition_reassignments({ORDERS: [9]}))[ORDERS]
        assert isinstance(unknown, broker_errors.InvalidReplicaAssignment)
        assert "no broker 9 is registered" in str(unknown)
        await cluster.kill(new)
        await cluster.wait_until_ready()  # an order on its way to a controller that dies is not repeated
        await admin.alter_partition_reassignments({ORDERS: [*before, new]})
        ongoing = (await admin.list_partition_reassignments())[ORDERS]
        assert (tuple(ongoing.adding_replicas), tuple(ongoing.target)) == ((new,), (*before, new))
        assert await admin.alter_partition_reassignments({ORDERS: None}) == {ORDERS: None}
        await cluster.start(new)
        await settle(cluster, before)
        assert replica(cluster) == {*before}


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
