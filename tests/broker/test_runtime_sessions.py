"""Produce and fetch sessions over real logs: what one stream is told, and when.

The streams are pairs of queues; everything else is the product's own. Time is virtual.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
from odradek_broker.requests.fetch_answers import MAX_READS, ColdReads
from odradek_broker.runtime.duplex import run_duplex
from odradek_proto.errors import ErrorCode
from odradek_proto.records import iter_batches
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.frames import pack_frame, split_frame
from odradek_proto.transport.ports import StreamClosed
from odradek_proto.v1 import broker_pb2 as pb

from tests.broker.replica_world import (
    ME,
    ONE,
    ORDERS,
    THREE,
    End,
    World,
    batch_of,
    credit_frame,
    fetch_frame,
    fetched,
    produce_frame,
    produced,
    run,
)
from tests.playing import plays

EPOCH = 4


@plays(run)
async def test_acks_all_is_answered_by_the_next_fetch_of_every_follower(world: World) -> None:
    """The fetch offset is the acknowledgement, and nothing else is one (R-6, R-14)."""
    await world.learn(ME, EPOCH, isr=(ME, ONE, THREE))
    writer = world.produce_session()
    two, three = world.fetch_session(follower=True), world.fetch_session(follower=True)
    await two.send(fetch_frame(0, replica_id=ONE))
    await three.send(fetch_frame(0, replica_id=THREE))
    await writer.send(produce_frame(batch_of(world)))
    for end in (two, three):
        item, data = await fetched(end)
        assert (item.error_code, item.high_watermark, len(list(iter_batches(data)))) == (0, 0, 1)
    await two.send(fetch_frame(1, replica_id=ONE, last=EPOCH))
    await world.clock.sleep(50)
    assert world.replica.state.high_watermark == 0
    await three.send(fetch_frame(1, replica_id=THREE, last=EPOCH))
    answer = await produced(writer)
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert world.replica.state.high_watermark == 1


@plays(run)
async def test_a_high_watermark_that_stood_in_a_refusal_is_told_again(world: World) -> None:
    """A follower takes none from a refusal: it would stay behind until the next record comes (R-127)."""
    await world.learn(ME, EPOCH, isr=(ME,))
    two = world.fetch_session(follower=True)
    world.produce()
    await two.send(fetch_frame(1, replica_id=ONE, last=EPOCH, epoch=EPOCH + 1))
    item, _ = await fetched(two)
    assert item.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    await two.send(fetch_frame(1, replica_id=ONE, last=EPOCH))
    item, data = await fetched(two)
    assert (item.error_code, item.high_watermark, len(data)) == (0, 1, 0)


@plays(run)
async def test_a_consumer_is_woken_by_the_high_watermark_and_never_by_the_append(world: World) -> None:
    """A consumer reads below the high watermark (R-37, R-123)."""
    await world.learn(ME, EPOCH, isr=(ME, ONE))
    reader, two = world.fetch_session(), world.fetch_session(follower=True)
    await two.send(fetch_frame(0, replica_id=ONE))
    await reader.send(fetch_frame(0, max_wait_ms=60_000))
    world.produce()
    await fetched(two)
    await world.clock.sleep(1_000)
    assert reader.empty()
    await two.send(fetch_frame(1, replica_id=ONE, last=EPOCH))
    item, data = await fetched(reader)
    assert (item.high_watermark, len(list(iter_batches(data)))) == (1, 1)


@plays(run)
async def test_what_is_ready_in_one_tick_leaves_in_one_message(world: World) -> None:
    """Cost follows messages: the appends of one message make one answer for the follower and one for the producer."""
    await world.learn(ME, EPOCH, isr=(ME,))
    writer, two = world.produce_session(), world.fetch_session(follower=True)
    await two.send(fetch_frame(0, replica_id=ONE))
    await writer.recv()  # the grant
    await writer.send(produce_frame(batch_of(world), batch_of(world, b"b"), batch_of(world, b"c"), acks=1))
    answers = pb.ProduceAnswers.FromString(await writer.recv()).answers
    assert [(answer.correlation_id, answer.base_offset) for answer in answers] == [(0, 0), (1, 1), (2, 2)]
    _item, data = await fetched(two)
    assert len(list(iter_batches(data))) == 3


@plays(run)
async def test_an_idle_partition_is_answered_once_and_then_never_again(world: World) -> None:
    """Waiting costs nothing: once the marks are told, an idle fetch stays silent until there is news."""
    await world.learn(ME, EPOCH, isr=(ME,))
    reader = world.fetch_session()
    await reader.send(fetch_frame(0))
    item, _ = await fetched(reader)
    assert (item.high_watermark, item.size) == (0, 0)
    await reader.send(fetch_frame(0))
    await world.clock.sleep(60_000)
    assert reader.empty()


@plays(run)
async def test_a_consumer_that_wants_more_than_there_is_waits_as_long_as_it_said(world: World) -> None:
    """The end of the wait is that of a fetch repeated every fetch.max.wait.ms; waiting for nothing has none (R-121)."""
    await world.learn(ME, EPOCH, isr=(ME,))
    reader = world.fetch_session()
    begin_ms = world.clock.now_ms()
    await reader.send(fetch_frame(0, max_wait_ms=400, min_bytes=1_000_000))
    await reader.recv()
    asked_ms = world.clock.now_ms()
    assert asked_ms - begin_ms == 400
    await reader.send(fetch_frame(0, max_wait_ms=400, min_bytes=1_000_000))
    await world.clock.sleep(60_000)
    assert reader.empty()
    await world.clock.sleep(100)
    world.produce()
    item, _ = await fetched(reader)
    assert (item.high_watermark, world.clock.now_ms() - asked_ms) == (1, 60_400)


@plays(run)
async def test_one_bad_partition_ends_the_wait_and_spoils_nothing(world: World) -> None:
    """A partition that is not here is told at once, and what there is of the other one goes with it. (R-121, PA-41)"""
    await world.learn(ME, EPOCH, isr=(ME,))
    reader = world.fetch_session()
    world.produce()
    wanted = {ORDERS: 0, TopicPartition("elsewhere", 0): 0}
    await reader.send(fetch_frame(wanted, max_wait_ms=60_000, min_bytes=1_000_000))
    answers, data = split_frame(await reader.recv())
    told = {each.topic: each for each in pb.FetchAnswerHeader.FromString(answers).partitions}
    assert ErrorCode(told["elsewhere"].error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (told["orders"].error_code, told["orders"].size) == (0, len(data))
    assert len(list(iter_batches(data))) == 1


@plays(run)
async def test_the_last_fetched_epoch_of_a_partition_that_waits_is_the_one_named_last(world: World) -> None:
    """Naming it again replaces all its parameters; a forgotten epoch would hide a divergence (R-262, SE-03)."""
    await world.learn(ME, EPOCH, isr=(ME,))
    reader = world.fetch_session(follower=True)
    world.produce()
    await reader.send(fetch_frame(1, replica_id=ONE, last=EPOCH))
    await fetched(reader)  # the bounds, which were new
    await reader.send(fetch_frame(1, replica_id=ONE, last=EPOCH))
    await world.clock.sleep(1_000)
    assert reader.empty()
    await reader.send(fetch_frame(1, replica_id=ONE, last=EPOCH - 1))
    item, data = await fetched(reader)
    assert (item.diverging, item.diverging_epoch, item.diverging_end_offset, len(data)) == (True, EPOCH - 1, 0, 0)


@plays(run)
async def test_a_divergence_is_told_each_time(world: World) -> None:
    """However often it asks, and however many bytes it wants, a reader whose log has parted is told. (SE-04)"""
    await world.learn(ME, EPOCH, isr=(ME,))
    reader = world.fetch_session()
    world.produce()
    before_ms = world.clock.now_ms()
    for _ in range(3):
        await reader.send(fetch_frame(1, max_wait_ms=60_000, last=EPOCH - 1, min_bytes=1_000))
        item, _data = await fetched(reader)
        assert (item.error_code, item.diverging) == (0, True)
    assert world.clock.now_ms() - before_ms < 100


@plays(run)
async def test_an_error_does_not_wait_for_bytes(world: World) -> None:
    """A new leader epoch is told at once, however little there is to read (R-121, PU-01, PA-38)."""
    await world.learn(ME, EPOCH, isr=(ME,))
    reader = world.fetch_session()
    world.produce()
    await reader.send(fetch_frame(0, epoch=EPOCH, max_wait_ms=60_000, min_bytes=1_000_000))
    await world.clock.sleep(100)
    assert reader.empty()
    before_ms = world.clock.now_ms()
    await world.learn(ME, EPOCH + 1, isr=(ME,))
    item, _ = await fetched(reader)
    assert item.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert world.clock.now_ms() - before_ms < 100


@plays(run)
async def test_those_who_wait_on_a_leader_that_is_replaced_are_told(world: World) -> None:
    """Produces get NOT_LEADER_OR_FOLLOWER with the new leader, fetches are fenced (R-103, R-123, R-124, PA-37)."""
    await world.learn(ME, EPOCH, isr=(ME, ONE))
    writer, two = world.produce_session(), world.fetch_session(follower=True)
    await writer.send(produce_frame(batch_of(world), timeout_ms=30_000))
    await two.send(fetch_frame(0, replica_id=ONE))
    await fetched(two)
    reader = world.fetch_session()
    await reader.send(fetch_frame(0, epoch=EPOCH, max_wait_ms=60_000))
    await world.clock.sleep(10)
    await world.learn(ONE, EPOCH + 1)
    answer = await produced(writer)
    assert ErrorCode(answer.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader_id, answer.current_leader_epoch) == (ONE, EPOCH + 1)
    item, _ = await fetched(reader)
    assert ErrorCode(item.error_code) is ErrorCode.FENCED_LEADER_EPOCH
    assert (item.current_leader_id, item.current_leader_epoch) == (ONE, EPOCH + 1)


@plays(run)
async def test_what_failed_does_not_wait_for_what_waits(world: World) -> None:
    """In one message: the damaged batch and the unknown topic are answered at once, the sound batch later (R-17)."""
    await world.learn(ME, EPOCH, isr=(ME, ONE))
    writer, two = world.produce_session(), world.fetch_session(follower=True)
    await writer.recv()  # the grant
    sound, header = batch_of(world), pb.ProduceHeader()
    items = [("orders", sound), ("orders", sound[:-1] + b"\xff"), ("elsewhere", sound)]
    for number, (topic, data) in enumerate(items):
        header.items.add(correlation_id=number, acks=-1, timeout_ms=30_000, topic=topic, partition=0, size=len(data))
    await writer.send(pack_frame(header.SerializeToString(), [data for _, data in items]))
    answers = pb.ProduceAnswers.FromString(await writer.recv()).answers
    assert {each.correlation_id: ErrorCode(each.error_code) for each in answers} == {
        1: ErrorCode.CORRUPT_MESSAGE,
        2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    await two.send(fetch_frame(1, replica_id=ONE, last=EPOCH))
    assert (await produced(writer)).correlation_id == 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data + data,
        lambda data: data[:40],
        lambda data: b"",
    ],
)
@plays(run)
async def test_a_bad_batch_gets_its_error_and_the_others_go_on(world: World, damage: Callable[[bytes], bytes]) -> None:
    """Items of one message fail one by one, and nothing of a bad one is written."""
    await world.learn(ME, EPOCH, isr=(ME,))
    writer = world.produce_session()
    await writer.recv()  # the grant
    await writer.send(produce_frame(damage(batch_of(world, b"bad")), batch_of(world, b"good"), acks=1))
    answers = pb.ProduceAnswers.FromString(await writer.recv()).answers
    assert [ErrorCode(answer.error_code) for answer in answers] == [ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE]
    assert world.log_end() == 1


@pytest.mark.parametrize(
    ("acks", "expected"), [(-1, ErrorCode.NOT_ENOUGH_REPLICAS), (7, ErrorCode.INVALID_REQUIRED_ACKS)]
)
@plays(run)
async def test_nobody_looks_at_a_batch_that_cannot_be_taken_anyhow(
    world: World, acks: int, expected: ErrorCode
) -> None:
    """R-10: with too few replicas that is what a producer is told, whatever its batch is, and it may try again."""
    world.image.topic_configs["orders"] = {"min.insync.replicas": "2"}
    await world.learn(ME, EPOCH, isr=(ME,))
    writer = world.produce_session()
    await writer.recv()  # the grant
    await writer.send(produce_frame(b"no batch at all", acks=acks))
    assert ErrorCode((await produced(writer)).error_code) is expected


@pytest.mark.parametrize("message", [b"\xff", b"\x0a\xff\xff\xff\xff\x0f", produce_frame(b"12345")[:-2]])
@plays(run)
async def test_a_message_that_is_none_ends_the_stream(world: World, message: bytes) -> None:
    """Garbage on a produce stream closes it; nothing is written and nothing hangs."""
    await world.learn(ME, EPOCH, isr=(ME,))
    writer = world.produce_session()
    await writer.send(message)
    with pytest.raises(StreamClosed):
        await produced(writer)
    assert world.log_end() == 0


@plays(run)
async def test_a_session_without_credit_sends_nothing_more(world: World) -> None:
    """What a consumer has not taken is bounded by the credit that it gave."""
    await world.learn(ME, EPOCH, isr=(ME,))
    reader = world.fetch_session()
    world.produce(b"x" * 1_000)
    await reader.send(fetch_frame(0, credit=100))
    item, data = await fetched(reader)
    assert len(data) > 100  # one batch always goes (KIP-74)
    world.produce(b"y")
    await reader.send(fetch_frame(1, last=EPOCH))
    await world.clock.sleep(5_000)
    assert reader.empty()
    await reader.send(credit_frame(10_000))
    item, data = await fetched(reader)
    assert item.fetch_offset == 1
    assert len(data) > 0


@plays(run)
async def test_a_client_that_gives_no_credit_has_taken_what_it_names_again(world: World) -> None:
    """The default bounds what a client that never counts may leave untaken; naming a partition again frees it."""
    await world.learn(ME, EPOCH, isr=(ME,))
    reader = world.fetch_session(credit_bytes=100)
    for value in (b"x" * 1_000, b"y" * 1_000):
        world.produce(value)
    await reader.send(fetch_frame(0))
    _item, data = await fetched(reader)
    assert len(data) > 2_000
    await reader.send(fetch_frame(1, last=EPOCH))
    item, _data = await fetched(reader)
    assert item.fetch_offset == 1


@plays(run)
async def test_what_is_no_longer_in_memory_is_read_beside_the_loop(world: World) -> None:
    """A cold read goes to a thread; meanwhile other fetches of the session are answered, and then it is."""
    await world.learn(ME, EPOCH, isr=(ME,))
    for value in (b"x" * 1_000, b"y" * 1_000):
        world.produce(value)
    world.cool()
    reader = world.fetch_session()
    began_us = world.loop.now_us
    await reader.send(fetch_frame(0))
    item, data = await fetched(reader)
    assert world.loop.now_us > began_us  # the simulated thread took its time
    assert [header.base_offset for _, header in iter_batches(data)] == [0, 1]
    assert item.high_watermark == 2


@plays(run)
async def test_what_one_leader_allowed_is_not_served_by_the_next_role(world: World) -> None:
    """A fetch that waits for credit is looked at again when the leadership was lost meanwhile (R-229)."""
    await world.learn(ME, EPOCH, isr=(ME,))
    reader = world.fetch_session()
    for value in (b"x" * 1_000, b"y"):
        world.produce(value)
    await reader.send(fetch_frame(0, credit=100))
    await fetched(reader)
    await reader.send(fetch_frame(1, epoch=EPOCH, last=EPOCH))  # allowed, and without credit to be told
    await world.clock.sleep(10)
    await world.learn(ONE, EPOCH + 1)
    await reader.send(credit_frame(10_000))
    item, data = await fetched(reader)
    assert ErrorCode(item.error_code) is ErrorCode.FENCED_LEADER_EPOCH
    assert len(data) == 0


@plays(run)
async def test_a_conversation_whose_sender_breaks_ends_and_says_so(world: World) -> None:
    """An error that nobody expected in one direction closes the stream and is raised, never swallowed."""
    ours = End()

    async def receive() -> None:
        while True:
            await ours.other.recv()

    async def send() -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await run_duplex(ours.other, receive(), send())
    with pytest.raises(StreamClosed):
        await ours.recv()


@plays(run)
async def test_only_a_few_cold_partitions_are_read_at_the_same_time(world: World) -> None:
    """The others stand in line, and each has its turn."""
    await world.learn(ME, EPOCH, isr=(ME,))
    world.produce(b"x" * 1_000)
    world.cool()
    ready: list[TopicPartition] = []
    reads = ColdReads(world.files, ready.append)
    names = [TopicPartition("orders", number) for number in range(MAX_READS + 2)]
    for name in names:
        copied = copy.copy(world.replica)
        copied.topic_partition = name
        reads.begin(copied, 0, 10_000, 1)
    await world.clock.sleep(1_000)
    assert sorted(ready) == names[:MAX_READS]
    reads.end(names[0])
    assert ready[MAX_READS:] == [names[MAX_READS]]
    reads.close()
