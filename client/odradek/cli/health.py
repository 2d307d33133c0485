"""Whether a cluster is well: every broker unfenced and answering, every partition led and fully replicated."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from odradek import Admin, BrokerDescription, OdradekError, TopicPartition
from odradek.cli.checkup.replicas import Unusable, ask_for_unusable, says
from odradek.cli.status import ClusterStatus, PartitionStatus, gather_status

PROBE_TIMEOUT_MS = 2_000


async def check_health(admin: Admin) -> dict[str, Any]:
    """Facts ready for JSON: `healthy`, `problems` (sentences), and per broker its state and latency."""
    status = await gather_status(admin)
    brokers = await asyncio.gather(*(_probe(broker) for broker in status.brokers))
    unusable = await _unusable(status)
    problems = []
    if status.controller_id < 0:
        problems.append("no controller is known")
    for broker in brokers:
        if broker["state"] != "up":
            problems.append(f"broker {broker['broker']} ({broker['address']}) is {broker['state']}")
    for partition in status.partitions:
        problems += problems_of(partition, unusable.get(TopicPartition(partition.topic, partition.partition), ()))
    return {
        "healthy": not problems,
        "problems": problems,
        "controller": status.controller_id,
        "partitions": len(status.partitions),
        "brokers": brokers,
    }


def problems_of(partition: PartitionStatus, unusable: Sequence[int]) -> list[str]:
    """Sentences about one partition. `unusable`: brokers that run and cannot use their replica of it."""
    found = [says(broker, partition.name, leads=broker == partition.leader_id) for broker in unusable]
    missing = sorted(set(partition.assigned).difference(partition.isr, unusable))
    if partition.leaderless:
        awaited = f"last in sync: {list(partition.isr)}" if partition.isr else f"waits for {list(partition.awaited)}"
        found.append(f"{partition.name} has no leader; {awaited}")
    elif missing and partition.leader_id not in unusable:  # else nobody can catch up
        found.append(f"{partition.name} is under-replicated: not in sync: {missing}")
    return found


async def _unusable(status: ClusterStatus) -> Unusable:
    from odradek_proto.transport.grpc_network import GrpcNetwork

    addresses = {broker.broker_id: next(iter(broker.endpoints.values()), "") for broker in status.brokers}
    assigned = {TopicPartition(each.topic, each.partition): each.assigned for each in status.partitions}
    network = GrpcNetwork()
    try:
        return await ask_for_unusable(network, addresses, assigned, PROBE_TIMEOUT_MS)
    finally:
        await network.close()


async def _probe(broker: BrokerDescription) -> dict[str, Any]:
    """One round trip to one broker, over a connection that is up."""
    address = next(iter(broker.endpoints.values()), "")
    facts: dict[str, Any] = {"broker": broker.broker_id, "address": address, "latency_ms": None}
    try:
        async with Admin(address, bootstrap_timeout_ms=PROBE_TIMEOUT_MS) as alone:
            started = time.perf_counter()
            await alone.describe_cluster()
            facts["latency_ms"] = round((time.perf_counter() - started) * 1000, 1)
    except OdradekError:
        facts["state"] = "unreachable"
    else:
        facts["state"] = "fenced" if broker.fenced else "up"
    return facts
