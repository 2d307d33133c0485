"""What is given to methods: taken as it is meant, or refused with a sentence, before anything is done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from typing import Any

from odradek_proto.topics import TopicPartition, validate_topic_name

from odradek.shared.errors import ConfigError
from odradek.shared.results import OffsetAndMetadata

TIMES = "milliseconds since 1970"


def as_partition(given: Any) -> TopicPartition:
    """A partition, from anything that is a topic and a number. Raises `ConfigError`."""
    try:
        topic, number = given
        if isinstance(topic, str):
            return TopicPartition(topic, index(number))
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
    return number


def as_commits(given: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets to be committed, with texts or without. Raises `ConfigError`."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"commit: {given!r} is no mapping", hint="{record.topic_partition: record.offset + 1}")
    commits: dict[TopicPartition, OffsetAndMetadata] = {}
    for name, each in given.items():
        partition = as_partition(name)
        commits[partition] = found = OffsetAndMetadata(*(each if isinstance(each, tuple) else (each,)))
        as_number(f"commit: {partition}: offset", found.offset, "that of the record that comes next")
    return commits


def as_names(given: str | Iterable[str]) -> list[str]:
    """Names; one alone is a list of one."""
    return [given] if isinstance(given, str) else list(given)


def as_topics(given: str | Iterable[str]) -> list[str]:
    """Topics to read. Raises `ConfigError` for what cannot be a name."""
    names = as_names(given)
    for name in names:
        if not isinstance(name, str):
            raise ConfigError(f"{name!r} is no name of a topic")
        try:
            validate_topic_name(name)
        except ValueError as error:
            raise ConfigError(
                str(error), hint=f"with group_id, subscribe(pattern={name!r}) reads the topics whose whole names fit"
            ) from None
    return names
