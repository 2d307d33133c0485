"""Whole nodes of the metadata quorum in the simulated world: the real log, state file, messages and tasks, by seed.

Nodes are killed, lose power, are paused and cut off while a leader appends. What any node is told of as committed is
compared with what all others were told, and with what the appender was told.
"""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left
from collections.abc import Callable, Coroutine, Iterator, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import pytest
from _pytest.mark import ParameterSet
from odradek_broker.runtime.quorum.node import QuorumNode, QuorumSettings
from odradek_chaos.worlds.simulated.cluster.node import NodePorts, SimNode
from odradek_chaos.worlds.simulated.kernel.clock import SimClock
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.net.fabric import SimFabric

VOTERS = {node_id: f"10.0.0.{node_id}:9093" for node_id in (1, 2, 3)}
OBSERVER = 4
ROUNDS = 40
KEPT = 40  # records of a snapshot
PAUSES_MS = (2, 20, 100, 500, 2_000)
SEEDS, SEEDS_OF_EVERY_DAY = 12, 2  # of each kind


def seeds(first: int) -> list[ParameterSet]:
    return [
        pytest.param(first + number, marks=pytest.mark.slow if number >= SEEDS_OF_EVERY_DAY else ())
        for number in range(SEEDS)
    ]


class Told(NamedTuple):
    """All that was committed up to somewhere: its digest, and so much that a snapshot takes several answers."""

    digest: bytes = b""
    last: tuple[bytes, ...] = ()

    def plus(self, records: Sequence[bytes]) -> Told:
        digest = sha256(self.digest)
        for record in records:
            digest.update(b"%d " % len(record) + record)
        return Told(digest.digest(), (*self.last, *records)[-KEPT:])


class Witness:
    """Hears everything of one life of one node, and compares it with what the world knows."""

    def __init__(self, world: World, node_id: int) -> None:
        self._world = world
        self._node_id = node_id
        self.next_offset = 0
        self.told = Told()
        self.leads: int | None = None

    def freeze(self) -> Callable[[], Iterator[bytes]]:
        """The state says what was committed."""
        told = self.told
        return lambda: iter((told.digest, *told.last))

    def load(self, end_offset: int, epoch: int, records: Iterator[bytes]) -> Told:
        digest, *last = records
        return Told(digest, tuple(last))

    def on_snapshot(self, end_offset: int, epoch: int, state: object) -> None:
        """It holds exactly what was committed below it, nothing less and nothing else."""
        assert isinstance(state, Told)
        assert state == self._world.told_below(end_offset)
        assert end_offset > self.next_offset
        self.told, self.next_offset = state, end_offset

    def on_commit(self, base_offset: int, epoch: int, records: Sequence[bytes]) -> None:
        assert base_offset >= self.next_offset, "each record once and in order"
        self.next_offset = base_offset + len(records)
        self.told = self.told.plus(records)
        assert self._world.commit(base_offset, epoch, tuple(records), self.told), (self._node_id, base_offset, epoch)
        appended = self._world.appended.get((self._node_id, epoch, base_offset))
        if appended is not None:
            self._world.acknowledged[base_offset] = appended

    def on_control(self, end_offset: int, epoch: int) -> None:
        assert end_offset > self.next_offset
        self.next_offset = end_offset

    def on_leader(self, epoch: int) -> None:
        assert self.leads is None
        self.leads = epoch
        known = self._world.leaders.setdefault(epoch, self._node_id)
        assert known == self._node_id, f"epoch {epoch} has two leaders"
        below = self._world.last_below(self._world.nodes[self._node_id].high_watermark)
        assert below is None or below < self.next_offset, "everything before the epoch was delivered"

    def on_resigned(self, epoch: int) -> None:
        assert self.leads == epoch
        self.leads = None

    def on_leader_changed(self, leader_id: int, epoch: int) -> None:
        assert leader_id in (-1, *VOTERS)


class World:
    """Three voters and an observer, and the tasks that append."""

    def __init__(self, seed: int, **settings: int) -> None:
        self.settings = settings
        self.loop = SimLoop(seed)
        self.fabric = SimFabric(self.loop, self.loop.fork_rng("fabric"))
        self.clock = SimClock(self.loop, self.loop.fork_rng("world"))
        self.machines = {node_id: SimNode(f"n{node_id}", self.loop, self.fabric) for node_id in (*VOTERS, OBSERVER)}
        self.nodes: dict[int, QuorumNode] = {}
        self.witnesses: dict[int, Witness] = {}
        self.committed: dict[int, tuple[int, tuple[bytes, ...], Told]] = {}  # by base offset
        self.offsets: list[int] = []  # of what was committed, in their order
        self.appended: dict[tuple[int, int, int], tuple[bytes, ...]] = {}  # by node, epoch and base offset
        self.acknowledged: dict[int, tuple[bytes, ...]] = {}  # to the node that appended it
        self.leaders: dict[int, int] = {}
        self.quiet = False  # nobody appends any more
        self._number = 0

    def run(self, story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
        async def to_the_end() -> None:
            try:
                await story(self)
            finally:
                for machine in self.machines.values():
                    machine.kill()
                await self.clock.sleep(10)  # the killed unwind

        self.loop.run(to_the_end(), limit_s=600)

    def start(self, node_id: int) -> None:
        self.nodes.pop(node_id, None)
        self.machines[node_id].start(lambda ports: self._main(node_id, ports))

    async def _main(self, node_id: int, ports: NodePorts) -> None:
        witness = Witness(self, node_id)
        ports.files.makedirs("/data")
        ports.files.fsync_dir("/")  # as whoever makes the log directory does
        node = QuorumNode(
            QuorumSettings(node_id, "simulated", VOTERS, **self.settings),
            clock=ports.clock,
            network=ports.network,
            files=ports.files,
            log_directory="/data",
            listener=witness,
        )
        self.nodes[node_id], self.witnesses[node_id] = node, witness
        if node_id in VOTERS:
            await ports.network.serve(VOTERS[node_id], node.handlers())
        await node.start()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._append_now_and_then(node_id, node, ports))
            await node.failed

    async def _append_now_and_then(self, node_id: int, node: QuorumNode, ports: NodePorts) -> None:
        """What a controller does: append while it leads, sometimes several batches at once."""
        while True:
            await ports.clock.sleep(ports.clock.rng.choice((1, 20, 100)))
            for _ in range(ports.clock.rng.randint(1, 3)):
                if node.is_leader and not self.quiet:
                    self._number += 1
                    records = (b"first %d" % self._number, b"second %d" % self._number)
                    self.appended[node_id, node.epoch, node.append(records)] = records

    def commit(self, base_offset: int, epoch: int, records: tuple[bytes, ...], told: Told) -> bool:
        """Whether a batch, and all that was told before it, is what others were told."""
        if base_offset not in self.committed:
            assert not self.offsets or base_offset > self.offsets[-1], "whoever is told first was told all before"
            self.committed[base_offset] = epoch, records, told
            self.offsets.append(base_offset)
        return self.committed[base_offset] == (epoch, records, told)

    def last_below(self, end_offset: int) -> int | None:
        """Where the last committed batch below an offset begins."""
        found = bisect_left(self.offsets, end_offset)
        return self.offsets[found - 1] if found else None

    def told_below(self, end_offset: int) -> Told:
        below = self.last_below(end_offset)
        return Told() if below is None else self.committed[below][2]

    @property
    def end_offset(self) -> int:
        """Behind the last batch that was committed."""
        return self.offsets[-1] + len(self.committed[self.offsets[-1]][1]) if self.offsets else 0

    @property
    def running(self) -> list[int]:
        return [node_id for node_id, machine in self.machines.items() if machine.is_running and node_id in self.nodes]

    def leader(self) -> QuorumNode | None:
        leading = [self.nodes[node_id] for node_id in self.running if self.nodes[node_id].is_leader]
        return max(leading, key=lambda node: node.epoch, default=None)

    def settled(self) -> bool:
        leader = self.leader()
        if leader is None or len(self.running) < len(self.machines):
            return False
        ends = {
            (self.nodes[i].leader_id, self.nodes[i].high_watermark, self.nodes[i].log_end_offset) for i in self.nodes
        }
        told = all(
            witness.next_offset >= self.end_offset for witness in self.witnesses.values()
        )  # not while one is installed
        return told and ends == {(leader.leader_id, leader.log_end_offset, leader.log_end_offset)}

    async def until(self, condition: Callable[[], bool], limit_ms: int = 15_000) -> int:
        begin_ms = self.clock.now_ms()
        while not condition():
            assert self.clock.now_ms() - begin_ms < limit_ms, self.describe()
            await self.clock.sleep(1)
        return self.clock.now_ms() - begin_ms

    def describe(self) -> list[str]:
        return [
            f"n{i}: running={i in self.running} leader={node.leader_id} epoch={node.epoch} "
            f"hw={node.high_watermark} leo={node.log_end_offset}"
            for i, node in self.nodes.items()
        ]

    def check(self) -> None:
        """Nobody failed by itself, and what was acknowledged is there and was told to everybody."""
        assert self.loop.unhandled == []
        for machine in self.machines.values():
            assert machine.failure is None, machine.failure
        for base_offset, records in self.acknowledged.items():
            assert self.committed[base_offset][1] == records


def trouble(world: World, rng: random.Random) -> None:
    """One thing that happens to one machine, or to a link."""
    node_id = rng.choice(list(world.machines))
    machine, chance = world.machines[node_id], rng.random()
    if chance < 0.2:
        machine.kill()
    elif chance < 0.35:
        machine.power_loss()
    elif chance < 0.45:
        machine.pause()
    elif chance < 0.6:
        machine.resume()
    elif chance < 0.75:
        other = rng.choice([i for i in world.machines if i != node_id])
        world.fabric.cut(machine.name, world.machines[other].name, both_ways=rng.random() < 0.5)
    elif chance < 0.85:
        world.fabric.heal_all()
    else:
        for i in world.machines:
            if not world.machines[i].is_running:
                world.start(i)


async def story(world: World) -> None:
    rng = world.loop.fork_rng("trouble")
    for node_id in world.machines:
        world.start(node_id)
    await world.until(lambda: world.leader() is not None, 1_000)
    for _ in range(ROUNDS):
        trouble(world, rng)
        await world.clock.sleep(rng.choice(PAUSES_MS))
    world.fabric.heal_all()
    for node_id, machine in world.machines.items():
        machine.resume()
        if not machine.is_running:
            world.start(node_id)
    before = len(world.acknowledged)
    await world.until(lambda: len(world.acknowledged) > before)
    world.quiet = True
    await world.until(world.settled)
    world.check()


@pytest.mark.parametrize("seed", seeds(12))
def test_nodes_agree_on_what_is_committed_and_lose_nothing_acknowledged(seed: int) -> None:
    """Kills, power losses, pauses and cut links; in the end all nodes are alive and equal."""
    world = World(seed)
    world.run(story)
    assert len(world.acknowledged) > 10, "a history that acknowledged little proves little"


@pytest.mark.parametrize("seed", seeds(100))
def test_nodes_agree_while_their_logs_are_cut_behind_small_snapshots(seed: int) -> None:
    """A snapshot after every few batches and tiny segments: whoever was away for long has to be sent one."""
    world = World(seed, snapshot_max_bytes=600, retention_bytes=1_500, segment_bytes=400, fetch_max_bytes=150)
    world.run(story)
    assert len(world.acknowledged) > 10, "a history that acknowledged little proves little"
    assert all(node.log_start_offset > 0 and node.latest_snapshot is not None for node in world.nodes.values())


def test_the_same_seed_gives_the_same_trace() -> None:
    """A seed is a bug report only if it repeats."""
    digests = []
    for _ in range(2):
        world = World(5)
        world.run(story)
        digests.append(world.loop.trace_digest())
    assert digests[0] == digests[1]


def test_a_killed_leader_is_replaced_in_less_than_half_a_second() -> None:
    """A refused connection is proof enough; nobody waits for a timeout."""

    async def fail_over(world: World) -> None:
        world.quiet = True
        for node_id in world.machines:
            world.start(node_id)
        assert await world.until(world.settled) < 500
        for _ in range(5):
            leader = world.leader()
            assert leader is not None
            target = leader.leader_id
            world.machines[target].kill()
            assert await world.until(lambda: world.leader() is not None) < 500
            world.start(target)
            await world.until(world.settled)

    for seed in range(5):
        world = World(seed)
        world.run(fail_over)
