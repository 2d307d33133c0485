"""Batches whose answers were lost are repeated after their brokers were stopped cleanly and started (G6)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from odradek import Admin, Consumer, Producer, TopicPartition
from odradek.producing.engine import INIT_PRODUCER_ID
from odradek.producing.link import PRODUCE_STREAM
from odradek_broker.testing import AsyncCluster, Cluster
from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.transport.ports import Stream
from odradek_proto.v1 import broker_pb2 as pb

BATCHES = 5  # as many as a producer has on the wire


class LosingStream:
    """A produce stream of which the answers are lost while its network loses, but for what gives credit."""

    def __init__(self, stream: Stream, network: LosingAnswers) -> None:
        self._stream = stream
        self._network = network
        self.peer = stream.peer
        self.send = stream.send
        self.close = stream.close

    async def recv(self) -> bytes:
        while True:
            message = await self._stream.recv()
            if not self._network.is_losing or pb.ProduceAnswers.FromString(message).credit_bytes:
                return message


class LosingAnswers(GrpcNetwork):
    """A producer's network that loses every answer to a batch, from `begin` until `end`."""

    def __init__(self) -> None:
        super().__init__()
        self.is_losing = False
        self._produced: list[Stream] = []

    async def open(self, peer: str, method: str, timeout_ms: float = 5000) -> Stream:
        stream = await super().open(peer, method, timeout_ms)
        if method != PRODUCE_STREAM:
            return stream
        self._produced.append(stream)
        return LosingStream(stream, self)

    def begin(self) -> None:
        """Nothing is answered from now on."""
        self.is_losing = True

    def end(self) -> None:
        """The streams break: what was on them goes again, and is answered."""
        self.is_losing = False
        for stream in self._produced:
            stream.close()


async def all_at_once(cluster: AsyncCluster) -> None:
    brokers = cluster.brokers
    await asyncio.gather(*(cluster.stop(broker) for broker in brokers))
    await asyncio.gather(*(cluster.start(broker) for broker in brokers))


async def one_after_the_other(cluster: AsyncCluster) -> None:
    for broker in cluster.brokers:
        await cluster.stop(broker)
        await cluster.start(broker)
        await cluster.wait_until_in_sync("orders")


async def test_no_producer_id_is_given_twice_whatever_stops() -> None:
    """R-250: what a broker had left of its block is lost with it, and the controllers go on behind all blocks."""
    given: list[int] = []
    network = GrpcNetwork()
    async with Cluster(3) as cluster:
        for _ in range(2):
            for address in cluster.bootstrap.split(","):
                request = pb.InitProducerIdRequest(producer_id=-1, producer_epoch=-1).SerializeToString()
                answer = await network.call(address, INIT_PRODUCER_ID, request, 30_000)
                said = pb.InitProducerIdResponse.FromString(answer)
                assert not said.error_code, said
                given.append(said.producer_id)
            await all_at_once(cluster)
            await cluster.wait_until_ready()
    await network.close()
    assert len(set(given)) == len(given) == 6


async def read(cluster: AsyncCluster, count: int) -> list[bytes | None]:
    """The first `count` records, once they are committed, and whatever stands behind them then."""
    async with Consumer(cluster.bootstrap, "orders", auto_offset_reset="earliest") as consumer:
        found: list[bytes | None] = []
        async for record in consumer.records():
            found.append(record.value)
            if len(found) == count:
                break
        return found + [record.value async for record in consumer.records(until="end")]


@pytest.mark.slow
@pytest.mark.parametrize("restart", [all_at_once, one_after_the_other])
@pytest.mark.parametrize("deleted", [False, True])
async def test_batches_that_come_again_after_a_clean_restart_are_not_written_twice(
    restart: Callable[[AsyncCluster], Awaitable[None]], deleted: bool
) -> None:
    """All five of a producer are repeated and recognised, those too that DeleteRecords has removed meanwhile."""
    network = LosingAnswers()
    async with (
        Cluster(3) as cluster,
        Producer(cluster.bootstrap, batch_size=1, network=network) as producer,
        Admin(cluster.bootstrap) as admin,
    ):
        await cluster.create_topic("orders")
        await producer.send("orders", b"first", partition=0)  # the leader knows the producer: five may be on the wire
        network.begin()
        sent = [b"%d" % number for number in range(BATCHES)]
        deliveries = [await producer.enqueue("orders", value, partition=0) for value in sent]
        assert await read(cluster, 1 + BATCHES) == [b"first", *sent]
        if deleted:
            await admin.delete_records({TopicPartition("orders", 0): -1})
        await restart(cluster)
        network.end()
        assert [(await delivery).offset for delivery in deliveries] == list(range(1, 1 + BATCHES))
        await producer.send("orders", b"last", partition=0)
        left = [b"last"] if deleted else [b"first", *sent, b"last"]
        assert await read(cluster, len(left)) == left
