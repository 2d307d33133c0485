"""What administrators do to a cluster while it suffers: partitions move, and the orders meet every other fault."""

from __future__ import annotations

from odradek import Admin
from odradek.shared.errors import OdradekError
from odradek_proto.topics import TopicPartition

from odradek_chaos.worlds.simulated.cluster.node import NodePorts, SimNode
from odradek_chaos.worlds.simulated.faults.choices import ORDER, PARTITION, arguments
from odradek_chaos.worlds.simulated.faults.nemesis import Choice, Nemesis, Owed

CANCELS = 0.25  # of the orders
FEWEST = 2  # replicas: with one alone a lost disk would cost records, and nobody promised otherwise
PATIENCE_MS = 2_000


class Reassign(Nemesis):
    """A partition gets other replicas, more or fewer, in another order; or what is on its way is cancelled.

    The order goes out from a machine of its own, by the product's client. It may be refused, get lost, or be carried
    out and its answer lost: all of that is allowed, and nobody looks at the answer.
    """

    name = "reassign"
    owed = Owed.ALWAYS
    does = "moves partitions to other replicas, cancels such moves"
    copies = True
    takes = arguments(partition=PARTITION, target=ORDER)
    _machine: SimNode | None = None

    def choose(self) -> Choice:
        brokers = list(self.cluster.machines)
        count = self.rng.randint(min(FEWEST, len(brokers)), len(brokers))
        target = self.rng.sample(brokers, count)
        cancels = self.rng.random() < CANCELS
        return {"partition": self.rng.randrange(len(self.world.partitions)), "target": [] if cancels else target}

    async def act(self, choice: Choice) -> None:
        partition = self.world.partitions[choice["partition"]]
        self.world.faults.fault(self.name, partition=str(partition), target=choice["target"])
        if self._machine is None:
            self._machine = self.cluster.client("op")
        self._machine.kill()

        async def order(ports: NodePorts) -> None:
            await self._order(ports, partition, choice["target"])

        self._machine.start(order)

    async def _order(self, ports: NodePorts, partition: TopicPartition, target: list[int]) -> None:
        try:
            async with Admin(
                self.cluster.bootstrap,
                clock=ports.clock,
                network=ports.network,
                bootstrap_timeout_ms=PATIENCE_MS,
                default_api_timeout_ms=PATIENCE_MS,
                request_timeout_ms=PATIENCE_MS,
            ) as admin:
                await admin.alter_partition_reassignments({partition: target or None})
        except (OdradekError, ExceptionGroup) as error:
            self.world.timeline.note("!not-ordered", 0, str(partition), error=type(error).__name__)
