"""DescribeConfigs, ListConfigResources, IncrementalAlterConfigs, and AlterConfigs, which sets all of a resource's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import validate_topic_name
from odradek_proto.v1 import admin_messages
from odradek_proto.values import replace

from odradek_broker.core.metadata.group_configs import define_group_configs
from odradek_broker.core.metadata.topic_configs import ALL_TOPIC_CONFIGS, BROKER_CONFIGS
from odradek_broker.kafka.apis.admin import AdminApi, failed, told
from odradek_broker.kafka.apis.metadata import live_brokers
from odradek_broker.kafka.messages.request import Body, KafkaRequest
from odradek_broker.requests.metadata import MetadataRequests

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32  # Kafka's ConfigResource.Type
RESOURCES = {TOPIC: "topic", BROKER: "broker", BROKER_LOGGER: "broker-logger", GROUP: "group"}
SOURCES = {"topic": 1, "broker": 2, "cluster": 3, "node": 4, "default": 5, "broker-logger": 6, "group": 8}
TYPES = {"boolean": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7}
KNOWN = {"topic": ALL_TOPIC_CONFIGS, "broker": BROKER_CONFIGS, "group": define_group_configs()}
WITHOUT_DEFAULT = ("log.retention.ms", "log.roll.ms")  # Kafka's are those of settings in hours
NAMED_TWICE = (ErrorCode.INVALID_REQUEST, "the request names this resource more than once: name it once")
SET, DELETE, APPEND, SUBTRACT = range(4)  # of IncrementalAlterConfigs; the last two are about lists


class ConfigsApi:
    def __init__(self, admin: AdminApi, metadata: MetadataRequests) -> None:
        self._admin = admin
        self._metadata = metadata

    async def list_resources(self, request: KafkaRequest) -> Body:
        """Names of what may have configs, of all types or of those that are asked for; version 0 has one (KIP-1142).

        Groups are those that have a value of their own. Client metrics have none here.
        """
        types = request.read().get("resource_types", [CLIENT_METRICS])
        if refused := self._metadata.refusal(request.context, "ListConfigResources"):
            return request.answered({"error_code": refused})
        cluster = await self._metadata.metadata(request.context, None)
        brokers = [str(broker["node_id"]) for broker in live_brokers(cluster, request.context.listener)]
        names: dict[int, list[str]] = {
            GROUP: self._metadata.groups_with_configs(),
            CLIENT_METRICS: [],
            BROKER_LOGGER: brokers,
            BROKER: brokers,
            TOPIC: [topic.name for topic in cluster.topics],
        }
        if not names.keys() >= set(types):
            return request.answered({"error_code": ErrorCode.UNSUPPORTED_VERSION})
        listed = [
            {"resource_name": name, "resource_type": kind}
            for kind in names
            if kind in types or not types
            for name in names[kind]
        ]
        return request.answered({"config_resources": listed})

    async def describe(self, request: KafkaRequest) -> Body:
        asked = request.read()
        results = [await self._describe(request, resource, asked) for resource in asked["resources"]]
        return request.answered({"results": results})

    async def _describe(
        self, request: KafkaRequest, resource: Mapping[str, Any], asked: Mapping[str, Any]
    ) -> dict[str, Any]:
        which = _which(resource)
        kind = RESOURCES.get(resource["resource_type"])
        if kind is None:
            return {**which, **_unknown_resource(resource), "configs": []}
        try:
            if kind == "topic":
                validate_topic_name(resource["resource_name"])
        except ValueError as fault:
            return {**which, **failed(ErrorCode.INVALID_TOPIC_EXCEPTION, str(fault)), "configs": []}
        wanted = admin_messages.DescribeConfigsRequest(resource_type=kind, resource_name=resource["resource_name"])
        answer: admin_messages.DescribeConfigsResponse = await self._admin.call(request, "DescribeConfigs", wanted)
        keys, of_all_brokers = resource["configuration_keys"], kind == "broker" and not resource["resource_name"]
        most = 0 if not asked["include_synonyms"] else 1 if of_all_brokers else None
        configs = [
            _entry(entry, entry.synonyms[:most])
            for entry in answer.entries
            if (not keys or entry.name in keys) and (not of_all_brokers or entry.source == "cluster")
        ]  # of all brokers what was set for them, and nothing behind it, as in Kafka
        return {**which, **told(answer), "configs": configs}

    async def alter_incrementally(self, request: KafkaRequest) -> Body:
        asked = request.read()
        responses = []
        named_twice = _named_twice(asked["resources"])
        for resource in asked["resources"]:
            configs = resource["configs"]
            names = [config["name"] for config in configs]
            said: list[dict[str, str | None]] = [{}, {}, {}, {}]
            for config in configs:
                if config["config_operation"] in range(len(said)):
                    said[config["config_operation"]][config["name"]] = config["value"]
            if _key(resource) in named_twice:
                outcome = failed(*NAMED_TWICE)
            elif len(set(names)) < len(names) or sum(len(each) for each in said) < len(names):
                outcome = failed(
                    ErrorCode.INVALID_REQUEST, "a config is named twice, or its operation is none of Kafka's"
                )
            elif nothing := [
                name for kind in (SET, APPEND, SUBTRACT) for name, value in said[kind].items() if value is None
            ]:
                outcome = failed(
                    ErrorCode.INVALID_REQUEST, f"null for {nothing}: DELETE sets a config back to its default"
                )
            else:
                change = admin_messages.AlterConfigsRequest(
                    set=_values(said[SET]),
                    unset=_deletable(resource["resource_type"], said[DELETE]),
                    append=_values(said[APPEND]),
                    subtract=_values(said[SUBTRACT]),
                    validate_only=asked["validate_only"],
                )
                outcome = await self._alter(request, resource, change)
            responses.append({**_which(resource), **outcome})
        return request.answered({"responses": responses})

    async def alter(self, request: KafkaRequest) -> Body:
        """What the request does not name goes back to its default."""
        asked = request.read()
        responses = []
        named_twice = _named_twice(asked["resources"])
        for resource in asked["resources"]:
            values = {config["name"]: config["value"] for config in resource["configs"]}
            change = admin_messages.AlterConfigsRequest(
                set=_values(values), replace=True, validate_only=asked["validate_only"]
            )
            if _key(resource) in named_twice:
                outcome = failed(*NAMED_TWICE)
            elif RESOURCES.get(resource["resource_type"]) == "broker-logger":
                outcome = failed(
                    ErrorCode.INVALID_REQUEST, "levels of loggers are set by IncrementalAlterConfigs alone"
                )
            elif len(values) < len(resource["configs"]) or None in values.values():
                outcome = failed(ErrorCode.INVALID_REQUEST, "a config is named twice, or has no value")
            else:
                outcome = await self._alter(request, resource, change)
            responses.append({**_which(resource), **outcome})
        return request.answered({"responses": responses})

    async def _alter(
        self, request: KafkaRequest, resource: Mapping[str, Any], change: admin_messages.AlterConfigsRequest
    ) -> dict[str, object]:
        kind = RESOURCES.get(resource["resource_type"])
        if kind is None:
            return _unknown_resource(resource)
        change = replace(change, resource_type=kind, resource_name=resource["resource_name"])
        return told(await self._admin.call(request, "AlterConfigs", change))


def _key(resource: Mapping[str, Any]) -> tuple[int, str]:
    return resource["resource_type"], resource["resource_name"]


def _named_twice(resources: Sequence[Mapping[str, Any]]) -> set[tuple[int, str]]:
    """None of these is altered: which of its values were meant?"""
    return {key for key, count in Counter(map(_key, resources)).items() if count > 1}


def _values(configs: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in configs.items() if value is not None}


def _deletable(resource_type: int, names: Iterable[str]) -> list[str]:
    """Those that can be set: Kafka takes any name, of which nothing is set, while odradek's own clients hear of a slip.

    MirrorMaker deletes whatever has its default at the source, with names that other versions of Kafka have.
    """
    known = KNOWN.get(RESOURCES.get(resource_type, ""))
    return [name for name in names if known is None or name in known]


def _unknown_resource(resource: Mapping[str, Any]) -> dict[str, object]:
    kind = resource["resource_type"]
    return failed(
        ErrorCode.INVALID_REQUEST, f"resources of type {kind} have no configs here: topics, brokers and groups do"
    )


def _which(resource: Mapping[str, Any]) -> dict[str, object]:
    return {"resource_type": resource["resource_type"], "resource_name": resource["resource_name"]}


def _entry(entry: admin_messages.ConfigEntry, synonyms: Iterable[admin_messages.ConfigSynonym]) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": None if entry.sensitive else entry.value,
        "read_only": entry.read_only,
        "config_source": SOURCES.get(entry.source, 0),
        "is_sensitive": entry.sensitive,
        "synonyms": [
            {"name": each.name, "value": each.value, "source": SOURCES.get(each.source, 0)}
            for each in synonyms
            if each.source != "default" or each.name not in WITHOUT_DEFAULT
        ],
        "config_type": TYPES.get(entry.type, 0),
        "documentation": None,
    }
