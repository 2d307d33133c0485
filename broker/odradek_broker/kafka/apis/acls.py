"""DescribeAcls, CreateAcls, DeleteAcls (KIP-140)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from odradek_proto.v1.admin_messages import (
    AclBinding,
    AclFilter,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
)

from odradek_broker.kafka.apis.admin import AdminApi, told
from odradek_broker.kafka.messages.request import Body, KafkaRequest


class AclsApi:
    def __init__(self, admin: AdminApi) -> None:
        self._admin = admin

    async def describe(self, request: KafkaRequest) -> Body:
        asked = request.read()
        wanted = DescribeAclsRequest(filter=_filter(asked))
        answer = await self._admin.call(request, "DescribeAcls", wanted)
        resources: dict[tuple[int, str, int], list[dict[str, Any]]] = {}
        for acl in answer.acls:
            resource = (acl.resource_type, acl.resource_name, acl.pattern_type)
            resources.setdefault(resource, []).append(_entry(acl))
        rows = [
            {"resource_type": kind, "resource_name": name, "pattern_type": pattern, "acls": acls}
            for (kind, name, pattern), acls in resources.items()
        ]
        return request.answered({**told(answer), "resources": rows})

    async def create(self, request: KafkaRequest) -> Body:
        creations = request.read()["creations"]
        acls = [
            AclBinding(
                resource_type=each["resource_type"],
                resource_name=each["resource_name"],
                pattern_type=each["resource_pattern_type"],
                principal=each["principal"],
                host=each["host"],
                operation=each["operation"],
                permission_type=each["permission_type"],
            )
            for each in creations
        ]
        answer = await self._admin.call(request, "CreateAcls", CreateAclsRequest(acls=acls))
        results = [told(each) for each in answer.results] or [told(answer)] * len(creations)
        return request.answered({"results": results})

    async def delete(self, request: KafkaRequest) -> Body:
        filters = request.read()["filters"]
        wanted = DeleteAclsRequest(filters=[_filter(each) for each in filters])
        answer = await self._admin.call(request, "DeleteAcls", wanted)
        results = [{**told(each), "matching_acls": _matching(each.acls)} for each in answer.results]
        return request.answered({"filter_results": results or [{**told(answer), "matching_acls": []}] * len(filters)})


def _filter(asked: Mapping[str, Any]) -> AclFilter:
    return AclFilter(
        resource_type=asked["resource_type_filter"],
        resource_name=asked["resource_name_filter"],
        pattern_type=asked["pattern_type_filter"],
        principal=asked["principal_filter"],
        host=asked["host_filter"],
        operation=asked["operation"],
        permission_type=asked["permission_type"],
    )


def _entry(acl: AclBinding) -> dict[str, Any]:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission_type,
    }


def _matching(acls: Iterable[AclBinding]) -> list[dict[str, Any]]:
    return [
        {
            "resource_type": acl.resource_type,
            "resource_name": acl.resource_name,
            "pattern_type": acl.pattern_type,
            **_entry(acl),
        }
        for acl in acls
    ]
