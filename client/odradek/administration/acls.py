"""ACLs as a client says them, and as they go over the wire: the same fields, in the same order."""

from __future__ import annotations

from typing import Final

from msgspec.structs import astuple
from odradek_proto.security.acl_words import Operation, PatternType, Permission, ResourceType
from odradek_proto.security.acls import Acl
from odradek_proto.v1 import admin_messages
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


def filter_message(wanted: AclFilter) -> admin_messages.AclFilter:
    return admin_messages.AclFilter(*astuple(wanted))


def binding_message(acl: Acl) -> admin_messages.AclBinding:
    return admin_messages.AclBinding(*astuple(acl))


def acl_from(binding: admin_messages.AclBinding) -> Acl:
    return Acl(
        ResourceType(binding.resource_type),
        binding.resource_name,
        PatternType(binding.pattern_type),
        binding.principal,
        binding.host,
        Operation(binding.operation),
        Permission(binding.permission_type),
    )
