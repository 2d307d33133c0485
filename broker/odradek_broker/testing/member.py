"""One broker of a cluster inside one process: its lives, one after the other, on the same directory and ports."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from odradek_proto.values import replace

from odradek_broker.config.settings import BrokerSettings
from odradek_broker.process.node import Node
from odradek_broker.testing.clock import FIRST_ELECTION_MS, BrokerClock
from odradek_broker.testing.fabric import Fabric
from odradek_broker.testing.files import BrokerFiles
from odradek_broker.testing.layout import HeldPort
from odradek_broker.testing.network import BrokerNetwork, admin_address
from odradek_broker.testing.unflushed import Unflushed

logger = logging.getLogger(__name__)


class ClusterMember:
    """A broker that can be started, stopped and killed. `node` is the life that runs, None for a dead one."""

    def __init__(self, broker: int, directory: Path, fabric: Fabric) -> None:
        self.broker = broker
        self._fabric = fabric
        self.ports = (HeldPort(), HeldPort())
        own = (admin_address(broker), self.replication_address, self.controller_address)
        fabric.owners |= dict.fromkeys(own, broker)
        self._unflushed = Unflushed(directory)
        self._directory_in_use = asyncio.Lock()  # several threads of a test may stop, kill and heal at the same time
        self.node: Node | None = None
        self._files: BrokerFiles | None = None
        self._network: BrokerNetwork | None = None

    @property
    def address(self) -> str:
        """Of the listener for clients, whether somebody listens or not."""
        return self.ports[0].address

    @property
    def kafka_address(self) -> str:
        """Of the listener for Kafka's clients."""
        return self.ports[1].address

    @property
    def replication_address(self) -> str:
        """Other brokers fetch there, without a socket."""
        return f"broker-{self.broker}:1"

    @property
    def controller_address(self) -> str:
        """The same for controllers."""
        return f"broker-{self.broker}:2"

    @property
    def voter(self) -> str:
        """The member as `controller.quorum.voters` names it."""
        return f"{self.broker}@{self.controller_address}"

    @property
    def listeners(self) -> str:
        own = f"REPLICATION://{self.replication_address},CONTROLLER://{self.controller_address}"
        return f"GRPC://{self.address},KAFKA://{self.kafka_address},{own}"

    async def start(self, settings: BrokerSettings, *, stands_first: bool = False) -> None:
        """A new life, unless there is one by now. Returns when it listens; raises what `Node.start` raises.
        Of the voters of a new quorum one may stand for election before the others.
        """
        async with self._directory_in_use:
            if self.node is not None:
                return
            for port in self.ports:
                port.make_way()
            files, network = BrokerFiles(self._unflushed), BrokerNetwork(self._fabric, self.broker)
            clock = BrokerClock(self._fabric, self.broker, skips_ms=FIRST_ELECTION_MS if stands_first else 0)
            node = Node(settings, clock=clock, files=files, network=network)
            try:
                await node.start()
            except BaseException:
                files.close()
                raise
            self.node, self._files, self._network = node, files, network

    async def stop(self, *, hand_over: bool = True) -> None:
        """As after SIGTERM (R-142). With the whole cluster there is nobody to `hand_over` leaderships to."""
        node, files, _ = self._end_of_life()
        _take_note_of_failure(node)
        if node.broker is not None and not hand_over:
            node.broker.settings = replace(node.settings, controlled_shutdown_enable=False)
        async with self._directory_in_use:
            try:
                await node.stop()
            finally:
                files.close()

    async def kill(self) -> None:
        """As kill -9: from this moment on nothing is written, flushed, answered or said. Returns when it is gone."""
        node, files, network = self._end_of_life()
        _take_note_of_failure(node)
        network.cut()
        files.detach()
        self._fabric.thaw(self.broker)  # a process that is frozen can be killed
        async with self._directory_in_use:
            await network.end()
            try:
                await node.kill()
            except Exception:  # it is dead all the same
                logger.warning("broker %d: while it was killed", self.broker, exc_info=True)
            finally:
                files.close()

    def forget_unflushed(self) -> None:
        """The power was lost: of what a dead broker wrote, what it flushed is left."""
        assert self.node is None, f"broker {self.broker} runs"
        self._unflushed.lose()

    def lose_next_answer(self, api: str) -> None:
        """Do what the next request of an API asks for, and end the connection instead of answering."""
        assert self._network is not None, f"broker {self.broker} does not run"
        self._network.voice.losing.add(api)

    async def open_doors(self) -> None:
        """Listen for gRPC clients, too, if it has not been done."""
        if self._network is not None:
            await self._network.open_doors()

    def _end_of_life(self) -> tuple[Node, BrokerFiles, BrokerNetwork]:
        node, files, network = self.node, self._files, self._network
        assert node is not None, f"broker {self.broker} does not run"
        assert files is not None
        assert network is not None
        self.node = self._files = self._network = None
        return node, files, network


def _take_note_of_failure(node: Node) -> None:
    """Say that a broker had failed by itself; what happens to it from now on is no failure."""
    if node.failed.done() and (error := node.failed.exception()) is not None:
        logger.warning("broker %d had failed: %r", node.settings.node_id, error)
