"""One story, told to a cluster by every client of Kafka: produce in all ways, read back, ask for offsets."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

CODECS = ("gzip", "snappy", "lz4", "zstd")
PATIENCE_S = 60.0
VALUES = [f"value-{number}".encode() * 9 for number in range(20)]

Story = Callable[[str, str], None]  # bootstrap, topic


def aiokafka(bootstrap: str, topic: str) -> None:
    """An old client: nothing flexible, FindCoordinator never."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    async def story() -> None:
        expected: list[bytes] = []
        ways: list[dict[str, Any]] = [{"acks": acks} for acks in (0, 1, "all")]
        ways += [{"enable_idempotence": True}, *({"compression_type": codec} for codec in CODECS)]
        for settings in ways:
            async with AIOKafkaProducer(bootstrap_servers=bootstrap, **settings) as producer:
                sent = [await producer.send(topic, value, partition=0) for value in VALUES]
                for each in sent:
                    await each
            expected += VALUES
        partition = TopicPartition(topic, 0)
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False) as consumer:
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            found = [(await consumer.getone()).value for _ in expected]
            assert found == expected
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: len(expected)}
            assert (await consumer.offsets_for_times({partition: 1}))[partition].offset == 0

    asyncio.run(asyncio.wait_for(story(), PATIENCE_S * 2))


def confluent(bootstrap: str, topic: str) -> None:
    """librdkafka."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

    expected: list[bytes] = []
    ways: list[dict[str, Any]] = [{"acks": acks} for acks in (0, 1, "all")]
    ways += [{"enable.idempotence": True}, *({"compression.type": codec} for codec in CODECS)]
    told: list[object] = []  # errors, None for none
    for settings in ways:
        producer = Producer({"bootstrap.servers": bootstrap, **settings})
        for value in VALUES:
            producer.produce(topic, value, partition=0, on_delivery=lambda error, _message: told.append(error))
        assert producer.flush(PATIENCE_S) == 0
        expected += VALUES
        assert told == [None] * len(expected), settings
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    assert topic in consumer.list_topics(timeout=PATIENCE_S).topics
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S) == (0, len(expected))
    (found_by_time,) = consumer.offsets_for_times([TopicPartition(topic, 0, 1)], timeout=PATIENCE_S)
    assert found_by_time.offset == 0
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[bytes] = []
    while len(found) < len(expected):
        messages = consumer.consume(len(expected), PATIENCE_S)
        assert messages, f"{len(found)} of {len(expected)}"
        assert all(message.error() is None for message in messages)
        found += [message.value() or b"" for message in messages]
    consumer.close()
    assert found == expected


def kafka_python(bootstrap: str, topic: str) -> None:
    """Idempotent by default since version 3."""
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    expected: list[bytes] = []
    ways: list[dict[str, Any]] = [{"acks": acks, "enable_idempotence": False} for acks in (0, 1, "all")]
    ways += [{}, *({"compression_type": codec} for codec in CODECS if codec != "snappy")]  # which wants python-snappy
    for settings in ways:
        producer = KafkaProducer(bootstrap_servers=bootstrap, **settings)
        sent = [producer.send(topic, value, partition=0) for value in VALUES]
        for each in sent:
            each.get(PATIENCE_S)
        producer.close()
        expected += VALUES
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, consumer_timeout_ms=PATIENCE_S * 1000
    )
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    found = [next(consumer).value for _ in expected]
    assert found == expected
    assert consumer.end_offsets([partition]) == {partition: len(expected)}
    assert consumer.offsets_for_times({partition: 1})[partition].offset == 0
    consumer.close()


def kcat(bootstrap: str, topic: str) -> None:
    """librdkafka 2.0 of Debian."""
    expected = ""
    for settings in [
        *(("-X", f"acks={acks}") for acks in (0, 1, "all")),
        ("-X", "enable.idempotence=true"),
        *(("-z", codec) for codec in CODECS),
    ]:
        lines = "".join(f"{settings[1]}-{number}\n" for number in range(9))
        run_kcat(bootstrap, "-P", "-t", topic, "-p", "0", *settings, said=lines)
        expected += lines
    assert run_kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q") == expected
    assert f'topic "{topic}" with 1 partitions' in run_kcat(bootstrap, "-L", "-t", topic)
    assert run_kcat(bootstrap, "-Q", "-t", f"{topic}:0:1").strip() == f"{topic} [0] offset 0"


def run_kcat(bootstrap: str, *arguments: str, said: str = "") -> str:
    done = subprocess.run(
        ["kcat", "-b", bootstrap, *arguments],
        input=said,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


STORIES: dict[str, Story] = {"aiokafka": aiokafka, "confluent": confluent, "kafka-python": kafka_python, "kcat": kcat}


def missing(name: str) -> str:
    """What this client needs and this machine does not have; empty when it is there."""
    return "kcat is not installed" if name == "kcat" and shutil.which("kcat") is None else ""


def names() -> Sequence[str]:
    return list(STORIES)
