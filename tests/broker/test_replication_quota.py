"""Throttled replication (KIP-73): only replicas that are not in sync wait, at the leader and at the follower."""

from __future__ import annotations

import pytest
from odradek_broker.config.settings import BrokerSettings
from odradek_broker.core.metadata.delta import MetadataDelta, TopicDeleted
from odradek_broker.core.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from odradek_broker.core.partition.replication_quota import (
    FOLLOWER,
    LEADER,
    WINDOW_MS,
    ReplicationQuota,
    throttled_partitions,
)
from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition

from tests.broker.replica_world import ME, ONE, ORDERS, THREE, TOPIC_ID, Reader, World, answered, run, stored
from tests.playing import plays

PAYMENTS = TopicPartition("payments", 0)
BATCH = len(stored(0))


def quota_of(rate: int, replicas: str = "*", side: str = LEADER) -> ReplicationQuota:
    quota, image = ReplicationQuota(side), MetadataImage()
    image.topic_configs["orders"] = {f"{side}.replication.throttled.replicas": replicas}
    image.broker_configs["2"] = {f"{side}.replication.throttled.rate": str(rate)}
    quota.update(image, ME)
    return quota


def throttle(world: World, rate: int | None, *topics: str, side: str, replicas: str = "*") -> None:
    """Settings arrive with the metadata; None: they are deleted."""
    name, image = f"{side}.replication.throttled", world.image
    image.broker_configs = {} if rate is None else {str(ME): {f"{name}.rate": str(rate)}}
    image.topic_configs = {} if rate is None else {topic: {f"{name}.replicas": replicas} for topic in topics}
    world.replicas.apply(image, MetadataDelta(broker_configs={str(ME): None}))


# --- The rate -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "partitions"),
    [
        ("*", None),
        (", * ", None),
        ("", frozenset()),
        ("0:2,1:3,4:2", frozenset({0, 4})),
        ("0:2, 1:2", frozenset({0, 1})),
        ("0:22", frozenset()),
    ],
)
def test_the_replicas_that_are_throttled(setting: str, partitions: frozenset[int] | None) -> None:
    """PARTITION:BROKER, those of this broker; an asterisk stands for all."""
    assert throttled_partitions(setting, ME) == partitions


def test_bytes_of_one_second_may_be_sent_at_once() -> None:
    """And no more before the mean is at the limit again."""
    quota = quota_of(100)
    quota.record(ORDERS, 100, 5_000)
    assert quota.exceeded_until_ms(5_000) is None
    quota.record(ORDERS, 201, 5_500)
    assert quota.rate(5_500) == 301
    assert quota.exceeded_until_ms(5_500) == 8_010
    assert quota.exceeded_until_ms(8_009) == 8_010
    assert quota.exceeded_until_ms(8_010) is None


def test_what_was_replicated_is_forgotten_after_the_window() -> None:
    """As Kafka's samples: a quota that was exceeded by far is free again after 11 s, one of 0 too."""
    for rate in (0, 1):
        quota = quota_of(rate)
        quota.record(ORDERS, 1_000_000, 0)
        assert quota.exceeded_until_ms(10) == WINDOW_MS
        assert quota.exceeded_until_ms(WINDOW_MS) is None
        assert quota.rate(WINDOW_MS) == 0


def test_the_mean_over_a_long_time_is_the_rate() -> None:
    """Whoever asks whenever the quota says so copies at the rate, give or take one answer."""
    for rate, answer in ((1_000, 100), (1_000, 3_000), (50, 7)):
        quota, now_ms, sent = quota_of(rate), 0, 0
        while now_ms < 100_000:
            if (until_ms := quota.exceeded_until_ms(now_ms)) is None:
                quota.record(ORDERS, answer, now_ms)
                sent += answer
            else:
                assert until_ms > now_ms
                now_ms = until_ms
        assert abs(sent - rate * 100) <= rate * 2 + answer


def test_only_replicas_in_the_list_count() -> None:
    """Without a rate nothing waits; the rate is measured all the same."""
    quota = quota_of(1, "1:2")
    quota.record(ORDERS, 1_000, 0)
    assert quota.rate(0) == 0
    quota.record(TopicPartition("orders", 1), 1_000, 0)
    assert quota.rate(0) == 1_000
    quota.update(MetadataImage(), ME)
    assert quota.exceeded_until_ms(0) is None


def test_a_brokers_own_rate_wins_over_that_of_all() -> None:
    """As for every setting of brokers."""
    quota, image = quota_of(1), MetadataImage()
    quota.record(ORDERS, 100, 0)
    for resource, rate, exceeded in (("", "50", True), ("2", "200", False)):
        image.broker_configs[resource] = {"leader.replication.throttled.rate": rate}
        quota.update(image, ME)
        assert (quota.exceeded_until_ms(0) is not None) == exceeded


@plays(run)
async def test_a_broker_that_starts_knows_its_throttles(world: World) -> None:
    """And forgets those of a topic that is deleted: another one of its name has none."""
    world.image.topic_configs["orders"] = {"leader.replication.throttled.replicas": "*"}
    world.replicas.apply_all(world.image)
    assert world.replicas.leader_quota.covers(ORDERS)
    world.image.topic_configs.clear()
    deleted = TopicDeleted("orders", TOPIC_ID, ())
    world.replicas.apply(world.image, MetadataDelta(deleted_topics={TOPIC_ID: deleted}))
    assert not world.replicas.leader_quota.covers(ORDERS)


# --- At the leader --------------------------------------------------------------------------------------------------


@plays(run)
async def test_a_leader_sends_a_replica_out_of_sync_no_more_than_the_rate(world: World) -> None:
    """What is above it is sent when the mean allows it, without being asked for again; others get theirs at once."""
    await world.lead("orders", "payments", replicas=(ONE, ME))
    throttle(world, 1, "orders", side=LEADER)
    for tp in (ORDERS, PAYMENTS):
        world.produce(tp=tp)
    follower = Reader(world, follower=True)
    follower.asks(0)
    assert [(each.topic, each.size) for each in follower.gets()] == [("orders", BATCH)]
    world.produce()
    world.produce(tp=PAYMENTS)
    follower.asks({ORDERS: 0, PAYMENTS: 0})
    assert [(each.topic, each.size) for each in follower.gets()] == [("payments", 2 * BATCH)]
    await world.clock.sleep(600)
    assert [(each.topic, each.size) for each in follower.gets()] == [("orders", 0)]  # a new high watermark
    follower.asks(0)
    await world.clock.sleep(WINDOW_MS - 601)
    assert follower.gets() == []
    await world.clock.sleep(1)
    assert [(each.topic, each.size) for each in follower.gets()] == [("orders", 2 * BATCH)]


@plays(run)
async def test_a_changed_rate_holds_at_once(world: World) -> None:
    """And so does a list that is deleted."""
    await world.lead("orders", replicas=(ONE, ME))
    world.produce()
    follower = Reader(world, follower=True)
    throttle(world, 1, "orders", side=LEADER)
    follower.asks(0)
    assert [each.size for each in follower.gets()] == [BATCH]
    for faster in (1_000_000, None):
        throttle(world, 1, "orders", side=LEADER)
        follower.asks(0)
        assert follower.gets() == []
        throttle(world, faster, "orders", side=LEADER)
        assert [each.size for each in follower.gets()] == [BATCH]


@plays(run)
async def test_a_leader_throttles_nobody_in_sync(world: World) -> None:
    """Its bytes count, and nothing holds them back: acks=all waits for them."""
    await world.learn(ME, 0, isr=(ONE, ME), replicas=(ONE, ME))
    throttle(world, 1, "orders", side=LEADER)
    follower = Reader(world, follower=True)
    for offset in range(5):
        world.produce()
        follower.asks(offset)
        assert [each.size for each in follower.gets()] == [BATCH]
    assert world.replicas.leader_quota.rate(world.clock.now_ms()) == 5 * BATCH


@plays(run)
async def test_a_leader_throttles_nobody_whom_it_has_proposed_for_the_isr(world: World) -> None:
    """The high watermark waits for that replica already, whether or not the controller has confirmed it."""
    await world.lead("orders", replicas=(ONE, ME))
    throttle(world, 1, "orders", side=LEADER)
    world.produce()
    follower = Reader(world, follower=True)
    follower.asks(0, epoch=0)
    assert [each.size for each in follower.gets()] == [BATCH]
    follower.asks(1, epoch=0)
    assert len(world.proposals) == 1
    world.produce()
    assert [each.size for each in follower.gets()] == [BATCH]


@plays(run)
async def test_a_leader_throttles_nobody_for_whom_the_high_watermark_waits(world: World) -> None:
    """Two replicas have caught up, and one is proposed at a time: acks=all waits for the other one, too (R-20)."""
    await world.lead("orders", replicas=(ONE, ME, THREE))
    throttle(world, 1, "orders", side=LEADER)
    world.replicas.leader_quota.record(ORDERS, 1_000, world.clock.now_ms())
    first, third = (Reader(world, follower=True) for _ in range(2))
    first.asks(0, epoch=0)
    third.asks(0, epoch=0, replica_id=THREE)
    assert [[member.broker_id for member in proposal.new_isr] for proposal in world.proposals] == [[ME, ONE]]
    answers = world.produce(acks=-1)
    assert [each.size for each in (*first.gets(), *third.gets())] == [BATCH] * 2
    first.asks(1, epoch=0)
    assert not answers
    third.asks(1, epoch=0, replica_id=THREE)
    assert [each.error for each in answers] == [ErrorCode.NONE]


@plays(run)
async def test_what_is_throttled_does_not_count_for_the_minimum(world: World) -> None:
    """replica.fetch.min.bytes: the others are waited for, as if there were nothing else."""
    await world.lead("orders", "payments", replicas=(ONE, ME))
    throttle(world, 1, "orders", side=LEADER)
    world.produce(b"a" * 500)
    follower = Reader(world, follower=True)
    follower.asks(0)
    assert [each.topic for each in follower.gets()] == ["orders"]
    world.produce(tp=PAYMENTS)
    follower.asks({ORDERS: 0, PAYMENTS: 0}, min_bytes=400)
    assert follower.gets() == []
    await world.clock.sleep(500)
    assert [(each.topic, each.size) for each in follower.gets()] == [("payments", BATCH)]


@plays(run)
async def test_what_was_read_from_the_disk_is_sent(world: World) -> None:
    """Also when the quota is exceeded meanwhile; nothing more is read then."""
    await world.lead("orders", "payments", replicas=(ONE, ME))
    throttle(world, 1, "orders", "payments", side=LEADER)
    for tp in (ORDERS, PAYMENTS):
        world.produce(tp=tp)
    world.cool()
    follower = Reader(world, follower=True)
    follower.asks({ORDERS: 0, PAYMENTS: 0})
    assert follower.gets() == []
    await world.clock.sleep(10)
    assert [(each.topic, each.size) for each in follower.gets()] == [("orders", BATCH), ("payments", BATCH)]
    follower.asks({ORDERS: 0, PAYMENTS: 0})
    for _ in range(3):
        assert not any(each.size for each in follower.gets())
        await world.clock.sleep(10)


@plays(run)
async def test_a_throttled_replica_hears_of_another_leader(world: World) -> None:
    """At once, as any replica whose fetch waits."""
    await world.lead("orders", replicas=(ONE, ME))
    throttle(world, 1, "orders", side=LEADER)
    world.produce()
    follower = Reader(world, follower=True)
    follower.asks(0)
    assert [each.size for each in follower.gets()] == [BATCH]
    world.produce()
    follower.asks(0)
    assert follower.gets() == []
    await world.learn(ONE, 1, isr=(ONE, ME), replicas=(ONE, ME))
    assert [each.error_code for each in follower.gets()] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


# --- At the follower ------------------------------------------------------------------------------------------------


@plays(run)
async def test_a_follower_out_of_sync_fetches_no_more_than_the_rate(world: World) -> None:
    """What it fetches besides goes on."""
    await world.learn(ONE, 0, isr=(ONE,))
    await world.learn(ONE, 0, isr=(ONE,), tp=PAYMENTS, topic_id=bytes(16))
    throttle(world, 1, "orders", side=FOLLOWER, replicas="0:2")
    await world.clock.sleep(10)
    assert sorted(world.leader(ONE).asked()) == [("orders", 0, 0), ("payments", 0, 0)]
    await answered(world, ONE, stored(0), epoch=0, high_watermark=9)
    await answered(world, ONE, stored(0), epoch=0, high_watermark=9, topic="payments")
    assert world.leader(ONE).asked() == [("payments", 1, 0)]
    await world.clock.sleep(WINDOW_MS - 10)
    assert world.leader(ONE).asked() == []
    await world.clock.sleep(10)
    assert world.leader(ONE).asked() == [("orders", 1, 0)]
    await answered(world, ONE, stored(1), epoch=0, offset=1, high_watermark=9)
    assert world.leader(ONE).asked() == []
    throttle(world, None, side=FOLLOWER)
    await world.clock.sleep(1)
    assert world.leader(ONE).asked() == [("orders", 2, 0)]


@plays(run)
async def test_a_follower_that_joins_the_isr_is_throttled_no_more(world: World) -> None:
    """At once: acks=all waits for it."""
    await world.learn(ONE, 0, isr=(ONE,))
    throttle(world, 1, "orders", side=FOLLOWER)
    await answered(world, ONE, stored(0), epoch=0, high_watermark=9)
    assert world.leader(ONE).asked() == [("orders", 0, 0)]
    await world.learn(ONE, 0, version=1)
    assert world.leader(ONE).asked() == [("orders", 1, 0)]


@plays(run)
async def test_a_follower_that_has_all_committed_records_is_not_throttled(world: World) -> None:
    """It is about to join the ISR, as in Kafka."""
    await world.learn(ONE, 0, isr=(ONE,))
    throttle(world, 1, "orders", side=FOLLOWER)
    await answered(world, ONE, stored(0), epoch=0, high_watermark=1)
    assert world.leader(ONE).asked() == [("orders", 0, 0), ("orders", 1, 0)]


def many(world: World, count: int, rate: int) -> None:
    """As many partitions of orders are to be copied here, at this rate."""
    topic = TopicImage("orders", TOPIC_ID)
    topic.partitions.update(dict.fromkeys(range(count), PartitionRegistration((ONE, ME), (ONE,), ONE, 0, 0)))
    world.image.topics["orders"] = topic
    world.image.broker_configs[str(ME)] = {"follower.replication.throttled.rate": str(rate)}
    world.image.topic_configs["orders"] = {"follower.replication.throttled.replicas": "*"}
    names = [TopicPartition("orders", number) for number in topic.partitions]
    world.replicas.apply(world.image, MetadataDelta(partitions=dict.fromkeys(names), topic_configs={"orders": None}))


def asked_for(world: World) -> list[int]:
    return [each.partition for header in world.leader(ONE).said() for each in header.partitions]


@plays(run)
async def test_a_throttled_follower_asks_for_a_few_partitions_at_a_time(world: World) -> None:
    """Otherwise the answers to all that it asked for would be far above the rate. The rest wait in line."""
    many(world, 15, rate=1_000_000)
    await world.clock.sleep(100)
    asked = asked_for(world)
    settings = BrokerSettings()
    assert len(asked) == settings.replica_fetch_response_max_bytes // settings.replica_fetch_max_bytes
    assert len(set(asked)) == len(asked) < 15
    await answered(world, ONE, stored(0), epoch=0, partition=asked[0], high_watermark=9)
    again = asked_for(world)
    assert len(again) == 1
    assert again[0] not in asked


@plays(run)
async def test_a_throttled_follower_takes_its_partitions_in_turns(world: World) -> None:
    """Although the first ones have more to fetch each time: to those behind them nothing would ever be copied."""
    many(world, 15, rate=1)
    fetched = dict.fromkeys(range(15), 0)
    for _ in range(15):
        await world.clock.sleep(WINDOW_MS)
        for partition in asked_for(world):
            offset = fetched[partition]
            answer = stored(offset)
            await answered(world, ONE, answer, epoch=0, partition=partition, offset=offset, high_watermark=99)
            fetched[partition] += 1
    assert max(fetched.values()) - min(fetched.values()) <= 1
