"""Clients of Kafka, unchanged, on a cluster of odradek: everything that they do alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.errors import TransactionalIdAuthorizationFailed
from confluent_kafka import KafkaException
from kafka.errors import KafkaError
from odradek_broker.testing import Cluster

from tests.interop import kafka_story

PATIENCE_S = 180


@pytest.mark.parametrize("client", list(kafka_story.STORIES))
def test_a_client_produces_in_all_ways_and_reads_it_back(client: str, kafka_bootstrap: str, odradek_topic: str) -> None:
    """acks 0, 1 and all, idempotent, four codecs; then assign, seek, offsets by time and at both ends."""
    if reason := kafka_story.missing(client):
        pytest.skip(reason)
    kafka_story.STORIES[client](kafka_bootstrap, odradek_topic)


def test_a_killed_leader_loses_no_acknowledged_record_of_aiokafka(
    odradek_cluster: Cluster, kafka_bootstrap: str, odradek_topic: str
) -> None:
    """The client finds the new leader by itself and goes on; every acknowledged record is there, once."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    async def story() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=kafka_bootstrap, enable_idempotence=True, request_timeout_ms=PATIENCE_S * 1_000
        )
        async with producer:
            for number in range(100):
                if number == 50:
                    leader = await asyncio.to_thread(odradek_cluster.leader_of, odradek_topic)
                    await asyncio.to_thread(odradek_cluster.kill, leader)
                await producer.send_and_wait(odradek_topic, b"%d" % number, partition=0)
        partition = TopicPartition(odradek_topic, 0)
        async with AIOKafkaConsumer(bootstrap_servers=kafka_bootstrap, enable_auto_commit=False) as consumer:
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            assert [int((await consumer.getone()).value) for _ in range(100)] == list(range(100))
            assert await consumer.end_offsets([partition]) == {partition: 100}

    asyncio.run(asyncio.wait_for(story(), 2 * PATIENCE_S))


def test_a_killed_leader_loses_no_acknowledged_record_of_librdkafka(
    odradek_cluster: Cluster, kafka_bootstrap: str, odradek_topic: str
) -> None:
    """With many requests in flight; what it was told is there, in order and once."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    acknowledged: list[tuple[int, int]] = []

    def delivered(error: object, message: Any) -> None:
        assert error is None, error
        acknowledged.append((message.offset(), int(message.value())))

    producer = Producer({"bootstrap.servers": kafka_bootstrap, "enable.idempotence": True, "linger.ms": 0})
    for number in range(2_000):
        if number == 1_000:
            odradek_cluster.kill(odradek_cluster.leader_of(odradek_topic))
        producer.produce(odradek_topic, b"%d" % number, partition=0, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert acknowledged == [(number, number) for number in range(2_000)]
    consumer = Consumer({"bootstrap.servers": kafka_bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(odradek_topic, 0, 0)])
    found: list[int] = []
    while len(found) < 2_000:
        messages = consumer.consume(2_000, 60)
        assert messages
        found += [int(message.value() or b"") for message in messages]
    consumer.close()
    assert found == list(range(2_000))


def begin_with_aiokafka(settings: dict[str, str]) -> None:
    from aiokafka import AIOKafkaProducer

    async def begin() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=settings["bootstrap.servers"], transactional_id="orders")
        try:
            await producer.start()
        finally:
            await producer.stop()

    asyncio.run(begin())


def begin_with_confluent(settings: dict[str, str]) -> None:
    from confluent_kafka import Producer

    Producer({**settings, "transactional.id": "orders", "log_level": 0}).init_transactions(PATIENCE_S)


def begin_with_kafka_python(settings: dict[str, str]) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=settings["bootstrap.servers"].split(","), transactional_id="orders")
    try:
        producer.init_transactions()
    finally:
        producer.close()


@pytest.mark.parametrize("begin", [begin_with_aiokafka, begin_with_confluent, begin_with_kafka_python])
def test_a_transactional_producer_is_refused_at_its_start(
    begin: Callable[[dict[str, str]], None], kafka_bootstrap: str
) -> None:
    """With an error that no client asks again for: it would time out without a word."""
    with pytest.raises((KafkaError, KafkaException, TransactionalIdAuthorizationFailed)) as refused:
        begin({"bootstrap.servers": kafka_bootstrap})
    assert "transactionalidauthorizationfailed" in repr(refused.value).replace("_", "").lower()
