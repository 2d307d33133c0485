"""DescribeClientQuotas, AlterClientQuotas (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from odradek_proto.errors import ErrorCode
from odradek_proto.v1.admin_messages import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    QuotaAlteration,
    QuotaFilter,
    QuotaName,
    QuotaValue,
)

from odradek_broker.kafka.apis.admin import AdminApi, failed, told
from odradek_broker.kafka.messages.request import Body, KafkaRequest

MATCHES = range(3)


class QuotasApi:
    def __init__(self, admin: AdminApi) -> None:
        self._admin = admin

    async def describe(self, request: KafkaRequest) -> Body:
        asked = request.read()
        if any(each["match_type"] not in MATCHES for each in asked["components"]):
            fault = failed(ErrorCode.INVALID_REQUEST, "a match is exact (0), the default (1) or any (2)")
            return request.answered({**fault, "entries": None})
        filters = [
            QuotaFilter(type=each["entity_type"], match_type=each["match_type"], match=each["match"] or "")
            for each in asked["components"]
        ]
        wanted = DescribeClientQuotasRequest(filters=filters, strict=asked["strict"])
        answer = await self._admin.call(request, "DescribeClientQuotas", wanted)
        if answer.error_code:
            return request.answered({**told(answer), "entries": None})
        entries = [
            {
                "entity": _entity(entry.entity),
                "values": [{"key": each.key, "value": each.value} for each in entry.values],
            }
            for entry in answer.entries
        ]
        return request.answered({**failed(0, ""), "entries": entries})

    async def alter(self, request: KafkaRequest) -> Body:
        asked = request.read()
        entries = [
            QuotaAlteration(
                entity=[QuotaName(type=each["entity_type"], name=each["entity_name"]) for each in entry["entity"]],
                values=[
                    QuotaValue(key=each["key"], value=None if each["remove"] else each["value"])
                    for each in entry["ops"]
                ],
            )
            for entry in asked["entries"]
        ]
        wanted = AlterClientQuotasRequest(entries=entries, validate_only=asked["validate_only"])
        answer = await self._admin.call(request, "AlterClientQuotas", wanted)
        results = [{**told(each), "entity": _entity(each.entity)} for each in answer.entries]
        whole = [{**told(answer), "entity": _entity(each.entity)} for each in entries]
        return request.answered({"entries": results or whole})


def _entity(names: Iterable[QuotaName]) -> list[dict[str, Any]]:
    return [{"entity_type": each.type, "entity_name": each.name} for each in names]
