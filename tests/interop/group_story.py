"""One story, told to a cluster by clients on librdkafka: share partitions, commit, come back.

Two members of a group read four partitions, each its half. They close, which commits; records are added; one member
comes, and is given those alone, from where the group left off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from confluent_kafka import Producer

from tests.interop.kafka_story import PATIENCE_S, missing, run_kcat

__all__ = ["PARTITIONS", "STORIES", "missing", "produce"]

PARTITIONS = 4
FIRST, MORE = 40, 8  # records

Story = Callable[[str, str, str], None]  # bootstrap, topic of four partitions, group


def produce(bootstrap: str, topic: str, numbers: Iterable[int]) -> None:
    """A record for each number, spread over all partitions."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


def shared(members: Iterable[Any]) -> bool:
    """Whether each of two members has its half of the partitions: which, is for the client's assignor to say."""
    owned = [{tp.partition for tp in member.assignment()} for member in members]
    return sorted(map(len, owned)) == [2, 2] and owned[0].isdisjoint(owned[1])


def values(numbers: Iterable[int]) -> list[bytes]:
    return sorted(b"%d" % number for number in numbers)


def confluent(bootstrap: str, topic: str, group: str, **settings: Any) -> None:
    """librdkafka; `settings` are more of its own."""
    from confluent_kafka import Consumer

    def consumer() -> Consumer:
        own = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        made = Consumer({**own, **(settings or {"partition.assignment.strategy": "range"})})
        made.subscribe([topic])
        return made

    def read(consumers: Sequence[Consumer], wanted: int) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < wanted:
            for each in consumers:
                message = each.poll(0.1)
                if message is not None:
                    assert message.error() is None, message.error()
                    found.append(message.value() or b"")
        return sorted(found)

    produce(bootstrap, topic, range(FIRST))
    both = [consumer(), consumer()]
    found: list[bytes] = []
    while not shared(both):
        found += [message.value() or b"" for each in both if (message := each.poll(0.1)) is not None]
    assert sorted(set(found + read(both, FIRST - len(set(found))))) == values(range(FIRST))
    for each in both:
        each.close()  # commits
    produce(bootstrap, topic, range(FIRST, FIRST + MORE))
    third = consumer()
    assert read([third], MORE) == values(range(FIRST, FIRST + MORE))
    third.close()


def kcat(bootstrap: str, topic: str, group: str) -> None:
    """librdkafka 2.0 of Debian: one member after the other, each until the ends of all partitions."""

    def read() -> list[bytes]:
        wanted = ("-X", "auto.offset.reset=earliest", "-e", "-q")
        return sorted(run_kcat(bootstrap, *wanted, "-G", group, topic).encode().split())

    produce(bootstrap, topic, range(FIRST))
    assert read() == values(range(FIRST))
    produce(bootstrap, topic, range(FIRST, FIRST + MORE))
    assert read() == values(range(FIRST, FIRST + MORE))


STORIES: dict[str, Story] = {"confluent": confluent, "kcat": kcat}
