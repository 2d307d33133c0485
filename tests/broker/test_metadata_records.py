"""Metadata records: what they do to an image, and what a delta says of it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from odradek_broker.core.controller.balance import balance_leaders
from odradek_broker.core.controller.configs import alter_configs
from odradek_broker.core.controller.heartbeats import process_heartbeat
from odradek_broker.core.controller.producer_ids import allocate_producer_ids
from odradek_broker.core.controller.registration import fence_broker, register_broker
from odradek_broker.core.controller.sessions import SessionTable
from odradek_broker.core.controller.topics import create_partitions, create_topics, delete_topics
from odradek_broker.core.metadata.delta import MetadataDelta, TopicConfigChanged, TopicDeleted
from odradek_broker.core.metadata.group_configs import SESSION_TIMEOUT
from odradek_broker.core.metadata.image import NO_LEADER, MetadataImage
from odradek_broker.core.metadata.records import CorruptMetadata, MetadataRecord, apply, decode, encode
from odradek_broker.runtime.membership.metadata_feed import MetadataFeed
from odradek_proto.topics import TopicPartition
from odradek_proto.v1 import admin_messages, controller_messages, metadata_messages

from tests.broker.controller_images import (
    CLUSTER_ID,
    SETTINGS,
    add_topic,
    image_of,
    incarnation,
    partition_of,
    write,
)

NAMES = ("a", "b", "c.d")
BROKERS = (1, 2, 3)


class Operator:
    """Does random things to a cluster, through the controller's core."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.ahead = MetadataImage()
        self.lives = dict.fromkeys(BROKERS, 0)

    def act(self) -> Sequence[MetadataRecord]:
        """One decision, not applied."""
        rng, ahead = self.rng, self.ahead
        broker_id, name = rng.choice(BROKERS), rng.choice(NAMES)
        match rng.randrange(9):
            case 0:
                self.lives[broker_id] += rng.randrange(2)
                request = controller_messages.RegisterBrokerRequest(
                    broker_id=broker_id,
                    cluster_id=CLUSTER_ID,
                    incarnation_id=incarnation(broker_id, self.lives[broker_id]),
                    endpoints={"GRPC": f"host:{rng.randrange(9)}"},
                )
                return register_broker(ahead, SETTINGS, request, session_valid=False).records
            case 1 | 2 | 3 if broker_id in ahead.brokers:
                known = ahead.brokers[broker_id]
                sessions = SessionTable(SETTINGS)
                sessions.take_over(ahead, 0)
                heartbeat = controller_messages.Heartbeat(
                    broker_id=broker_id,
                    broker_epoch=known.broker_epoch,
                    incarnation_id=known.incarnation_id,
                    current_metadata_offset=ahead.offset,
                    want_shut_down=rng.random() < 0.2,
                )
                return process_heartbeat(ahead, SETTINGS, sessions, heartbeat, 1).records
            case 4:
                return fence_broker(ahead, SETTINGS, broker_id).records
            case 5:
                topic = admin_messages.NewTopic(
                    name=name, partitions=rng.randint(1, 4), replication_factor=rng.randint(1, 3)
                )
                return create_topics(ahead, SETTINGS, admin_messages.CreateTopicsRequest(topics=[topic]), rng).records
            case 6 if rng.random() < 0.3:
                return delete_topics(ahead, admin_messages.DeleteTopicsRequest(topics=[name])).records
            case 7:
                if rng.random() < 0.5:
                    return balance_leaders(ahead, SETTINGS).records
                growth = admin_messages.CreatePartitionsRequest(topic=name, count=rng.randint(1, 6))
                return create_partitions(ahead, growth, rng).records
            case 8:
                value = rng.choice(("true", "false"))
                change = admin_messages.AlterConfigsRequest(
                    resource_type="topic", resource_name=name, set={"unclean.leader.election.enable": value}
                )
                return alter_configs(ahead, SETTINGS, change).records
        epoch = ahead.brokers[broker_id].broker_epoch if broker_id in ahead.brokers else 0
        ids = controller_messages.AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch)
        return allocate_producer_ids(ahead, ids).records


def check_invariants(image: MetadataImage) -> None:
    """W-3, and what must hold of every image that a controller makes."""
    for topic in image.topics.values():
        assert image.topic_names[topic.topic_id] == topic.name
        assert sorted(topic.partitions) == list(range(len(topic.partitions)))
        for partition in topic.partitions.values():
            assert partition.isr
            assert set(partition.isr) <= set(partition.replicas)
            assert partition.leader == NO_LEADER or (
                partition.leader in partition.isr and image.is_active(partition.leader)
            )
            if len(partition.isr) > 1:
                assert all(image.is_active(replica) for replica in partition.isr)


def differences(old: MetadataImage, new: MetadataImage) -> MetadataDelta:
    """What differs between two images, the naive way."""
    delta = MetadataDelta()
    partitions: dict[TopicPartition, None] = {}
    for name, topic in new.topics.items():
        before = old.topics.get(name)
        same = before is not None and before.topic_id == topic.topic_id
        for number, registration in topic.partitions.items():
            if before is None or not same or before.partitions.get(number) != registration:
                partitions[TopicPartition(name, number)] = None
    delta.partitions = partitions
    for broker_id, known in new.brokers.items():
        if old.brokers.get(broker_id) != known:
            delta.brokers[broker_id] = None
    return delta


@given(seed=st.integers(0, 1_000_000), batch_size=st.integers(1, 6))
def test_brokers_see_what_the_controller_decided(seed: int, batch_size: int) -> None:
    """The image that ran ahead equals the one that followed, and deltas name exactly what changed."""
    operator = Operator(seed)
    feed = MetadataFeed()
    deltas: list[MetadataDelta] = []
    feed.subscribe(lambda image, delta: deltas.append(delta))
    for _ in range(30):
        before = operator.ahead.copy()
        offset = operator.ahead.offset + 1  # a control record took an offset
        values: list[bytes] = []
        for _ in range(batch_size):
            for record in operator.act():
                apply(operator.ahead, record, offset + len(values), 3)
                values.append(encode(record))
            check_invariants(operator.ahead)
        if not values:
            continue
        if offset > feed.image.offset:
            feed.on_control(offset, 3)
        feed.on_commit(offset, 3, values)
        assert feed.image == operator.ahead
        expected, delta = differences(before, feed.image), deltas[-1]
        assert set(expected.partitions) <= set(delta.partitions)
        assert set(expected.brokers) <= set(delta.brokers)
        assert {name for name in before.topics if before.topics[name].topic_id not in feed.image.topic_names} == {
            deleted.name for deleted in delta.deleted_topics.values() if deleted.topic_id in before.topic_names
        }
        assert all(feed.image.partition(topic_partition) is not None for topic_partition in delta.partitions)


def test_a_copy_changes_on_its_own() -> None:
    """A controller that resigns drops its image; the committed one must not have moved."""
    image = image_of([1, 2])
    add_topic(image, "orders", partition_of([1, 2]), retention_ms="5")
    image.broker_configs[""] = {"log.retention.ms": "7"}
    image.group_configs["readers"] = {SESSION_TIMEOUT: "45000"}
    committed, ahead = image.copy(), image.copy()
    write(ahead, fence_broker(ahead, SETTINGS, 1).records)
    ahead.topic_configs["orders"]["retention.ms"] = "6"
    ahead.broker_configs[""]["log.retention.ms"] = "8"
    ahead.group_configs["readers"][SESSION_TIMEOUT] = "60000"
    ahead.topics["orders"].name = "else"
    assert image == committed
    assert ahead != committed


def test_a_delta_of_a_topic_that_was_deleted_and_made_again() -> None:
    """The old one is deleted; partitions are those of the new one."""
    image = image_of([1])
    add_topic(image, "orders", partition_of([1]), partition_of([1]))
    old_id, new_id = image.topics["orders"].topic_id, b"n" * 16
    delta = write(
        image,
        [
            metadata_messages.PartitionChangeRecord(topic_id=old_id, partition=1, leader=-1),
            metadata_messages.RemoveTopicRecord(topic_id=old_id),
            metadata_messages.TopicRecord(name="orders", topic_id=new_id),
            metadata_messages.PartitionRecord(topic_id=new_id, partition=0, replicas=[1], isr=[1], leader=1),
        ],
    )
    assert list(delta.deleted_topics) == [old_id]
    assert delta.deleted_topics[old_id].partitions == (0, 1)
    assert list(delta.partitions) == [TopicPartition("orders", 0)]


@pytest.mark.parametrize(
    "record",
    [
        metadata_messages.RemoveTopicRecord(topic_id=b"x" * 16),
        metadata_messages.BrokerStateRecord(broker_id=9),
        metadata_messages.BrokerStateRecord(broker_id=1, broker_epoch=5),
        metadata_messages.TopicRecord(name="orders", topic_id=b"x" * 16),
        metadata_messages.PartitionRecord(topic_id=b"x" * 16),
        metadata_messages.PartitionChangeRecord(topic_id=b"orders-topic-id!", partition=4),
        metadata_messages.PartitionRecord(topic_id=b"orders-topic-id!", partition=0),
        metadata_messages.ConfigRecord(resource_type="user", name="x", value="y"),
        metadata_messages.ProducerIdsRecord(next_producer_id=10),
    ],
)
def test_a_record_that_does_not_fit_is_damage(record: MetadataRecord) -> None:
    """CorruptMetadata, and the image is as before."""
    image = image_of([1])
    add_topic(image, "orders", partition_of([1]))
    image.next_producer_id = 1000
    before = image.copy()
    with pytest.raises(CorruptMetadata):
        apply(image, record, 200, 1)
    assert image == before


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_damage(value: bytes) -> None:
    """Decoding fails in one way only."""
    try:
        record = decode(value)
    except CorruptMetadata:
        return
    assert decode(encode(record)) == record


# --- Edges of the metadata that mutants were not caught at -----------------------------------------------------------


def test_a_topic_that_is_deleted_takes_its_changed_settings_out_of_the_delta() -> None:
    """What came before in the same run is named nowhere but among the deleted topics."""
    delta = MetadataDelta()
    for change in (TopicConfigChanged("orders"), TopicConfigChanged("bills"), TopicDeleted("orders", bytes(16), ())):
        delta.add(change)
    assert list(delta.topic_configs) == ["bills"]
    assert list(delta.deleted_topics) == [bytes(16)]
