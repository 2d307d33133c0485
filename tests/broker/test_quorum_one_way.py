"""A voter that is heard and hears nothing, or the other way round, for ever: the others elect, commit and stay calm."""

from __future__ import annotations

from collections.abc import Callable, Coroutine

import pytest

from tests.broker.quorum_world import QuorumWorld

RECORDS = 8
ELECTED_MS = 5_000  # 1.5 fetch timeouts, or one and an election that may have to be repeated
COMMITTED_MS = 1_000
CASES = pytest.mark.parametrize(("voters", "deaf"), [(3, True), (3, False), (5, True), (5, False)])


def broken_one_way(*, deaf: bool, leads: bool) -> Callable[[QuorumWorld], Coroutine[None, None, None]]:
    """One voter of a settled quorum, the leader or another one, does not hear, or is not heard, from now on."""

    async def story(world: QuorumWorld) -> None:
        world.start()
        await world.until(world.settled)
        leader = world.leader()
        broken = leader if leads else leader % len(world.machines) + 1
        world.part(broken, deaf=deaf, mute=not deaf)
        if leads:
            await world.until(lambda: world.leader() not in (0, leader), ELECTED_MS)
        await stays_and_commits(world)

    return story


@CASES
def test_a_leader_that_is_cut_off_one_way_is_replaced_once(voters: int, deaf: bool) -> None:
    """A deaf one resigns, since it hears no fetches (R-211); of a mute one the others hear nothing (R-210)."""
    for seed in range(2):
        QuorumWorld(voters, seed=seed).run(broken_one_way(deaf=deaf, leads=True))


@CASES
def test_a_follower_that_is_cut_off_one_way_disturbs_nobody(voters: int, deaf: bool) -> None:
    """Its pre-votes are refused while the others hear their leader (R-215), and it cannot raise the epoch."""
    for seed in range(2):
        QuorumWorld(voters, seed=seed).run(broken_one_way(deaf=deaf, leads=False))


async def stays_and_commits(world: QuorumWorld) -> None:
    """One record a second is committed, by the same leader in the same epoch."""
    leader = world.leader()
    epoch = world.nodes[leader].epoch
    for number in range(RECORDS):
        world.append(leader, b"%d" % number)
        await world.until(lambda: len(world.acknowledged) > number, COMMITTED_MS)  # noqa: B023
        await world.clock.sleep(1_000)
        assert (world.leader(), world.nodes[leader].epoch) == (leader, epoch), number
