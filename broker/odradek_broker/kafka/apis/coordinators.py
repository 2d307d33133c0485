"""FindCoordinator: which broker a group's requests go to. For transactions there is none yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek_broker.kafka.messages.endpoints import Endpoints
from odradek_broker.kafka.messages.request import Body, KafkaRequest
from odradek_broker.requests.groups import FoundCoordinator, GroupRequests

BATCHED_FROM = 4  # many keys in one request (KIP-699)


class CoordinatorsApi:
    def __init__(self, groups: GroupRequests, endpoints: Endpoints) -> None:
        self._groups = groups
        self._endpoints = endpoints

    async def find_coordinator(self, request: KafkaRequest) -> Body:
        asked = request.read()
        keys = asked["coordinator_keys"] if request.version >= BATCHED_FROM else [asked["key"]]
        found = await self._groups.find_coordinator(request.context, asked.get("key_type", 0), keys)
        rows = [self._row(request.context.listener, each) for each in found]
        return request.answered({"coordinators": rows} if request.version >= BATCHED_FROM else rows[0])

    def _row(self, listener: str, found: FoundCoordinator) -> Mapping[str, Any]:
        where = self._endpoints(listener, [found.broker_id]) if found.broker_id >= 0 else []
        node_id, host, port = (where[0].node_id, where[0].host, where[0].port) if where else (-1, "", -1)
        return {
            "key": found.key,
            "node_id": node_id,
            "host": host,
            "port": port,
            "error_code": found.error,
            "error_message": found.message or None,
        }
