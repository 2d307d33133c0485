"""What a producer notices of a gap in its leader's session with the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek import Admin, Producer
from odradek.administration.descriptions import NewTopic
from odradek_broker.config.settings import BrokerSettings
from odradek_chaos.worlds.simulated.cluster.cluster import SimCluster
from odradek_chaos.worlds.simulated.cluster.node import NodePorts
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_proto.topics import TopicPartition

ORDERS = TopicPartition("orders", 0)
SETTINGS = BrokerSettings(odradek_session_early_fencing=False, replica_lag_time_max_ms=1_000)


class Story:
    """Three brokers: one leads the quorum, one the partition, and one follows both."""

    def __init__(self) -> None:
        self.loop = SimLoop(seed=5)
        self.cluster = SimCluster(self.loop, settings=SETTINGS)
        self.waited_ms = -1

    def run(self) -> None:
        async def main() -> None:
            self.cluster.start_all()
            await self.cluster.run_client("client", self._program)
            for machine in self.cluster.machines.values():
                machine.kill()
            await self.loop.sleep(10)

        self.loop.run(main(), limit_s=60)
        self.loop.close()

    def _all_up(self) -> bool:
        brokers = self.cluster.newest_image().brokers
        return len(brokers) == 3 and not any(broker.fenced for broker in brokers.values())

    def _isr(self) -> list[int]:
        registration = self.cluster.newest_image().partition(ORDERS)
        return [] if registration is None else list(registration.isr)

    async def _program(self, ports: NodePorts) -> None:
        async def until(condition: Callable[[], bool]) -> None:
            while not condition():
                await ports.clock.sleep(2)

        cluster = self.cluster
        await until(self._all_up)
        controller = cluster.controller()
        leader, follower = (broker_id for broker_id in cluster.machines if broker_id != controller)
        async with (
            Admin(cluster.bootstrap, clock=ports.clock, network=ports.network) as admin,
            Producer[bytes, bytes](cluster.bootstrap, clock=ports.clock, network=ports.network, acks="all") as producer,
        ):
            await admin.create_topics([NewTopic("orders", assignments={0: [leader, follower]})])
            cluster.fabric.cut(f"b{leader}", f"b{follower}")
            await producer.send("orders", b"acknowledged when the follower has left the ISR")
            assert self._isr() == [leader]
            cluster.fabric.cut(f"b{leader}", f"b{controller}")
            cluster.fabric.reset(f"b{leader}", f"b{controller}")
            await ports.clock.sleep(1_000)
            sent = asyncio.ensure_future(producer.send("orders", b"in the gap"))
            await ports.clock.sleep(500)
            assert not sent.done()
            cluster.fabric.heal(f"b{leader}", f"b{controller}")
            session = cluster.nodes[leader].broker
            assert session is not None
            await until(lambda: session.replicas.may_acknowledge_alone())
            returned_ms = ports.clock.now_ms()
            await sent
            self.waited_ms = ports.clock.now_ms() - returned_ms
            assert not cluster.newest_image().brokers[leader].fenced


def test_an_acknowledgement_follows_the_return_of_the_session_at_once() -> None:
    """R-112: two replicas, one in sync; what arrived in a gap without a fencing does not wait for its deadline."""
    story = Story()
    story.run()
    assert 0 <= story.waited_ms < 50
