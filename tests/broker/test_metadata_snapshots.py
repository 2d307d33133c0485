"""Snapshots of the metadata image: as records and back, and what happened between two images."""

from __future__ import annotations

import random
import typing
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from odradek_broker.core.metadata.delta import MetadataDelta
from odradek_broker.core.metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage
from odradek_broker.core.metadata.records import CorruptMetadata, apply, encode
from odradek_broker.core.metadata.snapshot import difference, image_of, records_of
from odradek_proto.security.acl_words import Operation, PatternType, Permission, ResourceType
from odradek_proto.security.acls import Acl
from odradek_proto.security.quota_words import KEYS
from odradek_proto.security.quotas import QuotaEntity
from odradek_proto.security.scram import HASHES, Credential
from odradek_proto.topics import TopicPartition
from odradek_proto.v1.metadata_messages import RegisterBrokerRecord, RemoveTopicRecord

from tests.broker.controller_images import add_topic, partition_of
from tests.broker.controller_images import image_of as cluster_of

NUMBERS: dict[Any, Callable[[random.Random], object]] = {
    int: lambda rng: rng.randrange(1_000),
    bool: lambda rng: rng.random() < 0.5,
    str: lambda rng: f"text {rng.randrange(1_000)}",
    bytes: lambda rng: rng.randbytes(16),
    tuple[int, ...]: lambda rng: tuple(rng.sample(range(9), rng.randrange(4))),
    **{kind: partial(lambda kind, rng: rng.choice([*kind]), kind) for kind in (ResourceType, PatternType)},
    **{kind: partial(lambda kind, rng: rng.choice([*kind]), kind) for kind in (Operation, Permission)},
    dict[str, str]: lambda rng: {f"name {n}": f"value {rng.randrange(9)}" for n in range(rng.randrange(1, 4))},
}
KEYS_BELONG_INSIDE = {"brokers", "topics", "topic_names"}  # of an image: the key is a field of the value


def anything(kind: Any, rng: random.Random, **given: object) -> Any:
    """A value of a registration's class with something in every field that it has today."""
    hints = typing.get_type_hints(kind)
    names = [name for name in hints if not name.startswith("__")]
    return kind(**{name: given.get(name, NUMBERS[hints[name]](rng)) for name in names})


def any_image(seed: int) -> MetadataImage:
    """An image with something in every field that the class has today; an unknown kind of field is a `KeyError`."""
    rng = random.Random(seed)
    hints = typing.get_type_hints(MetadataImage)
    values: dict[str, Any] = {}
    for item in fields(MetadataImage):
        hint = hints[item.name]
        if item.name in KEYS_BELONG_INSIDE:
            values[item.name] = {}
        elif hint == dict[str, dict[str, str]]:
            values[item.name] = {f"resource {n}": NUMBERS[dict[str, str]](rng) for n in range(rng.randrange(3))}
        elif hint == dict[str, dict[str, Credential]]:
            values[item.name] = {
                f"user {n}": {each: anything(Credential, rng) for each in rng.sample([*HASHES], rng.randrange(1, 3))}
                for n in range(rng.randrange(3))
            }
        elif hint == dict[bytes, Acl]:
            values[item.name] = {rng.randbytes(16): anything(Acl, rng) for _ in range(rng.randrange(3))}
        elif hint == dict[QuotaEntity, dict[str, float]]:
            entities = [QuotaEntity(rng.choice((None, "alice")), f"client {n}") for n in range(rng.randrange(3))]
            values[item.name] = {each: {key: 1.0 + rng.randrange(9) for key in KEYS} for each in entities}
        else:
            values[item.name] = NUMBERS[hint](rng)
    image = MetadataImage(**values)
    for broker_id in rng.sample(range(9), rng.randrange(4)):
        image.brokers[broker_id] = anything(BrokerRegistration, rng, broker_id=broker_id)
    for number in rng.sample(range(9), rng.randrange(4)):
        topic = TopicImage(f"topic-{number}", rng.randbytes(16))
        for partition in rng.sample(range(9), rng.randrange(4)):
            topic.partitions[partition] = anything(PartitionRegistration, rng)
        image.topics[topic.name] = topic
        image.topic_names[topic.topic_id] = topic.name
    return image


def in_order(value: object) -> object:
    """A value with its dicts as lists: two that are equal may still have another order."""
    if isinstance(value, dict):
        return [(key, in_order(each)) for key, each in value.items()]
    if isinstance(value, TopicImage | MetadataImage):
        return [(item.name, in_order(getattr(value, item.name))) for item in fields(value)]
    return value


def restored(image: MetadataImage) -> MetadataImage:
    return image_of((encode(record) for record in records_of(image)), image.offset, image.epoch)


@given(st.integers(0, 1 << 32))
def test_an_image_as_records_and_back_is_the_same_image(seed: int) -> None:
    """Every field of every class of the image survives, and every order; a field that was forgotten fails here."""
    image = any_image(seed)
    assert in_order(restored(image)) == in_order(image)


@given(st.integers(0, 1 << 32))
def test_a_copy_of_an_image_has_everything(seed: int) -> None:
    """A snapshot is made of a copy."""
    image = any_image(seed)
    assert in_order(image.copy()) == in_order(image)


@pytest.mark.parametrize("kind", [BrokerRegistration, PartitionRegistration])
def test_the_image_of_the_property_leaves_no_field_at_its_default(kind: Any) -> None:
    """What is always at its default could be forgotten without anybody noticing."""
    found = [anything(kind, random.Random(seed)) for seed in range(30)]
    for name in typing.get_type_hints(kind):
        if not name.startswith("__"):
            assert len({repr(getattr(each, name)) for each in found}) > 1, name


def test_a_snapshot_names_the_broker_epoch_of_a_registration() -> None:
    """In the log it is the offset of the record; in a snapshot it would be an arbitrary number."""
    record = RegisterBrokerRecord(broker_id=1)
    with pytest.raises(CorruptMetadata, match="without its broker epoch"):
        image_of([encode(record)], 10, 1)


def test_a_topic_that_was_made_anew_inside_the_gap_is_deleted_and_created() -> None:
    """Its name says nothing; all its partitions are named, although they look as before (R-107)."""
    old = cluster_of([1, 2])
    add_topic(old, "orders", partition_of([1, 2]), partition_of([2, 1]))
    new = old.copy()
    apply(new, RemoveTopicRecord(topic_id=old.topics["orders"].topic_id), 300, 1)
    new.topics["orders"] = TopicImage("orders", b"another topic id", {0: old.topics["orders"].partitions[0]})
    new.topic_names[b"another topic id"] = "orders"
    delta = difference(old, new)
    assert [each.partitions for each in delta.deleted_topics.values()] == [(0, 1)]
    assert list(delta.partitions) == [TopicPartition("orders", 0)]


@given(st.integers(0, 1 << 32), st.integers(0, 1 << 32))
def test_the_difference_of_two_images_names_what_differs_and_nothing_else(first: int, second: int) -> None:
    """Against a plain second way to say it: look up everything that either of them names."""
    old, new = any_image(first), any_image(second)
    kept = random.Random(first)
    for topic in list(old.topics.values()):  # some topics live on in the new image, under the same id
        if kept.random() < 0.5 and topic.name not in new.topics:
            new.topics[topic.name] = TopicImage(topic.name, topic.topic_id, dict(topic.partitions))
            new.topic_names[topic.topic_id] = topic.name
    delta = difference(old, new)
    ids = [{topic.topic_id for topic in image.topics.values()} for image in (old, new)]
    assert set(delta.deleted_topics) == ids[0] - ids[1]
    assert set(delta.brokers) == {b for b in {*old.brokers, *new.brokers} if old.brokers.get(b) != new.brokers.get(b)}
    for name, topic in new.topics.items():
        same = old.topic_by_id(topic.topic_id)
        for number, partition in topic.partitions.items():
            was = None if same is None else same.partitions.get(number)
            assert (TopicPartition(name, number) in delta.partitions) == (was != partition)


def test_between_an_image_and_itself_nothing_happened() -> None:
    """A node that takes in a snapshot of what it has must not start anything anew."""
    image = any_image(7)
    assert difference(image, restored(image)) == MetadataDelta()
