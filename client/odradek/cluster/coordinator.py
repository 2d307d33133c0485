"""The way to the coordinator of a consumer group.

Rules of this module. Any broker says who it is; the one that was asked last is asked again until it says that it is
not, or cannot be reached. An error that passes is raised as such, and whoever asked decides when to ask again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, Self, TypeVar

from odradek_proto.errors import ErrorCode
from odradek_proto.messages import Request
from odradek_proto.v1 import groups_messages as wire

from odradek.cluster.cluster import ClusterClient
from odradek.shared.errors import ClientError, broker_error

GROUPS: Final = "/odradek.v1.Groups/"
FIND_TIMEOUT_MS = 2_000
CALL_TIMEOUT_MS = 2_000  # of the first attempt: a coordinator that is frozen has a successor soon

MOST_NAMED = 1_500  # partitions in one request: with the longest names, a broker takes no more
MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class CoordinatorAnswer(Protocol):
    """Of a coordinator."""

    @property
    def error_code(self) -> int: ...

    @classmethod
    def FromString(cls, data: bytes, /) -> Self: ...


A = TypeVar("A", bound=CoordinatorAnswer)
T = TypeVar("T")


def in_portions(named: Sequence[T]) -> list[Sequence[T]]:
    """As many partitions as a request may name."""
    return [named[at : at + MOST_NAMED] for at in range(0, len(named), MOST_NAMED)]


class Coordinator:
    """Of one group."""

    def __init__(self, cluster: ClusterClient, group_id: str) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._broker_id: int | None = None
        self._failures = 0

    async def call(self, method: str, request: Request, kind: type[A]) -> A:
        """One attempt. Raises a `ClientError`, or a retriable `BrokerError` while nobody coordinates the group.

        Other errors are left in the answer.
        """
        timeout_ms = self._cluster.patience_ms(self._failures, CALL_TIMEOUT_MS)
        self._failures += 1
        if self._broker_id is None:
            self._broker_id = await self._find()
        try:
            answer = await self._cluster.call_broker(self._broker_id, GROUPS + method, request, kind, timeout_ms)
        except ClientError as error:
            self._broker_id = None
            self._cluster.request_refresh(f"coordinator of {self._group_id!r}: {error.message}")
            raise
        code = ErrorCode.from_number(answer.error_code)
        if code in MOVED:
            self._broker_id = None
        if code in MOVED or code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            raise broker_error(code, where=f"group {self._group_id!r}")
        self._failures = 0
        return answer

    async def _find(self) -> int:
        request = wire.FindCoordinatorRequest(self._group_id)
        found = await self._cluster.ask_any(
            GROUPS + "FindCoordinator", request, wire.FindCoordinatorResponse, FIND_TIMEOUT_MS
        )
        if found.error_code:
            raise broker_error(found.error_code, found.error_message, where=f"group {self._group_id!r}")
        if self._cluster.view.address_of(found.broker_id) is None:
            self._cluster.request_refresh(f"broker {found.broker_id} coordinates {self._group_id!r}")
        return found.broker_id
