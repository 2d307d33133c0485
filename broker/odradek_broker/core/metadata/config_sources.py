"""The source of a setting's value, and the values it overrides: Kafka's DescribeConfigs, with synonyms.

Sources, the first that has a value wins: `topic` or `group`, `broker` (set for the one broker), `cluster` (for all of
them), `node` (the node's own configuration), `default` (Kafka's). A node configuration that equals the default is not
distinguished from one without the setting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from odradek_proto.v1 import admin_messages

from odradek_broker.core.metadata.config_types import ConfigDefinition
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.metadata.topic_configs import BROKER_CONFIGS, BROKER_RATES, CLUSTER_DEFAULT, TOPIC_CONFIGS

NOWHERE: Final = ""  # the name of a default that no broker has: no synonym, as in Kafka
SECRET_WORDS: Final = ("password", "secret", "credential", "keystore.key")


class ConfigSource(NamedTuple):
    """A value, the name that it has at its source, and the source."""

    name: str
    value: str
    source: str


def broker_sources(image: MetadataImage, name: str, node: Mapping[str, str], broker: str) -> list[ConfigSource]:
    """The values of a dynamic broker setting for one broker (its id as text), or for all (""), first the one that
    holds. `node` has the node's own values by the broker's names. A rate that is not set has none."""
    definition = BROKER_CONFIGS[name]
    found = []
    for resource, source in ((broker, "broker"), (CLUSTER_DEFAULT, "cluster")):
        value = image.broker_configs.get(resource, {}).get(name)
        if value is not None and (resource == CLUSTER_DEFAULT) == (source == "cluster"):
            found.append(ConfigSource(name, value, source))
    if name in BROKER_RATES:
        return found
    if node.get(name, definition.default) != definition.default:
        found.append(ConfigSource(name, node[name], "node"))
    return [*found, ConfigSource(name, definition.default, "default")]


def topic_sources(image: MetadataImage, topic: str, name: str, node: Mapping[str, str]) -> list[ConfigSource]:
    """The values of a topic's setting on any broker. Raises `KeyError` for no setting."""
    definition = TOPIC_CONFIGS[name]
    value = image.topic_configs.get(topic, {}).get(name)
    own = [] if value is None else [ConfigSource(name, value, "topic")]
    if not definition.server_name:
        return own or [ConfigSource(NOWHERE, definition.default, "default")]
    return own + broker_sources(image, definition.server_name, node, CLUSTER_DEFAULT)


def group_sources(image: MetadataImage, definition: ConfigDefinition, group: str) -> list[ConfigSource]:
    """A group's own value, or what all groups have; as in Kafka, the one is not told beside the other."""
    value = image.group_configs.get(group, {}).get(definition.name)
    if value is not None:
        return [ConfigSource(definition.name, value, "group")]
    return [ConfigSource(definition.name, definition.default, "default")]


def config_entry(
    name: str, kind: str, sources: Sequence[ConfigSource], *, read_only: bool
) -> admin_messages.ConfigEntry:
    """A setting as it is told: the value of a secret is not."""
    sensitive = is_sensitive(name)
    return admin_messages.ConfigEntry(
        name=name,
        value="" if sensitive else sources[0].value,
        source=sources[0].source,
        read_only=read_only,
        sensitive=sensitive,
        type=kind,
        synonyms=[
            admin_messages.ConfigSynonym(
                name=synonym.name, value="" if sensitive else synonym.value, source=synonym.source
            )
            for synonym in sources
            if synonym.name != NOWHERE
        ],
    )


def is_sensitive(name: str) -> bool:
    """Whether a setting holds a secret, by its name."""
    return any(word in name for word in SECRET_WORDS)
