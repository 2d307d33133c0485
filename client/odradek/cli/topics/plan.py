"""Plans of reassignments: Kafka's JSON (kafka-reassign-partitions, version 1), and one that spreads replicas evenly.

    {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 3]}]}

`log_dirs` of Kafka's files is accepted as long as it says "any": a broker has one log directory.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek_proto.command_line import USAGE, CommandFailed, read_small
from odradek_proto.words import noun

from odradek.cli.terminal.failures import no_such_topic
from odradek.cli.terminal.options import LARGEST_INT32
from odradek.cli.terminal.parsing import LONGEST_SHOWN, bounded, shortened, unreadable

if TYPE_CHECKING:
    from odradek_proto.topics import TopicPartition

    from odradek import TopicDescription

Plan = dict["TopicPartition", tuple[int, ...]]
VERSION = 1
SHAPE = '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2,3]}]}'


def plan_as_json(plan: Mapping[TopicPartition, Sequence[int]]) -> dict[str, Any]:
    """The plan as Kafka's tool writes and reads it."""
    partitions = [
        {"topic": partition.topic, "partition": partition.partition, "replicas": list(replicas)}
        for partition, replicas in sorted(plan.items())
    ]
    return {"version": VERSION, "partitions": partitions}


def as_line(plan: Mapping[TopicPartition, Sequence[int]]) -> str:
    return json.dumps(plan_as_json(plan), separators=(",", ":"))


def read_plan(path: Path) -> Plan:
    """A plan from a file. Raises `CommandFailed` (2) for what is none, with the place."""
    from odradek_proto.topics import TopicPartition

    try:
        data = json.loads(read_small(path))
    except OSError as error:
        raise unreadable("--file", path, error) from None
    except ValueError as error:
        raise CommandFailed(f"{path} is not JSON: {error}", hint=SHAPE, exit_code=USAGE) from None
    except RecursionError:
        raise CommandFailed(f"{path}: lists in lists, too deep to be a plan", hint=SHAPE, exit_code=USAGE) from None
    if not isinstance(data, dict) or data.get("version") != VERSION or not isinstance(data.get("partitions"), list):
        raise CommandFailed(f"{path}: not a plan of version {VERSION}", hint=SHAPE, exit_code=USAGE)
    plan: Plan = {}
    for place, item in enumerate(data["partitions"]):
        where = f"{path}, partition {place} of the list"
        if not isinstance(item, dict):
            raise CommandFailed(f"{where}: not an object", hint=SHAPE, exit_code=USAGE)
        if missing := [name for name in ("topic", "partition", "replicas") if name not in item]:
            raise CommandFailed(f"{where}: {missing[0]} is missing", hint=SHAPE, exit_code=USAGE)
        partition, replicas = TopicPartition(item["topic"], item["partition"]), item["replicas"]
        if not isinstance(partition.topic, str) or not _is_number(partition.partition):
            raise CommandFailed(f"{where}: topic is a name, partition a number from 0 on", hint=SHAPE, exit_code=USAGE)
        if not isinstance(replicas, list) or not replicas or not all(map(_is_number, replicas)):
            raise CommandFailed(f"{where}: replicas is a list of broker ids, one at least", hint=SHAPE, exit_code=USAGE)
        directories = item.get("log_dirs", [])
        if not isinstance(directories, list) or any(directory != "any" for directory in directories):
            raise CommandFailed(f"{where}: a broker has one log directory, so log_dirs is any", exit_code=USAGE)
        if partition in plan:
            raise CommandFailed(f"{where}: {partition} stands there twice", exit_code=USAGE)
        plan[partition] = tuple(replicas)
    return plan


def _is_number(value: object) -> bool:
    """What Kafka's int32 holds, from 0 on."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_INT32


def current_plan(topics: Iterable[TopicDescription]) -> Plan:
    """Who the replicas are now, those on their way in and out included."""
    from odradek_proto.topics import TopicPartition

    return {
        TopicPartition(topic.name, partition.partition): tuple(partition.replicas)
        for topic in topics
        for partition in topic.partitions
    }


def spread(current: Mapping[TopicPartition, Sequence[int]], brokers: Sequence[int], factor: int | None) -> Plan:
    """The partitions on these brokers: leaders go round, and so do followers, shifted once more with each round.

    What a partition has now does not count: this is a plan from nothing, as Kafka's tool makes it, without chance.
    """
    plan: Plan = {}
    count = len(brokers)
    for place, (partition, replicas) in enumerate(sorted(current.items())):
        size = len(replicas) if factor is None else factor
        if size > count:
            raise CommandFailed(
                f"{partition} has {size} {noun(size, 'replica')}, and --brokers names {count} {noun(count, 'broker')}",
                hint="name more brokers, or a smaller --replication-factor",
                exit_code=USAGE,
            )
        first, shift = place % count, place // count
        others = [brokers[(first + 1 + (shift + step) % (count - 1)) % count] for step in range(size - 1)]
        plan[partition] = (brokers[first], *others)
    return plan


def parse_brokers(text: str, option: str) -> tuple[int, ...]:
    """1,2,3."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in parts) or len(set(parts)) < len(parts):
        raise CommandFailed(f"{option} {text!r}: broker ids, none twice, as 1,2,3", exit_code=USAGE)
    return tuple(bounded(part, LARGEST_INT32, f"{option}: broker id") for part in parts)


def select(words: Sequence[str], topics: Sequence[TopicDescription]) -> list[TopicPartition]:
    """The partitions that these words name: TOPIC is all of its partitions, `orders-0` one.

    Where `orders-0` is a topic it is the topic; `orders/0` can only be the partition.
    """
    from odradek_proto.topics import TopicPartition

    known = {topic.name: topic for topic in topics}
    found: dict[TopicPartition, None] = {}
    for word in words:
        name, number = _topic_and_number(word, known)
        topic = known.get(name)
        if topic is None:
            raise no_such_topic(name, known)
        numbers = sorted(partition.partition for partition in topic.partitions)
        if number and (len(number) > LONGEST_SHOWN or int(number) not in numbers):
            has = f"partitions 0 to {numbers[-1]}" if numbers[-1] else "partition 0 only"
            hint = f"`odradek topic describe {name}` shows its partitions"
            raise CommandFailed(f"topic {name!r} has {has}, not {shortened(number)}", hint=hint)
        found |= {TopicPartition(name, each): None for each in ([int(number)] if number else numbers)}
    return list(found)


def _topic_and_number(word: str, known: Container[str]) -> tuple[str, str]:
    """What a word names; the number is empty for a whole topic."""
    for between in "/-":
        name, found, number = word.rpartition(between)
        if found and number.isdecimal() and word not in known and (between == "/" or name in known):
            return name, number
    return word, ""
