"""Who makes a request, and how a handler finds the replica that it is about."""

from __future__ import annotations

from collections.abc import Callable

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition

from odradek_broker.core.context import ANONYMOUS, Principal, RequestContext, principal_of
from odradek_broker.runtime.replicas.replica import Replica

__all__ = ["ANONYMOUS", "Lookup", "Principal", "RequestContext", "principal_of"]

Lookup = Callable[[TopicPartition, bytes], Replica | ErrorCode]
"""The replica on this broker, or why there is none; the topic id b"" is not compared."""
