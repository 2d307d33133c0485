"""Topics that a cluster is to have from the start: `odradek.create.topics=orders:3:3,payments:6:3:retention.ms=60000`.

The form is that of KAFKA_CREATE_TOPICS in several container images: name, partitions, replicas and settings, each
after a colon, topics after commas or line ends. What is left out has the cluster's default.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from odradek_proto.topics import validate_topic_name
from odradek_proto.values import Value, field

from odradek_broker.config.settings import SettingError
from odradek_broker.core.metadata.topic_configs import CLEANUP_POLICY, COMPACT, DELETE, validate_topic_config

KEY = "odradek.create.topics"
BY_DEFAULT = -1  # in requests: num.partitions, default.replication.factor
CLEANUP_POLICIES = (DELETE, COMPACT)  # images take these words without the setting's name


class StartupTopic(Value, frozen=True):
    """One of them. -1 means the cluster's default."""

    name: str
    partitions: int = BY_DEFAULT
    replicas: int = BY_DEFAULT
    configs: dict[str, str] = field(default_factory=dict)


def parse_topics(text: str) -> list[StartupTopic]:
    """Raises `SettingError` for what could not be created on any cluster."""
    topics = [_parse(part) for part in re.split(r"[,\s]+", text) if part]
    names = [topic.name for topic in topics]
    for name in names:
        if names.count(name) > 1:
            raise SettingError(f"{KEY} names the topic {name!r} twice")
    return topics


def _parse(text: str) -> StartupTopic:
    name, *rest = text.split(":")
    try:
        validate_topic_name(name)
        configs = dict(_config(part) for part in rest[2:])
        for key, value in configs.items():
            validate_topic_config(key, value)
    except ValueError as error:
        raise SettingError(f"{KEY}: {text!r}: {error}") from error
    return StartupTopic(name, _count(text, rest[:1]), _count(text, rest[1:2]), configs)


def _count(text: str, given: Iterable[str]) -> int:
    for number in given:
        if number in ("", str(BY_DEFAULT)):
            return BY_DEFAULT
        if not number.isdecimal() or int(number) < 1:
            raise SettingError(f"{KEY}: a topic looks like orders:3:3 (name:partitions:replicas), not {text!r}")
        return int(number)
    return BY_DEFAULT


def _config(text: str) -> tuple[str, str]:
    if text in CLEANUP_POLICIES:
        return CLEANUP_POLICY, text
    key, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"a setting looks like retention.ms=60000, not {text!r}")
    return key, value
