"""Whole clusters in the simulated world: the broker's node and the client, unchanged, under virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from odradek_broker.config.settings import BrokerSettings
from odradek_broker.core.metadata.image import NO_LEADER, MetadataImage
from odradek_broker.process.node import Node
from odradek_broker.runtime.replicas.replica import Replica
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import Network
from odradek_proto.values import replace

from odradek_chaos.worlds.simulated.cluster.node import Main, NodePorts, SimNode
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.net.fabric import SimFabric

GRPC_PORT, REPLICATION_PORT, CONTROLLER_PORT, KAFKA_PORT = 50051, 50052, 50061, 9092
LOG_DIRECTORY = "/data"


class Shape(NamedTuple):
    """Which nodes are brokers, and which are voters of the metadata quorum; some may be both."""

    brokers: tuple[int, ...]
    voters: tuple[int, ...]

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(sorted({*self.brokers, *self.voters}))

    def roles(self, node_id: int) -> str:
        """process.roles of a node."""
        roles = (("broker", self.brokers), ("controller", self.voters))
        return ",".join(role for role, nodes in roles if node_id in nodes)


SHAPES = {
    "combined": Shape((1, 2, 3), (1, 2, 3)),
    "observers": Shape((1, 2, 3, 4, 5), (1, 2, 3)),  # two brokers that follow the quorum and do not vote
    "controllers": Shape((1, 2, 3), (4, 5, 6)),  # apart from the brokers
}


@dataclass(frozen=True, slots=True)
class Crash:
    """A broker whose process ended by an error of its own."""

    broker_id: int
    incarnation: int
    time_us: int
    error: BaseException


class SimCluster:
    """Machines with a node each, `brokers` combined ones or those of a shape, and any number of machines for clients.

    `machines` has all nodes, brokers and mere controllers. `settings` holds for all of them; ids, listeners, voters and
    directories are set here. With `kafka` brokers listen to Kafka's clients, too.
    """

    def __init__(
        self,
        loop: SimLoop,
        *,
        brokers: int = 3,
        shape: str = "",
        settings: BrokerSettings | None = None,
        kafka: bool = False,
    ) -> None:
        self.loop = loop
        everybody = tuple(range(1, brokers + 1))
        self.shape = SHAPES[shape] if shape else Shape(everybody, everybody)
        self._kafka = kafka
        self.fabric = SimFabric(loop, loop.fork_rng("fabric"))
        self.machines: dict[int, SimNode] = {
            node_id: SimNode(f"b{node_id}", loop, self.fabric) for node_id in self.shape.nodes
        }
        self.clients: list[SimNode] = []
        self.crashes: list[Crash] = []
        self.nodes: dict[int, Node] = {}  # of the incarnation that ran last
        self.after_step: Callable[[int], None] = lambda broker_id: None  # called after each callback of a broker
        self.on_end: Callable[[int], None] = lambda broker_id: None  # and when its process has ended
        self.network_of: Callable[[int, NodePorts], Network] = lambda broker_id, ports: ports.network  # for its node
        self._stops: dict[int, asyncio.Event] = {}
        self._base = replace(
            settings or BrokerSettings(),
            cluster_id="c2ltdWxhdGVkLWNsdXN0ZXI",
            controller_quorum_voters=",".join(f"{i}@b{i}:{CONTROLLER_PORT}" for i in self.shape.voters),
            default_replication_factor=min(3, len(self.shape.brokers)),
            log_dirs=LOG_DIRECTORY,
        )

    @property
    def incarnations(self) -> dict[int, int]:
        """The incarnation of each broker that runs, or ran last."""
        return {broker_id: machine.incarnation for broker_id, machine in self.machines.items()}

    @property
    def cluster_id(self) -> str:
        return self._base.cluster_id

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{self.machines[broker_id].name}:{GRPC_PORT}" for broker_id in self.shape.brokers)

    def settings_of(self, broker_id: int) -> BrokerSettings:
        name, shape = self.machines[broker_id].name, self.shape
        ports: dict[str, int] = {}
        if broker_id in shape.brokers:
            ports |= {"GRPC": GRPC_PORT, "REPLICATION": REPLICATION_PORT}
        if broker_id in shape.voters:
            ports["CONTROLLER"] = CONTROLLER_PORT
        if broker_id in shape.brokers and self._kafka:
            ports["KAFKA"] = KAFKA_PORT
        roles = self._base.process_roles if shape.brokers == shape.voters else shape.roles(broker_id)
        return replace(
            self._base,
            node_id=broker_id,
            process_roles=roles,
            listeners=",".join(f"{listener}://{name}:{port}" for listener, port in ports.items()),
        )

    # --- processes

    def start(self, broker_id: int) -> None:
        """Start this broker's process on what its disk holds."""
        settings, machine = self.settings_of(broker_id), self.machines[broker_id]
        self.nodes.pop(broker_id, None)  # the dead one's
        self._stops.pop(broker_id, None)

        async def main(ports: NodePorts) -> None:
            node = Node(settings, clock=ports.clock, files=ports.files, network=self.network_of(broker_id, ports))
            stop = asyncio.Event()
            self.nodes[broker_id], self._stops[broker_id] = node, stop
            try:
                await node.start()
                await self._until_failed_or_told(node, stop)
            except Exception as error:
                if machine.is_running and machine.incarnation == ports.incarnation:
                    self.crashes.append(Crash(broker_id, ports.incarnation, self.loop.now_us, error))
                raise

        machine.start(main, after_step=partial(self.after_step, broker_id), on_end=lambda: self._ended(broker_id))

    def _ended(self, broker_id: int) -> None:
        self.on_end(broker_id)
        if broker_id in self.nodes:
            self.nodes[broker_id].recent.clear()  # its memory is gone, and the most of it is this

    async def _until_failed_or_told(self, node: Node, stop: asyncio.Event) -> None:
        told = asyncio.ensure_future(stop.wait())
        await asyncio.wait((told, node.failed), return_when=asyncio.FIRST_COMPLETED)
        if node.failed.done():
            node.failed.result()
        await node.stop()
        if node.failed.done():
            node.failed.exception()  # it failed while it stopped: whoever stopped it need not be told

    def start_all(self) -> None:
        for broker_id in self.machines:
            self.start(broker_id)

    def stop(self, broker_id: int) -> None:
        """SIGTERM: ask the broker to shut down as it does when it is told to. Nothing happens before it has begun."""
        if self.machines[broker_id].is_running and broker_id in self._stops:
            self._stops[broker_id].set()

    def client(self, name: str) -> SimNode:
        """A machine for a client; `start` runs the client's program there."""
        machine = SimNode(name, self.loop, self.fabric)
        self.clients.append(machine)
        return machine

    async def run_client(self, name: str, program: Main) -> None:
        """Run a program on a machine for a client, to its end. Raises what it raises."""
        machine = self.client(name)
        machine.start(program)
        await machine.wait()
        if machine.failure is not None:
            raise machine.failure

    # --- views for those who see everything: nemeses and checkers

    def running(self) -> Iterator[tuple[int, Node]]:
        """The brokers whose process has come so far as to have a node, paused ones included."""
        for broker_id, machine in self.machines.items():
            if machine.is_running and broker_id in self.nodes:
                yield broker_id, self.nodes[broker_id]

    def hosted(self, broker_id: int) -> dict[TopicPartition, Replica]:
        """The replicas that a running broker has opened; none before it has loaded them all."""
        node = self.nodes.get(broker_id)
        if node is None or not self.machines[broker_id].is_running or node.broker is None:
            return {}
        return node.broker.replicas.replicas

    def newest_image(self) -> MetadataImage:
        """The furthest committed metadata that a running broker knows."""
        images = [node.feed.image for _, node in self.running()]
        return max(images, key=lambda image: image.offset, default=MetadataImage())

    def leader_of(self, tp: TopicPartition) -> int:
        registration = self.newest_image().partition(tp)
        return NO_LEADER if registration is None else registration.leader

    def controller(self) -> int:
        """The leader of the newest quorum epoch, -1 for none."""
        found = [
            (node.quorum.epoch, broker_id)
            for broker_id, node in self.running()
            if node.quorum is not None and node.quorum.is_leader
        ]
        return max(found, default=(0, -1))[1]
