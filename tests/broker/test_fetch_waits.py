"""When the fetch of a session is answered, what counts towards fetch.min.bytes, and what the wait costs (R-121, R-127).

Work is counted in bytes that the recent batches of a log go over, and in how often they are asked.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from odradek_broker.core.security.authorizer import Authorizer
from odradek_broker.requests.access import Access
from odradek_broker.storage.cache import LogTail, RecentBatches
from odradek_proto.encoding import encode_batch
from odradek_proto.errors import ErrorCode
from odradek_proto.records import Buffer, iter_batches
from odradek_proto.security.acl_words import Operation, PatternType, Permission, ResourceType
from odradek_proto.security.acls import Acl
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.frames import pack_frame
from odradek_proto.v1 import broker_pb2 as pb

from tests.broker.replica_world import ME, ONE, ORDERS, Reader, World, run
from tests.playing import plays

MAX_WAIT_MS = 500
PATIENCE_MS = 60_000
SIZE = len(encode_batch([(0, None, b"a", ())]))


@plays(run)
async def test_a_follower_hears_of_high_watermark_and_log_start_when_its_wait_ends(world: World) -> None:
    """R-127: not before, and not again when nothing has changed."""
    await world.learn(ME, 0, isr=(ME, ONE), replicas=(ME, ONE))
    follower = Reader(world, follower=True)
    world.produce()
    follower.asks(0)
    (answer,) = follower.gets()
    assert (answer.size, answer.high_watermark) == (SIZE, 0)
    for log_start_offset in (0, 1):
        follower.asks(1, last=0)
        if log_start_offset:
            await world.clock.sleep(3 * MAX_WAIT_MS)
            assert follower.gets() == []
            world.replica.on_log_start_advanced(log_start_offset)
        await world.clock.sleep(MAX_WAIT_MS - 1)
        assert follower.gets() == []
        await world.clock.sleep(1)
        (answer,) = follower.gets()
        assert (answer.size, answer.high_watermark, answer.log_start_offset) == (0, 1, log_start_offset)


@plays(run)
async def test_who_waits_is_told_nothing_after_the_right_to_read_is_gone(world: World) -> None:
    """A fetch of a stream waits as long as there is nothing new: whether it may read is asked again then."""
    allowed = Acl(
        ResourceType.TOPIC, ORDERS.topic, PatternType.LITERAL, "User:*", "*", Operation.READ, Permission.ALLOW
    )
    acls = {b"1": allowed}
    await world.learn(ME, 0, isr=(ME,), replicas=(ME,))
    consumer = Reader(world, access=Access(Authorizer(), lambda: acls))
    consumer.asks(0)
    assert consumer.gets() == []
    acls = {}
    world.produce()
    (answer,) = consumer.gets()
    assert (answer.size, ErrorCode(answer.error_code)) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


# --- fetch.min.bytes -------------------------------------------------------------------------------------------------


class Work:
    """What the tails of all logs were asked while it counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = self.calls = 0
        read, count = LogTail.read, LogTail.count

        def counted_read(tail: LogTail, offset: int, max_bytes: int, limit: int, at_least_one: bool) -> list[Buffer]:
            found = read(tail, offset, max_bytes, limit, at_least_one)
            self.bytes, self.calls = self.bytes + sum(map(len, found)), self.calls + 1
            return found

        def counted_count(tail: LogTail, offset: int, limit: int, enough: int) -> tuple[int, int]:
            found = count(tail, offset, limit, enough)
            self.bytes, self.calls = self.bytes + found[0], self.calls + 1
            return found

        monkeypatch.setattr(LogTail, "read", counted_read)
        monkeypatch.setattr(LogTail, "count", counted_count)


class Consumer(Reader):
    """It waits long for its bytes; offsets are the beginnings of the logs."""

    def wants(self, tps: Sequence[TopicPartition], *, min_bytes: int, max_bytes: int = 0) -> None:
        self.asks(dict.fromkeys(tps, 0), max_wait_ms=PATIENCE_MS, min_bytes=min_bytes, max_bytes=max_bytes)

    def forgets(self, tp: TopicPartition) -> None:
        header = pb.FetchHeader(replica_id=-1, max_wait_ms=PATIENCE_MS)
        header.forgotten.add(topic=tp.topic)
        self.session.on_message(pack_frame(header.SerializeToString(), ()))

    def size(self) -> int | None:
        """Bytes of the next answer; None while it waits."""
        answers = self.gets()
        return sum(each.size for each in answers) if answers else None


@plays(run)
async def test_a_wait_goes_over_each_batch_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many appends wake it: once to count, and once more to send."""
    batches = 300
    tps = await world.lead("orders")
    work, consumer = Work(monkeypatch), Consumer(world)
    consumer.wants(tps, min_bytes=batches * SIZE)
    for _ in range(batches):
        assert consumer.size() is None
        world.produce()
    assert consumer.size() == batches * SIZE
    assert work.bytes == 2 * batches * SIZE


@plays(run)
async def test_a_wake_costs_nothing_for_the_partitions_that_were_not_woken(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is held back is looked at again when it has more, and not because another partition has."""
    tps = await world.lead(*(f"t{number}" for number in range(20)))
    for tp in tps:
        world.produce(tp=tp)
    work, consumer = Work(monkeypatch), Consumer(world)
    consumer.wants(tps, min_bytes=30 * SIZE)
    assert consumer.size() is None
    assert work.calls == 20
    for more in range(1, 10):
        world.produce(tp=tps[3])
        assert consumer.size() is None
        assert work.calls == 20 + more
    world.produce(tp=tps[4])
    assert consumer.size() == 30 * SIZE


@pytest.mark.parametrize(
    ("min_bytes", "max_bytes", "enough", "told"),
    [(2 * SIZE, SIZE, True, 2 * SIZE), (2 * SIZE + 1, SIZE, False, 2 * SIZE), (50, 1, False, SIZE)],
)
@plays(run)
async def test_a_partition_counts_for_no_more_than_its_max_bytes(
    world: World, min_bytes: int, max_bytes: int, enough: bool, told: int
) -> None:
    """Two partitions of three batches, of which one each may be told, or none but the first batch of all; the end of
    the wait brings them, too."""
    tps = await world.lead("t0", "t1")
    for tp in tps * 3:
        world.produce(tp=tp)
    consumer = Consumer(world)
    consumer.wants(tps, min_bytes=min_bytes, max_bytes=max_bytes)
    if not enough:
        assert consumer.size() is None
        await world.clock.sleep(PATIENCE_MS)
    assert consumer.size() == told


@plays(run)
async def test_a_partition_that_is_forgotten_or_named_again_counts_no_longer(world: World) -> None:
    """Its bytes leave the sum, and what it has is counted anew when it is named again."""
    tps = await world.lead("t0", "t1", "t2")
    for tp in tps[:2]:
        world.produce(tp=tp)
    consumer = Consumer(world)
    consumer.wants(tps, min_bytes=3 * SIZE)
    assert consumer.size() is None
    consumer.forgets(tps[0])
    consumer.wants([tps[1]], min_bytes=3 * SIZE)
    world.produce(tp=tps[2])
    assert consumer.size() is None
    world.produce(tp=tps[0])
    assert consumer.size() is None
    world.produce(tp=tps[2])
    assert consumer.size() == 3 * SIZE


def test_a_tail_counts_what_it_would_read() -> None:
    """Over runs of one and of many batches, from every offset and to every limit; and it stops when it has enough."""
    rng = random.Random(7)
    tail, end, sizes = RecentBatches().tail(), 0, []
    for _ in range(8):
        data, first = b"", end
        for _ in range(rng.choice((1, 1, 4))):
            records = [(0, None, bytes(rng.randrange(50)), ())] * rng.choice((1, 3))
            one = encode_batch(records, base_offset=end)
            data, end = data + one, end + len(records)
            sizes.append(len(one))
        tail.enter([header for _, header in iter_batches(memoryview(data))], [data], len(data), end)
        assert first < end
    for offset in range(end):
        for limit in range(offset, end + 1):
            found = sum(map(len, tail.read(offset, 1 << 20, limit, at_least_one=True)))
            counted, counted_to = tail.count(offset, limit, 1 << 20)
            assert counted == found, (offset, limit)
            rest = sum(map(len, tail.read(counted_to, 1 << 20, end, at_least_one=True))) if counted_to < end else 0
            assert counted + rest == tail.count(offset, end, 1 << 20)[0], (offset, limit)
    assert tail.count(0, end, 1)[0] < sum(sizes)
