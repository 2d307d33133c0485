"""How long single calls take, by Kafka's names of requests. Streams measure themselves, one request at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from odradek_proto.transport.ports import CallContext, Handlers, UnaryHandler

from odradek_broker.core.controller.admin import ADMIN_REQUESTS
from odradek_broker.runtime.counters import Counters, Durations

OWN_MEASURE: Final = frozenset({"/odradek.v1.Broker/Produce", "/odradek.v1.Broker/Fetch"})
KAFKA_NAMES: Final = {
    "/odradek.v1.Quorum/Fetch": "FetchQuorum",  # Kafka's is a Fetch as any other
    "OffsetsForLeaderEpoch": "OffsetForLeaderEpoch",
    "RegisterBroker": "BrokerRegistration",
    "ForwardAdmin": "Envelope",
    **{method: kind.kafka_name for method, kind in ADMIN_REQUESTS.items() if kind.kafka_name},
}


def timed(handlers: Handlers, counters: Counters) -> Handlers:
    """The same handlers; each single call's time is observed. Without a timer nothing is put in between."""
    if counters.timer is None:
        return handlers
    unary = {
        method: handler if method in OWN_MEASURE else _timed(handler, counters, counters.request(request_name(method)))
        for method, handler in handlers.unary.items()
    }
    return replace(handlers, unary=unary)


def request_name(method: str) -> str:
    """Kafka's name of the request behind a full method name."""
    short = method.rpartition("/")[2]
    return KAFKA_NAMES.get(method, KAFKA_NAMES.get(short, short))


def _timed(handler: UnaryHandler, counters: Counters, durations: Durations) -> UnaryHandler:
    timer = counters.timer
    assert timer is not None

    async def run(request: bytes, context: CallContext) -> bytes:
        arrived = timer()
        try:
            return await handler(request, context)
        finally:
            durations.observe(timer() - arrived)

    return run
