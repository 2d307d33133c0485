"""A broker that follows thousands of partitions of one leader."""

from __future__ import annotations

import pytest
from odradek_broker.core.metadata.delta import MetadataDelta
from odradek_broker.core.metadata.image import PartitionRegistration, TopicImage
from odradek_broker.rpc.fetch_session import MAX_HEADER_BYTES
from odradek_broker.runtime.replicas import fetcher
from odradek_proto.topics import LONGEST_TOPIC_NAME, TopicPartition
from odradek_proto.v1 import broker_pb2 as pb

from tests.broker.replica_world import ME, ONE, THREE, TOPIC_ID, World, answered, run, stored
from tests.playing import plays

LARGEST = (1 << 63) - 1


def test_the_largest_request_is_one_that_the_leader_takes() -> None:
    """The leader ends a session that sends a larger header: asked for all at once, it would never answer."""
    header = pb.FetchHeader()
    for _ in range(fetcher.MAX_NAMED):
        fetched = header.partitions.add(topic="t" * LONGEST_TOPIC_NAME, topic_id=TOPIC_ID)
        for name in ("partition", "max_bytes", "current_leader_epoch", "last_fetched_epoch"):
            setattr(fetched, name, (1 << 31) - 1)
        fetched.fetch_offset = fetched.log_start_offset = LARGEST
    assert header.ByteSize() <= MAX_HEADER_BYTES


@plays(run)
async def test_a_request_names_no_more_partitions_than_it_may(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all that are followed or forgotten, in as many requests as that takes."""
    monkeypatch.setattr(fetcher, "MAX_NAMED", 20)
    topic = TopicImage("orders", TOPIC_ID)
    followed = PartitionRegistration((ONE, ME), (ONE, ME), ONE, 0, 0)
    topic.partitions.update(dict.fromkeys(range(42), followed))
    world.image.topics[topic.name] = topic
    names = [TopicPartition(topic.name, number) for number in topic.partitions]
    world.replicas.apply(world.image, MetadataDelta(partitions=dict.fromkeys(names)))
    await world.clock.sleep(100)
    assert len(world.replicas.replicas) == 42
    world.leader(ONE).said()

    moved = PartitionRegistration((THREE, ME), (THREE,), THREE, 1, 1)
    topic.partitions.update(dict.fromkeys(topic.partitions, moved))
    world.replicas.apply(world.image, MetadataDelta(partitions=dict.fromkeys(names)))
    await world.clock.sleep(1)
    forgotten, asked = world.leader(ONE).said(), world.leader(THREE).said()
    assert [each.partition for header in forgotten for each in header.forgotten] == list(topic.partitions)
    assert [each.partition for header in asked for each in header.partitions] == list(topic.partitions)
    assert all(len(each.partitions) + len(each.forgotten) <= fetcher.MAX_NAMED for each in forgotten + asked)


# --- What a follower makes of an answer that was damaged on its way --------------------------------------------------


@plays(run)
async def test_a_damaged_answer_is_asked_for_again(world: World) -> None:
    """Nothing of it is appended, and the same is fetched once more after a back-off (R-86)."""
    await world.learn(ONE, 0)
    assert world.leader(ONE).asked() == [("orders", 0, 0)]
    sound = stored(0)
    await answered(world, ONE, sound[:-1] + b"?", epoch=0)
    await world.clock.sleep(1_000)
    assert world.log_end() == 0
    assert world.leader(ONE).asked() == [("orders", 0, 0)]
    await answered(world, ONE, sound, epoch=0)
    assert world.log_end() == 1
