"""A writer or a group's member with confluent-kafka, in a process of its own, that tells what it does line by line.

    python -m tests.interop.kills.worker produce BOOTSTRAP TOPIC RATE
    python -m tests.interop.kills.worker consume BOOTSTRAP TOPIC GROUP PROTOCOL

The lines are those of Kafka's VerifiableProducer and VerifiableConsumer (JSON), as far as they are needed here. Both
end with their standard input: the writer has its last answers then, the member commits and leaves.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

FLUSH_S = 120
BATCH = 500  # records of one poll


def say(name: str, **told: object) -> None:
    print(json.dumps({"name": name, **told}), flush=True)


def ended() -> threading.Event:
    """Set at the end of standard input."""
    event = threading.Event()

    def read() -> None:
        sys.stdin.read()
        event.set()

    threading.Thread(target=read, daemon=True).start()
    return event


def produce(bootstrap: str, topic: str, rate: int) -> None:
    """Numbers from 0 on, spread over all partitions by their key, so many a second."""
    end = ended()
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 5})

    def told(error: KafkaError | None, message: Message) -> None:
        value = (message.value() or b"").decode()
        if error is not None:
            say("producer_send_error", value=value, message=str(error))
        else:
            say("producer_send_success", value=value, partition=message.partition(), offset=message.offset())

    began = time.monotonic()
    for number in itertools.count():
        if end.is_set():
            break
        while True:
            try:
                producer.produce(topic, str(number), key=str(number), on_delivery=told)
                break
            except BufferError:
                producer.poll(0.1)
        ahead_s = number / rate - (time.monotonic() - began)
        producer.poll(max(ahead_s, 0))
    producer.flush(FLUSH_S)


def consume(bootstrap: str, topic: str, group: str, protocol: str) -> None:
    end = ended()
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)

    def assigned(_consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        say("partitions_assigned", partitions=[{"partition": each.partition} for each in partitions])

    def revoked(_consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        say("partitions_revoked", partitions=[{"partition": each.partition} for each in partitions])

    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked)
    while not end.is_set():
        messages = [each for each in consumer.consume(BATCH, 0.1) if each.error() is None]
        if messages:
            _commit(consumer, messages)
    consumer.close()


def _commit(consumer: Consumer, messages: Sequence[Message]) -> None:
    """Say what was read, and commit it; a commit that is refused is said as such, and the next one has it."""
    read: dict[int, list[int]] = {}
    for message in messages:
        read.setdefault(message.partition() or 0, []).append(message.offset() or 0)
    ranges = [
        {"partition": each, "count": len(offsets), "minOffset": min(offsets), "maxOffset": max(offsets)}
        for each, offsets in read.items()
    ]
    say("records_consumed", partitions=ranges)
    try:
        done = consumer.commit(asynchronous=False) or []
    except KafkaException as error:
        say("offsets_committed", success=False, error=str(error), offsets=[])
        return
    # Partitions of which nothing was read since the last commit stand among them, with an offset that is none (-1001).
    committed = [each for each in done if each.error is None and each.offset >= 0]
    offsets = [{"partition": each.partition, "offset": each.offset} for each in committed]
    say("offsets_committed", success=True, offsets=offsets)


if __name__ == "__main__":
    what, bootstrap, topic, *rest = sys.argv[1:]
    if what == "produce":
        produce(bootstrap, topic, int(rest[0]))
    else:
        consume(bootstrap, topic, *rest)
