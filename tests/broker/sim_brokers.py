"""Whole brokers on simulated machines, and clients that come and go, for stories of one test."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from odradek import Admin, Producer
from odradek_broker.config.settings import BrokerSettings
from odradek_broker.runtime.replicas.manager import ReplicaManager
from odradek_broker.runtime.replicas.replica import Replica
from odradek_chaos.worlds.simulated.cluster.cluster import SimCluster
from odradek_chaos.worlds.simulated.cluster.node import NodePorts
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_proto.topics import TopicPartition

NODE = 1  # the only broker of most stories


class SimBrokers(SimCluster):
    """Brokers that a test starts; all machines that still run end with its story."""

    def __init__(self, brokers: int = 1, settings: BrokerSettings | None = None, *, seed: int = 5) -> None:
        super().__init__(SimLoop(seed), brokers=brokers, settings=settings)

    def play(self, story: Coroutine[Any, Any, None]) -> None:
        async def told() -> None:
            try:
                await story
            finally:
                await self.kill_all()

        try:
            self.loop.run(told(), limit_s=600)
        finally:
            self.loop.close()

    async def kill_all(self) -> None:
        for machine in self.machines.values():
            if machine.is_running:
                machine.kill()
        await self.loop.sleep(10)

    async def until(self, condition: Callable[[], object], limit_ms: int = 60_000) -> None:
        """Look every 5 ms of virtual time."""
        for _ in range(limit_ms // 5):
            if condition():
                return
            await self.loop.sleep(5)
        raise AssertionError(f"not within {limit_ms} ms; topics: {list(self.newest_image().topics)}")

    # --- clients

    async def as_admin(self, work: Callable[[Admin], Coroutine[Any, Any, object]]) -> None:
        async def program(ports: NodePorts) -> None:
            async with Admin(self.bootstrap, clock=ports.clock, network=ports.network) as admin:
                await work(admin)

        await self.run_client("admin", program)

    async def write(self, topic: str, count: int = 1, **settings: Any) -> None:
        """So many records of ten bytes, one after the other."""

        async def program(ports: NodePorts) -> None:
            async with Producer[bytes, bytes](
                self.bootstrap, clock=ports.clock, network=ports.network, **settings
            ) as producer:
                for _ in range(count):
                    await asyncio.wait_for(producer.send(topic, b"0123456789"), 5)

        await self.run_client("writer", program)

    # --- the only broker

    @property
    def disk_files(self) -> SimFiles:
        """What somebody else sees of its disk."""
        return SimFiles(self.machines[NODE].disk, self.loop, random.Random(1))

    @property
    def replicas(self) -> ReplicaManager:
        broker = self.nodes[NODE].broker
        assert broker is not None
        return broker.replicas

    def replica(self, tp: TopicPartition) -> Replica:
        return self.replicas.replicas[tp]

    async def until_ready(self) -> None:
        def is_ready() -> bool:
            node = self.nodes.get(NODE)
            return node is not None and node.broker is not None and not node.broker.session.fenced

        await self.until(is_ready)


def alone(story: Callable[[SimBrokers], Coroutine[Any, Any, None]]) -> None:
    """A story of one broker, which is not started yet."""
    cluster = SimBrokers()
    cluster.play(story(cluster))
