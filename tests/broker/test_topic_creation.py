"""Topics that the settings name, on whole clusters under virtual time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from odradek import Admin, NewTopic
from odradek_broker.config.settings import BrokerSettings
from odradek_broker.core.metadata.image import TopicImage
from odradek_chaos.worlds.simulated.cluster.cluster import SimCluster
from odradek_chaos.worlds.simulated.cluster.node import NodePorts
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_proto.values import replace

LONG_MS = 30_000  # far longer than anything here takes


class Cluster(SimCluster):
    """Three brokers that are told to create topics; what they are told may change between two starts."""

    topics = ""

    def settings_of(self, broker_id: int) -> BrokerSettings:
        return replace(super().settings_of(broker_id), odradek_create_topics=self.topics)

    def created(self) -> dict[str, TopicImage]:
        return dict(self.newest_image().topics)

    async def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(LONG_MS // 10):
            if condition():
                return
            await self.loop.sleep(10)
        raise AssertionError(f"still not so after {LONG_MS} ms; topics: {list(self.created())}")

    async def as_client(self, name: str, program: Callable[[Admin], Coroutine[Any, Any, None]]) -> None:
        async def run(ports: NodePorts) -> None:
            async with Admin(self.bootstrap, clock=ports.clock, network=ports.network) as admin:
                await program(admin)

        await self.run_client(name, run)

    async def kill_all(self) -> None:
        for machine in self.machines.values():
            if machine.is_running:
                machine.kill()
        await self.loop.sleep(10)


def play(topics: str, story: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    loop = SimLoop(seed=5)
    cluster = Cluster(loop)
    cluster.topics = topics

    async def told() -> None:
        await story(cluster)
        await cluster.kill_all()

    loop.run(told(), limit_s=600)
    loop.close()
    assert not cluster.crashes


def test_a_topic_waits_for_as_many_brokers_as_replicas() -> None:
    """Two brokers are enough for a topic of two replicas, and the one of three comes with the third broker."""

    async def story(cluster: Cluster) -> None:
        cluster.start(1)
        cluster.start(2)
        await cluster.until(lambda: "small" in cluster.created())
        await cluster.loop.sleep(LONG_MS)
        assert list(cluster.created()) == ["small"]
        cluster.start(3)
        await cluster.until(lambda: "orders" in cluster.created())
        assert [len(each.replicas) for each in cluster.created()["orders"].partitions.values()] == [3] * 4
        assert not {"orders", "small"} ^ set(cluster.created())

    play("orders:4:3,small:1:2", story)


def test_leaders_are_spread_over_brokers_that_start_together() -> None:
    """Though the first broker alone would do for one replica."""

    async def story(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until(lambda: "orders" in cluster.created())
        assert {each.leader for each in cluster.created()["orders"].partitions.values()} == {1, 2, 3}

    play("orders:3:1", story)


def test_a_topic_that_exists_is_left_as_it_is_and_settings_are_taken_over() -> None:
    """Whatever its partitions are; the one beside it is created with its settings, once, by the three of them."""

    async def create(admin: Admin) -> None:
        await admin.create_topics([NewTopic("orders", partitions=1)])

    async def story(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until(lambda: len(cluster.newest_image().brokers) == 3)
        await cluster.as_client("admin", create)
        await cluster.kill_all()
        cluster.topics = "orders:6:3,payments:2:3:retention.ms=60000"
        cluster.start_all()
        await cluster.until(lambda: "payments" in cluster.created())
        await cluster.loop.sleep(LONG_MS)
        assert {name: len(topic.partitions) for name, topic in cluster.created().items()} == {
            "orders": 1,
            "payments": 2,
        }
        assert cluster.newest_image().topic_configs["payments"] == {"retention.ms": "60000"}

    play("", story)


def test_a_topic_that_is_refused_for_good_holds_nobody_up() -> None:
    """`a.b` and `a_b` collide: the second is refused, the third is created."""

    async def story(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until(lambda: "orders" in cluster.created())
        assert list(cluster.created()) == ["a.b", "orders"]

    play("a.b:1:1,a_b:1:1,orders:1:3", story)
