"""A broker that follows thousands of partitions of one leader."""

from __future__ import annotations

from odradek_broker.core.metadata.delta import MetadataDelta
from odradek_broker.core.metadata.image import PartitionRegistration, TopicImage
from odradek_broker.rpc.fetch_session import MAX_HEADER_BYTES
from odradek_proto.topics import LONGEST_TOPIC_NAME, TopicPartition
from odradek_proto.transport.frames import split_frame
from odradek_proto.v1 import broker_pb2 as pb

from tests.broker.replica_world import ME, ONE, THREE, TOPIC_ID, World, run
from tests.playing import plays

PARTITIONS = 4_200  # their names alone are more than the leader takes in one header


@plays(run)
async def test_a_request_for_thousands_of_partitions_is_one_that_the_leader_takes(world: World) -> None:
    """The leader ends a session that sends a larger header: asked for all at once, it would never answer."""
    topic = TopicImage("t" * LONGEST_TOPIC_NAME, TOPIC_ID)
    followed = PartitionRegistration((ONE, ME), (ONE, ME), ONE, 0, 0)
    topic.partitions.update(dict.fromkeys(range(PARTITIONS), followed))
    world.image.topics[topic.name] = topic
    names = [TopicPartition(topic.name, number) for number in topic.partitions]
    world.replicas.apply(world.image, MetadataDelta(partitions=dict.fromkeys(names)))
    while len(world.replicas.replicas) < PARTITIONS:  # their logs are made in portions
        await world.clock.sleep(100)
    await world.clock.sleep(1)
    heard(world, ONE)

    moved = PartitionRegistration((THREE, ME), (THREE,), THREE, 1, 1)
    topic.partitions.update(dict.fromkeys(topic.partitions, moved))
    world.replicas.apply(world.image, MetadataDelta(partitions=dict.fromkeys(names)))
    await world.clock.sleep(1)
    forgotten, asked = heard(world, ONE), heard(world, THREE)
    assert [each.partition for header in forgotten for each in header.forgotten] == list(topic.partitions)
    assert [each.partition for header in asked for each in header.partitions] == list(topic.partitions)


def heard(world: World, leader: int) -> list[pb.FetchHeader]:
    """What a leader heard since the last look."""
    headers = []
    while not world.leader(leader).heard.empty():
        header, _ = split_frame(world.leader(leader).heard.get_nowait())
        assert len(header) <= MAX_HEADER_BYTES
        headers.append(pb.FetchHeader.FromString(header))
    return headers
