"""FindCoordinator: there is none yet, for groups or for transactions.

It is served all the same, since librdkafka switches other features on by it (K-6). COORDINATOR_NOT_AVAILABLE makes a
client of a group ask again and again without an error that its user would see, so the broker's log says it once.
"""

from __future__ import annotations

import logging

from odradek_proto.errors import ErrorCode

from odradek_broker.kafka.messages.request import Body, Request

logger = logging.getLogger(__name__)

NO_COORDINATOR = {"node_id": -1, "host": "", "port": -1}
BATCHED_FROM = 4  # many keys in one request (KIP-699)
KINDS = {0: "consumer groups", 1: "transactions"}
MOST_WARNED = 256  # groups and transactional ids that the log names


class CoordinatorsApi:
    """Says that there is no coordinator, and warns once for each group or transactional id."""

    def __init__(self) -> None:
        self._warned: set[str] = set()

    async def find_coordinator(self, request: Request) -> Body:
        asked = request.read()
        keys = asked["coordinator_keys"] if request.version >= BATCHED_FROM else [asked["key"]]
        kind = KINDS.get(asked.get("key_type", 0), "coordinators of this kind")
        message = f"there are no {kind} yet: assign partitions, and keep offsets yourself"
        for key in keys:
            if key not in self._warned and len(self._warned) < MOST_WARNED:
                self._warned.add(key)
                peer = request.context.peer
                logger.warning("%s, %s, asks for the coordinator of %r: %s", peer, request.client, key, message)
        refusal = {**NO_COORDINATOR, "error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE, "error_message": message}
        return request.answered({**refusal, "coordinators": [{**refusal, "key": key} for key in keys]})
