"""DescribeConfigs of a broker, by that broker: only it knows its own configuration.

- Asked for its own id, a broker answers from its settings and its committed metadata: what can be changed while it
  runs, with synonyms, and everything else as read-only.
- Any other question goes to the controller, which answers for another broker from what is set in the metadata and its
  own configuration; clients therefore ask the broker itself, as Kafka's do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields

from odradek_proto.v1 import admin_pb2

from odradek_broker.config.settings import FIELD_BY_KEY, BrokerSettings
from odradek_broker.core.metadata.config_sources import ConfigSource, broker_sources, config_entry
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.metadata.topic_configs import BROKER_CONFIGS

DescribeOwn = Callable[[admin_pb2.DescribeConfigsRequest], "admin_pb2.DescribeConfigsResponse | None"]
TYPES = {bool: "boolean", int: "long", float: "double", str: "string"}


def describe_own(settings: BrokerSettings, image: Callable[[], MetadataImage]) -> DescribeOwn:
    """Answers a request about this very broker; None for any other."""

    def describe(request: admin_pb2.DescribeConfigsRequest) -> admin_pb2.DescribeConfigsResponse | None:
        if request.resource_type != "broker" or request.resource_name != str(settings.node_id):
            return None
        return admin_pb2.DescribeConfigsResponse(entries=_entries(settings, image(), request.resource_name))

    return describe


def _entries(settings: BrokerSettings, image: MetadataImage, broker: str) -> list[admin_pb2.ConfigEntry]:
    defaults = {item.name: item.default for item in fields(BrokerSettings) if item.default is not MISSING}
    node = {key: as_text(getattr(settings, name)) for key, name in FIELD_BY_KEY.items()}
    entries = []
    for name in sorted({*BROKER_CONFIGS, *FIELD_BY_KEY}):
        if name in BROKER_CONFIGS:
            kind, sources = BROKER_CONFIGS[name].type.value, broker_sources(image, name, node, broker)
        else:
            default = defaults[FIELD_BY_KEY[name]]
            kind, sources = TYPES[type(default)], [ConfigSource(name, as_text(default), "default")]
            if node[name] != as_text(default):
                sources.insert(0, ConfigSource(name, node[name], "node"))
        entries.append(config_entry(name, kind, sources, read_only=name not in BROKER_CONFIGS))
    return entries


def as_text(value: object) -> str:
    """A setting as a properties file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
