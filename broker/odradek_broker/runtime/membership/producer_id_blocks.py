"""Blocks of producer ids, allocated to this broker by the active controller (R-250)."""

from __future__ import annotations

from collections.abc import Callable

from odradek_proto.errors import ErrorCode
from odradek_proto.v1 import controller_messages
from odradek_proto.values import Value

from odradek_broker.runtime.membership.controller_channel import ControllerChannel, ControllerUnavailable

ALLOCATE_TIMEOUT_MS = 5_000


class ProducerIdBlock(Value, frozen=True):
    """Producer ids that are this broker's to give away; none with an error."""

    first: int
    count: int
    error: ErrorCode = ErrorCode.NONE


class ProducerIdBlocks:
    """Asks for one block at a time."""

    def __init__(self, *, channel: ControllerChannel, broker_id: int, broker_epoch: Callable[[], int]) -> None:
        self._channel = channel
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch

    async def allocate(self) -> ProducerIdBlock:
        """The next block, or COORDINATOR_NOT_AVAILABLE; never raises."""
        wanted = controller_messages.AllocateProducerIdsRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch()
        )
        try:
            data = await self._channel.call("AllocateProducerIds", wanted.SerializeToString(), ALLOCATE_TIMEOUT_MS)
        except ControllerUnavailable:
            return ProducerIdBlock(-1, 0, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        answer = controller_messages.AllocateProducerIdsResponse.FromString(data)
        if answer.error_code:
            return ProducerIdBlock(-1, 0, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return ProducerIdBlock(answer.first_producer_id, answer.count)
