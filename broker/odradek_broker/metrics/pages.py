"""What is answered to which path: metrics in two views, liveness and readiness."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Final
from urllib.parse import parse_qs

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder

from odradek_broker.metrics import cluster, groups, replicas, traffic
from odradek_broker.metrics.health import why_dead, why_not_ready
from odradek_broker.metrics.http import HttpRequest, HttpResponse
from odradek_broker.metrics.observed import ObservedNode
from odradek_broker.metrics.process import ProcessMetrics
from odradek_broker.metrics.samples import page
from odradek_broker.metrics.times import RequestTimes

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
PATHS: Final = "/metrics, /metrics?view=cluster, /health/live, /health/ready"
FULL: Final = "full"
CLUSTER: Final = "cluster"


class Pages:
    """Everything that the listener of one node answers."""

    def __init__(self, node: ObservedNode, times: RequestTimes, process: ProcessMetrics) -> None:
        self._node = node
        self._times = times
        self._process = process
        self._one_at_a_time = asyncio.Lock()  # scrapes that come together cost one after the other, not all at once

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Never raises for what was asked."""
        match request.path:
            case "/metrics":
                return await self._metrics(request)
            case "/health/live":
                return self._health("live", why_dead(self._node))
            case "/health/ready":
                return self._health("ready", why_not_ready(self._node))
            case _:
                return HttpResponse(404, TEXT, f"there is only {PATHS}\n".encode())

    async def _metrics(self, request: HttpRequest) -> HttpResponse:
        view = parse_qs(request.query).get("view", [FULL])[-1]
        if view not in (FULL, CLUSTER):
            return HttpResponse(400, TEXT, b"view is cluster or full\n")
        encode, content_type = choose_encoder(request.accept)
        async with self._one_at_a_time:
            body = await page(self.collect(each=view == FULL), encode, _let_others_run)
        return HttpResponse(200, content_type, body)

    def collect(self, *, each: bool = True) -> Iterator[Metric]:
        """All families; with `each` also those with one series for each topic, partition or replica."""
        node = self._node
        if node.broker is not None:
            yield from replicas.replica_manager(node.broker)
            yield from traffic.topics(node.counters, each_topic=each)
            yield from replicas.quotas(node.broker)
            yield from replicas.purgatories(node.broker)
            if each:
                yield from replicas.logs(node.broker)
                yield from replicas.replicas(node.broker)
                yield from replicas.in_sync(node.broker)
            yield from groups.groups(node.broker.groups, node.counters.rebalances)
            if each:
                yield from groups.committed(node.broker.groups)
        yield from traffic.losses(node.counters)
        yield from traffic.cleaning(node.counters)
        if node.controller is not None:
            yield from cluster.controller(node.controller, node.feed.image)
        if node.quorum is not None:
            yield from cluster.quorum(node.quorum)
        yield from self._times.collect()
        yield from self._process.collect()

    def _health(self, word: str, reasons: list[str]) -> HttpResponse:
        facts = {word: not reasons, "node": self._node.settings.node_id, "reasons": reasons}
        return HttpResponse(503 if reasons else 200, JSON, json.dumps(facts).encode() + b"\n")


async def _let_others_run() -> None:
    await asyncio.sleep(0)
