"""Quotas as a client says them, and as they go over the wire."""

from __future__ import annotations

from collections.abc import Mapping

from odradek_proto.security.quota_words import DEFAULT, EXACT, OF_DEFAULT
from odradek_proto.security.quotas import QuotaEntity
from odradek_proto.v1 import admin_messages as messages


def filters_of(entity: QuotaEntity) -> list[messages.QuotaFilter]:
    """Of all that are about whom the entity names."""
    return [
        messages.QuotaFilter(type=kind, match_type=OF_DEFAULT if name is None else EXACT, match=name or "")
        for kind, name in entity.names().items()
    ]


def alteration(entity: QuotaEntity, quotas: Mapping[str, float | None]) -> messages.QuotaAlteration:
    return messages.QuotaAlteration(
        entity=[messages.QuotaName(type=kind, name=name) for kind, name in entity.names().items()],
        values=[messages.QuotaValue(key=key, value=value) for key, value in quotas.items()],
    )


def quotas_of(described: messages.DescribedQuota) -> tuple[QuotaEntity, dict[str, float]]:
    names = {each.type.replace("-", "_"): DEFAULT if each.name is None else each.name for each in described.entity}
    return QuotaEntity(**names), {each.key: each.value for each in described.values if each.value is not None}
