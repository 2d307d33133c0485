"""ACLs: who may do what to which resource (KIP-11, KIP-290)."""

from __future__ import annotations

from odradek_proto.security.acl_words import Operation, PatternType, Permission, ResourceType
from odradek_proto.values import Value


class Acl(Value, frozen=True):
    """One entry. `principal` is `User:alice` or `User:*`, `host` an address or `*`."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission
