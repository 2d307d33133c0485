"""InitProducerId: identities for idempotent producers, never the same twice (R-250).

- The controller hands out blocks; this broker gives them away one by one and asks for the next block in time.
- A known producer id with its epoch comes back with the epoch raised by one; an exhausted epoch gets a new id.
- Transactional ids are refused until transactions exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from odradek_proto.errors import ErrorCode
from odradek_proto.security.acl_words import Operation, ResourceType
from odradek_proto.values import Value

from odradek_broker.requests.access import OPEN, Access
from odradek_broker.requests.context import RequestContext
from odradek_broker.runtime.membership.producer_id_blocks import ProducerIdBlock

LAST_EPOCH: Final = (1 << 15) - 1


AllocateBlock = Callable[[], Awaitable[ProducerIdBlock]]


class ProducerIdAnswer(Value, frozen=True):
    error: ErrorCode
    message: str = ""
    producer_id: int = -1
    producer_epoch: int = -1


class ProducerIdRequests:
    """`allocate` asks the controller for the next block; it never raises."""

    def __init__(self, allocate: AllocateBlock, access: Access = OPEN) -> None:
        self._access = access
        self._allocate = allocate
        self._next = 0
        self._left = 0
        self._lock = asyncio.Lock()

    async def init_producer_id(
        self, context: RequestContext, transactional_id: str, producer_id: int, producer_epoch: int
    ) -> ProducerIdAnswer:
        """`producer_id` and `producer_epoch` are those that the producer has, -1 for none."""
        if transactional_id:
            return ProducerIdAnswer(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "transactions are not there yet: leave transactional.id unset",
            )
        if not self._access.allows_on_any(context, Operation.WRITE, ResourceType.TOPIC):
            refused = self._access.refusal(context, "InitProducerId")
            if refused:
                return ProducerIdAnswer(refused, "no topic may be written, and IDEMPOTENT_WRITE is not allowed")
        if producer_id > 0 and 0 <= producer_epoch < LAST_EPOCH - 1:
            return ProducerIdAnswer(ErrorCode.NONE, "", producer_id, producer_epoch + 1)
        return await self._give()

    async def _give(self) -> ProducerIdAnswer:
        async with self._lock:  # one block is asked for at a time; whoever waits takes from it
            if not self._left:
                block = await self._allocate()
                if block.error is not ErrorCode.NONE:
                    return ProducerIdAnswer(
                        block.error, "no block of producer ids could be had from the controller: try again"
                    )
                self._next, self._left = block.first, block.count
            given = self._next
            self._next += 1
            self._left -= 1
            return ProducerIdAnswer(ErrorCode.NONE, "", given, 0)
