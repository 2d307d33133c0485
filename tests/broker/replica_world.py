"""One broker's replicas above a simulated disk, under metadata that the test writes.

The broker is real; the leaders that it follows are queues that the test reads and fills.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from odradek_broker.config.settings import BrokerSettings
from odradek_broker.core.context import ANONYMOUS, RequestContext
from odradek_broker.core.fetching import PartitionFetch
from odradek_broker.core.metadata.delta import MetadataDelta
from odradek_broker.core.metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage
from odradek_broker.core.partition.messages import IsrProposal
from odradek_broker.requests.fetch import FetchRequests
from odradek_broker.requests.produce import ProduceRequests
from odradek_broker.requests.unpacked import UnpackedProduces
from odradek_broker.runtime.counters import Counters
from odradek_broker.runtime.events import EventLog
from odradek_broker.runtime.replicas.flusher import Flusher
from odradek_broker.runtime.replicas.maintenance import Maintenance
from odradek_broker.runtime.replicas.manager import ReplicaManager
from odradek_broker.runtime.replicas.purgatory import DelayedFetch
from odradek_broker.runtime.replicas.replica import Replica
from odradek_broker.runtime.services import NodeServices
from odradek_broker.storage.directory import LogDirectory
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.kernel.clock import SimClock
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_proto.records import encode_batch, stamped_prefix
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.frames import pack_frame, split_frame
from odradek_proto.transport.ports import Accept, DialResult, Handlers, Server, Stream, StreamClosed
from odradek_proto.v1 import broker_pb2 as pb

ORDERS = TopicPartition("orders", 0)
CALLER = RequestContext(ANONYMOUS, "GRPC")
ONE, ME, THREE = 1, 2, 3
TOPIC_ID = bytes(range(16))


class Conversation:
    """The stream to one leader: what this broker says comes out of `heard`, what is put into `answers` arrives."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()
        self.answers: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def send(self, message: bytes) -> None:
        self.heard.put_nowait(message)

    async def recv(self) -> bytes:
        message = await self.answers.get()
        if message is None:
            raise StreamClosed(clean=True)
        return message

    def close(self) -> None:
        self.answers.put_nowait(None)

    def said(self) -> list[pb.FetchHeader]:
        """Everything that was said since the last look, bare grants of credit left out."""
        headers = []
        while not self.heard.empty():
            header = pb.FetchHeader.FromString(split_frame(self.heard.get_nowait())[0])
            if header.partitions or header.forgotten:
                headers.append(header)
        return headers

    def asked(self) -> list[tuple[str, int, int]]:
        """The fetches since the last look: topic, offset, leader epoch."""
        return [
            (each.topic, each.fetch_offset, each.current_leader_epoch)
            for header in self.said()
            for each in header.partitions
        ]


class Leaders:
    """A network where every leader takes one stream and answers nothing by itself."""

    def __init__(self) -> None:
        self.streams: dict[str, Conversation] = {}

    async def open(self, peer: str, method: str, timeout_ms: float = 5000) -> Stream:
        return self.streams.setdefault(peer, Conversation(peer))

    async def call(self, peer: str, method: str, request: bytes, timeout_ms: float) -> bytes:
        raise AssertionError(method)

    async def dial(self, peer: str, timeout_ms: float) -> DialResult:
        raise AssertionError(peer)

    async def serve(self, address: str, handlers: Handlers) -> Server:
        raise AssertionError(address)

    async def listen_bytes(self, address: str, accept: Accept) -> Server:
        raise AssertionError(address)

    async def close(self) -> None: ...


class World:
    """Broker 2 with an empty directory, or with what is on `disk`, in a cluster of three."""

    def __init__(self, loop: SimLoop, disk: SimDisk | None = None) -> None:
        self.loop = loop
        self.clock = SimClock(loop, random.Random(1))
        self.files = SimFiles(disk or SimDisk(random.Random(2)), loop, random.Random(3))
        self.leaders = Leaders()
        self.proposals: list[IsrProposal] = []
        self.tasks: list[asyncio.Task[None]] = []
        rng = random.Random(4)
        wall_ms = self.clock.wall_ms()
        directory = LogDirectory.open(self.files, "/data", node_id=ME, cluster_id="c", wall_ms=wall_ms, rng=rng)
        counters = Counters()
        self.replicas = ReplicaManager(
            BrokerSettings(node_id=ME),
            NodeServices(
                clock=self.clock,
                files=self.files,
                network=self.leaders,
                directory=directory,
                events=EventLog(files=self.files, clock=self.clock, directory="/data", broker_id=ME),
                counters=counters,
                spawn=self._spawn,
                say=print,
            ),
            flusher=Flusher(
                files=self.files, clock=self.clock, before_ack=False, on_failed=self._refused, counters=counters
            ),
            broker_epoch=lambda: 100 + ME,
            session_gone_ms=lambda: 0,
            submit_isr=self.proposals.append,
            on_directory_failed=self._refused,
        )
        self.image = MetadataImage()
        for broker_id in (ONE, ME, THREE):
            endpoints = {"REPLICATION": f"b{broker_id}"}
            self.image.brokers[broker_id] = BrokerRegistration(broker_id, 100 + broker_id, b"", endpoints, fenced=False)

    def produce_requests(self) -> ProduceRequests:
        unpacked = UnpackedProduces(files=self.files, spawn=self._spawn)
        return ProduceRequests(lookup=self.replicas.lookup, counters=self.replicas.counters, unpacked=unpacked)

    def _spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self.tasks.append(task)
        return task

    def _refused(self, *why: object) -> None:
        raise AssertionError(why)

    async def learn(
        self,
        leader: int,
        epoch: int,
        *,
        isr: tuple[int, ...] = (ONE, ME, THREE),
        replicas: tuple[int, ...] = (ONE, ME, THREE),
        tp: TopicPartition = ORDERS,
        topic_id: bytes = TOPIC_ID,
        version: int | None = None,
    ) -> None:
        """Metadata of one partition arrive; what follows from them is done when this returns."""
        topic = self.image.topics.setdefault(tp.topic, TopicImage(tp.topic, topic_id))
        topic.topic_id = topic_id
        number = epoch if version is None else version
        topic.partitions[0] = PartitionRegistration(replicas, isr, leader, epoch, number)
        self.replicas.apply(self.image, MetadataDelta(partitions={tp: None}))
        await self.clock.sleep(1)

    def leader(self, broker_id: int) -> Conversation:
        return self.leaders.streams[f"b{broker_id}"]

    def log_end(self) -> int:
        return self.replicas.replicas[ORDERS].state.log_end_offset


def fetch_requests(world: World) -> FetchRequests:
    """What this broker answers to fetches."""
    replicas = world.replicas
    return FetchRequests(
        clock=world.clock,
        files=world.files,
        lookup=replicas.lookup,
        purgatory=replicas.purgatory,
        counters=replicas.counters,
        max_bytes=8_000_000,
    )


class Waiter:
    """A fetch that waits at a replica, again and again: how often it was looked at. It knows the replica's offsets."""

    def __init__(self, replica: Replica, *, follower: bool, offset: int = 0) -> None:
        self.woken = 0
        self.offset = offset
        self._replica = replica
        self._key = replica.follower_fetches if follower else replica.consumer_fetches
        self.fetch = PartitionFetch(replica.topic_partition, offset, -1, -1, 0, 1 << 20, 500)
        self.fetch.told_high_watermark = replica.state.high_watermark
        self.fetch.told_log_start = replica.state.log_start_offset
        self._wait()

    @property
    def hears_of_news(self) -> bool:
        """It is told of changed offsets when its wait ends."""
        return self.fetch.news_at_ms is not None

    def leave(self) -> None:
        self._replica.purgatory.cancel(self._waiting)

    def _wait(self) -> None:
        self._waiting = DelayedFetch(self.fetch, self._look_again)
        self._replica.purgatory.register(self._waiting, self._key)

    def _look_again(self, fetch: PartitionFetch) -> None:
        state = self._replica.state
        assert state.high_watermark <= state.log_end_offset == self._replica.log.end_offset  # no half-done step
        self.woken += 1
        self._wait()


def stored(base: int, count: int = 1, epoch: int = 0) -> bytes:
    """A batch as a leader stores it, with timestamps of 0."""
    batch = encode_batch([(0, None, b"a", ())] * count)
    return stamped_prefix(base, len(batch) - 12, epoch) + batch[16:]


def fetch_answer(data: bytes = b"", *, epoch: int, offset: int = 0, **fields: Any) -> bytes:
    """A leader's answer to the fetch of orders-0 at `offset`."""
    header = pb.FetchAnswerHeader()
    header.partitions.add(
        topic="orders", partition=0, fetch_offset=offset, request_leader_epoch=epoch, size=len(data), **fields
    )
    return pack_frame(header.SerializeToString(), (data,))


async def answered(world: World, leader: int, data: bytes = b"", *, epoch: int, offset: int = 0, **fields: Any) -> None:
    """That leader's answer arrives."""
    world.leader(leader).answers.put_nowait(fetch_answer(data, epoch=epoch, offset=offset, **fields))
    await world.clock.sleep(1)


def maintenance_of(world: World, settings: BrokerSettings) -> Maintenance:
    """What this broker does by the clock."""
    return Maintenance(
        settings=settings,
        clock=world.clock,
        files=world.files,
        replicas=world.replicas,
        directory=world.replicas._directory,
    )


def run(story: Callable[[World], Coroutine[None, None, None]], disk: SimDisk | None = None) -> None:
    """Play a story in a world of its own."""
    loop = SimLoop(1)

    async def play() -> None:
        world = World(loop, disk)
        await story(world)
        await world.replicas.stop()
        await asyncio.gather(*world.tasks, return_exceptions=True)

    try:
        loop.run(play(), limit_s=3_600)
    finally:
        loop.close()
