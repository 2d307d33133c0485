"""What a producer notices of a gap in its leader's session with the controller."""

from __future__ import annotations

import asyncio

from odradek import Admin, NewTopic, Producer
from odradek_broker.config.settings import BrokerSettings
from odradek_chaos.worlds.simulated.cluster.node import NodePorts
from odradek_proto.topics import TopicPartition

from tests.broker.sim_brokers import SimBrokers

ORDERS = TopicPartition("orders", 0)
SETTINGS = BrokerSettings(odradek_session_early_fencing=False, replica_lag_time_max_ms=1_000)


def test_an_acknowledgement_follows_the_return_of_the_session_at_once() -> None:
    """R-112: two replicas, one in sync; what arrived in a gap without a fencing does not wait for its deadline.

    Of three brokers one leads the quorum, one the partition, and one follows both.
    """
    cluster = SimBrokers(3, SETTINGS)

    def all_up() -> bool:
        brokers = cluster.newest_image().brokers
        return len(brokers) == 3 and not any(broker.fenced for broker in brokers.values())

    async def program(ports: NodePorts) -> None:
        controller = cluster.controller()
        leader, follower = (broker_id for broker_id in cluster.machines if broker_id != controller)
        async with (
            Admin(cluster.bootstrap, clock=ports.clock, network=ports.network) as admin,
            Producer[bytes, bytes](cluster.bootstrap, clock=ports.clock, network=ports.network, acks="all") as producer,
        ):
            await admin.create_topics([NewTopic("orders", assignments={0: [leader, follower]})])
            cluster.fabric.cut(f"b{leader}", f"b{follower}")
            await producer.send("orders", b"acknowledged when the follower has left the ISR")
            registration = cluster.newest_image().partition(ORDERS)
            assert registration is not None
            assert list(registration.isr) == [leader]
            cluster.fabric.cut(f"b{leader}", f"b{controller}")
            cluster.fabric.reset(f"b{leader}", f"b{controller}")
            await ports.clock.sleep(1_000)
            sent = asyncio.ensure_future(producer.send("orders", b"in the gap"))
            await ports.clock.sleep(500)
            assert not sent.done()
            cluster.fabric.heal(f"b{leader}", f"b{controller}")
            session = cluster.nodes[leader].broker
            assert session is not None
            await cluster.until(session.replicas.may_acknowledge_alone)
            returned_ms = ports.clock.now_ms()
            await sent
            assert ports.clock.now_ms() - returned_ms < 50
            assert not cluster.newest_image().brokers[leader].fenced

    async def told() -> None:
        cluster.start_all()
        await cluster.until(all_up)
        await cluster.run_client("client", program)

    cluster.play(told())
