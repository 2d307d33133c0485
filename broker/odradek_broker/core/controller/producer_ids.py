"""Producer ids, allocated to brokers in blocks, each only once (R-250)."""

from __future__ import annotations

from typing import Final

from odradek_proto.errors import ErrorCode
from odradek_proto.v1 import controller_messages
from odradek_proto.v1.metadata_messages import ProducerIdsRecord

from odradek_broker.core.controller.decision import Decision
from odradek_broker.core.metadata.image import MetadataImage

Answer = controller_messages.AllocateProducerIdsResponse
BLOCK_SIZE: Final = 1000  # Kafka's
LARGEST_PRODUCER_ID: Final = (1 << 63) - 1


def allocate_producer_ids(
    image: MetadataImage, request: controller_messages.AllocateProducerIdsRequest
) -> Decision[Answer]:
    """The next block, for a broker that is registered with this epoch."""
    registration = image.brokers.get(request.broker_id)
    if registration is None or registration.broker_epoch != request.broker_epoch:
        return Decision((), Answer(error_code=ErrorCode.STALE_BROKER_EPOCH))
    first = image.next_producer_id
    if first > LARGEST_PRODUCER_ID - BLOCK_SIZE:
        return Decision((), Answer(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    answer = Answer(first_producer_id=first, count=BLOCK_SIZE)
    return Decision([record], answer)
