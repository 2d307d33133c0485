"""One broker of a cluster inside one process: its lives, one after the other, on the same directory and ports."""

from __future__ import annotations

import logging
import random
from dataclasses import replace

from odradek_proto.transport.clock import LoopClock

from odradek_broker.config.settings import BrokerSettings
from odradek_broker.process.node import Node
from odradek_broker.testing.files import BrokerFiles
from odradek_broker.testing.layout import HeldPort
from odradek_broker.testing.network import BrokerNetwork

logger = logging.getLogger(__name__)


class Member:
    """A broker that can be started, stopped and killed. `node` is the life that runs, None for a dead one."""

    def __init__(self, broker: int, ports: tuple[HeldPort, HeldPort, HeldPort, HeldPort]) -> None:
        self.broker = broker
        self.ports = ports
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
        return self.ports[3].address

    @property
    def voter(self) -> str:
        """The member as `controller.quorum.voters` names it."""
        return f"{self.broker}@{self.ports[2].address}"

    @property
    def listeners(self) -> str:
        grpc, replication, controller, kafka = (port.address for port in self.ports)
        return f"GRPC://{grpc},KAFKA://{kafka},REPLICATION://{replication},CONTROLLER://{controller}"

    async def start(self, settings: BrokerSettings) -> None:
        """A new life. Returns when it listens; raises what `Node.start` raises."""
        assert self.node is None, f"broker {self.broker} runs already"
        for port in self.ports:
            port.make_way()
        files, network = BrokerFiles(), BrokerNetwork()
        node = Node(settings, clock=LoopClock(random.Random()), files=files, network=network)
        try:
            await node.start()
        except BaseException:
            await files.finish()
            raise
        self.node, self._files, self._network = node, files, network

    async def stop(self, *, hand_over: bool = True) -> None:
        """As after SIGTERM (R-142). With the whole cluster there is nobody to `hand_over` leaderships to."""
        node, files, _ = self._end_of_life()
        _take_note_of_failure(node)
        if node.broker is not None and not hand_over:
            node.broker.settings = replace(node.settings, controlled_shutdown_enable=False)
        try:
            await node.stop()
        finally:
            await files.finish()

    async def kill(self) -> None:
        """As kill -9: from this moment on nothing is written, flushed, answered or said. Returns when it is gone."""
        node, files, network = self._end_of_life()
        _take_note_of_failure(node)
        network.cut()
        files.detach()
        await network.end()
        try:
            await node.kill()
        except Exception:  # it is dead all the same
            logger.warning("broker %d: while it was killed", self.broker, exc_info=True)
        finally:
            await files.finish()

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
