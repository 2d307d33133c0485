"""Quotas on a cluster: set by either protocol, and kept to by the clients of both."""

from __future__ import annotations

import asyncio
from typing import Any

from confluent_kafka import Producer as KafkaProducer
from confluent_kafka import ThrottleEvent
from odradek.sync import Admin
from odradek_broker.core.security.quotas import BURST_S
from odradek_proto.errors import ErrorCode
from odradek_proto.security.quotas import QuotaEntity
from odradek_proto.transport.frames import pack_frame
from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.v1 import broker_pb2 as pb

from tests.kafka.test_admin import ask
from tests.waiting import until

RATE = 20_000
PATIENCE_S = 60


def alter(address: str, client_id: str | None, key: str, value: float | None) -> dict[str, Any]:
    """By Kafka's AlterClientQuotas; the answer about the one entity."""
    entry = {
        "entity": [{"entity_type": "client-id", "entity_name": client_id}],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None}],
    }
    (told,) = ask(address, 49, 1, {"entries": [entry], "validate_only": False})["entries"]
    return dict(told)


def test_kafkas_clients_are_told_to_wait(kafka_bootstrap: str, odradek_bootstrap: str, odradek_topic: str) -> None:
    """librdkafka counts the time that answers tell it; the other listener shows the same quotas."""
    address = kafka_bootstrap.partition(",")[0]
    assert alter(address, "greedy", "producer_byte_rate", RATE)["error_code"] == ErrorCode.NONE
    refused = alter(address, "greedy", "controller_mutation_rate", 1)
    assert refused["error_code"] == ErrorCode.INVALID_REQUEST
    assert "producer_byte_rate" in refused["error_message"]
    filters = [{"entity_type": "client-id", "match_type": 0, "match": "greedy"}]
    described = ask(address, 48, 1, {"components": filters, "strict": True})["entries"]
    assert [(each["entity"], each["values"]) for each in described] == [
        ([{"entity_type": "client-id", "entity_name": "greedy"}], [{"key": "producer_byte_rate", "value": float(RATE)}])
    ]
    with Admin(odradek_bootstrap) as admin:
        greedy = QuotaEntity(client_id="greedy")
        assert admin.describe_client_quotas(greedy) == {greedy: {"producer_byte_rate": RATE}}

    events: list[ThrottleEvent] = []
    configuration = {"bootstrap.servers": kafka_bootstrap, "throttle_cb": events.append, "linger.ms": 0}
    producer = KafkaProducer({**configuration, "client.id": "greedy"})
    for _ in range(3):
        producer.produce(odradek_topic, bytes(RATE * BURST_S // 2), partition=0)
        assert producer.flush(PATIENCE_S) == 0
    until(lambda: producer.poll(0.1) or events, bool)
    assert 0 < events[0].throttle_time < 3 * BURST_S

    modest = KafkaProducer({**configuration, "client.id": "modest", "throttle_cb": lambda _: 1 / 0})
    modest.produce(odradek_topic, bytes(3 * RATE * BURST_S), partition=0)
    assert modest.flush(PATIENCE_S) == 0
    assert alter(address, "greedy", "producer_byte_rate", None)["error_code"] == ErrorCode.NONE


def test_a_call_of_grpc_is_answered_late(odradek_bootstrap: str) -> None:
    """It has no connection that could be left unread: the answer says for how long it was held back."""
    header = pb.ProduceHeader(client_id="caller")
    header.items.add(correlation_id=1, acks=-1, topic="nowhere", partition=0, size=RATE * (BURST_S + 1))
    message = pack_frame(header.SerializeToString(), [bytes(RATE * (BURST_S + 1))])

    async def call() -> tuple[int, float]:
        loop, network = asyncio.get_running_loop(), GrpcNetwork()
        began = loop.time()
        try:
            address = odradek_bootstrap.partition(",")[0]
            answer = await network.call(address, "/odradek.v1.Broker/Produce", message, PATIENCE_S * 1000)
        finally:
            await network.close()
        return pb.ProduceAnswers.FromString(answer).throttle_time_ms, (loop.time() - began) * 1000

    caller = QuotaEntity(client_id="caller")
    with Admin(odradek_bootstrap) as admin:
        admin.alter_client_quotas(caller, {"producer_byte_rate": RATE})
        told_ms, took_ms = until(lambda: asyncio.run(call()), lambda each: each[0] > 0)
        admin.alter_client_quotas(caller, {"producer_byte_rate": None})
    assert 900 < told_ms <= took_ms + 1
