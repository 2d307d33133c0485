"""Whole quorums by seed: kills, power losses, pauses, lost messages, cut links, lost disks (RA-14 to RA-17, R-217)."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine

import pytest

from tests.broker.quorum_world import QuorumWorld
from tests.playing import plays
from tests.seeds import seeds

PAUSES_MS = (2, 20, 100, 500, 2_000)
SMALL_SNAPSHOTS = {"snapshot_max_bytes": 600, "retention_bytes": 1_500, "segment_bytes": 400, "fetch_max_bytes": 1_500}
SIZES = pytest.mark.parametrize(("voters", "observers"), [(3, 1), pytest.param(5, 0, marks=pytest.mark.slow)])
BY_SEED = pytest.mark.parametrize("seed", seeds(25, every_day=1, slow=4))


def trouble(world: QuorumWorld, rng: random.Random, *, disks: bool) -> None:
    """One thing that happens to a machine, or to a link; with `disks` also the loss of a disk, one at a time."""
    node_id = rng.choice(list(world.machines))
    machine, chance = world.machines[node_id], rng.random()
    if disks and not world.catching_up and chance < 0.1:
        world.lose_disk(node_id)
    elif chance < 0.2:
        machine.kill()
    elif chance < 0.35:
        machine.power_loss()
    elif chance < 0.45:
        machine.pause()
    elif chance < 0.6:
        machine.resume()
    elif chance < 0.75:
        other = world.machines[rng.choice([i for i in world.machines if i != node_id])].name
        world.fabric.cut(machine.name, other, both_ways=rng.random() < 0.5)
        world.fabric.drop_calls(machine.name, other, before=0.1, after=0.1)
    elif chance < 0.85:
        world.fabric.heal_all()
    else:
        world.start(appends=True)


def play(
    world: QuorumWorld, seed: int, *, rounds: int = 40, disks: bool = False, start: Callable[[], None] | None = None
) -> None:
    """A minute or so of trouble, then peace until all nodes run and are equal."""

    async def story(world: QuorumWorld) -> None:
        rng = random.Random(f"trouble {seed}")
        world.start(appends=True) if start is None else start()
        for _ in range(rounds):
            await world.clock.sleep(rng.choice(PAUSES_MS))
            trouble(world, rng, disks=disks)
        world.heal()
        world.start(appends=True)
        before = len(world.acknowledged)
        await world.until(lambda: len(world.acknowledged) > before)
        for node_id in world.machines:
            world.machines[node_id].kill()  # nobody appends any more
        world.start()
        await world.until(lambda: world.settled() and not world.catching_up)

    world.run(story)
    assert len(world.acknowledged) > 10, "a history that acknowledged little proves little"


@BY_SEED
@SIZES
def test_nodes_agree_on_what_is_committed_and_lose_nothing_acknowledged(voters: int, observers: int, seed: int) -> None:
    """RA-14: and trouble ends."""
    play(QuorumWorld(voters, observers, seed=seed), seed)


@BY_SEED
@SIZES
def test_nodes_agree_while_their_logs_are_cut_behind_small_snapshots(voters: int, observers: int, seed: int) -> None:
    """RA-14 with a snapshot after every few batches and tiny segments: a node that was away has to fetch one."""
    world = QuorumWorld(voters, observers, seed=seed, **SMALL_SNAPSHOTS)
    play(world, seed)
    assert world.installed > 0, "a history in which nobody is sent a snapshot proves nothing"
    assert all(node.log_start_offset > 0 and node.latest_snapshot is not None for node in world.nodes.values())


@BY_SEED
def test_a_disk_lost_in_the_middle_of_trouble_loses_nothing(seed: int) -> None:
    """RA-17 with R-217: one disk at a time, while others are down, behind or cut off."""
    play(QuorumWorld(3, seed=seed), seed, disks=True)


@BY_SEED
def test_new_voters_elect_and_recover(seed: int) -> None:
    """R-217: no voter of a new quorum has proved what it has; a majority suffices to begin, all voters to recover."""
    world = QuorumWorld(3, seed=seed)
    play(world, seed, start=lambda: world.start(*random.Random(seed).sample((1, 2, 3), 2), appends=True))


def test_the_same_seed_gives_the_same_trace() -> None:
    """A seed is a bug report only if it repeats."""
    digests = []
    for _ in range(2):
        world = QuorumWorld(3, 1)
        play(world, 0, rounds=10)
        digests.append(world.loop.trace_digest())
    assert digests[0] == digests[1]


@pytest.mark.parametrize("voters", [3, 5])
def test_a_minority_that_is_cut_off_costs_nothing(voters: int) -> None:
    """RA-15: the leader keeps its majority and commits as before."""

    async def story(world: QuorumWorld) -> None:
        leader = await world.begun()
        epoch = world.nodes[leader].epoch
        world.part(*[i for i in world.machines if i != leader][: voters // 2])
        for number in range(5):
            world.append(leader, b"%d" % number)
            await world.clock.sleep(1_000)
            assert len(world.acknowledged) == number + 1
        world.heal()
        await world.until(world.settled)
        assert (world.leader(), world.nodes[leader].epoch) == (leader, epoch), "KIP-996: nobody is disturbed"

    QuorumWorld(voters).run(story)


@plays(lambda story: QuorumWorld().run(story))
async def test_a_leader_that_is_cut_off_is_replaced_and_gives_way(world: QuorumWorld) -> None:
    """RA-16: its uncommitted records go, the others' stay."""
    old = await world.begun()
    world.part(old)
    world.append(old, b"lost")
    await world.until(lambda: world.leader() not in (0, old))
    world.append(world.leader(), b"kept")
    await world.clock.sleep(5_000)
    assert world.nodes[old].leader_id == -1, "without a majority it does not call itself the leader"
    world.heal()
    await world.until(world.settled)
    assert [witness.records for witness in world.witnesses.values()] == [[b"kept"]] * 3


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_quorum_and_a_lost_disk_have_everything_again(seed: int) -> None:
    """RA-14, RA-17: all nodes go on without waiting for an election timeout; then the leader's disk is lost."""

    async def story(world: QuorumWorld) -> None:
        await world.begun()
        for number in range(5):
            world.append(world.leader(), b"%d" % number)
            await world.until(lambda: len(world.acknowledged) > number)  # noqa: B023
        for machine in world.machines.values():
            machine.kill()
        world.start()
        assert await world.until(world.settled) < 700
        target = world.leader()
        world.lose_disk(target)
        world.start()
        await world.until(lambda: world.settled() and not world.catching_up)
        assert world.witnesses[target].records == [b"0", b"1", b"2", b"3", b"4"]

    QuorumWorld(seed=seed).run(story)


def test_an_election_takes_less_than_half_a_second() -> None:
    """R-215, R-212: the first, of a killed leader's successor, and after a resignation. Nobody waits for a timeout."""

    async def story(world: QuorumWorld) -> None:
        world.start()
        assert await world.until(world.leader) < 400
        await world.until(world.settled)
        for _ in range(5):
            target = world.leader()
            world.machines[target].kill()
            assert await world.until(world.leader) < 500
            world.start(target)
            await world.until(world.settled)
        old = world.leader()
        await world.nodes[old].stop()
        assert await world.until(lambda: world.leader() not in (0, old)) < 60

    for seed in range(5):
        QuorumWorld(seed=seed).run(story)


# --- A voter that is heard and hears nothing, or the other way round, for ever: the others elect ---------------------


RECORDS = 8
ELECTED_MS = 5_000  # 1.5 fetch timeouts, or one and an election that may have to be repeated
COMMITTED_MS = 1_000
CASES = pytest.mark.parametrize(("voters", "deaf"), [(3, True), (3, False), (5, True), (5, False)])


def broken_one_way(*, deaf: bool, leads: bool) -> Callable[[QuorumWorld], Coroutine[None, None, None]]:
    """One voter of a settled quorum, the leader or another one, does not hear, or is not heard, from now on."""

    async def story(world: QuorumWorld) -> None:
        leader = await world.begun()
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
