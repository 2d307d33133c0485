"""Filters of ACLs."""

from __future__ import annotations

from typing import Final

from odradek_proto.security.acl_words import Operation, PatternType, Permission, ResourceType
from odradek_proto.values import Value


class AclFilter(Value, frozen=True):
    """What it does not say may be anything. A pattern of MATCH finds all that speak of a resource of this name."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY


ANY_ACL: Final = AclFilter()
