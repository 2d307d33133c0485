"""InitProducerId: identities for idempotent producers. Who asks for transactions (KIP-664) hears of none."""

from __future__ import annotations

from odradek_proto.errors import ErrorCode

from odradek_broker.core.groups.patterns import InvalidPattern, SubscriptionPattern
from odradek_broker.kafka.messages.request import Body, KafkaRequest
from odradek_broker.requests.groups import GroupRequests
from odradek_broker.requests.producer_ids import ProducerIdRequests

STATES = (  # Kafka's TransactionState
    "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Empty", "PrepareEpochFence", "Dead",
)  # fmt: skip


class ProducerIdsApi:
    def __init__(self, requests: ProducerIdRequests) -> None:
        self._requests = requests

    async def answer(self, request: KafkaRequest) -> Body:
        """As in Kafka, whoever has an id and no transactions gets another one: it may be somebody else's."""
        asked = request.read()
        has_half = (asked.get("producer_id", -1) == -1) != (asked.get("producer_epoch", -1) == -1)
        if asked["transactional_id"] == "" or has_half:
            return request.answered({"error_code": ErrorCode.INVALID_REQUEST, "producer_id": -1, "producer_epoch": -1})
        given = await self._requests.init_producer_id(request.context, asked["transactional_id"] or "", -1, -1)
        return request.answered(
            {
                "error_code": given.error,
                "producer_id": given.producer_id,
                "producer_epoch": given.producer_epoch,
            }
        )


class TransactionsApi:
    def __init__(self, groups: GroupRequests) -> None:
        self._groups = groups

    async def describe(self, request: KafkaRequest) -> Body:
        """This broker coordinates none of them."""
        rows = [
            {
                "error_code": self._groups.refusal_to_describe(request.context, name)
                or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
                "transactional_id": name,
                "transaction_state": "",
                "transaction_timeout_ms": 0,
                "transaction_start_time_ms": 0,
                "producer_id": 0,
                "producer_epoch": 0,
                "topics": [],
            }
            for name in request.read()["transactional_ids"]
        ]
        return request.answered({"transaction_states": rows})

    async def list_transactions(self, request: KafkaRequest) -> Body:
        asked = request.read()
        unknown = [state for state in asked["state_filters"] if state not in STATES]
        try:
            SubscriptionPattern(asked.get("transactional_id_pattern") or "")
            error = ErrorCode.NONE
        except InvalidPattern:
            error = ErrorCode.INVALID_REGULAR_EXPRESSION
        return request.answered({"error_code": error, "unknown_state_filters": unknown, "transaction_states": []})
