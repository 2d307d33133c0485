"""Settings of topics, brokers and groups, changed while the cluster runs.

A change is atomic. If it allows unclean elections for a topic, its partitions without a leader get one in the same
batch (R-137). If it changes min.insync.replicas, the same batch removes replicas that are no longer eligible (KIP-966).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from odradek_proto.errors import ErrorCode
from odradek_proto.security.acl_words import Operation, ResourceType
from odradek_proto.v1 import admin_messages
from odradek_proto.values import replace

from odradek_broker.core.context import RequiredPermission
from odradek_broker.core.controller.decision import (
    MAX_BATCH_BYTES,
    ChangeRequest,
    Decision,
    ReadRequest,
    RequestRefused,
    batch_bytes,
    check_batch_bytes,
    config_record,
)
from odradek_broker.core.controller.partitions import elect_leaderless, review_eligible
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.metadata.config_sources import (
    ConfigSource,
    broker_sources,
    config_entry,
    group_sources,
    topic_sources,
)
from odradek_broker.core.metadata.config_types import ConfigDefinition, ConfigType, parse
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.metadata.records import MetadataRecord, apply
from odradek_broker.core.metadata.topic_configs import (
    ALL_TOPIC_CONFIGS,
    BROKER_CONFIGS,
    CLUSTER_DEFAULT,
    MIN_INSYNC_REPLICAS,
    TOPIC_CONFIGS,
    unknown_config,
    validate_config,
    validate_lags,
)

UNCLEAN = "unclean.leader.election.enable"


def alter_configs(
    image: MetadataImage, settings: ControllerSettings, request: admin_messages.AlterConfigsRequest
) -> Decision[admin_messages.AlterConfigsResponse]:
    """Set and unset values of one topic, one group, one broker (its id as text) or all brokers (the empty name)."""
    try:
        _check_resource(image, request.resource_type, request.resource_name)
        request = _plain(image, settings, request)
        records = _records(image, settings, request)
        if settings.elr_enable and request.resource_type == "broker":
            _check_one_minimum(request)
        if not request.validate_only:
            records += _elections(image, settings, request, records)
        check_batch_bytes(
            batch_bytes(records), MAX_BATCH_BYTES, "use shorter values, or change one topic after another"
        )
    except RequestRefused as refusal:
        return Decision(
            (), admin_messages.AlterConfigsResponse(error_code=refusal.error, error_message=refusal.message)
        )
    if request.validate_only:
        return Decision((), admin_messages.AlterConfigsResponse())
    return Decision(records, admin_messages.AlterConfigsResponse())


def describe_configs(
    image: MetadataImage, settings: ControllerSettings, request: admin_messages.DescribeConfigsRequest
) -> admin_messages.DescribeConfigsResponse:
    """What holds for a topic or a group, with each value's source, or what can be set for brokers while they run.

    What one broker has in its own configuration it tells itself (`config.own_configs`); here it is the controller's.
    """
    try:
        _check_resource(image, request.resource_type, request.resource_name)
    except RequestRefused as refusal:
        return admin_messages.DescribeConfigsResponse(error_code=refusal.error, error_message=refusal.message)
    node = {ALL_TOPIC_CONFIGS[name].server_name: value for name, value in settings.node_defaults.items()}
    known = {"topic": TOPIC_CONFIGS, "group": settings.group_configs, "broker": dict(sorted(BROKER_CONFIGS.items()))}

    def sources(name: str, definition: ConfigDefinition) -> Sequence[ConfigSource]:
        if request.resource_type == "topic":
            return topic_sources(image, request.resource_name, name, node)
        if request.resource_type == "group":
            return group_sources(image, definition, request.resource_name)
        return broker_sources(image, name, node, request.resource_name)

    entries = [
        config_entry(name, definition.type.value, found, read_only=False)
        for name, definition in known[request.resource_type].items()
        if (found := sources(name, definition))
    ]
    return admin_messages.DescribeConfigsResponse(entries=entries)


def list_config_resources(
    image: MetadataImage, request: admin_messages.ListConfigResourcesRequest
) -> admin_messages.ListConfigResourcesResponse:
    """What can have settings, with those that were set while the cluster ran (KIP-1142; unlike Kafka, with values)."""
    topics, brokers = image.topic_configs, image.broker_configs
    named = {
        "topic": {name: topics.get(name, {}) for name in sorted(image.topics)},
        "broker": {name: brokers.get(name, {}) for name in (CLUSTER_DEFAULT, *map(str, sorted(image.brokers)))},
        "group": dict(sorted(image.group_configs.items())),  # of others the metadata know nothing
    }
    wanted = request.resource_types or named
    if unknown := sorted({*wanted} - named.keys()):
        reason = f"a resource is a topic, a broker or a group, not {unknown[0]!r}"
        return admin_messages.ListConfigResourcesResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=reason)
    return admin_messages.ListConfigResourcesResponse(
        resources=[
            admin_messages.ConfigResource(resource_type=kind, resource_name=name, configs=configs)
            for kind in named
            if kind in wanted
            for name, configs in named[kind].items()
        ]
    )


def _plain(
    image: MetadataImage, settings: ControllerSettings, request: admin_messages.AlterConfigsRequest
) -> admin_messages.AlterConfigsRequest:
    """The same change as values that are set and unset: lists as they become, and what is left out of a replacement."""
    known = _known(settings, request.resource_type)
    current = _current(image, request)
    values, unset = dict(request.set), list(request.unset)
    times = Counter([*request.set, *request.unset, *request.append, *request.subtract])
    if twice := sorted(name for name, often in times.items() if often > 1):
        raise RequestRefused(ErrorCode.INVALID_REQUEST, f"{', '.join(twice)}: to be changed in two ways at once")
    for name, more in sorted([*request.append.items(), *request.subtract.items()]):
        if name not in known:
            raise RequestRefused(ErrorCode.INVALID_CONFIG, unknown_config(known, request.resource_type, name))
        if known[name].type is not ConfigType.LIST:
            reason = f"{name} is no list: nothing is appended to it or taken out of it; set its value"
            raise RequestRefused(ErrorCode.INVALID_CONFIG, reason)
        default = settings.node_defaults.get(name, known[name].default)
        before, named = _items(current.get(name, default)), _items(more)
        if name in request.append:
            values[name] = ",".join(before + [each for each in named if each not in before])
        else:
            values[name] = ",".join(each for each in before if each not in named)
    if request.replace:
        unset += [name for name in sorted(current) if name not in values and name not in unset]
    return replace(request, set=values, unset=unset, append={}, subtract={})


def _known(settings: ControllerSettings, resource_type: str) -> Mapping[str, ConfigDefinition]:
    return {"topic": ALL_TOPIC_CONFIGS, "broker": BROKER_CONFIGS, "group": settings.group_configs}[resource_type]


def _current(image: MetadataImage, request: admin_messages.AlterConfigsRequest) -> Mapping[str, str]:
    configs = {"topic": image.topic_configs, "broker": image.broker_configs, "group": image.group_configs}
    return configs[request.resource_type].get(request.resource_name, {})


def _items(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _records(
    image: MetadataImage, settings: ControllerSettings, request: admin_messages.AlterConfigsRequest
) -> list[MetadataRecord]:
    known = _known(settings, request.resource_type)
    of_broker = request.resource_type == "broker"
    invalid = ErrorCode.INVALID_REQUEST if of_broker else ErrorCode.INVALID_CONFIG  # as in Kafka
    for name, value in sorted(request.set.items()):
        try:
            validate_config(known, request.resource_type, name, value)
        except ValueError as error:
            raise RequestRefused(invalid, str(error)) from None
    for name in request.unset:
        if name not in known:
            raise RequestRefused(invalid, unknown_config(known, request.resource_type, name))
    current = _current(image, request)
    wanted: dict[str, str | None] = {name: value for name, value in request.set.items() if current.get(name) != value}
    wanted |= {name: None for name in request.unset if name in current}
    if request.resource_type == "topic":
        after = {name: value for name, value in {**current, **wanted}.items() if value is not None}
        try:
            validate_lags(image, after, settings.node_defaults)
        except ValueError as error:
            raise RequestRefused(ErrorCode.INVALID_CONFIG, str(error)) from None
    return [
        config_record(request.resource_type, request.resource_name, name, value)
        for name, value in sorted(wanted.items())
    ]


def _check_one_minimum(request: admin_messages.AlterConfigsRequest) -> None:
    """With eligible leader replicas all brokers count with one minimum, as in Kafka (`activation`)."""
    if request.resource_name != CLUSTER_DEFAULT and MIN_INSYNC_REPLICAS in request.set:
        reason = (
            f"{MIN_INSYNC_REPLICAS} cannot be set for a single broker while eligible leader replicas are on: all must "
            "count with the same; set it for a topic, or for all brokers"
        )
        raise RequestRefused(ErrorCode.INVALID_CONFIG, reason)
    if request.resource_name == CLUSTER_DEFAULT and MIN_INSYNC_REPLICAS in request.unset:
        reason = (
            f"{MIN_INSYNC_REPLICAS} of all brokers cannot be unset while eligible leader replicas are on: their files "
            "may differ; set it to another value instead"
        )
        raise RequestRefused(ErrorCode.INVALID_CONFIG, reason)


def _check_resource(image: MetadataImage, resource_type: str, name: str) -> None:
    if resource_type == "topic":
        if name not in image.topics:
            raise RequestRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    elif resource_type == "broker":
        known = name == CLUSTER_DEFAULT or (name.isascii() and name.isdecimal() and int(name) in image.brokers)
        if not known:
            raise RequestRefused(ErrorCode.INVALID_REQUEST, f"there is no broker {name!r}")
    elif resource_type == "group":
        if not name:
            raise RequestRefused(
                ErrorCode.INVALID_REQUEST, "settings are of one group: name it; all have the brokers' group.*"
            )
    else:
        raise RequestRefused(
            ErrorCode.INVALID_REQUEST, f"a resource is a topic, a broker or a group, not {resource_type!r}"
        )


def _elections(
    image: MetadataImage,
    settings: ControllerSettings,
    request: admin_messages.AlterConfigsRequest,
    records: list[MetadataRecord],
) -> list[MetadataRecord]:
    value = request.set.get(UNCLEAN)
    allows_unclean = value is not None and parse(BROKER_CONFIGS[UNCLEAN].type, value) is True
    reviews = MIN_INSYNC_REPLICAS in (*request.set, *request.unset)
    if not records or not (allows_unclean or reviews):
        return []
    changed = image.copy()  # an election has to see the new setting
    for record in records:
        apply(changed, record, changed.offset, changed.epoch)
    topic = request.resource_name if request.resource_type == "topic" else None
    return [
        *(review_eligible(changed, settings, topic=topic) if reviews else ()),  # partitions that have a leader
        *(elect_leaderless(changed, settings, topic=topic) if allows_unclean else ()),
    ]


NAMED = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}
REQUESTS = (
    ChangeRequest(
        "AlterConfigs",
        RequiredPermission(Operation.ALTER_CONFIGS),
        of={kind: RequiredPermission(Operation.ALTER_CONFIGS, of) for kind, of in NAMED.items()},
        kafka_name="IncrementalAlterConfigs",
        decide=lambda call: alter_configs(call.image, call.settings, call.request),
    ),
    ReadRequest(
        "DescribeConfigs",
        RequiredPermission(Operation.DESCRIBE_CONFIGS),
        of={kind: RequiredPermission(Operation.DESCRIBE_CONFIGS, of) for kind, of in NAMED.items()},
        answer=lambda call: describe_configs(call.image, call.settings, call.request),
    ),
    ReadRequest(
        "ListConfigResources",
        RequiredPermission(Operation.DESCRIBE_CONFIGS),
        answer=lambda call: list_config_resources(call.image, call.request),
    ),
)
