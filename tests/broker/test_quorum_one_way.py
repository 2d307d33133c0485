"""A voter that is heard and hears nothing, or the other way round, for ever: the others elect, commit and stay calm."""

from __future__ import annotations

import pytest
from odradek_broker.core.quorum.leader import Leader

from tests.broker.quorum_simulation.node import Node
from tests.broker.quorum_simulation.world import Faults, QuorumWorld

SEEDS = 8
RECORDS = 15
ELECTED_MS = 5_000  # 1.5 fetch timeouts, or one and an election that may have to be repeated
COMMITTED_MS = 1_000


def committed(world: QuorumWorld, leader: Node) -> int:
    """The high watermark of a leader; -1 before it knows one."""
    assert leader.core is not None
    assert isinstance(leader.core.role, Leader)
    known = leader.core.role.high_watermark
    return -1 if known is None else known


def break_one_way(seed: int, voters: int, *, deaf: bool, leads: bool) -> tuple[QuorumWorld, Node]:
    """A settled quorum one of whose voters, the leader or another one, does not hear, or is not heard, from now on."""
    world = QuorumWorld(voters, seed=seed, faults=Faults(max_delay_ms=1 + seed % 9))
    world.start()
    world.run_until(world.settled)
    leader = world.leader()
    assert leader is not None
    broken = leader if leads else world.nodes[leader.node_id % voters + 1]
    world.part(broken.node_id, deaf=deaf, mute=not deaf)
    return world, broken


@pytest.mark.parametrize("deaf", [True, False])
@pytest.mark.parametrize("voters", [3, 5])
def test_a_leader_that_is_cut_off_one_way_is_replaced_once(voters: int, deaf: bool) -> None:
    """A deaf one resigns, since it hears no fetches (R-211); of a mute one the others hear nothing (R-210)."""
    for seed in range(SEEDS):
        world, broken = break_one_way(seed, voters, deaf=deaf, leads=True)
        assert world.run_until(world.replaced(broken)) <= ELECTED_MS, seed
        stays_and_commits(world, seed)


@pytest.mark.parametrize("deaf", [True, False])
@pytest.mark.parametrize("voters", [3, 5])
def test_a_follower_that_is_cut_off_one_way_disturbs_nobody(voters: int, deaf: bool) -> None:
    """Its pre-votes are refused while the others hear their leader (R-215), and it cannot raise the epoch."""
    for seed in range(SEEDS):
        world, _ = break_one_way(seed, voters, deaf=deaf, leads=False)
        stays_and_commits(world, seed)


def stays_and_commits(world: QuorumWorld, seed: int) -> None:
    """One record a second is committed, by the same leader in the same epoch."""
    leader = world.leader()
    assert leader is not None
    assert leader.core is not None
    epoch = leader.core.state.epoch
    for number in range(RECORDS):
        offset = world.append(leader.node_id, b"%d" % number)
        begun_ms = world.now_ms
        while committed(world, leader) <= offset:
            assert world.now_ms < begun_ms + COMMITTED_MS, (seed, number)
            world.run_for(10)
        world.run_for(1_000)
        assert (world.leader(), leader.core.state.epoch) == (leader, epoch), (seed, number)
