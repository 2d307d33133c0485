"""InitProducerId over gRPC."""

from __future__ import annotations

from odradek_proto.v1 import broker_pb2 as pb

from odradek_broker.requests.context import RequestContext
from odradek_broker.requests.producer_ids import ProducerIdRequests


class ProducerIdService:
    """Answers InitProducerId: `requests.producer_ids` says what, this says it in protobuf."""

    def __init__(self, requests: ProducerIdRequests) -> None:
        self._requests = requests

    async def init_producer_id(self, request: bytes, context: RequestContext) -> bytes:
        message = pb.InitProducerIdRequest.FromString(request)
        answer = await self._requests.init_producer_id(
            context, message.transactional_id, message.producer_id, message.producer_epoch
        )
        return pb.InitProducerIdResponse(
            error_code=int(answer.error),
            error_message=answer.message,
            producer_id=answer.producer_id,
            producer_epoch=answer.producer_epoch,
        ).SerializeToString()
