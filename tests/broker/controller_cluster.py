"""A cluster of controllers and brokers' sessions in the simulated world, around a metadata log held in memory.

The log is shared and commits what its leader appends after a few milliseconds; who leads is for the test to say. All
the rest is the real thing: nodes with clocks, networks and processes that can be killed and paused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from odradek_broker.config.settings import BrokerSettings
from odradek_broker.core.context import ANONYMOUS, RequestContext
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.metadata.image import PartitionRegistration
from odradek_broker.core.partition.messages import IsrAnswer, IsrMember, IsrProposal
from odradek_broker.runtime.controller.node import ControllerNode
from odradek_broker.runtime.controller.service import ControllerService
from odradek_broker.runtime.membership.broker_session import BrokerSession, SessionHooks
from odradek_broker.runtime.membership.controller_channel import ControllerChannel
from odradek_broker.runtime.membership.isr_channel import IsrChannel
from odradek_broker.runtime.membership.metadata_feed import MetadataFeed
from odradek_broker.runtime.quorum.node import NotLeader, QuorumNode
from odradek_chaos.worlds.simulated.cluster.node import NodePorts, SimNode
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.kernel.process import Process
from odradek_chaos.worlds.simulated.net.fabric import SimFabric
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import Handlers, Stream
from odradek_proto.v1 import admin_messages, controller_messages
from odradek_proto.v1.controller_messages import RegisterBrokerRequest

from tests.playing import Test, plays

COMMIT_MS = 4
CLUSTER_ID = "a-test-cluster"
CALLER = RequestContext(ANONYMOUS, "GRPC")


def address_of(node_id: int) -> str:
    """Where a broker of the story listens."""
    return f"node{node_id}:{9000 + node_id}"


@dataclass
class Batch:
    base_offset: int
    epoch: int
    records: list[bytes]


class SharedLog:
    """The metadata log of the cluster. `committed` is a count of batches; the rest may be lost with its leader."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.batches: list[Batch] = []
        self.committed = 0
        self.epoch = 0
        self.leader_id = -1
        self.stalled = False  # nothing is committed any more
        self.lag_ms: dict[int, int] = {}  # nodes that hear of commits later than the others
        self.nodes: dict[int, MemoryQuorum] = {}

    @property
    def end_offset(self) -> int:
        return self.batches[-1].base_offset + len(self.batches[-1].records) if self.batches else 0

    def append(self, records: Sequence[bytes]) -> int:
        base = self.end_offset
        self.batches.append(Batch(base, self.epoch, list(records)))
        count = len(self.batches)
        self.loop.call_world_at(self.loop.now_us + COMMIT_MS * 1000, lambda: self.commit(count))
        return base

    def commit(self, count: int) -> None:
        if self.stalled or count > len(self.batches):
            return
        self.committed = max(self.committed, count)
        for node_id, node in list(self.nodes.items()):
            if node_id in self.lag_ms:
                late_us = self.loop.now_us + self.lag_ms[node_id] * 1000
                self.loop.call_world_at(late_us, partial(node.tell, partial(node.deliver, count)))
            else:
                node.tell(node.deliver)

    def elect(self, leader_id: int) -> None:
        """Another leader: what was not committed is lost, and the new one hears that it leads when it has read all."""
        old, self.leader_id = self.leader_id, leader_id
        self.epoch += 1
        del self.batches[self.committed :]
        if old in self.nodes:
            self.nodes[old].tell(self.nodes[old].resigned)
        for node in list(self.nodes.values()):
            node.tell(node.leader_changed)


class MemoryQuorum:
    """What a `QuorumNode` is to the controller, over the shared log."""

    def __init__(self, log: SharedLog, node_id: int, process: Process) -> None:
        self._log = log
        self._node_id = node_id
        self._process = process
        self._delivered = 0
        self._led_epoch = -1
        self.member: Member | None = None

    @property
    def leader_id(self) -> int:
        return self._log.leader_id

    @property
    def epoch(self) -> int:
        return self._log.epoch

    @property
    def is_leader(self) -> bool:
        return self._log.leader_id == self._node_id

    def append(self, records: Sequence[bytes], *, epoch: int | None = None) -> int:
        if not self.is_leader or epoch != self._log.epoch:
            raise NotLeader(self.leader_id, self.epoch)
        return self._log.append(records)

    def describe(self) -> admin_messages.DescribeQuorumResponse:
        return admin_messages.DescribeQuorumResponse(leader_id=self.leader_id, leader_epoch=self.epoch)

    def tell(self, callback: Callable[[], None]) -> None:
        """On this node's own time: a paused node hears of it later, a dead one never."""
        self._log.loop.call_soon(callback, context=self._log.loop.context_of(self._process))

    def deliver(self, count: int | None = None) -> None:
        """Hand out what is committed, or no more than so many batches."""
        assert self.member is not None
        while self._delivered < (self._log.committed if count is None else count):
            batch = self._log.batches[self._delivered]
            self._delivered += 1
            self.member.feed.on_commit(batch.base_offset, batch.epoch, batch.records)
        controller, image = self.member.controller, self.member.feed.image
        if controller.active and controller.term().ahead.offset == image.offset:
            assert controller.term().ahead == image, "what ran ahead is not what was committed"

    def resigned(self) -> None:
        assert self.member is not None
        if self._led_epoch >= 0:
            self.member.controller.on_resigned(self._led_epoch)
            self._led_epoch = -1

    def leader_changed(self) -> None:
        assert self.member is not None
        self.deliver()
        self.member.channel.on_leader_changed(self.leader_id, self.epoch)
        self.member.session.on_leader_changed(self.leader_id, self.epoch)
        if self.is_leader and self._led_epoch != self.epoch:
            self._led_epoch = self.epoch
            self.member.controller.on_leader(self.epoch)


@dataclass
class Member:
    """One node: voter, controller and broker, without partitions."""

    node_id: int
    ports: NodePorts
    feed: MetadataFeed
    controller: ControllerNode
    channel: ControllerChannel
    session: BrokerSession
    process: Process
    answers: list[tuple[IsrProposal, IsrAnswer]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.isr = self.isr_channel(lambda proposal, answer: self.answers.append((proposal, answer)))

    def isr_channel(
        self,
        on_answer: Callable[[IsrProposal, IsrAnswer], None],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]] = asyncio.ensure_future,
        channel: ControllerChannel | None = None,
    ) -> IsrChannel:
        return IsrChannel(
            clock=self.ports.clock,
            channel=channel or self.channel,
            broker_id=self.node_id,
            broker_epoch=lambda: self.session.broker_epoch,
            on_answer=on_answer,
            spawn=spawn,
            confirm=self.session.confirm,
        )


class Cluster:
    """Nodes 1 to n, each with a broker's listener on port 9000 + id and a controller's on 7000 + id."""

    def __init__(self, nodes: int = 3, seed: int = 7, **settings: Any) -> None:
        self.loop = SimLoop(seed)
        self.fabric = SimFabric(self.loop, self.loop.fork_rng("fabric"))
        self.log = SharedLog(self.loop)
        self.settings = settings
        self.machines = {i: SimNode(f"node{i}", self.loop, self.fabric) for i in range(1, nodes + 1)}
        self.voters = {i: f"node{i}:{7000 + i}" for i in self.machines}
        self.members: dict[int, Member] = {}
        self.events: list[tuple[int, int, str, dict[str, object]]] = []  # ms, node, event, facts

    def run(self, story: Callable[[Cluster], Coroutine[Any, Any, None]], limit_s: float = 120) -> None:
        """The story, then the end of all nodes; none of them may have failed by itself."""
        self.loop.run(self._told(story), limit_s=limit_s)
        self.loop.close()
        for node_id, machine in self.machines.items():
            assert machine.failure is None, (node_id, machine.failure)
        assert self.loop.unhandled == []

    async def _told(self, story: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
        await story(self)
        for node_id in self.machines:
            self.kill(node_id)
        await self.sleep(10)

    @property
    def now_ms(self) -> int:
        return self.loop.now_us // 1000

    @property
    def active(self) -> Member:
        return self.members[self.log.leader_id]

    def start(self, node_id: int, *, ready: bool = True, leads: bool = False) -> None:
        async def main(ports: NodePorts) -> None:
            await self._main(node_id, ports, ready)

        self.machines[node_id].start(main)
        if leads:
            self.log.elect(node_id)

    def start_all(self) -> None:
        for node_id in self.machines:
            self.start(node_id)

    async def _main(self, node_id: int, ports: NodePorts, ready: bool) -> None:
        quorum = MemoryQuorum(self.log, node_id, self.loop.current_process())
        quorum.member = member = self._assemble(node_id, ports, cast(QuorumNode, quorum), MetadataFeed())
        self.log.nodes[node_id] = quorum
        await ports.network.serve(self.voters[node_id], ControllerService(member.controller).handlers())
        quorum.leader_changed()
        await self._live(member, ready, [])

    def _assemble(self, node_id: int, ports: NodePorts, quorum: QuorumNode, feed: MetadataFeed) -> Member:
        def on_event(event: str, facts: Mapping[str, object]) -> None:
            self.events.append((self.now_ms, node_id, event, dict(facts)))

        channel = ControllerChannel(
            clock=ports.clock, network=ports.network, voters=self.voters, leader=lambda: quorum.leader_id
        )
        controller = ControllerNode(
            ControllerSettings(node_id=node_id, cluster_id=CLUSTER_ID, **self.settings),
            clock=ports.clock,
            network=ports.network,
            quorum=quorum,
            feed=feed,
            on_event=on_event,
        )
        session = BrokerSession(
            BrokerSettings(node_id=node_id),
            RegisterBrokerRequest(broker_id=node_id, cluster_id=CLUSTER_ID, previous_broker_epoch=-1),
            clock=ports.clock,
            channel=channel,
            network=ports.network,
            feed=feed,
            endpoints={"GRPC": address_of(node_id)},
            hooks=SessionHooks(
                on_returned=lambda: on_event("session_returned", {"broker_id": node_id}),
                on_event=on_event,
                say=lambda line: on_event("said", {"line": line}),
            ),
        )
        member = self.members[node_id] = Member(
            node_id, ports, feed, controller, channel, session, self.loop.current_process()
        )
        return member

    async def _live(self, member: Member, ready: bool, failures: list[asyncio.Future[None]]) -> None:
        """The broker's side, until something fails."""
        await member.ports.network.serve(address_of(member.node_id), Handlers())
        await member.session.start()
        if ready:
            member.session.set_ready()
        failures += [member.session.failed, member.controller.failed]
        await asyncio.wait(failures, return_when=asyncio.FIRST_COMPLETED)
        for failure in failures:
            if failure.done():
                failure.result()

    def kill(self, node_id: int) -> None:
        self.machines[node_id].kill()
        self.log.nodes.pop(node_id, None)
        self.members.pop(node_id, None)

    def unfenced(self, node_id: int) -> bool:
        """Does a broker that runs know itself unfenced?"""
        return node_id in self.members and not self.members[node_id].session.fenced

    def cut_off(self, node_id: int, *others: int) -> None:
        """Nothing passes any more between a node and others, and the connections are reset."""
        for other in others:
            self.fabric.cut(f"node{node_id}", f"node{other}")
            self.fabric.reset(f"node{node_id}", f"node{other}")

    def partition(self, seen_by: int, topic: str = "orders") -> PartitionRegistration:
        found = self.members[seen_by].feed.image.partition(TopicPartition(topic, 0))
        assert found is not None
        return found

    def fenced(self, node_id: int, seen_by: int) -> bool:
        return self.members[seen_by].feed.image.brokers[node_id].fenced

    async def until(self, condition: Callable[[], bool], limit_ms: int = 30_000) -> int:
        """Look every millisecond; returns how many passed."""
        begun = self.now_ms
        while not condition():
            assert self.now_ms - begun < limit_ms, f"not within {limit_ms} ms"
            await self.sleep(1)
        return self.now_ms - begun

    async def sleep(self, delay_ms: float) -> None:
        await self.loop.sleep(delay_ms)

    async def begin(self, leader: int = 1, assignment: Sequence[int] = (3, 2, 1)) -> None:
        """All nodes run and are unfenced, `leader` is the active controller, and there is a topic `orders`."""
        for node_id in self.machines:
            self.start(node_id, leads=node_id == leader)
        await self.all_unfenced()
        if assignment:
            await self.create_topic("orders", assignment)

    async def all_unfenced(self) -> int:
        return await self.until(lambda: all(self.unfenced(node_id) for node_id in self.machines))

    async def create_topic(self, name: str, assignment: Sequence[int] = (1, 2, 3), **configs: str) -> bytes:
        """One partition on these brokers; returns the topic id once every node knows it."""
        topic = admin_messages.NewTopic(
            name=name,
            partitions=-1,
            replication_factor=-1,
            assignments=[admin_messages.ReplicaAssignment(partition=0, broker_ids=assignment)],
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )
        request = admin_messages.CreateTopicsRequest(topics=[topic])
        response = admin_messages.CreateTopicsResponse.FromString(await self.admin("CreateTopics", request))
        assert response.topics[0].error_code == 0, response
        await self.until(lambda: all(name in member.feed.image.topics for member in self.members.values()))
        return response.topics[0].topic_id

    async def admin(self, method: str, request: Any) -> bytes:
        task = self.loop.spawn(
            self.loop.new_process("client"),
            self.active.channel.forward_admin(CALLER, method, request.SerializeToString(), 10_000, at_most_once=True),
        )
        return await task

    def events_of(self, name: str) -> list[dict[str, object]]:
        return [facts for _, _, event, facts in self.events if event == name]

    def proposal(self, leader: int, members: Sequence[int], topic: str = "orders") -> IsrProposal:
        """An ISR for the topic's partition, with the epochs that its leader knows."""
        image = self.members[leader].feed.image
        partition = self.partition(leader, topic)
        return IsrProposal(
            topic_id=image.topics[topic].topic_id,
            topic_partition=TopicPartition(topic, 0),
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr=tuple(IsrMember(i, image.brokers[i].broker_epoch) for i in members),
        )

    async def session(self, opener: int, broker_id: int) -> tuple[Stream, controller_messages.Heartbeat]:
        """A second stream of a broker to the controller, from the machine of `opener`, and what it may say on it."""
        member = self.members[opener]
        registration = member.feed.image.brokers[broker_id]
        beat = controller_messages.Heartbeat(
            broker_id=broker_id,
            broker_epoch=registration.broker_epoch,
            incarnation_id=registration.incarnation_id,
            current_metadata_offset=member.feed.image.offset,
        )
        return await member.ports.network.open(self.voters[1], "/odradek.v1.Controller/Session"), beat

    async def join_isr(self, leader: int, members: Sequence[int], topic: str = "orders") -> IsrAnswer:
        """The leader proposes an ISR for the topic's partition, and gets this answer."""
        member, proposal = self.members[leader], self.proposal(leader, members, topic)
        count = len(member.answers)
        self.loop.call_soon(lambda: member.isr.submit(proposal), context=self.loop.context_of(member.process))
        await self.until(lambda: len(member.answers) > count)
        return member.answers[-1][1]


def in_cluster(**settings: Any) -> Callable[[Test], Callable[..., None]]:
    """A test that is a story of a cluster with these settings, its first parameter."""
    return plays(lambda story: Cluster(**settings).run(story))
