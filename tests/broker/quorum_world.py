"""Nodes of the metadata quorum on simulated machines, by seed: the real log, state file, messages and tasks.

What a node learns as committed is compared with what all others learned (M-5) and with what the appender was told. An
epoch has one leader (M-2), who has learned of all that was committed before; a majority has what a leader calls
committed (M-3), and that never falls (M-4); nor does a voter's epoch in one life (M-1).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextvars import Context, copy_context
from functools import partial
from typing import Any

from odradek_broker.runtime.quorum.node import QuorumNode, QuorumSettings
from odradek_chaos.worlds.simulated.cluster.node import NodePorts, SimNode
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.kernel.clock import SimClock
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.net.fabric import SimFabric
from odradek_proto.transport.ports import Network

CLUSTER_ID = "a-test-cluster"
MOST_AT_ONE_INSTANT = 10_000  # callbacks: some hundred are needed, and who never ends is to fail at once


class Witness:
    """The listener of one process. Its state is every committed record."""

    def __init__(self, world: QuorumWorld, node_id: int) -> None:
        self.calls: list[str] = []
        self.records: list[bytes] = []
        self.next_offset = 0
        self.epoch = 0  # of the last batch
        self._world = world
        self._node_id = node_id

    def freeze(self) -> Callable[[], Iterator[bytes]]:
        records = tuple(self.records)
        return lambda: iter(records)

    def load(self, end_offset: int, epoch: int, records: Iterator[bytes]) -> list[bytes]:
        return list(records)

    def on_snapshot(self, end_offset: int, epoch: int, state: object) -> None:
        """It holds exactly what was committed below it."""
        assert isinstance(state, list)
        self._world.check_snapshot(end_offset, state)
        assert end_offset > self.next_offset
        self.records, self.next_offset, self.epoch = state, end_offset, epoch
        self._world.installed += 1

    def on_commit(self, base_offset: int, epoch: int, records: Sequence[bytes]) -> None:
        assert base_offset >= self.next_offset, "each record once and in order"
        self.next_offset, self.epoch = base_offset + len(records), epoch
        self.records += records
        self._world.commit(self._node_id, base_offset, epoch, tuple(records), len(self.records))

    def on_control(self, end_offset: int, epoch: int) -> None:
        assert end_offset > self.next_offset
        self.next_offset, self.epoch = end_offset, epoch

    def on_leader(self, epoch: int) -> None:
        self.calls.append(f"leads {epoch}")
        self._world.check_leader(self._node_id, self.next_offset)

    def on_resigned(self, epoch: int) -> None:
        assert self.calls[-1] == f"leads {epoch}"
        self.calls.append(f"resigned {epoch}")

    def on_leader_changed(self, leader_id: int, epoch: int) -> None:
        self._world.on_leader_changed(self._node_id, leader_id, epoch)


class QuorumWorld:
    """Voters and observers, all down at first. Node ids count from 1; observers follow the voters."""

    def __init__(self, voters: int = 3, observers: int = 0, *, seed: int = 7, **settings: int) -> None:
        self.is_checked = True  # if not, the story takes more from the quorum than the protocol can bear
        self.settings = settings
        self.loop = SimLoop(seed, most_at_one_instant=MOST_AT_ONE_INSTANT)
        self.fabric = SimFabric(self.loop, self.loop.fork_rng("fabric"))
        self.clock = SimClock(self.loop, self.loop.fork_rng("world"))
        node_ids = range(1, voters + observers + 1)
        self.machines = {i: SimNode(f"node{i}", self.loop, self.fabric) for i in node_ids}
        self.addresses = {i: f"node{i}:{7000 + i}" for i in range(1, voters + 1)}
        self.nodes: dict[int, QuorumNode] = {}
        self.witnesses: dict[int, Witness] = {}
        self.failures: dict[int, BaseException | None] = {}  # of nodes that stopped; a story takes out its own
        self.events: list[tuple[int, str, Mapping[str, object]]] = []
        self.committed: dict[int, tuple[int, tuple[bytes, ...]]] = {}  # epoch and records by base offset, in order
        self.acknowledged: dict[int, tuple[bytes, ...]] = {}  # of these, what its appender learned
        self.catching_up = dict.fromkeys(self.addresses)  # voters that have not proved what they have
        self.installed = 0  # snapshots, of another node or at a start
        self._counts: dict[int, int] = {0: 0}  # records below the end of each committed batch
        self._appended: dict[tuple[int, int, int], tuple[bytes, ...]] = {}  # by node, epoch and base offset
        self._leaders: dict[tuple[str, int], int] = {}  # by cluster id and epoch
        self._cluster_ids: dict[int, str] = {}
        self._contexts: dict[int, Context] = {}  # of the processes
        self._flushed = dict.fromkeys(self.addresses, 0)
        self._epochs: dict[int, int] = {}  # of voters, in this life
        self._high_watermarks: dict[int, int] = {}  # of each epoch's leader

    def run(self, story: Callable[[QuorumWorld], Coroutine[Any, Any, None]]) -> None:
        """The story; no node may fail in it, and what was acknowledged is committed."""
        self.loop.run(self._told(story), limit_s=1_000)
        self.loop.close()
        for node_id, machine in self.machines.items():
            assert machine.failure is None, (node_id, machine.failure)
        assert (self.loop.unhandled, self.failures) == ([], {})
        for base_offset, records in self.acknowledged.items():
            assert self.committed[base_offset][1] == records

    async def _told(self, story: Callable[[QuorumWorld], Coroutine[Any, Any, None]]) -> None:
        try:
            await story(self)
        finally:
            await self.kill_all()

    async def kill_all(self) -> None:
        for machine in self.machines.values():
            machine.kill()
        await self.clock.sleep(10)  # the killed unwind

    # --- what happens to nodes ------------------------------------------------------------------------------------

    def start(
        self, *node_ids: int, voters: Sequence[int] = (), cluster_id: str = CLUSTER_ID, appends: bool = False
    ) -> None:
        """Start these nodes; without any, all that are down. With `appends`, they append while they lead.

        Nodes with voters of their own are no part of the quorum, and not checked.
        """
        known = {i: self.addresses[i] for i in voters or self.addresses}
        for node_id in node_ids or [i for i in self.machines if i not in self.running]:
            self.nodes.pop(node_id, None)
            self._epochs[node_id] = 0  # one that was not on the disk yet had no effect
            settings = QuorumSettings(node_id, cluster_id, known, **self.settings)
            check = None if voters else partial(self._check, node_id)
            self.machines[node_id].start(partial(self._main, node_id, settings, appends), after_step=check)

    async def _main(self, node_id: int, settings: QuorumSettings, appends: bool, ports: NodePorts) -> None:
        ports.files.makedirs("/data")
        ports.files.fsync_dir("/")  # as whoever makes the log directory does
        node = self.new_node(settings, ports)
        await ports.network.serve(f"node{node_id}:{7000 + node_id}", node.handlers())
        self.nodes[node_id], self._contexts[node_id] = node, copy_context()
        await node.start()
        while appends and not node.failed.done():
            await ports.clock.sleep(ports.clock.rng.choice((1, 20, 100)))
            for _ in range(ports.clock.rng.randint(1, 3)):
                if node.is_leader:
                    self.append_now(node_id, (b"first %d" % len(self._appended), b"second"))
        await asyncio.wait([node.failed])
        await node.stop()
        self.failures[node_id] = node.failed.exception()

    def new_node(self, settings: QuorumSettings, ports: NodePorts) -> QuorumNode:
        self._cluster_ids[settings.node_id] = settings.cluster_id
        witness = self.witnesses[settings.node_id] = Witness(self, settings.node_id)
        return QuorumNode(
            settings,
            clock=ports.clock,
            network=self.network_of(settings.node_id, ports),
            files=ports.files,
            log_directory="/data",
            listener=witness,
            on_event=partial(self._on_event, settings.node_id),
        )

    def network_of(self, node_id: int, ports: NodePorts) -> Network:
        return ports.network

    def append(self, node_id: int, *records: bytes) -> None:
        """Soon, at a node that leads."""
        self.within(node_id, partial(self.append_now, node_id, records))

    def within(self, node_id: int, work: Callable[[], object]) -> None:
        """Soon, as a step of the node's process: what it begins ends with that process."""
        self.loop.call_soon(work, context=self._contexts[node_id])

    def append_now(self, node_id: int, records: tuple[bytes, ...]) -> int:
        """Within the node's process; returns the base offset."""
        node = self.nodes[node_id]
        base_offset = node.append(records)
        self._appended[node_id, node.epoch, base_offset] = records
        return base_offset

    def lose_disk(self, node_id: int) -> None:
        """The machine is off, and comes back with an empty disk."""
        machine = self.machines[node_id]
        machine.kill()
        machine.disk = SimDisk(self.loop.fork_rng(f"disk {machine.incarnation} {machine.name}"))
        if node_id in self.addresses:
            self.catching_up[node_id], self._flushed[node_id] = None, 0

    def part(self, *node_ids: int, deaf: bool = True, mute: bool = True) -> None:
        """Cut nodes off from the others: what they are sent, what they send, or both."""
        for inside in node_ids:
            for outside in (i for i in self.machines if i not in node_ids):
                if deaf:
                    self.fabric.cut(f"node{outside}", f"node{inside}", both_ways=False)
                if mute:
                    self.fabric.cut(f"node{inside}", f"node{outside}", both_ways=False)

    def heal(self) -> None:
        """Every link works, no process is paused, and all run."""
        self.fabric.heal_all()
        for link in self.fabric.links():
            link.lose_requests = link.lose_replies = 0.0
        for machine in self.machines.values():
            machine.resume()

    # --- what is known of them ------------------------------------------------------------------------------------

    @property
    def running(self) -> list[int]:
        return [i for i, machine in self.machines.items() if machine.is_running]

    def leaders(self) -> list[int]:
        return [i for i in self.running if i in self.nodes and self.nodes[i].is_leader]

    def leader(self) -> int:
        """The leader of the newest epoch, 0 for none."""
        return max(self.leaders(), key=lambda i: self.nodes[i].epoch, default=0)

    async def begun(self) -> int:
        """All run, follow one leader, which is returned, and have and know all that it has."""
        self.start()
        await self.until(self.settled)
        return self.leader()

    def settled(self) -> bool:
        """All that run follow one leader, and have and know all that it has."""
        leader = self.nodes.get(self.leader())
        if leader is None or leader.log_end_offset == 0:
            return False
        end = self.end_offset
        return all(
            i in self.nodes
            and (self.nodes[i].leader_id, self.nodes[i].high_watermark, self.nodes[i].log_end_offset)
            == (leader.leader_id, leader.log_end_offset, leader.log_end_offset)
            and self.witnesses[i].next_offset >= end  # not while a snapshot is installed
            for i in self.running
        )

    async def until(self, condition: Callable[[], object], limit_ms: int = 15_000) -> int:
        """Wait for a condition; returns how many milliseconds that took."""
        begin_ms = self.clock.now_ms()
        while not condition():
            assert self.clock.now_ms() - begin_ms < limit_ms, self.describe()
            await self.clock.sleep(1)
        return self.clock.now_ms() - begin_ms

    def describe(self) -> list[str]:
        return [
            f"node{i}: running={i in self.running} {node.state_name} leader={node.leader_id} epoch={node.epoch} "
            f"hw={node.high_watermark} leo={node.log_end_offset}"
            for i, node in self.nodes.items()
        ]

    @property
    def end_offset(self) -> int:
        """Behind the last batch that was committed."""
        return next(reversed(self._counts))

    # --- invariants -----------------------------------------------------------------------------------------------

    def check_snapshot(self, end_offset: int, state: list[bytes]) -> None:
        committed = [each for base, (_, records) in self.committed.items() if base < end_offset for each in records]
        assert state == committed or not self.is_checked

    def check_leader(self, node_id: int, next_offset: int) -> None:
        """What its controller begins with: everything below its high watermark."""
        below = [each for each in self.committed if each < self.nodes[node_id].high_watermark]
        assert max(below, default=-1) < next_offset or not self.is_checked, (node_id, next_offset, below[-1:])

    def commit(self, node_id: int, base_offset: int, epoch: int, records: tuple[bytes, ...], count: int) -> None:
        """A node learned of a committed batch; with it, it knows `count` records."""
        if not self.is_checked:
            return
        if base_offset not in self.committed:
            assert base_offset >= self.end_offset, "whoever learns of a batch first has learned of all before"
            self._counts[base_offset + len(records)] = self._counts[self.end_offset] + len(records)
            self.committed[base_offset] = epoch, records
        assert self.committed[base_offset] == (epoch, records), (node_id, base_offset, "M-5")
        assert count == self._counts[base_offset + len(records)], "no record was left out"
        appended = self._appended.get((node_id, epoch, base_offset))
        if appended is not None:
            self.acknowledged[base_offset] = appended

    def on_leader_changed(self, node_id: int, leader_id: int, epoch: int) -> None:
        assert leader_id in (-1, *self.addresses)

    def _on_event(self, node_id: int, event: str, facts: Mapping[str, object]) -> None:
        self.events.append((node_id, event, facts))
        if event == "leader_elected" and self.is_checked:
            epoch = self.nodes[node_id].epoch
            known = self._leaders.setdefault((self._cluster_ids[node_id], epoch), node_id)
            assert known == node_id, f"epoch {epoch} has two leaders (M-2)"
        if event in ("leader_elected", "voter_caught_up"):
            self.catching_up.pop(node_id, None)

    def _check(self, node_id: int) -> None:
        """After each step of a node."""
        node = self.nodes.get(node_id)
        if node is None or node_id not in self._flushed or not self.is_checked:
            return
        self._flushed[node_id] = node.flushed_offset or self._flushed[node_id]  # 0 while its log is opened
        if node.flushed_offset:
            assert node.epoch >= self._epochs[node_id], f"epoch {self._epochs[node_id]} fell to {node.epoch} (M-1)"
            self._epochs[node_id] = node.epoch
        high_watermark = node.high_watermark
        if node.is_leader and high_watermark != self._high_watermarks.get(node.epoch, -1):
            earlier = max((known for epoch, known in self._high_watermarks.items() if epoch <= node.epoch), default=0)
            if node.epoch not in self._high_watermarks and high_watermark <= earlier:
                return  # it has not committed a record of its own epoch yet
            ends = sorted(self._flushed.values(), reverse=True)
            assert ends[len(ends) // 2] >= high_watermark, f"{high_watermark} is not on a majority: {ends} (M-3)"
            assert high_watermark > earlier, f"the high watermark fell from {earlier} to {high_watermark} (M-4)"
            self._high_watermarks[node.epoch] = high_watermark
        snapshot = node.latest_snapshot
        assert node.log_start_offset <= (0 if snapshot is None else snapshot.end_offset), (node_id, "M-6")
