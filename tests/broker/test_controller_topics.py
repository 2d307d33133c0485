"""Topics: placement, and Kafka's error for each way to ask for the impossible."""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from odradek_broker.core.controller import topics
from odradek_broker.core.controller.decision import MAX_BATCH_BYTES
from odradek_broker.core.controller.placement import place_replicas
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.controller.topics import (
    MAX_PARTITIONS_PER_BATCH,
    create_partitions,
    create_topics,
    delete_topics,
)
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.metadata.records import encode
from odradek_proto.errors import ErrorCode
from odradek_proto.records import encode_batch
from odradek_proto.topics import OFFSETS_TOPIC, topic_id_to_text
from odradek_proto.v1 import admin_messages
from odradek_proto.v1.metadata_messages import PartitionRecord
from odradek_proto.values import replace

from tests.broker.controller_images import CLUSTER_ID, SETTINGS, add_topic, image_of, partition_of, write

LIMIT = ErrorCode.INVALID_PARTITIONS


def new_topic(name: str = "orders", partitions: int = -1, replicas: int = -1, **more: Any) -> admin_messages.NewTopic:
    return admin_messages.NewTopic(name=name, partitions=partitions, replication_factor=replicas, **more)


def assigned(*replicas: tuple[int, ...]) -> list[admin_messages.ReplicaAssignment]:
    return [admin_messages.ReplicaAssignment(partition=i, broker_ids=ids) for i, ids in enumerate(replicas)]


def create(
    image: MetadataImage,
    *topics: admin_messages.NewTopic,
    settings: ControllerSettings = SETTINGS,
    validate_only: bool = False,
) -> list[admin_messages.CreatedTopic]:
    request = admin_messages.CreateTopicsRequest(topics=topics, validate_only=validate_only)
    decision = create_topics(image, settings, request, random.Random(1))
    write(image, decision.records)
    return list(decision.answer.topics)


def test_as_many_partitions_as_one_request_may_create() -> None:
    """The limit itself is allowed; partitions that are there already do not count."""
    most = new_topic("new", assignments=assigned(*[(1,)] * MAX_PARTITIONS_PER_BATCH))
    image = image_of([1])
    (answer,) = create(image, most, validate_only=True)
    assert answer.error_code == ErrorCode.NONE
    add_topic(image, "orders", partition_of([1]))
    for count, error in ((MAX_PARTITIONS_PER_BATCH + 1, ErrorCode.NONE), (MAX_PARTITIONS_PER_BATCH + 2, LIMIT)):
        request = admin_messages.CreatePartitionsRequest(topic="orders", count=count)
        assert create_partitions(image, request, random.Random(1)).answer.error_code == error


@given(
    partitions=st.integers(1, 40),
    active=st.lists(st.integers(0, 99), min_size=1, max_size=8, unique=True),
    fenced=st.lists(st.integers(100, 199), max_size=4, unique=True),
    data=st.data(),
    seed=st.integers(0, 1000),
)
def test_replicas_are_spread_evenly(
    partitions: int, active: list[int], fenced: list[int], data: st.DataObject, seed: int
) -> None:
    """No broker twice in a partition, leaders differ by one at most, and fenced brokers only where others lack."""
    factor = data.draw(st.integers(1, len(active) + len(fenced)))
    placed = place_replicas(partitions, factor, active, fenced, random.Random(seed))
    assert [len(set(replicas)) for replicas in placed] == [factor] * partitions
    leaders = Counter(replicas[0] for replicas in placed)
    assert set(leaders) <= set(active)
    counts = [leaders[broker_id] for broker_id in active]
    assert max(counts) - min(counts) <= 1
    for replicas in placed:
        assert len([broker_id for broker_id in replicas if broker_id in fenced]) == max(0, factor - len(active))


def test_followers_are_shifted_when_the_leaders_have_gone_round() -> None:
    """Kafka's example: five brokers, ten partitions, three replicas, from a start and a shift of nothing."""

    class NoChance(random.Random):
        def randrange(self, *args: Any, **kwargs: Any) -> int:
            return 0

    placed = place_replicas(10, 3, range(5), (), NoChance())
    assert placed == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 0),
        (4, 0, 1),
        (0, 2, 3),
        (1, 3, 4),
        (2, 4, 0),
        (3, 0, 1),
        (4, 1, 2),
    ]


@given(
    partitions=st.integers(1, 40),
    racks=st.lists(st.sampled_from("abcd"), min_size=1, max_size=9),
    data=st.data(),
    seed=st.integers(0, 1000),
)
def test_replicas_go_to_as_many_racks_as_there_are(
    partitions: int, racks: list[str], data: st.DataObject, seed: int
) -> None:
    """KIP-36: no rack has two replicas of a partition before every rack has one; leaders still go round all brokers."""
    factor = data.draw(st.integers(1, len(racks)))
    by_broker = dict(enumerate(racks))
    placed = place_replicas(partitions, factor, range(len(racks)), (), random.Random(seed), by_broker)
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({by_broker[broker] for broker in replicas}) == min(factor, len(set(racks)))
    leaders = Counter(replicas[0] for replicas in placed)
    counts = [leaders[broker] for broker in by_broker]
    assert max(counts) - min(counts) <= 1


def test_a_topic_is_placed_by_the_racks_of_the_registrations() -> None:
    """`broker.rack` is honoured when a topic is created and when it grows."""
    image = image_of([1, 2, 3, 4])
    for broker_id, rack in ((1, "left"), (2, "left"), (3, "right"), (4, "right")):
        image.brokers[broker_id] = replace(image.brokers[broker_id], rack=rack)
    (answer,) = create(image, new_topic(partitions=8, replicas=2))
    assert answer.error_code == ErrorCode.NONE
    grow = admin_messages.CreatePartitionsRequest(topic="orders", count=16)
    write(image, create_partitions(image, grow, random.Random(2)).records)
    partitions = image.topics["orders"].partitions
    assert len(partitions) == 16
    for partition in partitions.values():
        assert {image.brokers[broker].rack for broker in partition.replicas} == {"left", "right"}


def test_a_new_isr_holds_active_brokers_only() -> None:
    """CO-09, R-144: fenced and leaving replicas start outside, and the first active one leads."""
    image = image_of([1, 2, 3, 4], fenced=[1], leaving=[3])
    (answer,) = create(image, new_topic(assignments=assigned((1, 2, 3), (3, 4, 1))))
    assert answer.error_code == ErrorCode.NONE
    partitions = image.topics["orders"].partitions
    assert [(p.leader, p.isr, p.replicas) for p in partitions.values()] == [(2, (2,), (1, 2, 3)), (4, (4,), (3, 4, 1))]
    assert [(p.leader_epoch, p.partition_epoch) for p in partitions.values()] == [(0, 0), (0, 0)]


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (new_topic("orders", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS),
        (new_topic("or ders", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic("..", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic("", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic("a_b", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic("new", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (new_topic("new", -2, 1), ErrorCode.INVALID_PARTITIONS),
        (new_topic("new", MAX_PARTITIONS_PER_BATCH + 1, 1), ErrorCode.INVALID_PARTITIONS),
        (new_topic("new", 2_000_000_000, 1), ErrorCode.INVALID_PARTITIONS),
        (new_topic("new", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new_topic("new", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new_topic("new", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new_topic("new", 1, 2_000_000_000), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new_topic("new", 1, 1, configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (new_topic("new", 1, 1, configs={"no.such.setting": "1"}), ErrorCode.INVALID_CONFIG),
        (new_topic("new", 1, -1, assignments=assigned((1,))), ErrorCode.INVALID_REQUEST),
        (
            new_topic("new", assignments=assigned(*[(1,)] * (MAX_PARTITIONS_PER_BATCH + 1))),
            ErrorCode.INVALID_PARTITIONS,
        ),
        (new_topic("new", assignments=assigned((1, 1))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new_topic("new", assignments=assigned((1, 9))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new_topic("new", assignments=assigned((1, 2), (1,))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new_topic("new", assignments=assigned(())), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new_topic("new", assignments=assigned((3,))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (
            new_topic("new", assignments=[admin_messages.ReplicaAssignment(partition=1, broker_ids=[1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (new_topic("new", 3, 3), ErrorCode.NONE),
    ],
)
def test_every_impossible_topic_has_its_error(topic: admin_messages.NewTopic, error: ErrorCode) -> None:
    """Nothing is written for it, and the message is a sentence. Broker 3 is fenced."""
    image = image_of([1, 2, 3], fenced=[3])
    add_topic(image, "orders", partition_of([1]))
    add_topic(image, "a.b", partition_of([1]), topic_id=b"t" * 16)
    (answer,) = create(image, topic)
    assert answer.error_code == error, answer.error_message
    assert (topic.name in image.topics and topic.name != "orders") is (error is ErrorCode.NONE)
    assert bool(answer.error_message) is (error is not ErrorCode.NONE)


def test_topics_of_one_request_are_judged_one_by_one() -> None:
    """A name that is there twice is refused once, of two that collide the second, and the rest is created."""
    image = image_of([1])
    answers = create(image, *(new_topic(name, 1, 1) for name in ("a", "twice", "twice", "x.y", "x_y", "b")))
    assert [answer.error_code for answer in answers] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.NONE,
    ]
    assert list(image.topics) == ["a", "x.y", "b"]


def test_counts_of_minus_one_mean_the_defaults_of_the_cluster() -> None:
    """num.partitions and default.replication.factor."""
    settings = ControllerSettings(node_id=0, cluster_id=CLUSTER_ID, num_partitions=4, default_replication_factor=2)
    (answer,) = create(image_of([1, 2, 3]), new_topic(), settings=settings)
    assert (answer.partitions, answer.replication_factor) == (4, 2)
    assert len(answer.topic_id) == 16


def test_topic_ids_are_random_uuids() -> None:
    """Version 4 of RFC 4122, all different, and none begins with a dash as text."""
    names = [f"t{number}" for number in range(200)]
    answers = create(image_of([1, 2, 3]), *[new_topic(name, 1, 1) for name in names])
    found = [uuid.UUID(bytes=answer.topic_id) for answer in answers]
    assert {each.version for each in found} == {4}
    assert {each.variant for each in found} == {uuid.RFC_4122}
    assert len(set(found)) == len(names)
    assert not [answer for answer in answers if topic_id_to_text(answer.topic_id).startswith("-")]


def test_without_an_active_broker_nothing_can_be_created() -> None:
    """R-144: INVALID_REPLICATION_FACTOR."""
    (answer,) = create(image_of([1, 2], fenced=[1], leaving=[2]), new_topic("orders", 1, 1))
    assert answer.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_validation_alone_creates_nothing() -> None:
    """But tells what would be, errors included."""
    image = image_of([1])
    answers = create(image, new_topic("a", 2, 1), new_topic("b", 1, 5), validate_only=True)
    assert [(a.error_code, a.partitions) for a in answers] == [(0, 2), (ErrorCode.INVALID_REPLICATION_FACTOR, 0)]
    assert image.topics == {}


def test_deletion_takes_partitions_and_settings_along() -> None:
    """A name that nobody has is UNKNOWN_TOPIC_OR_PARTITION."""
    image = image_of([1])
    add_topic(image, "orders", partition_of([1]), retention_ms="5")
    decision = delete_topics(image, admin_messages.DeleteTopicsRequest(topics=["orders", "none", "orders"]))
    write(image, decision.records)
    assert [(t.name, t.error_code) for t in decision.answer.topics] == [
        ("orders", 0),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert (image.topics, image.topic_names, image.topic_configs) == ({}, {}, {})


def test_deletion_can_be_forbidden() -> None:
    """delete.topic.enable=false refuses every topic of the request, known or not, and changes nothing."""
    image = image_of([1])
    add_topic(image, "orders", partition_of([1]))
    request = admin_messages.DeleteTopicsRequest(topics=["orders", "none"])
    decision = delete_topics(image, request, enabled=False)
    assert not decision.records
    assert [(topic.name, topic.error_code) for topic in decision.answer.topics] == [
        ("orders", ErrorCode.TOPIC_DELETION_DISABLED),
        ("none", ErrorCode.TOPIC_DELETION_DISABLED),
    ]


@pytest.mark.parametrize(
    ("topic", "count", "error"),
    [
        ("orders", 5, ErrorCode.NONE),
        ("orders", 2, ErrorCode.INVALID_PARTITIONS),
        ("orders", 1, ErrorCode.INVALID_PARTITIONS),
        ("orders", 2_000_000_000, ErrorCode.INVALID_PARTITIONS),
        ("none", 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (OFFSETS_TOPIC, 5, ErrorCode.INVALID_TOPIC_EXCEPTION),  # groups are found by the number of its partitions
    ],
)
def test_a_topic_can_only_grow(topic: str, count: int, error: ErrorCode) -> None:
    """New partitions get as many replicas as the first has; those that exist stay as they are."""
    image = image_of([1, 2, 3])
    orders = add_topic(image, "orders", partition_of([1, 2]), partition_of([2, 1]))
    add_topic(image, OFFSETS_TOPIC, partition_of([1, 2]), topic_id=bytes(16))
    request = admin_messages.CreatePartitionsRequest(topic=topic, count=count)
    decision = create_partitions(image, request, random.Random(1))
    write(image, decision.records)
    assert decision.answer.error_code == error
    if error is ErrorCode.NONE:
        assert sorted(orders.partitions) == [0, 1, 2, 3, 4]
        assert {len(p.replicas) for p in orders.partitions.values()} == {2}
        assert orders.partitions[0] == partition_of([1, 2])
    else:
        assert len(decision.records) == 0


@pytest.mark.parametrize(
    ("first", "placed", "error"),
    [
        (2, [(3, 1), (1, 3)], ErrorCode.NONE),
        (2, [(3, 1)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),  # two are new
        (1, [(3, 1), (1, 3)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),  # one of them exists
        (2, [(3, 1), (1,)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),  # the others have two replicas
        (2, [(3, 1), (1, 1)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (2, [(3, 1), (1, 9)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),  # nobody
    ],
)
def test_new_partitions_go_where_the_caller_says(first: int, placed: list[tuple[int, ...]], error: ErrorCode) -> None:
    """Validated alone, nothing is written."""
    image = image_of([1, 2, 3])
    orders = add_topic(image, "orders", partition_of([1, 2]), partition_of([2, 1]))
    request = admin_messages.CreatePartitionsRequest(
        topic="orders",
        count=4,
        assignments=[replace(each, partition=first + each.partition) for each in assigned(*placed)],
        validate_only=True,
    )
    validated = create_partitions(image, request, random.Random(1))
    assert (validated.answer.error_code, len(validated.records)) == (error, 0)
    write(image, create_partitions(image, replace(request, validate_only=False), random.Random(1)).records)
    grown = [orders.partitions[number].replicas for number in sorted(orders.partitions)[2:]]
    assert grown == ([] if error else placed)


def test_a_topic_that_is_reassigned_grows_with_the_replicas_of_the_target() -> None:
    """Its replica list also holds those that leave (R-145)."""
    image = image_of([1, 2, 3, 4])
    add_topic(image, "orders", replace(partition_of([3, 4, 1, 2], [1, 2]), adding=(3, 4), removing=(1, 2)))
    request = admin_messages.CreatePartitionsRequest(topic="orders", count=2)
    decision = create_partitions(image, request, random.Random(1))
    assert [len(record.replicas) for record in decision.records if isinstance(record, PartitionRecord)] == [2]


def wide_topic(number: int) -> admin_messages.NewTopic:
    """Some 2,000 bytes of metadata, all of them allowed."""
    return new_topic(f"t{number}", 1, 1, configs={"cleanup.policy": "delete" + " " * 2_000})


def test_a_request_for_topics_writes_no_more_than_followers_can_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch goes over gRPC in one piece, 16 MiB at most: topics that do not fit are refused one by one."""
    most_bytes = MAX_BATCH_BYTES >> 4
    monkeypatch.setattr(topics, "MAX_BATCH_BYTES", most_bytes)
    image = image_of([1])
    request = admin_messages.CreateTopicsRequest(topics=[wide_topic(i) for i in range(300)])
    decision = create_topics(image, SETTINGS, request, random.Random(1))
    batch = encode_batch([(0, None, encode(record), ()) for record in decision.records], base_offset=0, leader_epoch=1)
    assert most_bytes * 0.9 < len(batch) <= most_bytes
    codes = [topic.error_code for topic in decision.answer.topics]
    fitting = codes.count(ErrorCode.NONE)
    assert codes == [ErrorCode.NONE] * fitting + [ErrorCode.POLICY_VIOLATION] * (300 - fitting)
    assert "fewer topics at a time" in decision.answer.topics[-1].error_message
    write(image, decision.records)
    rest = [answer.error_code for answer in create(image, *map(wide_topic, range(fitting, 300)))]
    assert rest == [ErrorCode.NONE] * (300 - fitting)


def test_a_small_topic_is_created_beside_one_that_is_too_large() -> None:
    """Each is judged by itself."""
    huge = new_topic("huge", 1, 1, configs={"cleanup.policy": "delete" + " " * MAX_BATCH_BYTES})
    codes = [answer.error_code for answer in create(image_of([1]), huge, new_topic("small", 1, 1))]
    assert codes == [ErrorCode.POLICY_VIOLATION, ErrorCode.NONE]


def test_many_topics_in_one_request_do_not_stop_the_controller() -> None:
    """Ten times as many cost some ten times as much, not a hundred times: nothing is counted anew for each of them."""

    def cost_s(count: int) -> float:
        request = admin_messages.CreateTopicsRequest(
            topics=[new_topic(f"not/allowed-{i:07}", 1, 1) for i in range(count)]
        )
        costs = []
        for _ in range(3):
            begun = time.process_time()
            decision = create_topics(image_of([1]), SETTINGS, request, random.Random(1))
            costs.append(time.process_time() - begun)
            assert {answer.error_code for answer in decision.answer.topics} == {ErrorCode.INVALID_TOPIC_EXCEPTION}
        return min(costs)

    assert cost_s(5_000) < 33 * cost_s(500)
