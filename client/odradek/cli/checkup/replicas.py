"""Which brokers run, answer, and cannot use a replica of theirs, or hold a damaged one.

Metadata do not tell it: such a broker may be in sync, and may lead. It says so itself when it is asked for the replica.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TypeVar

from google.protobuf.message import DecodeError
from odradek_proto.errors import ErrorCode
from odradek_proto.messages import Response
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import Network, NetworkError
from odradek_proto.v1 import broker_pb2 as pb
from odradek_proto.words import noun

LIST_OFFSETS = "/odradek.v1.Broker/ListOffsets"
DESCRIBE_REPLICAS = "/odradek.v1.Broker/DescribeReplicas"
EARLIEST = -2  # known without a look at the disk
MAX_ASKED = 5_000  # replicas of one broker: one call
REMEDY = (
    "look for replica_failed and replica_offline in its events, or into its log; stop that broker and another eligible "
    "replica leads; mend or remove the partition's directory before it starts again"
)

DAMAGE_REMEDY = (
    "while it leads, readers and new followers stop there: stop that broker, and another in-sync replica leads; remove "
    "the partition's directory before it starts again, and it fetches the partition anew"
)

R = TypeVar("R", bound=Response)
Unusable = Mapping[TopicPartition, Sequence[int]]
Damaged = Mapping[TopicPartition, Mapping[int, str]]
"""By partition the brokers whose copy is damaged, and where."""
Full = Mapping[int, int]
"""Brokers whose disk is full, and how many of their replicas have refused a write for that."""
FULL_REMEDY = "make room on that disk: writes go on by themselves, and nothing has to be restarted"


async def answer_of(
    network: Network, address: str, method: str, request: bytes, kind: type[R], timeout_ms: float
) -> R | None:
    """None where none comes in time, or one that cannot be read."""
    try:
        return kind.FromString(await network.call(address, method, request, timeout_ms))
    except (NetworkError, DecodeError):
        return None


async def ask_for_unusable(
    network: Network, addresses: Mapping[int, str], assigned: Mapping[TopicPartition, Sequence[int]], timeout_ms: float
) -> dict[TopicPartition, list[int]]:
    """By partition the brokers that cannot use their replica. Brokers that do not answer in time are not among them."""
    by_broker: dict[int, list[TopicPartition]] = {}
    for partition, brokers in assigned.items():
        for broker in brokers:
            by_broker.setdefault(broker, []).append(partition)
    asked = [broker for broker in sorted(by_broker) if broker in addresses]
    answers = await asyncio.gather(
        *(_ask(network, addresses[broker], by_broker[broker][:MAX_ASKED], timeout_ms) for broker in asked)
    )
    found: dict[TopicPartition, list[int]] = {}
    for broker, partitions in zip(asked, answers, strict=True):
        for partition in partitions:
            found.setdefault(partition, []).append(broker)
    return found


async def ask_for_trouble(
    network: Network, addresses: Mapping[int, str], timeout_ms: float
) -> tuple[dict[TopicPartition, dict[int, str]], dict[int, int]]:
    """What brokers found damaged on their disks since their start, and which disks are full now.

    Those that do not answer in time say nothing.
    """

    kind = pb.DescribeReplicasResponse
    answers = await asyncio.gather(
        *(answer_of(network, address, DESCRIBE_REPLICAS, b"", kind, timeout_ms) for address in addresses.values())
    )
    found: dict[TopicPartition, dict[int, str]] = {}
    full: dict[int, int] = {}
    for answer in filter(None, answers):
        if answer.disk_full:
            full[answer.broker_id] = 0
        for replica in answer.replicas:
            if replica.disk_full:
                full[answer.broker_id] = full.get(answer.broker_id, 0) + 1
            if replica.damage:
                where = found.setdefault(TopicPartition(replica.topic, replica.partition), {})
                where[answer.broker_id] = replica.damage[0]
    return found, full


def says_full(broker: int, count: int) -> str:
    """The finding in a sentence."""
    refused = f": {count} {noun(count, 'replica')} there can only be read" if count else ": it takes no more records"
    return f"the disk of broker {broker} is full{refused}"


def says_damaged(broker: int, partition: TopicPartition, where: str, *, leads: bool) -> str:
    """The finding in a sentence."""
    consequence = "; it leads there: readers and new followers stop at it" if leads else ""
    return f"the copy of {partition} on broker {broker} is damaged{consequence}: {where}"


async def _ask(
    network: Network, address: str, partitions: Sequence[TopicPartition], timeout_ms: float
) -> list[TopicPartition]:
    request = pb.ListOffsetsRequest(replica_id=-1)
    for topic, number in partitions:
        request.partitions.add(topic=topic, partition=number, current_leader_epoch=-1, timestamp_ms=EARLIEST)
    asked = request.SerializeToString()
    answer = await answer_of(network, address, LIST_OFFSETS, asked, pb.ListOffsetsResponse, timeout_ms)
    if answer is None:
        return []
    storage = int(ErrorCode.KAFKA_STORAGE_ERROR)
    return [TopicPartition(each.topic, each.partition) for each in answer.partitions if each.error_code == storage]


def says(broker: int, partitions: str, *, leads: bool) -> str:
    """The finding in a sentence; `partitions` are those of one topic."""
    consequence = "; it leads there: nothing can be written or read" if leads else ""
    return f"broker {broker} cannot use its replica of {partitions} (KAFKA_STORAGE_ERROR){consequence}"
