"""A small cluster that speaks the brokers' protocol, for tests of the client, in the simulated world.

It is a peer, not a broker: a partition is one list of batches that all its brokers share, so there is nothing to
replicate and everything that was appended is below the high watermark. Within that it is honest: batches are decoded,
sequences are checked as R-240 and R-241 say, epochs are stamped, followers refuse. Beyond it a test may order what no
broker does by itself: answer with errors, hold answers back, move leaders, cut logs, die, freeze.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from odradek_broker.rpc.fetch_session import MAX_HEADER_BYTES
from odradek_chaos.worlds.simulated.cluster.node import NodePorts, SimNode
from odradek_chaos.worlds.simulated.kernel.clock import SimClock
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.net.fabric import SimFabric
from odradek_chaos.worlds.simulated.net.network import SimNetwork
from odradek_proto.errors import ErrorCode
from odradek_proto.records import BatchHeader, check_batch, decode_records, stamped_prefix
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.frames import pack_frame, split_frame
from odradek_proto.transport.ports import CallContext, Handlers, Network, Stream, StreamClosed
from odradek_proto.v1 import broker_pb2 as pb

from tests.playing import play

C = TypeVar("C")
T = TypeVar("T")
CREDIT = 1_000_000
BROKER = "/odradek.v1.Broker/"


@dataclass
class Log:
    """One partition: its batches with their headers, who leads, and where epochs began."""

    name: TopicPartition
    leader: int
    epoch: int = 0
    batches: list[tuple[BatchHeader, bytes]] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    producers: dict[int, tuple[int, deque[tuple[int, int, int]]]] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.batches[-1][0].next_offset if self.batches else 0

    def values(self) -> list[bytes | None]:
        return [record.value for header, data in self.batches for record in decode_records(data, header)]

    def append(self, data: bytes) -> tuple[ErrorCode, int]:
        """Append as a leader does, or find the duplicate (R-240, R-241)."""
        header = check_batch(data)
        if header.producer_id >= 0:
            first, last = header.base_sequence, header.last_sequence
            epoch, cached = self.producers.get(header.producer_id, (header.producer_epoch, deque(maxlen=5)))
            if header.producer_epoch < epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            if header.producer_epoch > epoch:
                cached = deque(maxlen=5)
                if first != 0:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            for known in cached:
                if known[:2] == (first, last):
                    return ErrorCode.NONE, known[2]
            if cached and first != (cached[-1][1] + 1) & 0x7FFFFFFF:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            cached.append((first, last, self.end))
            self.producers[header.producer_id] = (header.producer_epoch, cached)
        offset = self.end
        stamped = stamped_prefix(offset, header.length, self.epoch) + data[16:]
        self.batches.append((check_batch(stamped), stamped))
        return ErrorCode.NONE, offset

    def lead(self, broker_id: int) -> None:
        """A new leader, under a new epoch."""
        self.leader = broker_id
        self.epoch += 1
        self.epochs = [entry for entry in self.epochs if entry[1] < self.end] + [(self.epoch, self.end)]

    def truncate(self, offset: int) -> None:
        """Forget what is at or above an offset, as an unclean election does; at the border of a batch."""
        self.batches = [batch for batch in self.batches if batch[0].next_offset <= offset]
        assert self.end == offset, (self.end, offset)
        self.epochs = [entry for entry in self.epochs if entry[1] < offset] or [(0, 0)]

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """R-62."""
        if epoch == self.epoch:
            return epoch, self.end
        later = [start for known, start in self.epochs if known > epoch]
        earlier = [known for known, _ in self.epochs if known <= epoch]
        return (earlier[-1], later[0]) if later and earlier else (-1, -1)


class PeerBroker:
    """One broker of the peer cluster, as one process of the simulated world."""

    def __init__(self, cluster: PeerCluster, broker_id: int, node: SimNode) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.node = node
        self.address = f"broker{broker_id}:50051"
        self.errors: deque[tuple[TopicPartition, ErrorCode]] = deque()  # answers to the next batches of partitions
        self.garbage = 0  # so many messages on streams will be bytes that nobody can read
        self.holding = False
        self.held: list[Callable[[], None]] = []
        self.batches_in: list[tuple[TopicPartition, BatchHeader]] = []
        self.calls: list[str] = []
        self.more_handlers: Handlers | None = None  # calls that a test answers by itself
        self.streams: list[Stream] = []
        self.fetchers: list[_Fetcher] = []

    async def main(self, ports: NodePorts) -> None:
        await self.serve(ports.network)
        await asyncio.get_running_loop().create_future()

    async def serve(self, network: Network) -> None:
        """Listen at `address`, or at the address that the network gives for its port 0."""
        names = ("Metadata", "InitProducerId", "ListOffsets", "OffsetsForLeaderEpoch", "DescribeReplicas")
        unary = {BROKER + name: getattr(self, name) for name in names}
        streams = {BROKER + "ProduceStream": self.produce_stream, BROKER + "FetchStream": self.fetch_stream}
        if self.more_handlers is not None:
            unary.update(self.more_handlers.unary)
        self.server = await network.serve(self.address, Handlers(unary, streams))
        self.address = self.server.address

    def start(self) -> None:
        self.node.start(self.main)

    def kill(self) -> None:
        self.node.kill()
        self.streams.clear()
        self.fetchers.clear()

    def release(self) -> None:
        """Let the answers go that were held back."""
        self.holding = False
        held, self.held = self.held, []
        for answer in held:
            answer()

    def garbled(self, message: bytes) -> bytes:
        if not self.garbage:
            return message
        self.garbage -= 1
        return b"\xff" * 16

    def drop_streams(self) -> None:
        for stream in self.streams:
            stream.close()
        self.streams.clear()

    # --- calls -----------------------------------------------------------------------------------------------------

    async def Metadata(self, request: bytes, context: CallContext) -> bytes:
        self.calls.append("Metadata")
        asked = pb.MetadataRequest.FromString(request)
        answer = pb.MetadataResponse(cluster_id="peers", controller_id=1)
        for broker in self.cluster.brokers.values():
            fenced = broker.broker_id in self.cluster.fenced
            answer.brokers.add(broker_id=broker.broker_id, endpoints={"GRPC": broker.address}, fenced=fenced)
        topics = {log.name.topic: None for log in self.cluster.logs.values()}
        for topic in topics if asked.all_topics else asked.topics:
            found = answer.topics.add(topic=topic, topic_id=topic.encode().ljust(16, b"."))
            if topic not in topics:
                found.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for log in self.cluster.logs.values():
                if log.name.topic == topic:
                    found.partitions.add(partition=log.name.partition, leader_id=log.leader, leader_epoch=log.epoch)
        return answer.SerializeToString()

    async def InitProducerId(self, request: bytes, context: CallContext) -> bytes:
        self.calls.append("InitProducerId")
        asked = pb.InitProducerIdRequest.FromString(request)
        if asked.producer_id >= 0:
            given = pb.InitProducerIdResponse(producer_id=asked.producer_id, producer_epoch=asked.producer_epoch + 1)
        else:
            self.cluster.next_producer_id += 1
            given = pb.InitProducerIdResponse(producer_id=self.cluster.next_producer_id, producer_epoch=0)
        return given.SerializeToString()

    async def ListOffsets(self, request: bytes, context: CallContext) -> bytes:
        answer = pb.ListOffsetsResponse()
        for asked in pb.ListOffsetsRequest.FromString(request).partitions:
            log = self.cluster.logs[TopicPartition(asked.topic, asked.partition)]
            error = self.refusal(log, asked.current_leader_epoch)
            found, when = log.end, -1
            if asked.timestamp_ms == -2:
                found = log.batches[0][0].base_offset if log.batches else 0
            elif asked.timestamp_ms >= 0:
                later = [r for h, d in log.batches for r in decode_records(d, h) if r.timestamp >= asked.timestamp_ms]
                found, when = (later[0].offset, later[0].timestamp) if later else (-1, -1)
            answer.partitions.add(
                topic=asked.topic, partition=asked.partition, error_code=error, offset=found, timestamp_ms=when,
                leader_epoch=log.epoch,
            )  # fmt: skip
        return answer.SerializeToString()

    async def OffsetsForLeaderEpoch(self, request: bytes, context: CallContext) -> bytes:
        self.calls.append("OffsetsForLeaderEpoch")
        answer = pb.OffsetsForLeaderEpochResponse()
        for asked in pb.OffsetsForLeaderEpochRequest.FromString(request).partitions:
            log = self.cluster.logs[TopicPartition(asked.topic, asked.partition)]
            error = self.refusal(log, asked.current_leader_epoch)
            epoch, end = log.end_of_epoch(asked.leader_epoch)
            answer.partitions.add(
                topic=asked.topic, partition=asked.partition, error_code=error, leader_epoch=epoch, end_offset=end
            )
        return answer.SerializeToString()

    async def DescribeReplicas(self, request: bytes, context: CallContext) -> bytes:
        answer = pb.DescribeReplicasResponse(broker_id=self.broker_id)
        for log in self.cluster.logs.values():
            answer.replicas.add(
                topic=log.name.topic, partition=log.name.partition, leader_id=log.leader, leader_epoch=log.epoch,
                role="leader" if log.leader == self.broker_id else "follower",
                log_end_offset=log.end, high_watermark=log.end,
            )  # fmt: skip
        return answer.SerializeToString()

    def refusal(self, log: Log, epoch: int) -> ErrorCode:
        if log.leader != self.broker_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if epoch < 0 or epoch == log.epoch:
            return ErrorCode.NONE
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < log.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    # --- produce ---------------------------------------------------------------------------------------------------

    async def produce_stream(self, stream: Stream, context: CallContext) -> None:
        self.streams.append(stream)
        outbox: asyncio.Queue[bytes] = asyncio.Queue()
        outbox.put_nowait(pb.ProduceAnswers(credit_bytes=self.cluster.credit).SerializeToString())

        async def write() -> None:
            while True:
                await stream.send(self.garbled(await outbox.get()))

        writer = asyncio.get_running_loop().create_task(write())
        try:
            while True:
                header_bytes, batches = split_frame(await stream.recv())
                position = 0
                for item in pb.ProduceHeader.FromString(header_bytes).items:
                    data = bytes(batches[position : position + item.size])
                    position += item.size
                    self.produce(item, data, outbox.put_nowait)
        except StreamClosed:
            pass
        finally:
            writer.cancel()

    def produce(self, item: pb.ProduceItem, data: bytes, say: Callable[[bytes], None]) -> None:
        name = TopicPartition(item.topic, item.partition)
        self.batches_in.append((name, check_batch(data)))
        log = self.cluster.logs[name]
        offset = -1
        ordered = next((entry for entry in self.errors if entry[0] == name), None)
        if ordered is not None:
            self.errors.remove(ordered)
            error = ordered[1]
        elif log.leader != self.broker_id:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            error, offset = log.append(data)
            self.cluster.appended(log)
        told = pb.ProduceAnswer(
            correlation_id=item.correlation_id, error_code=error, base_offset=offset, log_append_time_ms=-1,
            current_leader_id=log.leader if self.cluster.tells_leaders else -1, current_leader_epoch=log.epoch,
        )  # fmt: skip
        if item.acks == 0 and not error:
            return
        message = pb.ProduceAnswers(answers=[told]).SerializeToString()
        if self.holding:
            self.held.append(lambda: say(message))
        else:
            say(message)

    # --- fetch -----------------------------------------------------------------------------------------------------

    async def fetch_stream(self, stream: Stream, context: CallContext) -> None:
        self.streams.append(stream)
        fetcher = _Fetcher(self, stream)
        self.fetchers.append(fetcher)
        await fetcher.run()


class _Fetcher:
    """One fetch session."""

    def __init__(self, broker: PeerBroker, stream: Stream) -> None:
        self.broker = broker
        self.stream = stream
        self.credit = 0
        self.wanted: dict[TopicPartition, pb.FetchPartition] = {}
        self.ready = asyncio.Event()

    async def run(self) -> None:
        writer = asyncio.get_running_loop().create_task(self.write())
        try:
            while True:
                header_bytes, _ = split_frame(await self.stream.recv())
                if len(header_bytes) > MAX_HEADER_BYTES:
                    return  # as a broker does
                header = pb.FetchHeader.FromString(header_bytes)
                self.credit += header.credit_bytes
                for forgotten in header.forgotten:
                    self.wanted.pop(TopicPartition(forgotten.topic, forgotten.partition), None)
                for asked in header.partitions:
                    self.wanted[TopicPartition(asked.topic, asked.partition)] = asked
                self.ready.set()
        except StreamClosed:
            pass
        finally:
            writer.cancel()

    async def write(self) -> None:
        while True:
            await self.ready.wait()
            self.ready.clear()
            answer, data = pb.FetchAnswerHeader(), b""
            for name, asked in [*self.wanted.items()]:
                if self.credit <= 0:
                    break
                found = self.answer(name, asked)
                if found is not None:
                    del self.wanted[name]
                    answer.partitions.append(found[0])
                    data += found[1]
                    self.credit -= len(found[1])
            if answer.partitions:
                await self.stream.send(self.broker.garbled(pack_frame(answer.SerializeToString(), [data])))

    def answer(self, name: TopicPartition, asked: pb.FetchPartition) -> tuple[pb.FetchedPartition, bytes] | None:
        log = self.broker.cluster.logs[name]
        error = self.broker.refusal(log, asked.current_leader_epoch)
        ordered = next((entry for entry in self.broker.errors if entry[0] == name), None)
        if ordered is not None:
            self.broker.errors.remove(ordered)
            error = ordered[1]
        elif not error and not 0 <= asked.fetch_offset <= log.end:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        data = b""
        if not error:
            later = [batch for header, batch in log.batches if header.next_offset > asked.fetch_offset]
            if not later:
                return None
            data = later[0]
            for batch in later[1:]:
                if len(data) + len(batch) > asked.max_bytes:
                    break
                data += batch
        return pb.FetchedPartition(
            topic=name.topic, partition=name.partition, error_code=error, high_watermark=log.end,
            last_stable_offset=log.end, size=len(data), fetch_offset=asked.fetch_offset,
            current_leader_id=-1, current_leader_epoch=-1, request_leader_epoch=asked.current_leader_epoch,
        ), data  # fmt: skip


class PeerCluster:
    """Brokers 1 to 3 and the logs that they share; `run` runs a test's coroutine as the client's process."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = SimLoop(seed)
        self.fabric = SimFabric(self.loop, self.loop.fork_rng("fabric"))
        self.clock = SimClock(self.loop, self.loop.fork_rng("client"))
        self.network = SimNetwork(self.fabric, "client")
        self.logs: dict[TopicPartition, Log] = {}
        self.next_producer_id = 1000
        self.credit = CREDIT
        self.tells_leaders = False
        self.fenced: set[int] = set()  # brokers that metadata call fenced
        nodes = {number: SimNode(f"node{number}", self.loop, self.fabric) for number in (1, 2, 3)}
        self.brokers = {number: PeerBroker(self, number, node) for number, node in nodes.items()}
        for broker in self.brokers.values():
            broker.start()

    @property
    def bootstrap(self) -> str:
        return "broker1:50051,broker2:50051,broker3:50051"

    def client(self, kind: Callable[..., C], *topics: str, **settings: Any) -> C:
        """A producer, a consumer or an administrator's client of this cluster."""
        return kind(self.bootstrap, *topics, clock=self.clock, network=self.network, **settings)

    def topic(self, name: str, partitions: int = 1, leader: int = 1) -> list[Log]:
        """Make a topic; partition n is led by the n-th broker from `leader` on."""
        made = []
        for partition in range(partitions):
            tp = TopicPartition(name, partition)
            self.logs[tp] = Log(tp, (leader - 1 + partition) % len(self.brokers) + 1)
            made.append(self.logs[tp])
        return made

    def appended(self, log: Log) -> None:
        for broker in self.brokers.values():
            for fetcher in broker.fetchers:
                if log.name in fetcher.wanted:
                    fetcher.ready.set()

    def run(self, work: Coroutine[Any, Any, T], limit_s: float = 300) -> T:
        """Run a test's story; nothing of the client may have failed unseen."""
        result = self.loop.run(work, limit_s=limit_s)
        assert self.loop.unhandled == []
        return result

    async def until(self, condition: Callable[[], object], limit_ms: int = 60_000) -> None:
        """Let virtual time pass until something is so."""
        deadline = self.clock.now_ms() + limit_ms
        while not condition():
            assert self.clock.now_ms() < deadline, "it did not happen in time"
            await self.clock.sleep(1)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs in the time of its peers."""
    peers = pyfuncitem.funcargs.get("peers")
    return play(pyfuncitem, peers.run) if isinstance(peers, PeerCluster) else None


@pytest.fixture
def peers_of_seed() -> Iterator[Callable[[int], PeerCluster]]:
    """Three brokers in virtual time, whose chance is decided by a seed."""
    made: list[PeerCluster] = []

    def make(seed: int) -> PeerCluster:
        made.append(PeerCluster(seed))
        return made[-1]

    yield make
    for cluster in made:
        for broker in cluster.brokers.values():
            broker.node.kill()
        cluster.loop.close()


@pytest.fixture
def peers(peers_of_seed: Callable[[int], PeerCluster]) -> PeerCluster:
    """Three brokers in virtual time."""
    return peers_of_seed(1)


@pytest.fixture
def log(peers: PeerCluster) -> Log:
    """The only partition of the topic `orders`."""
    (made,) = peers.topic("orders")
    return made


@pytest.fixture
def new_log() -> Callable[[], Log]:
    """A partition's log without a cluster around it, for tests of the core alone."""
    return lambda: Log(TopicPartition("orders", 0), leader=1)
