"""What a wait for fetch.min.bytes costs, and what counts towards it (R-121).

Work is counted in bytes that the recent batches of a log go over, and in how often they are asked.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from odradek_broker.rpc.fetch_session import FetchSession, SessionLimits
from odradek_broker.storage.cache import RecentBatches, Tail
from odradek_chaos.worlds.simulated.net.fabric import SimFabric
from odradek_proto.encoding import encode_batch
from odradek_proto.records import Buffer, iter_batches
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.frames import pack_frame, split_frame
from odradek_proto.v1 import broker_pb2 as pb

from tests.broker.replica_world import CALLER, ME, World, fetch_requests, run
from tests.playing import plays

PATIENCE_MS = 60_000
BATCH = encode_batch([(0, None, b"a record of some bytes", ())])


class Work:
    """What the tails of all logs were asked while it counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = self.calls = 0
        read, count = Tail.read, Tail.count

        def counted_read(tail: Tail, offset: int, max_bytes: int, limit: int, at_least_one: bool) -> list[Buffer]:
            found = read(tail, offset, max_bytes, limit, at_least_one)
            self.bytes, self.calls = self.bytes + sum(map(len, found)), self.calls + 1
            return found

        def counted_count(tail: Tail, offset: int, limit: int, enough: int) -> tuple[int, int]:
            found = count(tail, offset, limit, enough)
            self.bytes, self.calls = self.bytes + found[0], self.calls + 1
            return found

        monkeypatch.setattr(Tail, "read", counted_read)
        monkeypatch.setattr(Tail, "count", counted_count)


class Consumer:
    """A session whose answers the test takes itself."""

    def __init__(self, world: World) -> None:
        self._session = FetchSession(
            SimFabric(world.loop, random.Random(5)).connect("c", "b2", "c", "b2").other,
            fetch_requests(world),
            CALLER,
            limits=SessionLimits(8_000_000),
        )

    def wants(self, topics: Sequence[str], *, min_bytes: int, max_bytes: int = 0) -> None:
        header = pb.FetchHeader(replica_id=-1, max_wait_ms=PATIENCE_MS, min_bytes=min_bytes)
        for topic in topics:
            header.partitions.add(
                topic=topic, fetch_offset=0, current_leader_epoch=-1, last_fetched_epoch=-1, max_bytes=max_bytes
            )
        self._session.on_message(pack_frame(header.SerializeToString(), ()))

    def forgets(self, topic: str) -> None:
        header = pb.FetchHeader(replica_id=-1, max_wait_ms=PATIENCE_MS)
        header.forgotten.add(topic=topic)
        self._session.on_message(pack_frame(header.SerializeToString(), ()))

    def gets(self) -> int | None:
        """Bytes of the next answer; None when the session waits."""
        frame = self._session.gather()
        return None if frame is None else len(split_frame(frame)[1])


async def topics(world: World, count: int) -> list[str]:
    """So many topics of one partition that this broker leads alone."""
    names = [f"t{number}" for number in range(count)]
    for number, name in enumerate(names):
        await world.learn(
            ME, 0, isr=(ME,), replicas=(ME,), tp=TopicPartition(name, 0), topic_id=bytes([number + 1] * 16)
        )
    return names


def append(world: World, topic: str) -> None:
    world.replicas.replicas[TopicPartition(topic, 0)].produce(memoryview(BATCH), 1, 30_000, lambda answer: None)


def test_a_wait_goes_over_each_batch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many appends wake it: once to count, and once more to send."""
    batches = 300

    async def story(world: World) -> None:
        (topic,) = await topics(world, 1)
        work, consumer = Work(monkeypatch), Consumer(world)
        consumer.wants([topic], min_bytes=batches * len(BATCH))
        for _ in range(batches):
            assert consumer.gets() is None
            append(world, topic)
        assert consumer.gets() == batches * len(BATCH)
        assert work.bytes == 2 * batches * len(BATCH)

    run(story)


@plays(run)
async def test_a_wake_costs_nothing_for_the_partitions_that_were_not_woken(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is held back is looked at again when it has more, and not because another partition has."""
    names = await topics(world, 20)
    for name in names:
        append(world, name)
    work, consumer = Work(monkeypatch), Consumer(world)
    consumer.wants(names, min_bytes=30 * len(BATCH))
    assert consumer.gets() is None
    assert work.calls == 20
    for more in range(1, 10):
        append(world, names[3])
        assert consumer.gets() is None
        assert work.calls == 20 + more
    append(world, names[4])
    assert consumer.gets() == 30 * len(BATCH)


@pytest.mark.parametrize(("min_bytes", "enough"), [(2 * len(BATCH), True), (2 * len(BATCH) + 1, False)])
@plays(run)
async def test_a_partition_counts_for_no_more_than_its_max_bytes(world: World, min_bytes: int, enough: bool) -> None:
    """Two partitions of three batches, of which one each may be told; the end of the wait brings them, too."""
    names = await topics(world, 2)
    for name in names * 3:
        append(world, name)
    consumer = Consumer(world)
    consumer.wants(names, min_bytes=min_bytes, max_bytes=len(BATCH))
    if not enough:
        assert consumer.gets() is None
        await world.clock.sleep(PATIENCE_MS)
    assert consumer.gets() == 2 * len(BATCH)


@plays(run)
async def test_a_partition_that_is_forgotten_or_named_again_counts_no_longer(world: World) -> None:
    """Its bytes leave the sum, and what it has is counted anew when it is named again."""
    names = await topics(world, 3)
    for name in names[:2]:
        append(world, name)
    consumer = Consumer(world)
    consumer.wants(names, min_bytes=3 * len(BATCH))
    assert consumer.gets() is None
    consumer.forgets(names[0])
    consumer.wants([names[1]], min_bytes=3 * len(BATCH))
    append(world, names[2])
    assert consumer.gets() is None
    append(world, names[0])
    assert consumer.gets() is None
    append(world, names[2])
    assert consumer.gets() == 3 * len(BATCH)


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
