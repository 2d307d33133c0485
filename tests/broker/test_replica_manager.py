"""The replicas of one broker under changing metadata: who is followed, who is not any more, what becomes of the log.

The broker is real down to a simulated disk; the leaders that it follows are queues that the test reads and fills.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine

import pytest
from odradek_broker.core.metadata.delta import MetadataDelta
from odradek_broker.core.metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage
from odradek_broker.core.partition.messages import IsrProposal
from odradek_broker.runtime.counters import Counters
from odradek_broker.runtime.events import EventLog
from odradek_broker.runtime.fetch_session import FetchSession, SessionLimits
from odradek_broker.runtime.flusher import Flusher
from odradek_broker.runtime.hosted import HostedReplica
from odradek_broker.runtime.replicas import ReplicaManager
from odradek_broker.runtime.waiting_produces import ProduceAnswer
from odradek_broker.settings import BrokerSettings
from odradek_broker.storage.directory import LogDirectory
from odradek_chaos.worlds.simulated.clock import SimClock
from odradek_chaos.worlds.simulated.disk import SimDisk
from odradek_chaos.worlds.simulated.fabric import SimFabric
from odradek_chaos.worlds.simulated.files import SimFiles
from odradek_chaos.worlds.simulated.loop import SimLoop
from odradek_proto.errors import ErrorCode
from odradek_proto.records import encode_batch, stamped_prefix
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.frames import pack_frame, split_frame
from odradek_proto.transport.ports import DialResult, Handlers, Server, Stream, StreamClosed
from odradek_proto.v1 import broker_pb2 as pb
from odradek_proto.values import replace

ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 0)
ME, ONE, THREE = 2, 1, 3
TOPIC_ID, ANOTHER_ID = bytes(range(16)), bytes(16)


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

    async def close(self) -> None: ...


class World:
    """Broker 2 with an empty directory, in a cluster of three."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.clock = SimClock(loop, random.Random(1))
        self.files = SimFiles(SimDisk(random.Random(2)), loop, random.Random(3))
        self.leaders = Leaders()
        self.proposals: list[IsrProposal] = []
        self.tasks: list[asyncio.Task[None]] = []
        rng = random.Random(4)
        wall_ms = self.clock.wall_ms()
        directory = LogDirectory.open(self.files, "/data", node_id=ME, cluster_id="c", wall_ms=wall_ms, rng=rng)
        counters = Counters()
        self.replicas = ReplicaManager(
            settings=BrokerSettings(node_id=ME),
            clock=self.clock,
            network=self.leaders,
            directory=directory,
            events=EventLog(files=self.files, clock=self.clock, directory="/data", broker_id=ME),
            counters=counters,
            flusher=Flusher(
                files=self.files, clock=self.clock, before_ack=False, on_failed=self._refused, counters=counters
            ),
            broker_epoch=lambda: 100 + ME,
            session_gone_ms=lambda: 0,
            submit_isr=self.proposals.append,
            spawn=self._spawn,
            on_directory_failed=self._refused,
        )
        self.image = MetadataImage()
        for broker_id in (ONE, ME, THREE):
            endpoints = {"GRPC": f"b{broker_id}"}
            self.image.brokers[broker_id] = BrokerRegistration(broker_id, 100 + broker_id, b"", endpoints, fenced=False)

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


def run(story: Callable[[World], Coroutine[None, None, None]]) -> None:
    """Play a story in a world of its own."""
    loop = SimLoop(1)

    async def play() -> None:
        world = World(loop)
        await story(world)
        await world.replicas.stop()
        await asyncio.gather(*world.tasks, return_exceptions=True)

    try:
        loop.run(play(), limit_s=60)
    finally:
        loop.close()


def one_record(epoch: int) -> bytes:
    batch = encode_batch([(0, None, b"a", ())])
    return stamped_prefix(0, len(batch) - 12, epoch) + batch[16:]


def answer_with(data: bytes, *, epoch: int, offset: int = 0) -> bytes:
    """What a leader sends for orders-0."""
    header = pb.FetchAnswerHeader()
    header.partitions.add(
        topic="orders", partition=0, fetch_offset=offset, request_leader_epoch=epoch, size=len(data), high_watermark=0
    )
    return pack_frame(header.SerializeToString(), (data,))


def test_what_the_old_leader_still_sends_is_not_appended() -> None:
    """The old fetcher lets go before the new one reads where to go on, whatever is on the way (R-103, PA-43)."""

    async def story(world: World) -> None:
        await world.learn(ONE, 0)
        assert world.leader(ONE).asked() == [("orders", 0, 0)]
        await world.learn(THREE, 1)
        world.leader(ONE).answers.put_nowait(answer_with(one_record(0), epoch=0))
        await world.clock.sleep(1)
        assert world.log_end() == 0
        assert world.leader(THREE).asked() == [("orders", 0, 1)]
        assert [each.topic for header in world.leader(ONE).said() for each in header.forgotten] == ["orders"]

    run(story)


def test_the_same_leader_in_a_new_epoch_is_asked_anew() -> None:
    """It may have lost its leadership and returned with another log: its older answer does not count (R-104, PA-26)."""

    async def story(world: World) -> None:
        await world.learn(ONE, 0)
        assert world.leader(ONE).asked() == [("orders", 0, 0)]
        await world.learn(ONE, 2)
        assert world.leader(ONE).asked() == [("orders", 0, 2)]
        world.leader(ONE).answers.put_nowait(answer_with(one_record(0), epoch=0))
        await world.clock.sleep(1)
        assert world.log_end() == 0
        world.leader(ONE).answers.put_nowait(answer_with(one_record(2), epoch=2))
        await world.clock.sleep(1)
        assert world.log_end() == 1

    run(story)


def test_a_change_of_the_isr_alone_leaves_the_fetch_where_it_is() -> None:
    """No second question, and the answer to the first one counts (R-102, R-103, PA-44)."""

    async def story(world: World) -> None:
        await world.learn(ONE, 0)
        assert world.leader(ONE).asked() == [("orders", 0, 0)]
        await world.learn(ONE, 0, isr=(ONE, ME), version=1)
        assert world.leader(ONE).said() == []
        world.leader(ONE).answers.put_nowait(answer_with(one_record(0), epoch=0))
        await world.clock.sleep(1)
        assert world.log_end() == 1

    run(story)


@pytest.mark.parametrize(
    ("leader", "isr", "fetches"), [(ONE, (ONE, THREE), False), (-1, (ME,), False), (ONE, (ONE, ME, THREE), True)]
)
def test_a_broker_that_leaves_follows_only_where_it_is_in_sync(
    leader: int, isr: tuple[int, ...], fetches: bool
) -> None:
    """No leader, or an ISR without it: it asks no more, and the log stays (R-106, PA-45)."""

    async def story(world: World) -> None:
        await world.learn(ONE, 0)
        await world.learn(ONE, 0, tp=BILLS, topic_id=ANOTHER_ID)
        world.leader(ONE).answers.put_nowait(answer_with(one_record(0), epoch=0))
        await world.clock.sleep(1)
        world.leader(ONE).said()
        world.image.brokers[ME] = replace(world.image.brokers[ME], in_controlled_shutdown=True)
        await world.learn(leader, 0 if leader == ONE else 1, isr=isr, version=1)
        said = [each.topic for header in world.leader(ONE).said() for each in header.forgotten]
        assert said == ([] if fetches else ["orders"])
        world.leader(ONE).answers.put_nowait(answer_with(b"", epoch=0, offset=1))
        await world.clock.sleep(1)
        assert world.leader(ONE).asked() == ([("orders", 1, 0)] if fetches else [])
        assert world.log_end() == 1

    run(story)


def test_a_broker_that_stays_follows_whoever_leads() -> None:
    """Out of the ISR is where a replica has most to fetch: only its own shutdown makes a difference (R-106)."""

    async def story(world: World) -> None:
        await world.learn(ONE, 0, isr=(ONE, THREE))
        assert world.leader(ONE).asked() == [("orders", 0, 0)]

    run(story)


def test_a_replica_that_moved_away_answers_and_leaves_its_log_to_be_deleted() -> None:
    """Not a replica any more: who waits is told, the directory is renamed, nothing is fetched (R-105)."""

    async def story(world: World) -> None:
        await world.learn(ME, 0)
        answers: list[ProduceAnswer] = []
        batch = encode_batch([(world.clock.wall_ms(), None, b"a", ())])
        world.replicas.replicas[ORDERS].produce(memoryview(batch), -1, 30_000, answers.append)
        assert answers == []
        await world.learn(ONE, 1, replicas=(ONE, THREE), isr=(ONE, THREE))
        assert [each.error for each in answers] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert world.replicas.lookup(ORDERS) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not world.files.is_dir("/data/orders-0")
        assert [name for name in world.files.list("/data") if name.endswith("-delete")] != []
        assert world.leaders.streams == {}

    run(story)


def test_another_topic_of_the_same_name_gets_another_log() -> None:
    """The old log is set aside, and what it held is in no one's way (R-107)."""

    async def story(world: World) -> None:
        await world.learn(ONE, 0)
        world.leader(ONE).answers.put_nowait(answer_with(one_record(0), epoch=0))
        await world.clock.sleep(1)
        assert world.log_end() == 1
        await world.learn(ONE, 0, topic_id=ANOTHER_ID)
        assert world.log_end() == 0

    run(story)


@pytest.mark.parametrize(
    ("topic_id", "expected"),
    [(TOPIC_ID, ErrorCode.NONE), (b"", ErrorCode.NONE), (ANOTHER_ID, ErrorCode.INCONSISTENT_TOPIC_ID)],
    ids=["the same", "none", "another"],
)
def test_a_fetch_for_another_topic_of_the_same_name_is_refused(topic_id: bytes, expected: ErrorCode) -> None:
    """The name may have been given to a new topic: its records are not these (R-35, R-107, PA-46)."""

    async def story(world: World) -> None:
        await world.learn(ME, 0)
        session = FetchSession(
            SimFabric(world.loop, random.Random(5)).connect("b3", "b2", "b3", "b2").other,
            clock=world.clock,
            files=world.files,
            lookup=world.replicas.lookup,
            limits=SessionLimits(1_000_000),
            follower=True,
        )
        hosted = world.replicas.replicas[ORDERS]
        batch = encode_batch([(world.clock.wall_ms(), None, b"a", ())])
        hosted.produce(memoryview(batch), 1, 30_000, lambda answer: None)
        header = pb.FetchHeader(replica_id=THREE, replica_epoch=100 + THREE, max_wait_ms=500, min_bytes=1)
        header.partitions.add(
            topic="orders", partition=0, fetch_offset=0, last_fetched_epoch=-1, topic_id=topic_id, max_bytes=1_000
        )
        session.on_message(pack_frame(header.SerializeToString(), ()))
        frame = session.gather()
        assert frame is not None
        (item,) = pb.FetchAnswerHeader.FromString(split_frame(frame)[0]).partitions
        assert ErrorCode(item.error_code) is expected
        assert (item.size > 0) == (expected is ErrorCode.NONE)
        leader = hosted.leader
        assert leader is not None
        remote = leader.remote_replica(THREE)
        assert remote is not None
        assert (remote.log_end_offset == 0) == (expected is ErrorCode.NONE)

    run(story)


def test_a_removed_partition_ignores_the_answer_that_was_on_its_way() -> None:
    """The topic was deleted while the leader answered: nothing happens (R-80, FE-06)."""

    async def story(world: World) -> None:
        await world.learn(ONE, 0)
        hosted: HostedReplica = world.replicas.replicas[ORDERS]
        await world.learn(ONE, 1, replicas=(ONE, THREE), isr=(ONE, THREE))
        header = pb.FetchAnswerHeader()
        header.partitions.add(
            topic="orders", partition=0, fetch_offset=0, request_leader_epoch=0, diverging=True, diverging_epoch=0
        )
        for frame in (answer_with(one_record(0), epoch=0), pack_frame(header.SerializeToString(), ())):
            world.leader(ONE).answers.put_nowait(frame)
        await world.clock.sleep(1)
        assert hosted.state.log_end_offset == 0
        assert world.leader(ONE).asked() == [("orders", 0, 0)]

    run(story)
