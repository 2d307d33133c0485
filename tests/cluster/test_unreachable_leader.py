"""A leader that nobody reaches while its own connections stand, on real sockets (R-147)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from odradek import Admin, Consumer, NewTopic, Producer
from odradek_broker.local.cluster import LocalCluster
from odradek_chaos.harness.waiting import wait_until_ready

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

PATIENCE_S = 120
LEADER, OTHERS = 1, (2, 3)
SETTINGS = {
    "broker.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "600000",  # or a leader that nobody reaches is alone in its ISR before anybody says so
}
PIECE = 65_536


class Swallower:
    """A proxy in front of some addresses: of what comes in it passes everything on, or nothing without a word."""

    def __init__(self) -> None:
        self.swallows = False
        self._servers: list[asyncio.Server] = []
        self._pipes: set[asyncio.Task[None]] = set()

    async def before(self, target: str) -> str:
        """An address that leads to `target`."""
        host, _, port = target.rpartition(":")

        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            pipe = asyncio.current_task()
            assert pipe is not None
            self._pipes.add(pipe)
            try:
                back, forth = await asyncio.open_connection(host, int(port))
            except OSError:  # it does not listen yet: neither do we
                writer.close()
                return
            await asyncio.gather(self._pipe(reader, forth, inwards=True), self._pipe(back, writer, inwards=False))

        server = await asyncio.start_server(pass_on, "127.0.0.1", 0)
        self._servers.append(server)
        return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _pipe(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, inwards: bool) -> None:
        try:
            while data := await source.read(PIECE):
                if not (inwards and self.swallows):
                    sink.write(data)
                    await sink.drain()
        except OSError:
            pass  # one end is gone: so is the other
        finally:
            sink.close()

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for pipe in self._pipes:
            pipe.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster.create(tmp_path / "cluster", brokers=3, settings=SETTINGS)
    try:
        yield made
    finally:
        made.kill_all()


async def until_said(cluster: LocalCluster, sentence: str) -> None:
    """In the log of one of the brokers that are well, whichever is the controller."""
    async with asyncio.timeout(PATIENCE_S):
        while not any(sentence in cluster.log_file(broker_id).read_text() for broker_id in cluster.nodes):
            async with Admin(cluster.nodes[2].grpc) as admin:  # something that takes a while
                await admin.describe_cluster()


def test_a_leader_that_nobody_reaches_is_replaced_and_nothing_is_lost(cluster: LocalCluster) -> None:
    """Its connections to the controllers stand, so its session lives: the others say that it does not answer."""

    async def story() -> None:
        proxy = Swallower()
        node = cluster.nodes[LEADER]
        advertised = f"GRPC://{await proxy.before(node.grpc)},REPLICATION://{await proxy.before(node.replication)}"
        try:
            cluster.start(LEADER, {"advertised.listeners": f"{advertised},KAFKA://{node.kafka}"})
            for broker_id in OTHERS:
                cluster.start(broker_id)
            await wait_until_ready(cluster, timeout_s=PATIENCE_S)
            await writes(proxy)
        finally:
            await proxy.close()

    async def writes(proxy: Swallower) -> None:
        bootstrap = ",".join(cluster.nodes[broker_id].grpc for broker_id in OTHERS)
        async with Admin(bootstrap) as admin, Producer(bootstrap, acks="all", request_timeout_ms=3_000) as producer:
            await admin.create_topics([NewTopic("orders", assignments={0: [LEADER, *OTHERS]})])
            await producer.send("orders", b"before")
            proxy.swallows = True
            async with asyncio.timeout(PATIENCE_S):
                await producer.send("orders", b"while nobody reaches it")
            (topic,) = await admin.describe_topics(["orders"])
            assert topic.partitions[0].leader_id in OTHERS
            await until_said(cluster, f"broker {LEADER} does not answer other brokers")
            proxy.swallows = False
            await until_said(cluster, f"broker {LEADER} answers other brokers again")
            await producer.send("orders", b"after")
        async with Consumer(bootstrap, "orders", auto_offset_reset="earliest") as consumer:
            records = aiter(consumer)
            read = [(await anext(records)).value for _ in range(3)]
        assert read == [b"before", b"while nobody reaches it", b"after"]

    asyncio.run(story())
