"""InitProducerId: identities for idempotent producers."""

from __future__ import annotations

from odradek_proto.errors import ErrorCode

from odradek_broker.kafka.messages.request import Body, Request
from odradek_broker.requests.producer_ids import ProducerIdRequests


class ProducerIdsApi:
    def __init__(self, requests: ProducerIdRequests) -> None:
        self._requests = requests

    async def answer(self, request: Request) -> Body:
        asked = request.read()
        if asked["transactional_id"] == "":
            return request.answered({"error_code": ErrorCode.INVALID_REQUEST})
        given = await self._requests.init_producer_id(
            request.context,
            asked["transactional_id"] or "",
            asked.get("producer_id", -1),
            asked.get("producer_epoch", -1),
        )
        return request.answered(
            {
                "error_code": given.error,
                "producer_id": given.producer_id,
                "producer_epoch": given.producer_epoch,
            }
        )
