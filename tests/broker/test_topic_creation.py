"""Topics that the settings name, on whole clusters under virtual time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from odradek import Admin, NewTopic
from odradek_broker.config.settings import BrokerSettings
from odradek_broker.core.metadata.image import TopicImage
from odradek_proto.values import replace

from tests.broker.sim_brokers import SimBrokers
from tests.playing import Test, plays

LONG_MS = 30_000  # far longer than anything here takes


class Brokers(SimBrokers):
    """Three brokers that are told to create topics; what they are told may change between two starts."""

    def __init__(self, topics: str) -> None:
        super().__init__(3)
        self.topics = topics

    def settings_of(self, broker_id: int) -> BrokerSettings:
        return replace(super().settings_of(broker_id), odradek_create_topics=self.topics)

    def created(self) -> dict[str, TopicImage]:
        return dict(self.newest_image().topics)


def told(topics: str) -> Callable[[Test], Callable[..., None]]:
    """A test that is a story of brokers that are told to create these topics."""

    def run(story: Callable[[Brokers], Coroutine[Any, Any, None]]) -> None:
        cluster = Brokers(topics)
        cluster.play(story(cluster))
        assert not cluster.crashes

    return plays(run)


@told("orders:4:3,small:1:2")
async def test_a_topic_waits_for_as_many_brokers_as_replicas(cluster: Brokers) -> None:
    """Two brokers are enough for a topic of two replicas, and the one of three comes with the third broker."""
    cluster.start(1)
    cluster.start(2)
    await cluster.until(lambda: "small" in cluster.created())
    await cluster.loop.sleep(LONG_MS)
    assert list(cluster.created()) == ["small"]
    cluster.start(3)
    await cluster.until(lambda: "orders" in cluster.created())
    assert [len(each.replicas) for each in cluster.created()["orders"].partitions.values()] == [3] * 4
    assert not {"orders", "small"} ^ set(cluster.created())


@told("orders:3:1")
async def test_leaders_are_spread_over_brokers_that_start_together(cluster: Brokers) -> None:
    """Though the first broker alone would do for one replica."""
    cluster.start_all()
    await cluster.until(lambda: "orders" in cluster.created())
    assert {each.leader for each in cluster.created()["orders"].partitions.values()} == {1, 2, 3}


@told("")
async def test_a_topic_that_exists_is_left_as_it_is_and_settings_are_taken_over(cluster: Brokers) -> None:
    """Whatever its partitions are; the one beside it is created with its settings, once, by the three of them."""

    async def create(admin: Admin) -> None:
        await admin.create_topics([NewTopic("orders", partitions=1)])

    cluster.start_all()
    await cluster.until(lambda: len(cluster.newest_image().brokers) == 3)
    await cluster.as_admin(create)
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


@told("a.b:1:1,a_b:1:1,orders:1:3")
async def test_a_topic_that_is_refused_for_good_holds_nobody_up(cluster: Brokers) -> None:
    """`a.b` and `a_b` collide: the second is refused, the third is created."""
    cluster.start_all()
    await cluster.until(lambda: "orders" in cluster.created())
    assert list(cluster.created()) == ["a.b", "orders"]
