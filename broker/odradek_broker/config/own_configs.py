"""What a broker says of its own configuration, and the levels of its loggers, which are nobody else's business.

- Asked for its own id, a broker answers from its settings and its committed metadata: what can be changed while it
  runs, with synonyms, and everything else as read-only.
- Any other question goes to the controller, which answers for another broker from what is set in the metadata and its
  own configuration; clients therefore ask the broker itself, as Kafka's do.
- Its loggers' levels (`broker-logger`, Kafka's BROKER_LOGGER) are read and set here, and last as long as the process.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek_proto.errors import ErrorCode
from odradek_proto.v1 import admin_messages

from odradek_broker.config.log_levels import levels, set_levels
from odradek_broker.config.settings import FIELD_BY_KEY, FIELDS, BrokerSettings, as_text, shown
from odradek_broker.core.metadata.config_sources import ConfigSource, broker_sources, config_entry
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.metadata.topic_configs import BROKER_CONFIGS

LOGGERS_OF_BROKER = "broker-logger"
TYPES = {bool: "boolean", int: "long", float: "double", str: "string"}


class OwnConfigs:
    """Answers requests about this very broker; None for any other."""

    def __init__(self, settings: BrokerSettings, image: Callable[[], MetadataImage]) -> None:
        self._settings = settings
        self._image = image
        self._loggers_at_start = levels()

    def describe(self, request: admin_messages.DescribeConfigsRequest) -> admin_messages.DescribeConfigsResponse | None:
        if request.resource_type == LOGGERS_OF_BROKER:
            if error := self._not_mine(request.resource_name):
                return admin_messages.DescribeConfigsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=error)
            return admin_messages.DescribeConfigsResponse(entries=self._loggers())
        if request.resource_type != "broker" or self._not_mine(request.resource_name):
            return None
        return admin_messages.DescribeConfigsResponse(
            entries=_entries(self._settings, self._image(), request.resource_name)
        )

    def alter(self, request: admin_messages.AlterConfigsRequest) -> admin_messages.AlterConfigsResponse | None:
        if request.resource_type != LOGGERS_OF_BROKER:
            return None
        if error := self._not_mine(request.resource_name):
            return admin_messages.AlterConfigsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=error)
        if request.append or request.subtract or request.replace:
            text = "a level is one word: set it, or unset it"
            return admin_messages.AlterConfigsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=text)
        try:
            set_levels(request.set, request.unset, validate_only=request.validate_only)
        except ValueError as invalid:
            return admin_messages.AlterConfigsResponse(error_code=ErrorCode.INVALID_CONFIG, error_message=str(invalid))
        return admin_messages.AlterConfigsResponse()

    def _not_mine(self, name: str) -> str:
        mine = str(self._settings.node_id)
        return "" if name == mine else f"this is broker {mine}: ask broker {name} itself"

    def _loggers(self) -> list[admin_messages.ConfigEntry]:
        entries = []
        for name, level in levels().items():
            at_start = self._loggers_at_start[name]
            sources = [ConfigSource(name, level, "broker-logger")] if level != at_start else []
            entries.append(
                config_entry(name, "string", [*sources, ConfigSource(name, at_start, "default")], read_only=False)
            )
        return entries


def _entries(settings: BrokerSettings, image: MetadataImage, broker: str) -> list[admin_messages.ConfigEntry]:
    defaults = {item.name: item.default for item in FIELDS}
    node = {key: shown(settings, name) for key, name in FIELD_BY_KEY.items()}
    entries = []
    for name in sorted({*BROKER_CONFIGS, *FIELD_BY_KEY}):
        if name in BROKER_CONFIGS:
            kind, sources = BROKER_CONFIGS[name].type.value, broker_sources(image, name, node, broker)
        else:
            default = defaults[FIELD_BY_KEY[name]]
            kind, sources = TYPES[type(default)], [ConfigSource(name, as_text(default), "default")]
            if node[name] != as_text(default):
                sources.insert(0, ConfigSource(name, node[name], "node"))
        if sources:
            entries.append(config_entry(name, kind, sources, read_only=name not in BROKER_CONFIGS))
    return entries
