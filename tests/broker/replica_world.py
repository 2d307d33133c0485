"""One broker's replicas above a simulated disk, under metadata that the test writes.

The broker is real; the leaders that it follows, and those that it serves, are queues that the test reads and fills.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from odradek_broker.config.settings import BrokerSettings
from odradek_broker.core.context import ANONYMOUS, RequestContext
from odradek_broker.core.fetching import PartitionFetch
from odradek_broker.core.metadata.delta import MetadataDelta
from odradek_broker.core.metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage
from odradek_broker.core.partition.messages import FetchDecision, FollowerFetch, IsrProposal
from odradek_broker.requests.access import OPEN, Access
from odradek_broker.requests.fetch import FetchRequests
from odradek_broker.requests.offsets import OffsetRequests
from odradek_broker.requests.produce import ProduceRequests
from odradek_broker.requests.quotas import NO_QUOTAS, Throttle
from odradek_broker.requests.records import RecordRequests
from odradek_broker.requests.unpacked import UnpackedProduces
from odradek_broker.rpc.fetch_session import FetchSession, SessionLimits
from odradek_broker.rpc.produce_session import ProduceSession
from odradek_broker.rpc.services import OffsetsService, RecordService
from odradek_broker.runtime.counters import Counters
from odradek_broker.runtime.events import EventLog
from odradek_broker.runtime.replicas.flusher import Flusher
from odradek_broker.runtime.replicas.maintenance import Maintenance
from odradek_broker.runtime.replicas.manager import ReplicaManager
from odradek_broker.runtime.replicas.purgatory import DelayedFetch, ProduceAnswer
from odradek_broker.runtime.replicas.replica import Replica
from odradek_broker.runtime.services import NodeServices
from odradek_broker.storage.directory import LogDirectory
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.kernel.clock import SimClock
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_proto.errors import ErrorCode
from odradek_proto.records import encode_batch, stamped_prefix
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.frames import pack_frame, split_frame
from odradek_proto.transport.ports import Accept, DialResult, Files, Handlers, Server, Stream, StreamClosed
from odradek_proto.v1 import broker_pb2 as pb

ORDERS = TopicPartition("orders", 0)
CALLER = RequestContext(ANONYMOUS, "GRPC")
ONE, ME, THREE = 1, 2, 3
TOPIC_ID = bytes(range(16))


class End:
    """One end of a stream that is two queues; the `other` one is the broker's."""

    def __init__(self, peer: str = "test", other: End | None = None) -> None:
        self.peer = peer
        self.inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.other: End = End(peer, self) if other is None else other

    def put(self, message: bytes) -> None:
        self.other.inbox.put_nowait(message)

    async def send(self, message: bytes) -> None:
        self.put(message)

    async def recv(self) -> bytes:
        message = await self.inbox.get()
        if message is None:
            raise StreamClosed(clean=True)
        return message

    def close(self) -> None:
        for end in (self, self.other):
            end.inbox.put_nowait(None)

    def empty(self) -> bool:
        return self.inbox.empty()

    def said(self) -> list[pb.FetchHeader]:
        """Everything that a follower has said since the last look, bare grants of credit left out."""
        headers = []
        while (message := None if self.empty() else self.inbox.get_nowait()) is not None:
            header = pb.FetchHeader.FromString(split_frame(message)[0])
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
        self.streams: dict[str, End] = {}

    async def open(self, peer: str, method: str, timeout_ms: float = 5000) -> Stream:
        return self.streams.setdefault(peer, End(peer)).other

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
        self.endless: list[asyncio.Task[None]] = []
        self.throttle: Throttle = NO_QUOTAS
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
                spawn=self.spawn,
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
        unpacked = UnpackedProduces(files=self.files, spawn=self.spawn)
        return ProduceRequests(lookup=self.replicas.lookup, counters=self.replicas.counters, unpacked=unpacked)

    def fetch_requests(self, access: Access = OPEN) -> FetchRequests:
        return FetchRequests(
            clock=self.clock,
            files=self.files,
            lookup=self.replicas.lookup,
            purgatory=self.replicas.purgatory,
            counters=self.replicas.counters,
            max_bytes=8_000_000,
            access=access,
            quota=self.replicas.leader_quota,
        )

    def fetch_session(self, *, follower: bool = False, credit_bytes: int = 16 << 20) -> End:
        """The reader's end of a session that is served."""
        ours = End()
        self.keep(fetch_session_on(self, ours.other, follower=follower, credit_bytes=credit_bytes).run)
        return ours

    def produce_session(self) -> End:
        """The producer's end of a session that is served."""
        ours = End()
        session = ProduceSession(
            ours.other, self.produce_requests(), CALLER, credit_bytes=1 << 20, throttle=self.throttle
        )
        self.keep(session.run)
        return ours

    def keep(self, *duties: Callable[[], Coroutine[object, object, None]]) -> None:
        """From now on, until the end of the story."""
        self.endless += [asyncio.ensure_future(duty()) for duty in duties]

    async def stop(self) -> None:
        for task in self.endless:
            task.cancel()
        await self.replicas.stop()
        await asyncio.gather(*self.endless, *self.tasks, return_exceptions=True)

    def spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
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

    async def lead(self, *topics: str, replicas: tuple[int, ...] = (ME,)) -> list[TopicPartition]:
        """This broker leads a partition of each of these topics, and is its ISR."""
        tps = [TopicPartition(topic, 0) for topic in topics]
        for tp in tps:
            await self.learn(ME, 0, isr=(ME,), replicas=replicas, tp=tp, topic_id=tp.topic.rjust(16)[:16].encode())
        return tps

    def leader(self, broker_id: int) -> End:
        return self.leaders.streams[f"b{broker_id}"]

    @property
    def replica(self) -> Replica:
        return self.replicas.replicas[ORDERS]

    def log_end(self) -> int:
        return self.replica.state.log_end_offset

    def cool(self) -> None:
        """The next reads of all logs come from the disk."""
        for replica in self.replicas.replicas.values():
            replica.log._tail.clear()

    def produce(
        self,
        value: bytes = b"a",
        *,
        acks: int = 1,
        timeout_ms: int = 30_000,
        tp: TopicPartition = ORDERS,
        batch: bytes | None = None,
    ) -> list[ProduceAnswer]:
        """One record or this batch is sent; what it was answered is in the list, later if not now."""
        answers: list[ProduceAnswer] = []
        sent = memoryview(batch_of(self, value) if batch is None else batch)
        self.replicas.replicas[tp].produce(sent, acks, timeout_ms, answers.append)
        return answers

    def fetched_by(
        self, broker_id: int, offset: int, *, epoch: int = 0, last: int = -1, log_start_offset: int = 0
    ) -> FetchDecision:
        """A follower names its position."""
        named = FollowerFetch(broker_id, 100 + broker_id, offset, epoch, last, log_start_offset)
        return self.replica.fetch_as_follower(named)


def fetch_session_on(
    world: World,
    stream: Stream,
    *,
    follower: bool = False,
    credit_bytes: int = 16 << 20,
    access: Access = OPEN,
    **options: Any,
) -> FetchSession:
    """A session that is not served yet."""
    limits = SessionLimits(8 << 20, credit_bytes)
    return FetchSession(
        stream,
        world.fetch_requests(access),
        CALLER,
        limits=limits,
        follower=follower,
        throttle=world.throttle,
        **options,
    )


class Reader:
    """Follower 1, or a consumer, with a session that is not served: the test takes its answers."""

    def __init__(self, world: World, *, follower: bool = False, access: Access = OPEN) -> None:
        self.near = End()
        self.session = fetch_session_on(world, self.near.other, follower=follower, access=access)
        self._replica_id = ONE if follower else -1

    def asks(self, wanted: int | Mapping[TopicPartition, int], **fields: Any) -> None:
        self.session.on_message(fetch_frame(wanted, **{"replica_id": self._replica_id, **fields}))

    def gets(self) -> list[pb.FetchedPartition]:
        """The next answer; nothing while it waits."""
        frame = self.session.gather()
        return [] if frame is None else [*pb.FetchAnswerHeader.FromString(split_frame(frame)[0]).partitions]


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
    """A leader's answer to the fetch of a partition, orders-0, at `offset`."""
    header = pb.FetchAnswerHeader()
    named = {"topic": "orders", "partition": 0, **fields}
    header.partitions.add(fetch_offset=offset, request_leader_epoch=epoch, size=len(data), **named)
    return pack_frame(header.SerializeToString(), (data,))


async def answered(world: World, leader: int, data: bytes = b"", *, epoch: int, offset: int = 0, **fields: Any) -> None:
    """That leader's answer arrives."""
    world.leader(leader).put(fetch_answer(data, epoch=epoch, offset=offset, **fields))
    await world.clock.sleep(1)


def fetch_frame(
    wanted: int | Mapping[TopicPartition, int],
    *,
    replica_id: int = -1,
    incarnation: int | None = None,
    epoch: int = -1,
    last: int = -1,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    answer_bytes: int = 0,
    credit: int = 0,
    **fields: Any,
) -> bytes:
    """A fetch of partitions, each from an offset, or of orders-0 alone; `fields` are those of each partition."""
    header = pb.FetchHeader(
        replica_id=replica_id,
        replica_epoch=100 + replica_id if incarnation is None else incarnation,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=answer_bytes,
        credit_bytes=credit,
    )
    for tp, offset in ({ORDERS: wanted} if isinstance(wanted, int) else wanted).items():
        header.partitions.add(
            topic=tp.topic,
            partition=tp.partition,
            fetch_offset=offset,
            current_leader_epoch=epoch,
            last_fetched_epoch=last,
            **fields,
        )
    return pack_frame(header.SerializeToString(), ())


def batch_of(world: World, value: bytes = b"a") -> bytes:
    """One record, as a producer sends it."""
    return encode_batch([(world.clock.wall_ms(), None, value, ())])


def produce_frame(*batches: bytes, acks: int = -1, timeout_ms: int = 1_000) -> bytes:
    header = pb.ProduceHeader()
    for number, data in enumerate(batches):
        header.items.add(
            correlation_id=number, acks=acks, timeout_ms=timeout_ms, topic="orders", partition=0, size=len(data)
        )
    return pack_frame(header.SerializeToString(), batches)


async def produced(end: End) -> pb.ProduceAnswer:
    """The next answer; the grant of credit comes first and alone."""
    while True:
        answers = pb.ProduceAnswers.FromString(await end.recv()).answers
        if answers:
            return answers[0]


def credit_frame(credit: int) -> bytes:
    """A bare grant of credit."""
    return pack_frame(pb.FetchHeader(credit_bytes=credit).SerializeToString(), ())


async def fetched(end: End) -> tuple[pb.FetchedPartition, memoryview]:
    """The next answer of a session, which has one partition."""
    header, data = split_frame(await end.recv())
    (item,) = pb.FetchAnswerHeader.FromString(header).partitions
    return item, data


async def listed(
    replicas: ReplicaManager,
    files: Files,
    timestamp_ms: int,
    *,
    tp: TopicPartition = ORDERS,
    replica_id: int = -1,
    epoch: int = -1,
) -> tuple[ErrorCode, int]:
    """What ListOffsets answers."""
    request = pb.ListOffsetsRequest(replica_id=replica_id)
    request.partitions.add(
        topic=tp.topic, partition=tp.partition, timestamp_ms=timestamp_ms, current_leader_epoch=epoch
    )
    service = OffsetsService(OffsetRequests(lookup=replicas.lookup, files=files), for_followers=True)
    answer = pb.ListOffsetsResponse.FromString(await service.list_offsets(request.SerializeToString(), CALLER))
    (item,) = answer.partitions
    return ErrorCode(item.error_code), item.offset


async def deleted(
    replicas: ReplicaManager, offset: int, *, tp: TopicPartition = ORDERS, timeout_ms: int = 1_000
) -> tuple[ErrorCode, int]:
    """What DeleteRecords answers: the error, and how far all live replicas have cut."""
    request = pb.DeleteRecordsRequest(timeout_ms=timeout_ms)
    request.partitions.add(topic=tp.topic, partition=tp.partition, offset=offset)
    service = RecordService(RecordRequests(replicas=replicas, broker_id=ME))
    answer = pb.DeleteRecordsResponse.FromString(await service.delete_records(request.SerializeToString(), CALLER))
    (item,) = answer.partitions
    return ErrorCode(item.error_code), item.low_watermark


def maintenance_of(world: World, **settings: Any) -> Maintenance:
    """What this broker does by the clock."""
    return Maintenance(
        settings=BrokerSettings(node_id=ME, **settings),
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
        await world.stop()

    try:
        loop.run(play(), limit_s=3_600)
    finally:
        loop.close()
