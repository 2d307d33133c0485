"""Settings of topics and brokers, changed while the cluster runs.

A change is all or nothing. When it allows unclean elections for a topic, partitions of it without a leader get one in
the same batch (R-137).
"""

from __future__ import annotations

from odradek_proto.errors import ErrorCode
from odradek_proto.v1 import admin_pb2

from odradek_broker.core.controller.decision import Decision, config_record
from odradek_broker.core.controller.partitions import elect_leaderless
from odradek_broker.core.controller.refusal import Refusal
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.metadata.config_types import parse
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.metadata.records import MetadataRecord, apply
from odradek_broker.core.metadata.topic_configs import (
    BROKER_CONFIGS,
    CLUSTER_DEFAULT,
    TOPIC_CONFIGS,
    effective_configs,
    validate_broker_config,
    validate_topic_config,
)

UNCLEAN = "unclean.leader.election.enable"


def alter_configs(
    image: MetadataImage, settings: ControllerSettings, request: admin_pb2.AlterConfigsRequest
) -> Decision[admin_pb2.AlterConfigsResponse]:
    """Set and unset values of one topic, one broker (its id as text) or all brokers (the empty name)."""
    try:
        records = _records(image, request)
    except Refusal as refusal:
        return Decision((), admin_pb2.AlterConfigsResponse(error_code=refusal.error, error_message=refusal.message))
    if request.validate_only:
        return Decision((), admin_pb2.AlterConfigsResponse())
    return Decision([*records, *_elections(image, settings, request, records)], admin_pb2.AlterConfigsResponse())


def describe_configs(
    image: MetadataImage, settings: ControllerSettings, request: admin_pb2.DescribeConfigsRequest
) -> admin_pb2.DescribeConfigsResponse:
    """What holds for a topic, with each value's source, or what was set for brokers while they run."""
    try:
        _check_resource(image, request.resource_type, request.resource_name)
    except Refusal as refusal:
        return admin_pb2.DescribeConfigsResponse(error_code=refusal.error, error_message=refusal.message)
    if request.resource_type == "topic":
        found = effective_configs(image, request.resource_name, settings.node_defaults)
        entries = [
            admin_pb2.ConfigEntry(name=name, value=config.value, source=config.source) for name, config in found.items()
        ]
        return admin_pb2.DescribeConfigsResponse(entries=entries)
    return admin_pb2.DescribeConfigsResponse(entries=_broker_entries(image, settings, request.resource_name))


def _broker_entries(image: MetadataImage, settings: ControllerSettings, broker: str) -> list[admin_pb2.ConfigEntry]:
    own = image.broker_configs.get(broker, {})
    cluster = image.broker_configs.get(CLUSTER_DEFAULT, {})
    node = {TOPIC_CONFIGS[name].server_name: value for name, value in settings.node_defaults.items()}
    entries = []
    for name, definition in sorted(BROKER_CONFIGS.items()):
        for values, source in ((own, "broker" if broker else "cluster"), (cluster, "cluster"), (node, "node")):
            if name in values:
                entries.append(admin_pb2.ConfigEntry(name=name, value=values[name], source=source))
                break
        else:
            entries.append(admin_pb2.ConfigEntry(name=name, value=definition.default, source="default"))
    return entries


def _records(image: MetadataImage, request: admin_pb2.AlterConfigsRequest) -> list[MetadataRecord]:
    _check_resource(image, request.resource_type, request.resource_name)
    topic = request.resource_type == "topic"
    both = sorted(set(request.set) & set(request.unset))
    if both:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{both} are to be set and unset at once")
    for name, value in sorted(request.set.items()):
        try:
            (validate_topic_config if topic else validate_broker_config)(name, value)
        except ValueError as error:
            raise Refusal(ErrorCode.INVALID_CONFIG, str(error)) from None
    known = TOPIC_CONFIGS if topic else BROKER_CONFIGS
    for name in request.unset:
        if name not in known:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"there is no {request.resource_type} setting {name!r}")
    configs = image.topic_configs if topic else image.broker_configs
    current = configs.get(request.resource_name, {})
    wanted: dict[str, str | None] = {name: value for name, value in request.set.items() if current.get(name) != value}
    wanted |= {name: None for name in request.unset if name in current}
    return [
        config_record(request.resource_type, request.resource_name, name, value)
        for name, value in sorted(wanted.items())
    ]


def _check_resource(image: MetadataImage, resource_type: str, name: str) -> None:
    if resource_type == "topic":
        if name not in image.topics:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    elif resource_type == "broker":
        known = name == CLUSTER_DEFAULT or (name.isascii() and name.isdecimal() and int(name) in image.brokers)
        if not known:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"there is no broker {name!r}")
    else:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"a resource is a topic or a broker, not {resource_type!r}")


def _elections(
    image: MetadataImage,
    settings: ControllerSettings,
    request: admin_pb2.AlterConfigsRequest,
    records: list[MetadataRecord],
) -> list[MetadataRecord]:
    value = request.set.get(UNCLEAN)
    if not records or value is None or parse(BROKER_CONFIGS[UNCLEAN].type, value) is not True:
        return []
    changed = image.copy()  # an election has to see the new setting
    for record in records:
        apply(changed, record, changed.offset, changed.epoch)
    return elect_leaderless(
        changed, settings, topic=request.resource_name if request.resource_type == "topic" else None
    )
