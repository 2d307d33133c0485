"""InitProducerId: identities for idempotent producers, never the same twice (R-250).

- The controller hands out blocks; this broker gives them away one by one and asks for the next block in time.
- A known producer id with its epoch comes back with the epoch raised by one; an exhausted epoch gets a new id.
- Transactional ids are refused until transactions exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek_proto.errors import ErrorCode
from odradek_proto.transport.ports import CallContext
from odradek_proto.v1 import broker_pb2 as pb
from odradek_proto.v1 import controller_pb2

from odradek_broker.runtime.membership.controller_channel import ControllerChannel, ControllerUnavailable

ALLOCATE = "/odradek.v1.Controller/AllocateProducerIds"
LAST_EPOCH = (1 << 15) - 1
ALLOCATE_TIMEOUT_MS = 5_000


class ProducerIdService:
    """Answers InitProducerId."""

    def __init__(self, *, channel: ControllerChannel, broker_id: int, broker_epoch: Callable[[], int]) -> None:
        self._channel = channel
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._next = 0
        self._left = 0
        self._lock = asyncio.Lock()

    async def init_producer_id(self, request: bytes, context: CallContext) -> bytes:
        message = pb.InitProducerIdRequest.FromString(request)
        response = pb.InitProducerIdResponse(producer_id=-1, producer_epoch=-1)
        if message.transactional_id:
            response.error_code = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            response.error_message = "transactions are not there yet: leave transactional.id unset"
        elif message.producer_id > 0 and 0 <= message.producer_epoch < LAST_EPOCH - 1:
            response.producer_id = message.producer_id
            response.producer_epoch = message.producer_epoch + 1
        else:
            await self._give(response)
        return response.SerializeToString()

    async def _give(self, response: pb.InitProducerIdResponse) -> None:
        async with self._lock:  # one block is asked for at a time; whoever waits takes from it
            if not self._left:
                error = await self._allocate()
                if error is not ErrorCode.NONE:
                    response.error_code = int(error)
                    response.error_message = "no block of producer ids could be had from the controller: try again"
                    return
            response.producer_id, response.producer_epoch = self._next, 0
            self._next += 1
            self._left -= 1

    async def _allocate(self) -> ErrorCode:
        wanted = controller_pb2.AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        try:
            data = await self._channel.call(ALLOCATE, wanted.SerializeToString(), ALLOCATE_TIMEOUT_MS)
        except ControllerUnavailable:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        answer = controller_pb2.AllocateProducerIdsResponse.FromString(data)
        if answer.error_code:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        self._next, self._left = answer.first_producer_id, answer.count
        return ErrorCode.NONE
