"""Whether a cluster is well: every broker unfenced and answering, every partition led and fully replicated."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from odradek_proto.transport.ports import Network, NetworkError
from odradek_proto.v1 import broker_pb2 as pb

from odradek import Admin, BrokerDescription, OdradekError, TopicPartition
from odradek.administration.admin import describe_all
from odradek.cli.checkup.addresses import CLOCK_TOLERANCE_MS
from odradek.cli.checkup.dialling import ask_for_metadata
from odradek.cli.checkup.replicas import Unusable, ask_for_trouble, ask_for_unusable, says, says_damaged, says_full
from odradek.cli.clusters.status import PartitionStatus, partitions_of
from odradek.cli.terminal.screen import first_of

PROBE_TIMEOUT_MS = 2_000


async def check_health(admin: Admin) -> dict[str, Any]:
    """Facts ready for JSON: `healthy`, `problems` (sentences), and per broker its state and latency.

    The cluster is asked once for what it knows, and then each broker for itself, over one connection.
    """
    from odradek.shared.security import network_for

    cluster, topics = await describe_all(admin)
    partitions = partitions_of(topics)
    described = sorted(cluster.brokers, key=lambda broker: broker.broker_id)
    network = network_for()
    try:
        brokers = await asyncio.gather(*(_probe(broker, network) for broker in described))
        answering = {each["broker"]: each["address"] for each in brokers if each["state"] != "unreachable"}
        unusable, (damaged, full), clocks = await asyncio.gather(
            _unusable(answering, partitions, network),
            ask_for_trouble(network, answering, PROBE_TIMEOUT_MS),
            ask_for_clocks(network, answering, PROBE_TIMEOUT_MS),
        )
    finally:
        await network.close()
    problems = []
    if cluster.controller_id < 0:
        problems.append("no controller is known")
    for broker in brokers:
        if broker["state"] != "up":
            problems.append(f"broker {broker['broker']} ({broker['address']}) is {broker['state']}")
    problems += [says_full(broker, count) for broker, count in sorted(full.items())]
    problems += says_apart(clocks)
    told: list[tuple[PartitionStatus, str]] = []
    for partition in partitions:
        tp = TopicPartition(partition.topic, partition.partition)
        problems += [
            says_damaged(broker, tp, where, leads=broker == partition.leader_id)
            for broker, where in sorted(damaged.get(tp, {}).items())
        ]
        leads_damaged = partition.leader_id in damaged.get(tp, {})
        told += [
            (partition, each) for each in problems_of(partition, unusable.get(tp, ()), leads_damaged=leads_damaged)
        ]
    problems += one_for_each_topic(told)
    return {
        "healthy": not problems,
        "problems": problems,
        "controller": cluster.controller_id,
        "partitions": len(partitions),
        "brokers": brokers,
    }


def problems_of(partition: PartitionStatus, unusable: Sequence[int], *, leads_damaged: bool = False) -> list[str]:
    """Sentences about one partition. `unusable`: brokers that run and cannot use their replica of it. Where what the
    leader has is damaged, nobody can catch up, and none of the others is to blame."""
    found = [says(broker, partition.name, leads=broker == partition.leader_id) for broker in unusable]
    missing = sorted(set(partition.assigned).difference(partition.isr, unusable))
    if partition.leaderless:
        awaited = f"last in sync: {list(partition.isr)}" if partition.isr else f"waits for {list(partition.awaited)}"
        if not partition.isr and not partition.awaited:  # whoever led last has lost its disk
            awaited = "nobody is waited for: only an unclean election (`odradek topic elect --unclean`) can give it one"
        found.append(f"{partition.name}: no leader; {awaited}")
    elif missing and partition.leader_id not in unusable and not leads_damaged:  # else nobody can catch up
        found.append(f"{partition.name}: under-replicated, not in sync: {missing}")
    return found


def one_for_each_topic(told: Sequence[tuple[PartitionStatus, str]]) -> list[str]:
    """What is the same of several partitions of a topic, as one sentence; of `problems_of`, in its order."""
    alike: dict[tuple[str, str], list[PartitionStatus]] = {}
    for partition, sentence in told:
        alike.setdefault((partition.topic, sentence.removeprefix(partition.name)), []).append(partition)
    return [
        (partitions[0].name if len(partitions) == 1 else f"{topic}, partitions {first_of(_numbers(partitions))}") + rest
        if rest.startswith(":")
        else rest
        for (topic, rest), partitions in alike.items()
    ]


def _numbers(partitions: Sequence[PartitionStatus]) -> list[int]:
    return [each.partition for each in partitions]


async def _unusable(addresses: Mapping[int, str], partitions: Sequence[PartitionStatus], network: Network) -> Unusable:
    """Of the brokers that answer."""
    assigned = {TopicPartition(each.topic, each.partition): each.assigned for each in partitions}
    return await ask_for_unusable(network, addresses, assigned, PROBE_TIMEOUT_MS)


async def _probe(broker: BrokerDescription, network: Network) -> dict[str, Any]:
    """One round trip to one broker, over a connection that is up."""
    address = next(iter(broker.endpoints.values()), "")
    facts: dict[str, Any] = {"broker": broker.broker_id, "address": address, "latency_ms": None}
    try:
        async with Admin(address, bootstrap_timeout_ms=PROBE_TIMEOUT_MS, network=network) as alone:
            started = time.perf_counter()
            await alone.describe_cluster()
            facts["latency_ms"] = round((time.perf_counter() - started) * 1000, 1)
    except OdradekError:
        facts["state"] = "unreachable"
    else:
        facts["state"] = "fenced" if broker.fenced else "up"
    return facts


class ClockOffset(NamedTuple):
    """Of this machine's clock, and by how much that may be wrong either way."""

    ms: float
    error_ms: float


async def ask_for_clocks(network: Network, addresses: Mapping[int, str], timeout_ms: float) -> dict[int, ClockOffset]:
    """By broker; those that do not answer in time say nothing, and one alone is not asked."""

    async def ask(address: str) -> ClockOffset | None:
        try:
            timed = await ask_for_metadata(network, address, pb.MetadataRequest(), timeout_ms)
        except (NetworkError, DecodeError):
            return None
        return None if timed.ahead_ms is None else ClockOffset(timed.ahead_ms, timed.took_ms / 2)

    if len(addresses) < 2:
        return {}
    found = await asyncio.gather(*map(ask, addresses.values()))
    return {broker: clock for broker, clock in zip(addresses, found, strict=True) if clock is not None}


def says_apart(clocks: Mapping[int, ClockOffset]) -> list[str]:
    """The finding in a sentence, about the two that are furthest apart; none while it may be the round trips' doing."""
    if len(clocks) < 2:
        return []
    first, last = min(clocks, key=lambda broker: clocks[broker].ms), max(clocks, key=lambda broker: clocks[broker].ms)
    apart_ms = clocks[last].ms - clocks[first].ms
    if apart_ms - clocks[last].error_ms - clocks[first].error_ms <= CLOCK_TOLERANCE_MS:
        return []
    says = f"the clock of broker {last} is {apart_ms / 1000:.1f} s ahead of that of broker {first}"
    return [f"{says}: set both by NTP, record timestamps and retention go by clocks"]
