"""ACLs: who may do what to which resource (KIP-11, KIP-290)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from odradek_proto.security.acl_words import Operation, PatternType, Permission, ResourceType
from odradek_proto.values import Value

if TYPE_CHECKING:
    from odradek_proto.v1.admin_messages import AclBinding
    from odradek_proto.v1.metadata_messages import AccessControlEntryRecord


class Acl(Value, frozen=True):
    """One entry. `principal` is `User:alice` or `User:*`, `host` an address or `*`."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission


def acl_of(entry: AclBinding | AccessControlEntryRecord) -> Acl:
    """Raises `ValueError` for numbers that this version does not know."""
    return Acl(
        ResourceType(entry.resource_type),
        entry.resource_name,
        PatternType(entry.pattern_type),
        entry.principal,
        entry.host,
        Operation(entry.operation),
        Permission(entry.permission_type),
    )


def in_messages(acl: Value) -> dict[str, Any]:
    """The fields of an `Acl`, or of a filter of them, by their names in messages and records."""
    fields = asdict(acl)
    fields["permission_type"] = fields.pop("permission")
    return fields
