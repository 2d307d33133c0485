"""Whoever needs it is told that this broker begins to lead a partition, and that it ceases to."""

from __future__ import annotations

import pytest
from odradek_broker.core.metadata.delta import MetadataDelta, TopicDeleted
from odradek_broker.runtime.replicas.manager import ReplicaManager
from odradek_broker.storage.errors import StorageError
from odradek_proto.topics import TopicPartition

from tests.broker.replica_world import ME, ONE, ORDERS, TOPIC_ID, World, run
from tests.playing import plays


class Listener:
    """What it was told, and whether the replica led in that moment."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self.heard: list[tuple[str, int, bool]] = []
        self._replicas = replicas

    def began(self, tp: TopicPartition, leader_epoch: int) -> None:
        self.heard.append(("began", leader_epoch, self._leads(tp)))

    def ceased(self, tp: TopicPartition) -> None:
        self.heard.append(("ceased", -1, self._leads(tp)))

    def _leads(self, tp: TopicPartition) -> bool:
        replica = self._replicas.replicas[tp]
        return replica.leader is not None and replica.offline is None


def listener(world: World, topic: str = ORDERS.topic) -> Listener:
    made = Listener(world.replicas)
    world.replicas.on_leadership(topic, made)
    return made


@plays(run)
async def test_the_end_is_told_before_it_and_the_beginning_after_it(world: World) -> None:
    """A new ISR alone is neither; the next epoch of the same leader is another beginning."""
    made = listener(world)
    others = listener(world, "payments")
    await world.learn(ONE, 0)
    assert made.heard == []
    await world.learn(ME, 1)
    await world.learn(ME, 1, isr=(ME, ONE), version=2)
    assert made.heard == [("began", 1, True)]
    await world.learn(ME, 2, version=3)
    await world.learn(ONE, 3, version=4)
    assert made.heard[1:] == [("began", 2, True), ("ceased", -1, True)]
    await world.learn(ME, 9, version=9)
    await world.learn(ME, 12, version=12)  # with a gap: somebody else may have led in between
    assert made.heard[3:] == [("began", 9, True), ("ceased", -1, True), ("began", 12, True)]
    assert others.heard == []


@plays(run)
async def test_one_that_comes_later_is_told_what_is_led_already(world: World) -> None:
    """It would wait for ever for a beginning that was before it."""
    await world.learn(ME, 3)
    assert listener(world).heard == [("began", 3, True)]


@pytest.mark.parametrize("end", ["deleted", "failed", "stopped"])
@plays(run)
async def test_every_end_of_a_leadership_is_told_once(world: World, end: str) -> None:
    """The topic is deleted, the disk under the replica fails, or the broker stops."""
    await world.learn(ME, 0)
    made = listener(world)
    if end == "deleted":
        del world.image.topics[ORDERS.topic]
        gone = TopicDeleted(ORDERS.topic, TOPIC_ID, (0,))
        world.replicas.apply(world.image, MetadataDelta(deleted_topics={TOPIC_ID: gone}))
    elif end == "failed":
        world.replicas.storage_failed(world.replicas.replicas[ORDERS], StorageError("one bad log"))
    await world.replicas.stop()
    assert made.heard == [("began", 0, True), ("ceased", -1, True)]
