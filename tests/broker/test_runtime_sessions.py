"""Produce and fetch sessions over real logs: what one stream is told, and when.

The streams are pairs of queues; everything else is the product's own. Time is virtual.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from functools import partial

import pytest
from odradek_broker.requests.fetch import FetchPartition, FetchRequest
from odradek_broker.requests.fetch_answers import MAX_READS, ColdReads
from odradek_broker.rpc.backpressure import ResponseBudget
from odradek_broker.runtime.duplex import run_duplex
from odradek_proto.errors import ErrorCode
from odradek_proto.records import iter_batches
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.frames import pack_frame, split_frame
from odradek_proto.transport.ports import StreamClosed
from odradek_proto.v1 import broker_pb2 as pb

from tests.broker.session_world import (
    CALLER,
    EPOCH,
    FOLLOWER,
    LEADER,
    OTHER,
    TP,
    World,
    batch,
    fetch_frame,
    fetched,
    follow_successor,
    lead,
    produce_frame,
    produced,
    run,
    stream,
)
from tests.playing import plays


@plays(run)
async def test_acks_all_is_answered_by_the_next_fetch_of_every_follower(world: World) -> None:
    """The fetch offset is the acknowledgement, and nothing else is one (R-6, R-14)."""
    lead(world, (LEADER, FOLLOWER, OTHER))
    writer = world.produce_session()
    two, three = world.fetch_session(follower=True), world.fetch_session(follower=True)
    await two.send(fetch_frame(0, replica_id=FOLLOWER))
    await three.send(fetch_frame(0, replica_id=OTHER))
    await writer.send(produce_frame(batch(world, b"a")))
    for end in (two, three):
        item, data = await fetched(end)
        assert (item.error_code, item.high_watermark, len(list(iter_batches(data)))) == (0, 0, 1)
    await two.send(fetch_frame(1, replica_id=FOLLOWER, last=EPOCH))
    await world.clock.sleep(50)
    assert world.replica.state.high_watermark == 0
    await three.send(fetch_frame(1, replica_id=OTHER, last=EPOCH))
    answer = await produced(writer)
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert world.replica.state.high_watermark == 1


@plays(run)
async def test_the_follower_whose_fetch_commits_hears_of_the_high_watermark_within_its_wait(world: World) -> None:
    """Its own fetch moved the mark after the answer was decided; it must not stay one round behind for ever (R-127)."""
    lead(world, (LEADER, FOLLOWER))
    writer, two = world.produce_session(), world.fetch_session(follower=True)
    await two.send(fetch_frame(0, replica_id=FOLLOWER))
    await writer.send(produce_frame(batch(world, b"a")))
    await fetched(two)
    await two.send(fetch_frame(1, replica_id=FOLLOWER, last=EPOCH))
    assert (await produced(writer)).error_code == 0
    before_ms = world.clock.now_ms()
    item, data = await fetched(two)
    assert (item.high_watermark, len(data)) == (1, 0)
    assert world.clock.now_ms() - before_ms == 500


@plays(run)
async def test_a_high_watermark_that_stood_in_a_refusal_is_told_again(world: World) -> None:
    """A follower takes none from a refusal: it would stay behind until the next record comes (R-127)."""
    lead(world, (LEADER,))
    writer, two = world.produce_session(), world.fetch_session(follower=True)
    await writer.send(produce_frame(batch(world, b"a")))
    assert (await produced(writer)).error_code == 0
    await two.send(fetch_frame(1, replica_id=FOLLOWER, last=EPOCH, epoch=EPOCH + 1))
    item, _ = await fetched(two)
    assert item.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    await two.send(fetch_frame(1, replica_id=FOLLOWER, last=EPOCH))
    item, data = await fetched(two)
    assert (item.error_code, item.high_watermark, len(data)) == (0, 1, 0)


@plays(run)
async def test_a_consumer_is_woken_by_the_high_watermark_and_never_by_the_append(world: World) -> None:
    """A consumer reads below the high watermark (R-37, R-123)."""
    lead(world, (LEADER, FOLLOWER))
    writer, reader, two = (
        world.produce_session(),
        world.fetch_session(follower=False),
        world.fetch_session(follower=True),
    )
    await two.send(fetch_frame(0, replica_id=FOLLOWER))
    await reader.send(fetch_frame(0, max_wait_ms=60_000))
    await writer.send(produce_frame(batch(world, b"a", b"b")))
    await fetched(two)
    await world.clock.sleep(1_000)
    assert reader.empty()
    await two.send(fetch_frame(2, replica_id=FOLLOWER, last=EPOCH))
    item, data = await fetched(reader)
    assert (item.high_watermark, [header.record_count for _, header in iter_batches(data)]) == (2, [2])


@plays(run)
async def test_what_is_ready_in_one_tick_leaves_in_one_message(world: World) -> None:
    """Cost follows messages: the appends of one message make one answer for the follower and one for the producer."""
    lead(world, (LEADER,))
    writer, two = world.produce_session(), world.fetch_session(follower=True)
    await two.send(fetch_frame(0, replica_id=FOLLOWER))
    await writer.recv()  # the grant
    await writer.send(produce_frame(batch(world, b"a"), batch(world, b"b"), batch(world, b"c"), acks=1))
    answers = pb.ProduceAnswers.FromString(await writer.recv()).answers
    assert [(answer.correlation_id, answer.base_offset) for answer in answers] == [(0, 0), (1, 1), (2, 2)]
    _item, data = await fetched(two)
    assert len(list(iter_batches(data))) == 3


@plays(run)
async def test_an_idle_partition_is_answered_once_and_then_never_again(world: World) -> None:
    """Waiting costs nothing: once the marks are told, an idle fetch stays silent until there is news."""
    lead(world, (LEADER,))
    reader = world.fetch_session(follower=False)
    await reader.send(fetch_frame(0))
    item, _ = await fetched(reader)
    assert (item.high_watermark, item.size) == (0, 0)
    await reader.send(fetch_frame(0))
    await world.clock.sleep(60_000)
    assert reader.empty()


@plays(run)
async def test_a_consumer_that_wants_many_bytes_waits_for_them(world: World) -> None:
    """Less than fetch.min.bytes is not told before its time; enough is told at once, all of it (R-121)."""
    lead(world, (LEADER,))
    writer, reader = world.produce_session(), world.fetch_session(follower=False)
    one = batch(world, bytes(400))
    await reader.send(fetch_frame(0, max_wait_ms=10_000, min_bytes=len(one) * 2 + 1))
    begin_ms = world.clock.now_ms()
    for number in range(2):
        await writer.send(produce_frame(one))
        await world.clock.sleep(1_000)
        assert reader.empty(), number
    await writer.send(produce_frame(one))
    item, data = await fetched(reader)
    assert (item.high_watermark, len(data)) == (3, 3 * len(one))
    assert 2_000 <= world.clock.now_ms() - begin_ms < 2_100


@plays(run)
async def test_a_consumer_that_wants_more_than_there_is_waits_as_long_as_it_said(world: World) -> None:
    """The end of the wait is that of a fetch repeated every fetch.max.wait.ms; waiting for nothing has none (R-121)."""
    lead(world, (LEADER,))
    writer, reader = world.produce_session(), world.fetch_session(follower=False)
    begin_ms = world.clock.now_ms()
    await reader.send(fetch_frame(0, max_wait_ms=400, min_bytes=1_000_000))
    await reader.recv()
    asked_ms = world.clock.now_ms()
    assert asked_ms - begin_ms == 400
    await reader.send(fetch_frame(0, max_wait_ms=400, min_bytes=1_000_000))
    await world.clock.sleep(60_000)
    assert reader.empty()
    await world.clock.sleep(100)
    await writer.send(produce_frame(batch(world, b"a")))
    item, _ = await fetched(reader)
    assert (item.high_watermark, world.clock.now_ms() - asked_ms) == (1, 60_400)


@plays(run)
async def test_a_single_call_gets_what_there_is_when_its_time_is_over(world: World) -> None:
    """Less than it wanted is told at the end of the wait, not kept from it (R-121)."""
    lead(world, (LEADER,))
    writer = world.produce_session()
    await writer.send(produce_frame(batch(world, b"a")))
    await produced(writer)
    asked = FetchPartition(TP, b"", 0, EPOCH, -1, -1, 1 << 20)
    begin_ms = world.clock.now_ms()
    (fetched,) = await world.fetch_requests().fetch(CALLER, FetchRequest([asked], 60_000, 1_000_000, 1 << 20))
    assert world.clock.now_ms() - begin_ms == 60_000
    assert len(b"".join(fetched.buffers)) == len(batch(world, b"a"))


@plays(run)
async def test_one_bad_partition_ends_the_wait_and_spoils_nothing(world: World) -> None:
    """A partition that is not here is told at once, and what there is of the other one goes with it. (R-121, PA-41)"""
    lead(world, (LEADER,))
    writer, reader = world.produce_session(), world.fetch_session(follower=False)
    await writer.send(produce_frame(batch(world, b"a")))
    await produced(writer)
    header = pb.FetchHeader(replica_id=-1, max_wait_ms=60_000, min_bytes=1_000_000)
    for topic in ("orders", "elsewhere"):
        header.partitions.add(topic=topic, partition=0, fetch_offset=0, current_leader_epoch=-1, last_fetched_epoch=-1)
    await reader.send(pack_frame(header.SerializeToString(), ()))
    answers, data = split_frame(await reader.recv())
    told = {each.topic: each for each in pb.FetchAnswerHeader.FromString(answers).partitions}
    assert ErrorCode(told["elsewhere"].error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (told["orders"].error_code, told["orders"].size) == (0, len(data))
    assert len(list(iter_batches(data))) == 1


@plays(run)
async def test_the_last_fetched_epoch_of_a_partition_that_waits_is_the_one_named_last(world: World) -> None:
    """Naming it again replaces all its parameters; a forgotten epoch would hide a divergence (R-262, SE-03)."""
    lead(world, (LEADER,))
    writer, reader = world.produce_session(), world.fetch_session(follower=True)
    await writer.send(produce_frame(batch(world, b"a")))
    await produced(writer)
    await reader.send(fetch_frame(1, replica_id=FOLLOWER, last=EPOCH))
    await fetched(reader)  # the bounds, which were new
    await reader.send(fetch_frame(1, replica_id=FOLLOWER, last=EPOCH))
    await world.clock.sleep(1_000)
    assert reader.empty()
    await reader.send(fetch_frame(1, replica_id=FOLLOWER, last=EPOCH - 1))
    item, data = await fetched(reader)
    assert (item.diverging, item.diverging_epoch, item.diverging_end_offset, len(data)) == (True, EPOCH - 1, 0, 0)


@plays(run)
async def test_a_divergence_is_told_each_time(world: World) -> None:
    """However often it asks, and however many bytes it wants, a reader whose log has parted is told. (SE-04)"""
    lead(world, (LEADER,))
    writer, reader = world.produce_session(), world.fetch_session(follower=False)
    await writer.send(produce_frame(batch(world, b"a")))
    await produced(writer)
    before_ms = world.clock.now_ms()
    for _ in range(3):
        await reader.send(fetch_frame(1, max_wait_ms=60_000, last=EPOCH - 1, min_bytes=1_000))
        item, _data = await fetched(reader)
        assert (item.error_code, item.diverging) == (0, True)
    assert world.clock.now_ms() - before_ms < 100


@plays(run)
async def test_an_error_does_not_wait_for_bytes(world: World) -> None:
    """A new leader epoch is told at once, however little there is to read (R-121, PU-01)."""
    lead(world, (LEADER,))
    writer, reader = world.produce_session(), world.fetch_session(follower=False)
    await writer.send(produce_frame(batch(world, b"a")))
    await produced(writer)
    await reader.send(fetch_frame(0, max_wait_ms=60_000, min_bytes=1_000_000))
    await world.clock.sleep(100)
    assert reader.empty()
    before_ms = world.clock.now_ms()
    lead(world, (LEADER,), epoch=EPOCH + 1)
    item, _ = await fetched(reader)
    assert item.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert world.clock.now_ms() - before_ms < 100


@plays(run)
async def test_those_who_wait_on_a_leader_that_is_replaced_are_told(world: World) -> None:
    """Produces get NOT_LEADER_OR_FOLLOWER with the new leader, fetches are fenced (R-103, R-123, R-124, PA-37)."""
    lead(world, (LEADER, FOLLOWER))
    writer, two = world.produce_session(), world.fetch_session(follower=True)
    await writer.send(produce_frame(batch(world, b"a"), timeout_ms=30_000))
    await two.send(fetch_frame(0, replica_id=FOLLOWER))
    await fetched(two)
    reader = world.fetch_session(follower=False)
    await reader.send(fetch_frame(0, max_wait_ms=60_000))
    await world.clock.sleep(10)
    follow_successor(world)
    answer = await produced(writer)
    assert ErrorCode(answer.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader_id, answer.current_leader_epoch) == (FOLLOWER, EPOCH + 1)
    item, _ = await fetched(reader)
    assert ErrorCode(item.error_code) is ErrorCode.FENCED_LEADER_EPOCH
    assert (item.current_leader_id, item.current_leader_epoch) == (FOLLOWER, EPOCH + 1)


@plays(run)
async def test_what_failed_does_not_wait_for_what_waits(world: World) -> None:
    """In one message: the damaged batch and the unknown topic are answered at once, the sound batch later (R-17)."""
    lead(world, (LEADER, FOLLOWER))
    writer, two = world.produce_session(), world.fetch_session(follower=True)
    await writer.recv()  # the grant
    sound, header = batch(world, b"a"), pb.ProduceHeader()
    items = [("orders", sound), ("orders", sound[:-1] + b"\xff"), ("elsewhere", sound)]
    for number, (topic, data) in enumerate(items):
        header.items.add(correlation_id=number, acks=-1, timeout_ms=30_000, topic=topic, partition=0, size=len(data))
    await writer.send(pack_frame(header.SerializeToString(), [data for _, data in items]))
    answers = pb.ProduceAnswers.FromString(await writer.recv()).answers
    assert {each.correlation_id: ErrorCode(each.error_code) for each in answers} == {
        1: ErrorCode.CORRUPT_MESSAGE,
        2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    await two.send(fetch_frame(1, replica_id=FOLLOWER, last=EPOCH))
    assert (await produced(writer)).correlation_id == 0


@plays(run)
async def test_a_request_times_out_and_its_record_stays(world: World) -> None:
    """REQUEST_TIMED_OUT means unknown: the record is in the log and may be committed later (R-15)."""
    lead(world, (LEADER, FOLLOWER))
    writer = world.produce_session()
    await writer.send(produce_frame(batch(world, b"a"), timeout_ms=250))
    began_ms = world.clock.now_ms()
    answer = await produced(writer)
    assert ErrorCode(answer.error_code) is ErrorCode.REQUEST_TIMED_OUT
    assert world.clock.now_ms() - began_ms == 250
    assert world.replica.state.log_end_offset == 1


@plays(run)
async def test_a_short_timeout_ends_before_an_earlier_long_one(world: World) -> None:
    """Each request has its own deadline; the timer follows the nearest one."""
    lead(world, (LEADER, FOLLOWER))
    patient, hasty = world.produce_session(), world.produce_session()
    await patient.send(produce_frame(batch(world, b"a"), timeout_ms=30_000))
    await world.clock.sleep(10)
    await hasty.send(produce_frame(batch(world, b"b"), timeout_ms=100))
    began_ms = world.clock.now_ms()
    assert ErrorCode((await produced(hasty)).error_code) is ErrorCode.REQUEST_TIMED_OUT
    assert world.clock.now_ms() - began_ms == 100


@plays(run)
async def test_a_lonely_leader_without_its_session_answers_nothing_with_acks_all(world: World) -> None:
    """A leader that is its whole ISR may have been replaced unknown to it: it waits for the controller (R-112)."""
    lead(world, (LEADER,))
    world.broker.alone = False
    writer = world.produce_session()
    await writer.recv()  # the grant
    await writer.send(produce_frame(batch(world, b"a"), timeout_ms=60_000))
    await world.clock.sleep(1_000)
    assert writer.empty()
    world.broker.alone = True
    world.replica.complete_produces()
    assert (await produced(writer)).error_code == 0


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), ErrorCode.CORRUPT_MESSAGE),
        (lambda data: data + data, ErrorCode.CORRUPT_MESSAGE),
        (lambda data: data[:40], ErrorCode.CORRUPT_MESSAGE),
        (lambda data: b"", ErrorCode.CORRUPT_MESSAGE),
    ],
)
@plays(run)
async def test_a_bad_batch_gets_its_error_and_the_others_go_on(
    world: World, damage: Callable[[bytes], bytes], expected: ErrorCode
) -> None:
    """Items of one message fail one by one, and nothing of a bad one is written."""
    lead(world, (LEADER,))
    writer = world.produce_session()
    await writer.recv()  # the grant
    await writer.send(produce_frame(damage(batch(world, b"bad")), batch(world, b"good"), acks=1))
    answers = pb.ProduceAnswers.FromString(await writer.recv()).answers
    assert [ErrorCode(answer.error_code) for answer in answers] == [expected, ErrorCode.NONE]
    assert world.replica.state.log_end_offset == 1


@pytest.mark.parametrize(
    ("acks", "expected"), [(-1, ErrorCode.NOT_ENOUGH_REPLICAS), (7, ErrorCode.INVALID_REQUIRED_ACKS)]
)
@plays(run)
async def test_nobody_looks_at_a_batch_that_cannot_be_taken_anyhow(
    world: World, acks: int, expected: ErrorCode
) -> None:
    """R-10: with too few replicas that is what a producer is told, whatever its batch is, and it may try again."""
    lead(world, (LEADER,), min_isr=2)
    writer = world.produce_session()
    await writer.recv()  # the grant
    await writer.send(produce_frame(b"no batch at all", acks=acks))
    assert ErrorCode((await produced(writer)).error_code) is expected


@pytest.mark.parametrize("message", [b"\xff", b"\x0a\xff\xff\xff\xff\x0f", produce_frame(b"12345")[:-2]])
@plays(run)
async def test_a_message_that_is_none_ends_the_stream(world: World, message: bytes) -> None:
    """Garbage on a produce stream closes it; nothing is written and nothing hangs."""
    lead(world, (LEADER,))
    writer = world.produce_session()
    await writer.send(message)
    with pytest.raises(StreamClosed):
        await produced(writer)
    assert world.replica.state.log_end_offset == 0


@plays(run)
async def test_a_session_without_credit_sends_nothing_more(world: World) -> None:
    """What a consumer has not taken is bounded by the credit that it gave."""
    lead(world, (LEADER,))
    writer, reader = world.produce_session(), world.fetch_session(follower=False)
    await writer.send(produce_frame(batch(world, b"x" * 1_000), acks=1))
    await produced(writer)
    await reader.send(fetch_frame(0, credit=100))
    item, data = await fetched(reader)
    assert len(data) > 100  # one batch always goes (KIP-74)
    await writer.send(produce_frame(batch(world, b"y"), acks=1))
    await produced(writer)
    await reader.send(fetch_frame(1, last=EPOCH))
    await world.clock.sleep(5_000)
    assert reader.empty()
    await reader.send(pack_frame(pb.FetchHeader(credit_bytes=10_000).SerializeToString(), ()))
    item, data = await fetched(reader)
    assert item.fetch_offset == 1
    assert len(data) > 0


@plays(run)
async def test_a_client_that_gives_no_credit_has_taken_what_it_names_again(world: World) -> None:
    """The default bounds what a client that never counts may leave untaken; naming a partition again frees it."""
    lead(world, (LEADER,))
    writer, reader = world.produce_session(), world.fetch_session(follower=False, credit_bytes=100)
    for value in (b"x" * 1_000, b"y" * 1_000):
        await writer.send(produce_frame(batch(world, value), acks=1))
        await produced(writer)
    await reader.send(fetch_frame(0))
    _item, data = await fetched(reader)
    assert len(data) > 2_000
    await reader.send(fetch_frame(1, last=EPOCH))
    item, _data = await fetched(reader)
    assert item.fetch_offset == 1


@plays(partial(run, cache_bytes=1))
async def test_what_is_no_longer_in_memory_is_read_beside_the_loop(world: World) -> None:
    """A cold read goes to a thread; meanwhile other fetches of the session are answered, and then it is."""
    lead(world, (LEADER,))
    writer = world.produce_session()
    for value in (b"x" * 1_000, b"y" * 1_000):
        await writer.send(produce_frame(batch(world, value), acks=1))
        await produced(writer)
    assert not world.replica.log.is_hot(0)
    reader = world.fetch_session(follower=False)
    began_us = world.loop.now_us
    await reader.send(fetch_frame(0))
    item, data = await fetched(reader)
    assert world.loop.now_us > began_us  # the simulated thread took its time
    assert [header.base_offset for _, header in iter_batches(data)] == [0, 1]
    assert item.high_watermark == 2


@plays(partial(run, cache_bytes=1))
async def test_a_cold_batch_that_fails_its_check_is_not_served(world: World) -> None:
    """A flipped bit on the disk is CORRUPT_MESSAGE for the reader, never a record (G7)."""
    lead(world, (LEADER,))
    writer = world.produce_session()
    await writer.send(produce_frame(batch(world, b"x" * 1_000), acks=1))
    await produced(writer)
    world.disk.flip("/data/orders-0/00000000000000000000.log", 500)
    reader = world.fetch_session(follower=False)
    await reader.send(fetch_frame(0))
    item, data = await fetched(reader)
    assert ErrorCode(item.error_code) is ErrorCode.CORRUPT_MESSAGE
    assert len(data) == 0


@plays(run)
async def test_what_one_leader_allowed_is_not_served_by_the_next_role(world: World) -> None:
    """A fetch that waits for credit is looked at again when the leadership was lost meanwhile (R-229)."""
    lead(world, (LEADER,))
    writer, reader = world.produce_session(), world.fetch_session(follower=False)
    for value in (b"x" * 1_000, b"y"):
        await writer.send(produce_frame(batch(world, value), acks=1))
        await produced(writer)
    await reader.send(fetch_frame(0, credit=100))
    await fetched(reader)
    await reader.send(fetch_frame(1, last=EPOCH))  # allowed, and without credit to be told
    await world.clock.sleep(10)
    follow_successor(world)
    await reader.send(pack_frame(pb.FetchHeader(credit_bytes=10_000).SerializeToString(), ()))
    item, data = await fetched(reader)
    assert ErrorCode(item.error_code) is ErrorCode.FENCED_LEADER_EPOCH
    assert len(data) == 0


@plays(run)
async def test_a_conversation_whose_sender_breaks_ends_and_says_so(world: World) -> None:
    """An error that nobody expected in one direction closes the stream and is raised, never swallowed."""
    ours, theirs = stream()

    async def receive() -> None:
        while True:
            await theirs.recv()

    async def send() -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await run_duplex(theirs, receive(), send())
    with pytest.raises(StreamClosed):
        await ours.recv()


@plays(run)
async def test_room_that_one_session_does_not_need_goes_to_the_next(world: World) -> None:
    """Whoever was woken and has nothing to send passes the turn on; nobody waits beside free room."""
    unsent = ResponseBudget(10)
    unsent.add(10, trusted=True)
    had_room: list[int] = []

    async def session(number: int) -> None:
        await unsent.room(trusted=True)
        had_room.append(number)
        unsent.pass_on()

    waiting = [asyncio.ensure_future(session(number)) for number in range(3)]
    await world.clock.sleep(1)
    assert had_room == []
    unsent.remove(10, trusted=True)
    await asyncio.wait(waiting)
    assert had_room == [0, 1, 2]


@plays(partial(run, cache_bytes=1))
async def test_only_a_few_cold_partitions_are_read_at_the_same_time(world: World) -> None:
    """The others stand in line, and each has its turn."""
    lead(world, (LEADER,))
    writer = world.produce_session()
    await writer.send(produce_frame(batch(world, b"x" * 1_000), acks=1))
    await produced(writer)
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
