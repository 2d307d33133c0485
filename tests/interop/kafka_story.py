"""One story, told to a cluster by clients on librdkafka: produce in all ways, read back, ask for offsets.

Others tell it in the scenarios (`tests/interop/scenarios`), whose results are compared with Kafka's.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from typing import Any

CODECS = ("gzip", "snappy", "lz4", "zstd")
PATIENCE_S = 180.0
VALUES = [f"value-{number}".encode() * 9 for number in range(20)]

Story = Callable[[str, str], None]  # bootstrap, topic


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


STORIES: dict[str, Story] = {"confluent": confluent, "kcat": kcat}


def missing(name: str) -> str:
    """What this client needs and this machine does not have; empty when it is there."""
    return "kcat is not installed" if name == "kcat" and shutil.which("kcat") is None else ""
