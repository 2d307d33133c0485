"""A grey failure: nobody reaches a leader, while its own connections, and so its heartbeats, go on (R-147)."""

from __future__ import annotations

from asyncio import sleep as virtual_sleep  # on the simulated loop: no real time passes

import pytest
from odradek_chaos.worlds.simulated.run.load import ClusterLoad
from odradek_chaos.worlds.simulated.world.world import World

from tests.simulation.worlds import new_world, play

SESSION_MS, HEARTBEAT_MS = 1_000, 200
BOUND_S = (1.25 * SESSION_MS + HEARTBEAT_MS + 100) / 1000  # found out, told, committed

FETCH_MS = 600  # controller.quorum.fetch.timeout.ms
ELECTION_S = (3 * FETCH_MS + 2 * HEARTBEAT_MS) / 1000  # another controller, and it has heard both


def quick_world() -> World:
    """Preferred leaders are restored every second."""
    return new_world(
        3,
        {
            "broker_session_timeout_ms": SESSION_MS,
            "controller_quorum_fetch_timeout_ms": FETCH_MS,
            "controller_quorum_election_timeout_ms": FETCH_MS // 2,
            "broker_heartbeat_interval_ms": HEARTBEAT_MS,
            "leader_imbalance_check_interval_seconds": 1,
        },
        chance="none",
    )


def leaders(world: World) -> list[int]:
    return [world.cluster.leader_of(tp) for tp in world.partitions]


def epochs(world: World) -> list[int]:
    image = world.cluster.newest_image()
    return [registration.leader_epoch for tp in world.partitions if (registration := image.partition(tp)) is not None]


@pytest.mark.slow
@pytest.mark.parametrize("leads_the_quorum", [False, True])
def test_leaderships_move_in_bounded_time_stay_there_and_come_back(leads_the_quorum: bool) -> None:
    """Whoever is unreachable leads nothing after the bound, is in the ISR all the same, and leads again afterwards."""

    world = quick_world()

    async def story(load: ClusterLoad) -> None:
        load.start_writers()
        await virtual_sleep(1)
        before = leaders(world)
        grey = next(each for each in before if (each == world.cluster.controller()) is leads_the_quorum)
        name = world.cluster.machines[grey].name
        machines = (*world.cluster.machines.values(), *world.cluster.clients)
        world.cluster.fabric.make_unreachable(name, [each.name for each in machines if each.name != name])
        await virtual_sleep(BOUND_S + (ELECTION_S if leads_the_quorum else 0))
        assert grey not in leaders(world)
        moved = epochs(world)
        await virtual_sleep(5)  # several times what the balance of leaders waits for
        assert epochs(world) == moved
        image = world.cluster.newest_image()
        assert all(grey in image.topics[tp.topic].partitions[tp.partition].isr for tp in world.partitions)
        told = {each.event for each in world.timeline.in_order() if each.event.endswith("unreachable")}
        assert told == {"leader_unreachable", "broker_unreachable"}
        world.cluster.fabric.heal_all()
        await virtual_sleep(3)
        assert leaders(world) == before

    play(world, story)


def test_a_follower_that_is_cut_off_deposes_nobody() -> None:
    """It reaches no leader, and it alone: the leaders stay."""

    world = quick_world()

    async def story(load: ClusterLoad) -> None:
        load.start_writers()
        await virtual_sleep(1)
        before = leaders(world)
        controller = world.cluster.controller()
        cut_off = next(each for each in world.cluster.machines if each != controller)
        name = world.cluster.machines[cut_off].name
        for broker_id, machine in world.cluster.machines.items():
            if broker_id not in (cut_off, controller):
                world.cluster.fabric.make_unreachable(machine.name, [name])
        await virtual_sleep(3 * BOUND_S)
        assert leaders(world) == before

    play(world, story)
