"""What is given to methods: taken as it is meant, or refused with a sentence, before anything is done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from typing import Any

from odradek_proto.topics import TopicPartition, validate_topic_name

from odradek.shared.errors import ConfigError
from odradek.shared.results import OffsetAndMetadata

TIMES = "milliseconds since 1970"
LARGEST_INT32, LARGEST_INT64 = 2**31 - 1, 2**63 - 1


def as_partition(given: Any) -> TopicPartition:
    """A partition, from anything that is a topic and a number. Raises `ConfigError`."""
    try:
        topic, number = given
        if isinstance(topic, str) and 0 <= (partition := index(number)) <= LARGEST_INT32:
            return TopicPartition(topic, partition)
    except (TypeError, ValueError):
        pass
    raise ConfigError(f"{given!r} is no partition", hint='for example TopicPartition("orders", 0)')


def as_number(what: str, given: Any, meaning: str) -> int:
    """A whole number that is not negative; `meaning` says of what. Raises `ConfigError`."""
    try:
        number = index(given)
    except TypeError:
        raise ConfigError(f"{what} {given!r} is not a whole number", hint=meaning) from None
    if number < 0:
        raise ConfigError(f"{what} {number} is negative", hint=meaning)
    if number > LARGEST_INT64:
        raise ConfigError(f"{what} {number} is more than 64 bits hold", hint=meaning)
    return number


def as_commits(given: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets to be committed, with texts or without. Raises `ConfigError`."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"commit: {given!r} is no mapping", hint="{record.topic_partition: record.offset + 1}")
    commits: dict[TopicPartition, OffsetAndMetadata] = {}
    for name, each in given.items():
        partition = as_partition(name)
        try:
            found = OffsetAndMetadata(*(each if isinstance(each, tuple) else (each,)))
            is_sound = isinstance(found.metadata, str) and -1 <= index(found.leader_epoch) <= LARGEST_INT32
        except TypeError:
            is_sound = False
        if not is_sound:
            sentence = f"commit: {partition}: {each!r} is no OffsetAndMetadata"
            raise ConfigError(sentence, hint='for example OffsetAndMetadata(record.offset + 1, "a text")')
        offset = as_number(f"commit: {partition}: offset", found.offset, "that of the record that comes next")
        commits[partition] = found._replace(offset=offset)
    return commits


def as_names(given: str | Iterable[str]) -> list[str]:
    """Names; one alone is a list of one. Raises `ConfigError`."""
    names = list(given) if isinstance(given, Iterable) and not isinstance(given, str | bytes) else [given]
    for name in names:
        if not isinstance(name, str):
            raise ConfigError(f"{name!r} is no name")
    return names


def as_topics(given: str | Iterable[str]) -> list[str]:
    """Topics to read. Raises `ConfigError` for what cannot be a name."""
    names = as_names(given)
    for name in names:
        try:
            validate_topic_name(name)
        except ValueError as error:
            raise ConfigError(
                str(error), hint=f"with group_id, subscribe(pattern={name!r}) reads the topics whose whole names fit"
            ) from None
    return names
