"""Throttled reassignments (KIP-73): copies come at the rate, in virtual time, and nobody else is slower for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import pytest
from odradek import Admin, Producer
from odradek.administration.descriptions import NewTopic
from odradek_chaos.worlds.simulated.cluster.node import NodePorts
from odradek_chaos.worlds.simulated.run.load import ClusterLoad
from odradek_chaos.worlds.simulated.world.world import World
from odradek_proto.topics import TopicPartition

from tests.simulation.worlds import new_world, play

RATES = ["leader.replication.throttled.rate", "follower.replication.throttled.rate"]
BIG = TopicPartition("big", 0)
SIDES = ("leader", "follower")
RECORDS, VALUE = 100, bytes(range(250)) * 8
BYTES = RECORDS * len(VALUE)
T = TypeVar("T")


def slow_world(seed: int) -> World:
    """A fetch brings two or three records."""
    return new_world(seed, {"replica_fetch_max_bytes": 5_000}, chance="none")


def told(world: World, story: Callable[[Admin, NodePorts], Awaitable[T]]) -> T:
    """What an administrator's story tells about a topic of two replicas, with 200 kB in its one partition."""
    found: list[T] = []

    async def play_it(load: ClusterLoad) -> None:
        async def program(ports: NodePorts) -> None:
            async with Admin(world.cluster.bootstrap, clock=ports.clock, network=ports.network) as admin:
                await admin.create_topics([NewTopic(BIG.topic, assignments={0: [1, 2]})])
                await write(world, ports, RECORDS)
                found.append(await story(admin, ports))

        await load._run("op", program)

    play(world, play_it)
    (result,) = found
    return result


async def write(world: World, ports: NodePorts, count: int) -> None:
    """One record after the other, acks=all."""
    bootstrap = world.cluster.bootstrap
    async with Producer[bytes, bytes](bootstrap, clock=ports.clock, network=ports.network) as producer:
        for _ in range(count):
            await producer.send(BIG.topic, VALUE, partition=0)


async def throttle(admin: Admin, rate: int, sides: Sequence[str] = SIDES) -> None:
    """All replicas of the topic, on all brokers."""
    for side in sides:
        await admin.incremental_alter_configs("topic", BIG.topic, set={f"{side}.replication.throttled.replicas": "*"})
        await admin.incremental_alter_configs("broker", "", set={f"{side}.replication.throttled.rate": str(rate)})


async def reassigned_ms(admin: Admin, ports: NodePorts) -> int:
    """How long the move to the third broker takes."""
    begun_ms = ports.clock.now_ms()
    await admin.alter_partition_reassignments({BIG: [2, 3]})
    while await admin.list_partition_reassignments([BIG]):
        await ports.clock.sleep(20)
    return ports.clock.now_ms() - begun_ms


@pytest.mark.parametrize("sides", [SIDES, SIDES[:1], SIDES[1:]])
def test_a_reassignment_copies_at_the_rate(sides: Sequence[str]) -> None:
    """Of the leader, of the follower, of both. A second's worth comes at once, and the last answer may be above it."""

    async def story(admin: Admin, ports: NodePorts) -> int:
        await throttle(admin, BYTES // 10, sides)
        return await reassigned_ms(admin, ports)

    assert 8_500 <= told(slow_world(1), story) <= 11_000


def test_a_reassignment_without_a_rate_is_as_fast_as_ever() -> None:
    """The measure of the others: nothing else keeps the copy back for so long."""
    assert told(slow_world(1), reassigned_ms) <= 2_000


def test_replicas_in_sync_are_not_throttled() -> None:
    """A rate of one byte a second is nothing for the copy, and no matter to acks=all; without it the copy goes on."""
    world = slow_world(1)

    async def story(admin: Admin, ports: NodePorts) -> tuple[int, list[TopicPartition], int]:
        await throttle(admin, 1)
        begun_ms = ports.clock.now_ms()
        await admin.alter_partition_reassignments({BIG: [2, 3]})
        await write(world, ports, RECORDS)
        written_ms = ports.clock.now_ms() - begun_ms
        ongoing = list(await admin.list_partition_reassignments([BIG]))
        await admin.incremental_alter_configs("broker", "", unset=RATES)
        return written_ms, ongoing, await reassigned_ms(admin, ports)

    written_ms, ongoing, freed_ms = told(world, story)
    assert written_ms <= 5_000
    assert ongoing == [BIG]
    assert freed_ms <= 2_000
