"""Brokers die until nobody is in sync. With eligible leader replicas, too, nothing that was acknowledged is lost.

Five brokers, three of them replicas of one partition: two may die and there still is a controller that sees it.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import permutations

import pytest
from odradek import Admin, Consumer, NewTopic, Producer
from odradek.cli.main import main
from odradek_broker.testing import AsyncCluster, Cluster

REPLICAS = (1, 2, 3)
SETTINGS = {"odradek.elr.enable": True}


class Story:
    """A partition with min.insync.replicas=2 on brokers 1, 2 and 3, and what it has acknowledged."""

    def __init__(self, cluster: AsyncCluster) -> None:
        self.cluster = cluster
        self.acknowledged: list[int] = []

    async def begin(self) -> None:
        async with Admin(self.cluster.bootstrap) as admin:
            topic = NewTopic("orders", assignments={0: REPLICAS}, configs={"min.insync.replicas": "2"})
            await admin.create_topics([topic])
        await self.cluster.wait_until_in_sync("orders")

    async def write(self, count: int = 10) -> None:
        async with Producer(self.cluster.bootstrap) as producer:
            for _ in range(count):
                await producer.send("orders", str(len(self.acknowledged)), partition=0)
                self.acknowledged.append(len(self.acknowledged))

    async def gone(self, broker: int) -> None:
        """Everybody knows that it is no member of the ISR, and which broker does not run."""
        await self.cluster.wait_until(lambda: broker not in self.cluster.isr_of("orders"))
        await self.cluster.wait_until_ready()

    async def described(self) -> tuple[int, list[int], list[int], list[int]]:
        """Leader, ISR, eligible and last known, as a client sees them, whichever broker it asks."""
        await self.cluster.wait_until_told()
        async with Admin(self.cluster.bootstrap) as admin:
            found = (await admin.describe_topics(["orders"]))[0].partitions[0]
            return found.leader_id, sorted(found.isr), sorted(found.elr), sorted(found.last_known_elr)

    async def end(self) -> None:
        """Everybody is back: writes go on, and everything is there in its order."""
        await self.cluster.heal()
        await self.cluster.wait_until_in_sync("orders")
        await self.write()
        async with Consumer(self.cluster.bootstrap, "orders", auto_offset_reset="earliest") as consumer:
            found = [int(record.value or b"-1") async for record in consumer.records(until="end")]
        assert found == self.acknowledged


@asynccontextmanager
async def tale_of_a_partition() -> AsyncIterator[tuple[Story, AsyncCluster]]:
    """Its beginning, and at the end all that was acknowledged is there."""
    async with Cluster(5, settings=SETTINGS) as cluster:
        tale = Story(cluster)
        await tale.begin()
        yield tale, cluster
        await tale.end()


@pytest.mark.slow
async def test_two_of_three_are_killed_in_any_order() -> None:
    """kill -9 of two of three: whoever is left has everything, and who left it last may lead, too."""
    async with tale_of_a_partition() as (tale, cluster):
        for first, second in permutations(REPLICAS, 2):
            (left,) = set(REPLICAS) - {first, second}
            await cluster.kill(first)
            await tale.gone(first)
            await tale.write()
            await cluster.kill(second)
            await tale.gone(second)
            assert await tale.described() == (left, [left], [second], [])
            await tale.end()


@pytest.mark.parametrize("returning", [(1, 2, 3), (2, 3, 1), pytest.param((3, 1, 2), marks=pytest.mark.slow)])
async def test_all_three_are_killed_and_return_in_any_order(returning: tuple[int, ...]) -> None:
    """kill -9 counts as an unclean stop, so nobody stays eligible: the last known leader leads again (R-140, R-141)."""
    async with tale_of_a_partition() as (tale, cluster):
        for broker in REPLICAS[:-1]:
            await tale.write()
            await cluster.kill(broker)
            await tale.gone(broker)
        await cluster.kill(REPLICAS[-1])  # and with it the majority of the controllers
        for broker in returning:
            await cluster.start(broker)
        assert await cluster.leader_of("orders") == REPLICAS[-1]


async def test_who_was_stopped_in_peace_leads_before_the_last_one_that_was_killed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The last replica standing may have lost what it had: who was stopped cleanly before it is waited for (R-139)."""

    async def command(*words: str) -> str:
        capfd.readouterr()
        assert await asyncio.to_thread(main, list(words)) == 0
        return capfd.readouterr().out

    async with tale_of_a_partition() as (tale, cluster):
        await tale.write()
        for broker in (1, 2):
            await cluster.stop(broker)
            await tale.gone(broker)
        await cluster.kill(3)
        await cluster.start(3)
        await tale.gone(3)
        assert await tale.described() == (-1, [], [2], [3])
        table = await command("topic", "describe", "orders", "-b", cluster.bootstrap)
        assert "LAST KNOWN ELR" in table
        shown = json.loads(await command("topic", "describe", "orders", "--json", "-b", cluster.bootstrap))
        assert (shown[0]["isr"], shown[0]["elr"], shown[0]["last_known_elr"]) == ([], [2], [3])
        await cluster.start(2)
        assert await cluster.leader_of("orders") == 2
        assert await tale.described() in ((2, [2], [], []), (2, [2, 3], [], []))


@pytest.mark.slow
async def test_who_lost_its_copy_while_it_was_stopped_does_not_lead_before_the_others() -> None:
    """Its clean stop says that it has everything, its checkpoint says of what, and the directory is gone."""
    async with tale_of_a_partition() as (tale, cluster):
        await tale.write()
        for broker in REPLICAS:
            await cluster.stop(broker)
        shutil.rmtree(cluster.replicas()["3"] / "orders-0")
        await cluster.start(3)
        await tale.gone(3)
        assert await tale.described() == (-1, [], [2], [])
        await cluster.start(2)
        assert await cluster.leader_of("orders") == 2


@pytest.mark.slow
async def test_the_last_leader_comes_back_with_an_empty_disk() -> None:
    """R-140, R-146: nobody waits for it. Once all are back the longest log leads; the others keep theirs."""
    async with tale_of_a_partition() as (tale, cluster):
        await tale.write()
        for broker in (3, 2):
            await cluster.kill(broker)
            await tale.gone(broker)
        await cluster.kill(1)
        shutil.rmtree(cluster.replicas()["1"])
        for broker in (2, 3, 1):
            await cluster.start(broker)
        assert await cluster.leader_of("orders") == 2


async def test_a_single_replica_that_is_killed_leads_again() -> None:
    """Nobody else could: the last known leader of a topic without copies is that one (R-140)."""
    async with Cluster(1, settings=SETTINGS) as cluster:
        await cluster.create_topic("orders", partitions=1)
        tale = Story(cluster)
        await tale.write()
        await cluster.kill(1)
        await tale.end()
