"""Whole clusters in the simulated world: the broker's node and the client, unchanged, under virtual time."""

from __future__ import annotations

from dataclasses import replace

from odradek_broker.node import Node
from odradek_broker.settings import BrokerSettings

from odradek_chaos.worlds.simulated.fabric import SimFabric
from odradek_chaos.worlds.simulated.loop import SimLoop
from odradek_chaos.worlds.simulated.node import NodePorts, SimNode

GRPC_PORT, CONTROLLER_PORT = 50051, 50061
LOG_DIRECTORY = "/data"


class SimCluster:
    """`brokers` machines, each with one combined node, and any number of machines for clients.

    `settings` holds for all of them; ids, listeners, voters and directories are set here.
    """

    def __init__(self, loop: SimLoop, *, brokers: int = 3, settings: BrokerSettings | None = None) -> None:
        self.loop = loop
        self.fabric = SimFabric(loop, loop.fork_rng("fabric"))
        self.machines: dict[int, SimNode] = {
            node_id: SimNode(f"b{node_id}", loop, self.fabric) for node_id in range(1, brokers + 1)
        }
        self.nodes: dict[int, Node] = {}  # of the incarnation that runs now
        self._base = replace(
            settings or BrokerSettings(),
            cluster_id="c2ltdWxhdGVkLWNsdXN0ZXI",
            controller_quorum_voters=",".join(f"{i}@b{i}:{CONTROLLER_PORT}" for i in self.machines),
            default_replication_factor=min(3, brokers),
            log_dirs=LOG_DIRECTORY,
        )

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{machine.name}:{GRPC_PORT}" for machine in self.machines.values())

    def settings_of(self, broker_id: int) -> BrokerSettings:
        name = self.machines[broker_id].name
        return replace(
            self._base,
            node_id=broker_id,
            listeners=f"GRPC://{name}:{GRPC_PORT},CONTROLLER://{name}:{CONTROLLER_PORT}",
        )

    def start(self, broker_id: int) -> None:
        """Start this broker's process on what its disk holds."""
        settings = self.settings_of(broker_id)

        async def main(ports: NodePorts) -> None:
            node = Node(settings, clock=ports.clock, files=ports.files, network=ports.network)
            self.nodes[broker_id] = node
            await node.start()
            await node.failed

        self.machines[broker_id].start(main)

    def start_all(self) -> None:
        for broker_id in self.machines:
            self.start(broker_id)

    def client(self, name: str) -> SimNode:
        """A machine for a client; `start` runs the client's program there."""
        return SimNode(name, self.loop, self.fabric)
