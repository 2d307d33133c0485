"""Many partitions in one fetch session: whoever has something to read gets its turn, whatever becomes of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from odradek_broker.core.metadata.delta import MetadataDelta
from odradek_broker.core.metadata.image import PartitionRegistration
from odradek_broker.requests.fetch_answers import MAX_READS
from odradek_broker.rpc.backpressure import PROVEN_BYTES, ResponseBudget
from odradek_broker.rpc.fetch_session import FetchSession, SessionLimits
from odradek_chaos.worlds.simulated.net.fabric import SimFabric
from odradek_proto.encoding import encode_batch
from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.frames import pack_frame, split_frame
from odradek_proto.transport.ports import Stream
from odradek_proto.v1 import broker_pb2 as pb

from tests.broker.replica_world import CALLER, ME, ONE, World, fetch_requests, run
from tests.playing import plays


async def lead(world: World, name: str, size: int) -> TopicPartition:
    """This broker leads a topic that holds one record of so many bytes."""
    tp = TopicPartition(name, 0)
    await world.learn(ME, 0, isr=(ME,), replicas=(ME,), tp=tp, topic_id=name.rjust(16).encode())
    append(world, tp, size)
    return tp


def append(world: World, tp: TopicPartition, size: int) -> None:
    batch = memoryview(encode_batch([(world.clock.wall_ms(), None, bytes(size), ())]))
    world.replicas.replicas[tp].produce(batch, 1, 1_000, lambda answer: None)


def reader(world: World) -> tuple[FetchSession, Stream]:
    """A consumer's session, and the consumer's end of its stream."""
    near = SimFabric(world.loop, world.loop.fork_rng("links")).connect("client", "b2", "client", "b2")
    session = FetchSession(
        near.other,
        fetch_requests(world),
        CALLER,
        limits=SessionLimits(1_000_000),
    )
    return session, near


def names(wanted: Iterable[tuple[TopicPartition, int]], *, max_bytes: int = 1_000_000) -> bytes:
    """A fetch of these partitions, each from an offset."""
    header = pb.FetchHeader(replica_id=-1, replica_epoch=-1, max_wait_ms=500, min_bytes=1, max_bytes=max_bytes)
    for tp, offset in wanted:
        header.partitions.add(
            topic=tp.topic, partition=0, fetch_offset=offset, current_leader_epoch=0, last_fetched_epoch=-1
        )
    return pack_frame(header.SerializeToString(), ())


@plays(run)
async def test_a_partition_that_is_refused_while_it_is_read_for_makes_room_for_the_next(world: World) -> None:
    """A client that is told who leads now does not name it here again: nobody else would say that it is forgotten."""
    moving = [await lead(world, f"moving-{number}", 1_000) for number in range(MAX_READS + 2)]
    staying = [await lead(world, f"staying-{number}", 1_000) for number in range(2)]
    for replica in world.replicas.replicas.values():
        replica.log._tail.clear()
    session, near = reader(world)
    session.on_message(names((tp, 0) for tp in (*moving, *staying)))
    assert session.gather() is None  # threads read
    for tp in moving:  # the last two of them stand in line before those that stay
        world.image.topics[tp.topic].partitions[0] = PartitionRegistration((ONE, ME), (ONE,), ONE, 1, 1)
    world.replicas.apply(world.image, MetadataDelta(partitions=dict.fromkeys(moving)))
    serving = asyncio.ensure_future(session.run())
    told: dict[str, tuple[ErrorCode, int]] = {}
    while len(told) < len(moving) + len(staying):
        header, _ = split_frame(await asyncio.wait_for(near.recv(), 10))
        for item in pb.FetchAnswerHeader.FromString(header).partitions:
            told[item.topic] = (ErrorCode(item.error_code), item.size)
    assert {told[tp.topic] for tp in moving} == {(ErrorCode.FENCED_LEADER_EPOCH, 0)}
    assert all(told[tp.topic][0] is ErrorCode.NONE and told[tp.topic][1] > 1_000 for tp in staying)
    assert not session._gatherer._answers._cold._reads
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


@plays(run)
async def test_a_large_batch_gets_its_turn_among_partitions_that_are_always_ready(world: World) -> None:
    """A first batch that did not fit behind others is the first one of the next answer, not the last one again."""
    small = [await lead(world, f"small-{number}", 100) for number in range(2)]
    large = await lead(world, "large", 900)
    session, _ = reader(world)
    offsets = {small[0]: 0, large: 0, small[1]: 0}
    session.on_message(names(offsets.items(), max_bytes=1_000))
    for _ in range(20):
        frame = session.gather()
        assert frame is not None
        for item in pb.FetchAnswerHeader.FromString(split_frame(frame)[0]).partitions:
            if item.topic == large.topic:
                return
            tp = TopicPartition(item.topic, 0)
            append(world, tp, 100)
            offsets[tp] += 1
            session.on_message(names([(tp, offsets[tp])], max_bytes=1_000))
    raise AssertionError("the large batch was not sent")


@plays(run)
async def test_whoever_asks_for_less_than_nothing_gets_one_batch(world: World) -> None:
    """Without room in an answer the session would look again and again, and the broker would do nothing else."""
    wanted = [await lead(world, f"orders-{number}", 100) for number in range(2)]
    session, _ = reader(world)
    session.on_message(names(((tp, 0) for tp in wanted), max_bytes=-1))
    for tp in wanted:
        frame = session.gather()
        assert frame is not None
        (item,) = pb.FetchAnswerHeader.FromString(split_frame(frame)[0]).partitions
        assert (item.topic, ErrorCode(item.error_code)) == (tp.topic, ErrorCode.NONE)
        assert item.size > 100


class SlowReader:
    """A consumer behind a slow line, with as much to read as it can take: it fetches the same again and again."""

    peer = "client"

    def __init__(self, world: World, unsent: ResponseBudget, wanted: list[TopicPartition], *, trusted: bool) -> None:
        self.answers = 0
        self._clock = world.clock
        self._wanted = wanted
        self._session = FetchSession(
            self,
            fetch_requests(world),
            CALLER,
            limits=SessionLimits(1_000_000, default_credit_bytes=1 << 40),
            unsent=unsent,
        )
        if trusted:
            self._session._allowance.took(PROVEN_BYTES)
        self.serving = asyncio.ensure_future(self._session.run(self._fetch()))

    def _fetch(self) -> bytes:
        return names(((tp, 0) for tp in self._wanted), max_bytes=1_000)

    async def send(self, message: bytes) -> None:
        await self._clock.sleep(10)
        self.answers += 1
        self._session.on_message(self._fetch())

    async def recv(self) -> bytes:
        silence: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        return await silence

    def close(self) -> None: ...


@pytest.mark.parametrize("trusted", [True, False], ids=["as-the-others", "newcomer"])
@plays(run)
async def test_one_reader_more_than_there_is_room_for_gets_its_turn(world: World, trusted: bool) -> None:
    """Whoever has sent an answer and has the next one ready does not take the room from those who wait for it."""
    wanted = [await lead(world, f"orders-{number}", 1_000) for number in range(2)]
    unsent = ResponseBudget(4_000)  # four answers of a thousand bytes and a little
    readers = [SlowReader(world, unsent, wanted, trusted=True) for _ in range(4)]
    await world.clock.sleep(100)
    late = SlowReader(world, unsent, wanted, trusted=trusted)
    before = [reader.answers for reader in readers]
    await world.clock.sleep(1_000)
    told = [reader.answers - count for reader, count in zip(readers, before, strict=True)]
    for reader in (*readers, late):
        reader.serving.cancel()
    await asyncio.gather(*(reader.serving for reader in (*readers, late)), return_exceptions=True)
    assert min(told) > 50, told
    assert late.answers > 50, late.answers
