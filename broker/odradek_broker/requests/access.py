"""Whether a caller may have what it asks for: the one question of every handler, and the log of refusals.

The decision is `core.security.authorizer`'s, from the ACLs of this broker's committed metadata; what a request needs is
in `core.security.needs`. Without an authorizer everybody may do everything. What brokers ask each other, on their own
listener, is nobody else's business: it is not asked here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from odradek_proto.errors import ErrorCode
from odradek_proto.security.acl_words import CLUSTER_NAME, OPERATIONS, Operation, ResourceType
from odradek_proto.security.acls import Acl
from odradek_proto.topics import TopicPartition

from odradek_broker.config.log_levels import AUDIT
from odradek_broker.core.context import RequiredPermission
from odradek_broker.core.security.authorizer import Authorizer
from odradek_broker.core.security.needs import NEEDS, REFUSED
from odradek_broker.requests.context import Lookup, RequestContext
from odradek_broker.runtime.refusals import is_said
from odradek_broker.runtime.replicas.replica import Replica

logger = logging.getLogger(AUDIT)

MOST_COUNTED = 10_000  # kinds of refusals that are told apart
MOST_NAMED = 100  # names of one kind and principal that have lines of their own
LONGEST_NAME = 256  # characters of a name that the log shows; names of topics are not longer


class Access:
    """`acls` are those of the committed metadata; on `trusted` listeners everything is allowed."""

    def __init__(
        self, authorizer: Authorizer | None = None, acls: Callable[[], Mapping[bytes, Acl]] = dict, trusted: str = ""
    ) -> None:
        self._authorizer = authorizer
        self.is_on = authorizer is not None  # asked for every batch
        self._acls = acls
        self._trusted = trusted
        self._refusals: dict[
            tuple[str, RequiredPermission, str], int
        ] = {}  # by principal, need and name; "": of all further names
        self._named: dict[tuple[str, RequiredPermission], int] = {}

    def refusal(self, context: RequestContext, api: str, name: str = CLUSTER_NAME, *, told: bool = True) -> ErrorCode:
        """NONE, or the error for whoever may not. `told` False: it is only left out of an answer."""
        need = NEEDS[api]
        if self.allows(context, need.operation, need.kind, name):
            return ErrorCode.NONE
        if told:
            self._log(context, need, name)
        return REFUSED[need.kind]

    def refusal_to_create(self, context: RequestContext, topic: str) -> ErrorCode:
        """Creating on the cluster allows every topic, as in Kafka."""
        if self.allows(context, Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
            return ErrorCode.NONE
        return self.refusal(context, "CreateTopics", topic)

    def allows(self, context: RequestContext, operation: Operation, kind: ResourceType, name: str) -> bool:
        authorizer = self._authorizer
        if authorizer is None or context.listener == self._trusted:
            return True
        authorizer.update(self._acls())
        return authorizer.allows(str(context.principal), _host(context), operation, kind, name)

    def allows_on_any(self, context: RequestContext, operation: Operation, kind: ResourceType) -> bool:
        authorizer = self._authorizer
        if authorizer is None:
            return True
        authorizer.update(self._acls())
        return authorizer.allows_on_any(str(context.principal), _host(context), operation, kind)

    def operations(self, context: RequestContext, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """What the caller may do with it, as Kafka tells it (KIP-430): a bit for each operation, by its number."""
        return sum(1 << each for each in OPERATIONS[kind] if self.allows(context, each, kind, name))

    def lookup(self, lookup: Lookup, context: RequestContext, api: str) -> Lookup:
        """The same look-up, for whoever may."""
        if self._authorizer is None:
            return lookup

        def found(tp: TopicPartition, topic_id: bytes) -> Replica | ErrorCode:
            return self.refusal(context, api, tp.topic) or lookup(tp, topic_id)

        return found

    def _log(self, context: RequestContext, need: RequiredPermission, name: str) -> None:
        name = name[:LONGEST_NAME]
        who = (str(context.principal), need)
        if len(self._refusals) >= MOST_COUNTED:
            self._refusals.clear()
            self._named.clear()
        if (*who, name) not in self._refusals:
            self._named[who] = self._named.get(who, 0) + 1
        key = (*who, name if self._named[who] <= MOST_NAMED else "")
        count = self._refusals[key] = self._refusals.get(key, 0) + 1
        if is_said(count):
            logger.info(
                "%s from %s on %s: refused %s on %s %r (%d so far)",
                context.principal, context.peer, context.listener, need.operation.name, need.kind.name, name, count,
            )  # fmt: skip


def _host(context: RequestContext) -> str:
    return context.peer.rpartition(":")[0].strip("[]")


OPEN: Final = Access()
