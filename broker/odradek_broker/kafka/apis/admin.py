"""What all of Kafka's admin APIs need: the way to the controller, an answer when there is none, and rows by topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from odradek_proto.errors import ErrorCode

from odradek_broker.core.security.needs import refuse_all
from odradek_broker.kafka.messages.request import KafkaRequest
from odradek_broker.requests.admin import DEFAULT_TIMEOUT_MS, AdminRequests
from odradek_broker.runtime.membership.controller_channel import ControllerUnavailable

MOST_TIMEOUT_MS = 300_000  # five minutes bound what a caller may ask us to wait


class NoController(Exception):
    """No controller answered in time; what was asked for may have been done all the same."""

    error = ErrorCode.REQUEST_TIMED_OUT


class AdminApi:
    """Passes requests on to the controller."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def call(self, request: KafkaRequest, method: str, message: Any, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> Any:
        """The answer; without a controller it is REQUEST_TIMED_OUT for all that the request is about."""
        try:
            return await self.ask(request, method, message, timeout_ms)
        except NoController as nobody:
            return refuse_all(method, message, nobody.error, str(nobody))

    async def ask(self, request: KafkaRequest, method: str, message: Any, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> Any:
        """Raises `NoController`."""
        try:
            return await self._requests.call(request.context, method, message, max(1, min(timeout_ms, MOST_TIMEOUT_MS)))
        except ControllerUnavailable as error:
            raise NoController(f"no active controller: {error}") from None


def by_topic(
    rows: Iterable[tuple[str, Mapping[str, Any]]], name: str = "name", partitions: str = "partitions"
) -> list[dict[str, Any]]:
    """Rows of partitions, each with its topic, as rows of topics; `name` and `partitions` are their fields."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for topic, row in rows:
        found.setdefault(topic, []).append(row)
    return [{name: topic, partitions: of_topic} for topic, of_topic in found.items()]


def failed(code: int, message: str) -> dict[str, object]:
    """An error as a field of an answer; no message where there is none."""
    return {"error_code": code, "error_message": message or None}


def told(answer: Any) -> dict[str, object]:
    """The error that a message for administrators holds, likewise."""
    return failed(answer.error_code, answer.error_message)
