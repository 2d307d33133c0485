"""The admin requests of a cluster: one table of their permissions and their decisions at the active controller.

A new request is an `rpc` and two messages in admin.proto (`make proto`), a row in `REQUESTS` of the module that decides
it, and a method of the client's Admin. Brokers forward all of them (requests/admin.py); the active controller looks
them up by name and carries out the decision (runtime/controller/service.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from odradek_proto.security.acl_words import Operation
from odradek_proto.v1 import admin_messages

from odradek_broker.core.context import RequiredPermission
from odradek_broker.core.controller import balance, configs, reassignment, registration, security, topics
from odradek_broker.core.controller.decision import ChangeRequest, QuorumRequest, ReadRequest

DESCRIBE_QUORUM: Final = QuorumRequest(
    "DescribeQuorum", RequiredPermission(Operation.DESCRIBE), answer=lambda call: call.describe_quorum()
)
ADMIN_REQUESTS: Final[Mapping[str, ChangeRequest | ReadRequest | QuorumRequest]] = {
    row.name: row
    for row in (
        *topics.REQUESTS,
        *configs.REQUESTS,
        *balance.REQUESTS,
        *reassignment.REQUESTS,
        *security.REQUESTS,
        *registration.REQUESTS,
        DESCRIBE_QUORUM,
    )
}


def topics_with_defaults(names: Sequence[str], timeout_ms: int) -> admin_messages.CreateTopicsRequest:
    """A request for topics with the cluster's default partitions and replicas."""
    topics = [admin_messages.NewTopic(name=name, partitions=-1, replication_factor=-1) for name in names]
    return admin_messages.CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms)
