"""One replica over a real log, and streams to it that are pairs of queues. Time is virtual."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from odradek_broker.core.context import ANONYMOUS, RequestContext
from odradek_broker.core.metadata.image import BrokerRegistration, PartitionRegistration
from odradek_broker.core.partition.follower import FollowerPartition
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.core.partition.messages import IsrProposal, PartitionSettings, TruncationMode
from odradek_broker.core.partition.policy import policy_for
from odradek_broker.requests.fetch import FetchRequests
from odradek_broker.requests.produce import ProduceRequests
from odradek_broker.requests.quotas import NO_QUOTAS, Throttle
from odradek_broker.requests.unpacked import UnpackedProduces
from odradek_broker.rpc.fetch_session import FetchSession, SessionLimits
from odradek_broker.rpc.produce_session import ProduceSession
from odradek_broker.runtime.counters import Counters
from odradek_broker.runtime.events import EventLog
from odradek_broker.runtime.replicas.purgatory import Purgatory
from odradek_broker.runtime.replicas.replica import Replica
from odradek_broker.storage.cache import RecentBatches
from odradek_broker.storage.log import Log
from odradek_broker.storage.opening import KnownLog
from odradek_broker.storage.settings import LogSettings
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.kernel.clock import SimClock
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_proto.errors import ErrorCode
from odradek_proto.records import encode_batch
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.frames import pack_frame, split_frame
from odradek_proto.transport.ports import Clock, StreamClosed
from odradek_proto.v1 import broker_pb2 as pb

TP = TopicPartition("orders", 0)
TOPIC_ID = bytes(range(16))
LEADER, FOLLOWER, OTHER = 1, 2, 3
EPOCH = 4
CALLER = RequestContext(ANONYMOUS, "GRPC")


class End:
    """One end of a stream that is two queues."""

    def __init__(self, inbox: asyncio.Queue[bytes | None], outbox: asyncio.Queue[bytes | None]) -> None:
        self.peer = "test"
        self._inbox, self._outbox = inbox, outbox

    async def send(self, message: bytes) -> None:
        self._outbox.put_nowait(message)

    async def recv(self) -> bytes:
        message = await self._inbox.get()
        if message is None:
            raise StreamClosed(clean=True)
        return message

    def close(self) -> None:
        self._outbox.put_nowait(None)
        self._inbox.put_nowait(None)

    def empty(self) -> bool:
        return self._inbox.empty()


def stream() -> tuple[End, End]:
    one: asyncio.Queue[bytes | None] = asyncio.Queue()
    two: asyncio.Queue[bytes | None] = asyncio.Queue()
    return End(one, two), End(two, one)


@dataclass
class Broker:
    """What a replica needs of its broker; the controller's part is played by the test."""

    clock: Clock
    events: EventLog
    proposals: list[IsrProposal] = field(default_factory=list)
    alone: bool = True
    counters: Counters = field(default_factory=Counters)

    def __post_init__(self) -> None:
        self.purgatory = Purgatory(self.clock)

    def propose_isr(self, replica: Replica, proposal: IsrProposal) -> None:
        self.proposals.append(proposal)

    def request_ready(self, replica: Replica) -> None: ...

    def after_append(self, replica: Replica) -> None: ...

    def may_acknowledge_alone(self) -> bool:
        return self.alone

    def storage_failed(self, replica: Replica, error: Exception) -> None:
        replica.take_offline(str(error))

    def allow_gaps(self, replica: Replica) -> None:
        replica.log.allow_gaps()

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        return BrokerRegistration(broker_id, broker_epoch=7, incarnation_id=b"", endpoints={}, fenced=False)


@dataclass
class World:
    loop: SimLoop
    clock: SimClock
    disk: SimDisk
    files: SimFiles
    broker: Broker
    replica: Replica
    throttle: Throttle = NO_QUOTAS

    def lookup(self, tp: TopicPartition, topic_id: bytes = b"") -> Replica | ErrorCode:
        return self.replica if tp == TP else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def fetch_session(self, *, follower: bool, credit_bytes: int = 16 << 20) -> End:
        ours, theirs = stream()
        limits = SessionLimits(8 << 20, credit_bytes)
        session = FetchSession(
            theirs, self.fetch_requests(), CALLER, limits=limits, follower=follower, throttle=self.throttle
        )
        self.tasks.append(asyncio.ensure_future(session.run()))
        return ours

    def fetch_requests(self) -> FetchRequests:
        return FetchRequests(
            clock=self.clock,
            files=self.files,
            lookup=self.lookup,
            purgatory=self.broker.purgatory,
            counters=self.broker.counters,
            max_bytes=8 << 20,
        )

    def produce_session(self, credit_bytes: int = 1 << 20) -> End:
        ours, theirs = stream()
        session = ProduceSession(
            theirs,
            ProduceRequests(
                lookup=self.lookup,
                counters=self.broker.counters,
                unpacked=UnpackedProduces(files=self.files, spawn=asyncio.create_task),
            ),
            CALLER,
            credit_bytes=credit_bytes,
            throttle=self.throttle,
        )
        self.tasks.append(asyncio.ensure_future(session.run()))
        return ours

    tasks: list[asyncio.Future[None]] = field(default_factory=list)


def registration(isr: tuple[int, ...], leader: int = LEADER, epoch: int = EPOCH) -> PartitionRegistration:
    return PartitionRegistration((LEADER, FOLLOWER, OTHER), isr, leader, epoch, epoch)


def lead(world: World, isr: tuple[int, ...], *, epoch: int = EPOCH, min_isr: int = 1) -> LeaderPartition:
    leader = LeaderPartition(
        world.replica.state,
        broker_id=LEADER,
        registration=registration(isr, epoch=epoch),
        settings=PartitionSettings(min_insync_replicas=min_isr),
        policy=policy_for(TruncationMode.FETCH),
        brokers=world.broker,
        now_ms=world.clock.now_ms(),
    )
    world.replica.registration = registration(isr, epoch=epoch)
    world.replica.take_role(leader)
    return leader


def follow_successor(world: World) -> None:
    """The controller has given the leadership to another broker, in a new epoch."""
    successor = registration((FOLLOWER,), leader=FOLLOWER, epoch=EPOCH + 1)
    world.replica.registration = successor
    world.replica.take_role(
        FollowerPartition(
            world.replica.state,
            broker_id=LEADER,
            registration=successor,
            settings=PartitionSettings(),
            policy=policy_for(TruncationMode.FETCH),
            now_ms=world.clock.now_ms(),
        )
    )


def run(story: Callable[[World], Coroutine[None, None, None]], *, cache_bytes: int = 1 << 20) -> None:
    """Play a story in a world of its own."""
    loop = SimLoop(1)
    clock = SimClock(loop, random.Random(1))
    disk = SimDisk(random.Random(2))
    files = SimFiles(disk, loop, random.Random(3))
    files.makedirs("/data/orders-0")
    log = Log.open(
        files,
        "/data/orders-0",
        TP,
        settings=LogSettings(),
        known=KnownLog(TOPIC_ID),
        clean=True,
        wall_ms=clock.wall_ms(),
        cache=RecentBatches(cache_bytes),
    )
    broker = Broker(clock, EventLog(files=files, clock=clock, directory="/data", broker_id=LEADER))
    world = World(loop, clock, disk, files, broker, Replica(log, broker))

    async def play() -> None:
        await story(world)
        for task in world.tasks:
            task.cancel()
        await asyncio.gather(*world.tasks, return_exceptions=True)

    try:
        loop.run(play(), limit_s=120)
    finally:
        world.replica.close()
        loop.close()


def batch(world: World, *values: bytes) -> bytes:
    return encode_batch([(world.clock.wall_ms(), None, value, ()) for value in values])


def produce_frame(*batches: bytes, acks: int = -1, topic: str = "orders", timeout_ms: int = 1_000) -> bytes:
    header = pb.ProduceHeader()
    for number, data in enumerate(batches):
        header.items.add(
            correlation_id=number, acks=acks, timeout_ms=timeout_ms, topic=topic, partition=0, size=len(data)
        )
    return pack_frame(header.SerializeToString(), batches)


def fetch_frame(
    offset: int,
    *,
    replica_id: int = -1,
    max_wait_ms: int = 500,
    epoch: int = EPOCH,
    last: int = -1,
    credit: int = 0,
    min_bytes: int = 1,
) -> bytes:
    header = pb.FetchHeader(
        replica_id=replica_id, replica_epoch=7, max_wait_ms=max_wait_ms, min_bytes=min_bytes, credit_bytes=credit
    )
    header.partitions.add(
        topic="orders", partition=0, fetch_offset=offset, current_leader_epoch=epoch, last_fetched_epoch=last
    )
    return pack_frame(header.SerializeToString(), ())


async def produced(end: End) -> pb.ProduceAnswer:
    """The next answer; the grant of credit comes first and alone."""
    while True:
        answers = pb.ProduceAnswers.FromString(await end.recv()).answers
        if answers:
            return answers[0]


async def fetched(end: End) -> tuple[pb.FetchedPartition, memoryview]:
    header, data = split_frame(await end.recv())
    return pb.FetchAnswerHeader.FromString(header).partitions[0], data
