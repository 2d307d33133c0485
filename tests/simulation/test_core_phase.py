"""The phase in which one machine stays broken for ever and the others have to be enough (L3).

And the moments of quiescence, at which a fault may strike that costs nothing only as long as all others are well.
"""

from __future__ import annotations

from asyncio import sleep as virtual_sleep  # on the simulated loop: no real time passes

import pytest
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.core.partition.messages import IsrProposal
from odradek_chaos.worlds.simulated.faults.disks import FullDisk
from odradek_chaos.worlds.simulated.faults.links import Cut, both
from odradek_chaos.worlds.simulated.faults.processes import Pause, QuorumLoss
from odradek_chaos.worlds.simulated.run import liveness as recovery
from odradek_chaos.worlds.simulated.run.liveness import (
    WAYS_TO_BREAK,
    break_one_for_ever,
    elected_unheard,
    unhealthy_without,
)
from odradek_chaos.worlds.simulated.run.load import ClusterLoad
from odradek_chaos.worlds.simulated.world import quiescence
from odradek_chaos.worlds.simulated.world.quiescence import undecided
from odradek_chaos.worlds.simulated.world.world import TOPIC, World
from odradek_proto.topics import TopicPartition

from tests.simulation.worlds import new_world, play

TWO = [1, 2]  # one of them breaks when both are away, since the third has the last copy that is well
ENDS_MS = 400  # of faults that began before
BROKEN = {  # as `state_of` says it
    "dead": (False, False, False, False, False),
    "frozen": (True, True, False, False, False),
    "cut": (True, False, True, True, False),
    "mute": (True, False, False, True, False),
    "deaf": (True, False, True, False, False),
    "unreachable": (True, False, False, False, True),
    "full": (True, False, False, False, False),
}


def state_of(world: World, broken: int) -> tuple[bool, bool, bool, bool, bool]:
    """Whether it runs, is frozen, is deaf or mute to all others, hears only what it asked. Some links are no state."""
    machine = world.cluster.machines[broken]
    others = [each.name for each in (*world.cluster.machines.values(), *world.cluster.clients) if each is not machine]
    heard = {world.cluster.fabric.link(machine.name, other).is_cut for other in others}
    hears = {world.cluster.fabric.link(other, machine.name).is_cut for other in others}
    asked = {world.cluster.fabric.link(other, machine.name).refuses_connections for other in others}
    assert len(heard) == len(hears) == len(asked) == 1, (heard, hears, asked)
    return machine.is_running, machine.is_paused, hears.pop(), heard.pop(), asked.pop()


@pytest.mark.parametrize("way", WAYS_TO_BREAK)
def test_a_fault_that_ends_meanwhile_mends_nothing_for_ever(way: str) -> None:
    """Cuts, pauses and kills that began earlier end during the phase; the broken machine stays as it is."""
    world = new_world()

    async def story(load: ClusterLoad) -> None:
        rng = world.loop.fork_rng("test")
        if way == "dead":
            await QuorumLoss(world, rng, 1).act({"brokers": TWO, "down_ms": ENDS_MS})
        elif way == "frozen":
            for broker_id in TWO:
                await Pause(world, rng, 1).act({"broker": broker_id, "pause_ms": ENDS_MS})
        elif way == "full":
            for broker_id in TWO:
                await FullDisk(world, rng, 1).act({"broker": broker_id, "left_bytes": 9, "full_ms": ENDS_MS})
        else:
            names = [machine.name for machine in (*world.cluster.machines.values(), *world.cluster.clients)]
            ways = [pair for one in names for other in names if one < other for pair in both(one, other)]
            await Cut(world, rng, 1).act({"kind": "alone", "ways": ways, "cut_ms": ENDS_MS})
        broken = break_one_for_ever(world, way)
        assert broken
        assert state_of(world, broken) == BROKEN[way]
        await virtual_sleep(2 * ENDS_MS / 1000)
        assert state_of(world, broken) == BROKEN[way]
        full = [each for each, machine in world.cluster.machines.items() if machine.disk.quota is not None]
        assert full == [broken] * (way == "full")
        world.heal()
        assert state_of(world, broken) == (True, False, False, False, False)

    play(world, story)


def test_nobody_is_broken_for_ever_before_it_is_decided_who_is_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that hears no majority goes on fencing; what it decided holds when it is heard again."""
    world = new_world()

    async def story(load: ClusterLoad) -> None:
        monkeypatch.setattr(recovery, "undecided", lambda state, cluster: 1)
        assert break_one_for_ever(world, "frozen") == 0
        monkeypatch.undo()
        assert undecided(world.state, world.cluster) == 0
        for broker_id in world.cluster.machines:
            if broker_id != world.cluster.controller():
                world.cluster.machines[broker_id].kill()  # it fences them at once, and nobody confirms that
        await virtual_sleep(0.5)
        assert undecided(world.state, world.cluster) > 0
        world.heal()
        await virtual_sleep(5)
        assert undecided(world.state, world.cluster) == 0
        assert break_one_for_ever(world, "frozen") > 0

    play(world, story)


def test_no_leader_becomes_unreachable_for_ever_before_its_followers_have_fetched() -> None:
    """It would soon be alone in its ISR, and nobody could take over; any other way to break it is owed all the same."""
    world = new_world(elr="off")

    async def story(load: ClusterLoad) -> None:
        roles = [replica.role for each in world.cluster.machines for replica in world.cluster.hosted(each).values()]
        for role in roles:
            if isinstance(role, LeaderPartition):
                for remote in role.replicas.by_id.values():
                    remote.log_end_offset = -1  # as when an epoch has just begun
        assert break_one_for_ever(world, "unreachable") == 0
        assert break_one_for_ever(world, "cut") > 0

    play(world, story)


@pytest.mark.parametrize("elr", ["off", "on"])
@pytest.mark.parametrize("is_elected", [False, True])
def test_a_leader_that_was_elected_as_it_became_unreachable_is_judged_by_who_may_replace_it(
    elr: str, is_elected: bool
) -> None:
    """Nobody ever fetches from it, so it is alone after the lag time; only eligible leader replicas may take over."""
    lag = {"replica_lag_time_max_ms": 800, "broker_session_timeout_ms": 2_500}
    world = new_world(settings=lag, elr=elr, chance="none")

    async def story(load: ClusterLoad) -> None:
        broken = break_one_for_ever(world, "unreachable")
        assert broken
        if is_elected:
            parts = [part for tp in world.partitions if (part := world.cluster.newest_image().partition(tp))]
            leader = next(part.leader for part in parts if part.replicas[:2] == (part.leader, broken))
            world.cluster.machines[leader].kill()
            await virtual_sleep(0.1)
            world.cluster.start(leader)
        await virtual_sleep(20)
        assert bool(unhealthy_without(world, broken)) is (is_elected and elr == "off")
        unowed = elected_unheard(world, broken)
        assert bool(unowed) is (is_elected and elr == "off")
        assert not unhealthy_without(world, broken, unowed)

    play(world, story)


def test_nothing_is_quiescent_while_a_change_of_an_isr_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Full ISRs in the metadata say nothing of what a leader has asked for, or a controller has written and no more.

    A machine that loses its power then may turn out to have been the only member.
    """
    world = new_world()

    async def story(load: ClusterLoad) -> None:
        assert world.quiescence.is_quiescent()
        with monkeypatch.context() as controller:
            controller.setattr(quiescence, "undecided", lambda state, cluster: 1)
            assert not world.quiescence.is_quiescent()
        assert world.quiescence.is_quiescent()
        roles = [
            replica.role
            for broker_id in world.cluster.machines
            for replica in world.cluster.hosted(broker_id).values()
            if isinstance(replica.role, LeaderPartition)
        ]
        leader = roles[0]
        partition = TopicPartition(TOPIC, 0)
        leader.replicas.isr.propose(IsrProposal(bytes(16), partition, leader.leader_epoch, leader.partition_epoch, ()))
        assert not world.quiescence.is_quiescent()

    play(world, story)
