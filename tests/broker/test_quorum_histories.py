"""Whole quorums of cores by seed: crashes, lost messages, cut links, disks that forget (RA-14 to RA-17, R-217).

The five invariants of tests/broker/quorum_simulation are checked after every effect of every node.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial

import pytest
from odradek_broker.core.quorum.messages import NotLeader

from tests.broker.quorum_simulation.node import Node, QuorumFault
from tests.broker.quorum_simulation.world import Faults, QuorumWorld

SEEDS, SEEDS_PER_TEST = 25, 25  # of every day; the slow tests go on from there
SMALL_SNAPSHOTS = {"snapshot_max_bytes": 200, "retention_bytes": 500, "fetch_max_bytes": 120}
PAUSES_MS = (1, 5, 20, 100, 400, 1_500)
FIRST_OF_A_HUNDRED = pytest.mark.parametrize(
    "first_seed",
    [pytest.param(first, marks=pytest.mark.slow if first >= SEEDS else ()) for first in range(0, 100, SEEDS_PER_TEST)],
)


def settled_world(voters: int, observers: int = 0, seed: int = 0) -> QuorumWorld:
    world = QuorumWorld(voters, observers, seed=seed)
    world.start()
    world.run_until(world.settled)
    return world


def leader_of(world: QuorumWorld) -> Node:
    leader = world.leader()
    assert leader is not None
    return leader


def has_leader(world: QuorumWorld) -> bool:
    return world.leader() is not None


def append_everywhere(world: QuorumWorld, record: bytes) -> int:
    """Append at every node that takes it, deposed leaders included; returns at how many."""
    taken = 0
    for node_id in world.nodes:
        try:
            world.append(node_id, record, b"second of " + record)
            taken += 1
        except NotLeader:
            continue
    return taken


def one_fault(world: QuorumWorld, rng: random.Random, number: int) -> int:
    """One thing that a history is made of; returns how many batches were appended."""
    node_ids = list(world.nodes)
    chance = rng.random()
    if chance < 0.5:
        return append_everywhere(world, b"record %d" % number)
    if chance < 0.65:
        node_id = rng.choice(node_ids)
        if node_id in world.up:
            world.crash(node_id)
    elif chance < 0.8:
        world.start()
    elif chance < 0.88:
        world.part(*rng.sample(node_ids, rng.randint(1, len(node_ids) - 1)))
    elif chance < 0.95:
        world.heal()
    elif (leader := world.leader()) is not None:
        world.resign(leader.node_id)
    return 0


def history(voters: int, observers: int, seed: int, config: Mapping[str, int] | None = None) -> QuorumWorld:
    """A minute or so of trouble, and then peace until everything has settled."""
    world = QuorumWorld(voters, observers, seed=seed, faults=Faults(loss=0.05, max_delay_ms=20), config=config)
    rng = random.Random(f"history {seed}")
    world.start()
    appended = 0
    for number in range(60):
        world.run_for(rng.choice(PAUSES_MS))
        appended += one_fault(world, rng, number)
    world.heal()
    world.faults = Faults()
    world.start()
    world.run_until(world.settled, 10_000)
    assert appended, "a history without records proves nothing"
    return world


def assert_sound(voters: int, observers: int, seeds: range, config: Mapping[str, int] | None = None) -> int:
    """Returns how many snapshots were installed."""
    installed = 0
    for seed in seeds:
        try:
            installed += history(voters, observers, seed, config).installs
        except (QuorumFault, TimeoutError, AssertionError) as error:
            raise AssertionError(f"voters={voters} observers={observers} seed={seed}: {error}") from error
    return installed


@pytest.mark.parametrize("first_seed", range(0, SEEDS, SEEDS_PER_TEST))
@pytest.mark.parametrize(("voters", "observers"), [(3, 1), (5, 0)])
def test_a_quorum_stays_sound_and_recovers(voters: int, observers: int, first_seed: int) -> None:
    """RA-14: epochs, leaders, high watermarks and committed records hold in every history, and trouble ends."""
    assert_sound(voters, observers, range(first_seed, first_seed + SEEDS_PER_TEST))


@pytest.mark.slow
@pytest.mark.parametrize(("voters", "observers"), [(3, 1), (5, 0)])
def test_a_quorum_stays_sound_in_many_more_histories(voters: int, observers: int) -> None:
    """RA-14, for seeds that the everyday run does not see."""
    assert_sound(voters, observers, range(SEEDS, 400))


@FIRST_OF_A_HUNDRED
@pytest.mark.parametrize(("voters", "observers"), [(3, 1), (5, 0)])
def test_a_quorum_stays_sound_while_its_logs_are_cut(voters: int, observers: int, first_seed: int) -> None:
    """RA-14 with a snapshot after every other batch: M-6 holds, too, and what a snapshot brings is committed (M-5)."""
    seeds = range(first_seed, first_seed + SEEDS_PER_TEST)
    installed = assert_sound(voters, observers, seeds, SMALL_SNAPSHOTS)
    assert installed > SEEDS_PER_TEST, "a history in which nobody is sent a snapshot proves nothing"


def test_the_same_seed_gives_the_same_history() -> None:
    """A seed is a bug report only if it repeats."""
    first, second = history(3, 1, 11), history(3, 1, 11)
    assert first.now_ms == second.now_ms
    assert first.committed.committed == second.committed.committed


@pytest.mark.parametrize("seed", range(10))
def test_all_nodes_killed_and_started_again_go_on(seed: int) -> None:
    """RA-14: and keep what was committed, without waiting for an election timeout."""
    world = settled_world(3, seed=seed)
    world.append(leader_of(world).node_id, b"before")
    world.run_until(world.settled)
    before = dict(world.committed.committed)
    for node_id in world.nodes:
        world.crash(node_id)
    world.start()
    assert world.run_until(world.settled) < 700
    assert world.committed.committed.items() >= before.items()


@pytest.mark.parametrize("voters", [3, 5])
def test_a_minority_that_is_cut_off_costs_nothing(voters: int) -> None:
    """RA-15: the leader keeps its majority and commits as before."""
    world = settled_world(voters)
    leader = leader_of(world)
    minority = [node_id for node_id in world.nodes if node_id != leader.node_id][: voters // 2]
    world.part(*minority)
    assert leader.core is not None
    epoch = leader.core.state.epoch
    for number in range(5):
        offset = world.append(leader.node_id, b"%d" % number)
        world.run_for(1_000)
        assert leader.core.log.high_watermark > offset
    world.heal()
    world.run_until(world.settled)
    assert leader_of(world) is leader
    assert leader.core.state.epoch == epoch, "a voter that comes back disturbs nobody (KIP-996)"


def test_a_leader_that_is_cut_off_is_replaced_and_gives_way() -> None:
    """RA-16: its uncommitted records go, the others' stay."""
    world = settled_world(3)
    old = leader_of(world)
    world.part(old.node_id)
    lost = world.append(old.node_id, b"lost")
    world.run_until(world.replaced(old))
    new = leader_of(world)
    world.append(new.node_id, b"kept")
    world.run_for(5_000)
    assert old.core is not None
    assert old.core.leader_id == -1, "without a majority it does not call itself the leader"
    world.heal()
    world.run_until(world.settled)
    assert b"kept" in b"".join(world.committed.committed.values())
    assert b"lost" not in world.committed.committed[lost]


def test_a_voter_without_its_disk_gets_everything_again() -> None:
    """RA-17: a single loss at a time; whoever lost it cannot win before it has everything."""
    for seed in range(10):
        world = settled_world(3, seed=seed)
        for number in range(5):
            world.append(leader_of(world).node_id, b"%d" % number)
            world.run_until(world.settled)
        target = leader_of(world).node_id
        world.crash(target)
        world.lose_disk(target)
        world.start(target)
        world.run_until(world.settled)
        assert len({bytes(b"".join(batch.data for batch in node.disk.batches)) for node in world.nodes.values()}) == 1
        assert sum(batch.header.record_count for batch in world.nodes[target].disk.batches) >= 7


@FIRST_OF_A_HUNDRED
def test_new_voters_elect_and_recover(first_seed: int) -> None:
    """R-217: in a new quorum nobody has proved what it has; whatever happens to it, it works once all voters run."""
    for seed in range(first_seed, first_seed + SEEDS_PER_TEST):
        world = QuorumWorld(3, seed=seed, faults=Faults(loss=0.05, max_delay_ms=20))
        for node_id in world.nodes:
            world.lose_disk(node_id)
        rng = random.Random(f"new {seed}")
        world.start(*rng.sample(list(world.nodes), 2))  # a majority suffices to begin
        for number in range(20):
            world.run_for(rng.choice(PAUSES_MS))
            one_fault(world, rng, number)
        world.heal()
        world.faults = Faults()
        world.start()
        world.run_until(world.settled, 10_000)
        world.run_until(partial(_all_have_proved_what_they_have, world), 2_000)


def _all_have_proved_what_they_have(world: QuorumWorld) -> bool:
    return not any(node.disk.state.catching_up for node in world.nodes.values())


@FIRST_OF_A_HUNDRED
def test_a_disk_lost_in_the_middle_of_trouble_loses_nothing(first_seed: int) -> None:
    """RA-17 with R-217: one disk at a time, while others are down, behind or cut off; committed records stay (M-5)."""
    for seed in range(first_seed, first_seed + SEEDS_PER_TEST):
        world = settled_world(3, seed=seed)
        rng = random.Random(f"disk {seed}")
        for number in range(40):
            world.run_for(rng.choice(PAUSES_MS))
            one_fault(world, rng, number)
            whole = not any(node.disk.state.catching_up for node in world.nodes.values())
            if whole and rng.random() < 0.2:
                target = rng.choice(list(world.nodes))
                if target in world.up:
                    world.crash(target)
                world.lose_disk(target)
        world.heal()
        world.start()
        world.run_until(world.settled, 10_000)


def test_a_killed_leader_is_replaced_within_half_a_second() -> None:
    """R-215: nobody waits for a timeout when the connection says that the leader is gone."""
    took = []
    for seed in range(50):
        world = settled_world(3, seed=seed)
        old = leader_of(world)
        world.crash(old.node_id)
        took.append(world.run_until(world.replaced(old)))
    assert sorted(took)[25] < 150
    assert max(took) < 500


def test_the_first_leader_is_there_within_300_ms() -> None:
    """No voter waits for an election timeout when none has a leader."""
    took = []
    for seed in range(50):
        world = QuorumWorld(3, seed=seed)
        world.start()
        took.append(world.run_until(partial(has_leader, world)))
    assert sorted(took)[25] < 150
    assert max(took) < 400


def test_a_leader_that_resigns_is_replaced_at_once() -> None:
    """R-212: the first successor needs one round of votes."""
    for seed in range(20):
        world = settled_world(3, seed=seed)
        old = leader_of(world)
        world.resign(old.node_id)
        assert world.run_until(world.replaced(old)) < 60
