"""Authorization by ACLs, as Kafka's StandardAuthorizer decides (KIP-11, KIP-290, KIP-801).

Rules of this module. Super users may do everything. A matching DENY wins over any ALLOW. Permission to read, write,
delete or alter a resource includes describing it, and permission to alter its configs includes describing them. A
resource without any ACL is forbidden for all, unless `allow.everyone.if.no.acl.found` is set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from odradek_proto.security.acl_words import ANY_NAME, Operation, PatternType, Permission, ResourceType
from odradek_proto.security.acls import Acl

MOST_REMEMBERED = 10_000  # answers, of one state of the ACLs
LONGEST_REMEMBERED = 512  # characters of a name and who asks for it: longer ones are decided each time

IMPLIES: Final[Mapping[Operation, tuple[Operation, ...]]] = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
"""By each of which an operation is allowed, too; a DENY implies nothing."""
EVERYBODY: Final = f"User:{ANY_NAME}"


class AclIndex:
    """The ACLs of one state of the metadata, found by resource."""

    def __init__(self, acls: Iterable[Acl]) -> None:
        self._literal: dict[tuple[ResourceType, str], list[Acl]] = {}
        self._prefixed: dict[tuple[ResourceType, str], list[Acl]] = {}
        for acl in acls:
            index = self._prefixed if acl.pattern_type is PatternType.PREFIXED else self._literal
            index.setdefault((acl.resource_type, acl.resource_name), []).append(acl)
        self._lengths = sorted({len(name) for _, name in self._prefixed})

    def of(self, kind: ResourceType, name: str) -> Iterator[Acl]:
        """All that speak of this resource."""
        yield from self._literal.get((kind, name), ())
        if name != ANY_NAME:
            yield from self._literal.get((kind, ANY_NAME), ())
        for length in self._lengths:
            if length > len(name):
                return
            yield from self._prefixed.get((kind, name[:length]), ())

    def of_kind(self, kind: ResourceType) -> Iterator[Acl]:
        """All that speak of resources of this type."""
        for index in (self._literal, self._prefixed):
            for (each, _), acls in index.items():
                if each is kind:
                    yield from acls


class Authorizer:
    """Answers for one state of the ACLs at a time; `update` gives it the next one."""

    def __init__(self, *, super_users: Iterable[str] = (), allow_if_no_acl: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allow_if_no_acl = allow_if_no_acl
        self._acls: Mapping[bytes, Acl] = {}
        self._index = AclIndex(())
        self._remembered: dict[tuple[str, str, Operation, ResourceType, str], bool] = {}

    def update(self, acls: Mapping[bytes, Acl]) -> None:
        """Cheap when they are the same object as before."""
        if acls is not self._acls:
            self._acls, self._index = acls, AclIndex(acls.values())
            self._remembered.clear()

    def allows(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether this principal may do this from there. `host` is an address without a port."""
        key = (principal, host, operation, kind, name)
        found = self._remembered.get(key)
        if found is None:
            found = principal in self._super_users or self._decide(*key)
            if len(principal) + len(name) > LONGEST_REMEMBERED:
                return found
            if len(self._remembered) >= MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[key] = found
        return found

    def _decide(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        allowed = spoken_of = False
        for acl in self._index.of(kind, name):
            spoken_of = True
            if not _is_about(acl, principal, host):
                continue
            if acl.permission is Permission.DENY:
                if acl.operation in (operation, Operation.ALL):
                    return False
            elif acl.operation in (operation, Operation.ALL, *IMPLIES.get(operation, ())):
                allowed = True
        return allowed or (self._allow_if_no_acl and not spoken_of)

    def allows_on_any(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Whether there may be a resource of this type with which it may do this (KIP-679)."""
        if principal in self._super_users:
            return True
        mine = [acl for acl in self._index.of_kind(kind) if _is_about(acl, principal, host)]
        denied = [
            acl for acl in mine if acl.permission is Permission.DENY and acl.operation in (operation, Operation.ALL)
        ]
        if any(acl.resource_name == ANY_NAME and acl.pattern_type is PatternType.LITERAL for acl in denied):
            return False
        return self._allow_if_no_acl or any(
            acl.permission is Permission.ALLOW
            and acl.operation in (operation, Operation.ALL)
            and not any(_covers(deny, acl) for deny in denied)
            for acl in mine
        )


def _is_about(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, EVERYBODY) and acl.host in (host, ANY_NAME)


def _covers(deny: Acl, allow: Acl) -> bool:
    """Whether everything that one allows, the other denies."""
    if deny.pattern_type is PatternType.PREFIXED:
        return allow.resource_name != ANY_NAME and allow.resource_name.startswith(deny.resource_name)
    return allow.pattern_type is PatternType.LITERAL and deny.resource_name == allow.resource_name
