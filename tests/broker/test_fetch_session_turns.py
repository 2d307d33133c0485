"""Many partitions in one fetch session: whoever has something to read gets its turn, whatever becomes of the others."""

from __future__ import annotations

import asyncio

import pytest
from odradek_broker.core.metadata.delta import MetadataDelta
from odradek_broker.core.metadata.image import PartitionRegistration
from odradek_broker.requests.fetch_answers import MAX_READS
from odradek_broker.rpc.backpressure import PROVEN_BYTES, ResponseBudget
from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.frames import split_frame
from odradek_proto.v1 import broker_pb2 as pb

from tests.broker.replica_world import ME, ONE, Reader, World, fetch_frame, fetch_session_on, run
from tests.playing import plays


async def holding(world: World, size: int, *topics: str) -> list[TopicPartition]:
    """This broker leads topics that hold one record of so many bytes each."""
    tps = await world.lead(*topics, replicas=(ME, ONE))
    for tp in tps:
        world.produce(bytes(size), tp=tp)
    return tps


@plays(run)
async def test_a_partition_that_is_refused_while_it_is_read_for_makes_room_for_the_next(world: World) -> None:
    """A client that is told who leads now does not name it here again: nobody else would say that it is forgotten."""
    moving = await holding(world, 1_000, *(f"moving-{number}" for number in range(MAX_READS + 2)))
    staying = await holding(world, 1_000, "staying-0", "staying-1")
    world.cool()
    reader = Reader(world)
    reader.asks(dict.fromkeys((*moving, *staying), 0), epoch=0)
    assert reader.gets() == []  # threads read
    for tp in moving:  # the last two of them stand in line before those that stay
        world.image.topics[tp.topic].partitions[0] = PartitionRegistration((ONE, ME), (ONE,), ONE, 1, 1)
    world.replicas.apply(world.image, MetadataDelta(partitions=dict.fromkeys(moving)))
    serving = asyncio.ensure_future(reader.session.run())
    told: dict[str, tuple[ErrorCode, int]] = {}
    while len(told) < len(moving) + len(staying):
        header, _ = split_frame(await asyncio.wait_for(reader.near.recv(), 10))
        for item in pb.FetchAnswerHeader.FromString(header).partitions:
            told[item.topic] = (ErrorCode(item.error_code), item.size)
    assert {told[tp.topic] for tp in moving} == {(ErrorCode.FENCED_LEADER_EPOCH, 0)}
    assert all(told[tp.topic][0] is ErrorCode.NONE and told[tp.topic][1] > 1_000 for tp in staying)
    assert not reader.session._gatherer._answers._cold._reads
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


@plays(run)
async def test_a_large_batch_gets_its_turn_among_partitions_that_are_always_ready(world: World) -> None:
    """A first batch that did not fit behind others is the first one of the next answer, not the last one again."""
    small = await holding(world, 100, "small-0", "small-1")
    (large,) = await holding(world, 900, "large")
    reader = Reader(world)
    offsets = {small[0]: 0, large: 0, small[1]: 0}
    reader.asks(offsets, answer_bytes=1_000)
    for _ in range(20):
        for item in reader.gets():
            if item.topic == large.topic:
                return
            tp = TopicPartition(item.topic, 0)
            world.produce(bytes(100), tp=tp)
            offsets[tp] += 1
            reader.asks({tp: offsets[tp]}, answer_bytes=1_000)
    raise AssertionError("the large batch was not sent")


@plays(run)
async def test_whoever_asks_for_less_than_nothing_gets_one_batch(world: World) -> None:
    """Without room in an answer the session would look again and again, and the broker would do nothing else."""
    wanted = await holding(world, 100, "orders", "payments")
    reader = Reader(world)
    reader.asks(dict.fromkeys(wanted, 0), answer_bytes=-1)
    for tp in wanted:
        (item,) = reader.gets()
        assert (item.topic, ErrorCode(item.error_code)) == (tp.topic, ErrorCode.NONE)
        assert item.size > 100


@plays(run)
async def test_a_batch_that_does_not_fit_costs_no_credit(world: World) -> None:
    """A second partition whose first batch is over its limit waits for the next answer, and is charged when sent.

    Otherwise each such wait costs a whole answer's budget, and a follower with a small replica.fetch.max.bytes
    starves after a few.
    """
    wanted = await holding(world, 300, "orders", "payments")
    follower = Reader(world, follower=True)
    follower.asks(dict.fromkeys(wanted, 0), credit=10_000_000, max_bytes=200)
    sent = 0
    for _ in wanted:
        (item,) = follower.gets()
        sent += item.size
    assert sent > 600
    assert follower.session._credit.left == 10_000_000 - sent


class SlowReader:
    """A consumer behind a slow line, with as much to read as it can take: it fetches the same again and again."""

    peer = "client"

    def __init__(self, world: World, unsent: ResponseBudget, wanted: list[TopicPartition], *, trusted: bool) -> None:
        self.answers = 0
        self._clock = world.clock
        self._wanted = wanted
        self._session = fetch_session_on(world, self, credit_bytes=1 << 40, unsent=unsent)
        if trusted:
            self._session._allowance.took(PROVEN_BYTES)
        self.serving = asyncio.ensure_future(self._session.run(self._fetch()))

    def _fetch(self) -> bytes:
        return fetch_frame(dict.fromkeys(self._wanted, 0), answer_bytes=1_000)

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
    wanted = await holding(world, 1_000, "orders", "payments")
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
