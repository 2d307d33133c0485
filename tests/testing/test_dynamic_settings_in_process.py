"""Settings that are changed while the cluster runs hold at once, on every replica, without a restart."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from odradek import Admin, Consumer, Producer, TopicPartition, broker_errors
from odradek_broker.testing import AsyncCluster, Cluster, ClusterError
from odradek_proto.formats import decode_offset_checkpoint

TP = TopicPartition("orders", 0)
SOON = {
    "log.retention.check.interval.ms": 50,
    "log.flush.offset.checkpoint.interval.ms": 50,
    "log.segment.delete.delay.ms": 50,
    "min.insync.replicas": 1,
}
VALUE = b"v" * 400
SEGMENT, LARGE = 1 << 20, b"v" * 400_000  # the smallest segment that may be set, and two values of it
BROKER_NAMES = {
    "max.message.bytes": "message.max.bytes",
    "min.insync.replicas": "min.insync.replicas",
    "retention.bytes": "log.retention.bytes",
    "segment.bytes": "log.segment.bytes",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
Story = Callable[["Scene"], Coroutine[None, None, None]]


class Scene:
    """Three brokers, `orders` on all of them, and clients."""

    def __init__(self, cluster: AsyncCluster, admin: Admin, producer: Producer[bytes, bytes]) -> None:
        self.cluster, self.admin, self.producer = cluster, admin, producer
        self.where = "topic"

    async def set(self, **values: object) -> None:
        """Set values by the topic's names, with `_` for `.`; for all brokers if the story is about them."""
        settings = {name.replace("_", "."): str(value) for name, value in values.items()}
        if self.where == "topic":
            await self.admin.incremental_alter_configs("topic", "orders", set=settings)
        else:
            found = {BROKER_NAMES[name]: value for name, value in settings.items()}
            await self.admin.incremental_alter_configs("broker", "", set=found)
        await self.cluster.wait_until_told()

    async def send(self, count: int = 1, value: bytes = VALUE, timestamp_ms: int | None = None) -> None:
        for _ in range(count):
            await self.producer.send("orders", value, partition=0, timestamp=timestamp_ms)

    def files(self, ending: str) -> list[list[Path]]:
        """The partition's files with this ending, of each replica."""
        return [sorted((path / "orders-0").glob(f"*{ending}")) for path in self.cluster.replicas().values()]

    async def until_everywhere(self, ending: str, holds: Callable[[list[Path]], bool]) -> None:
        """Wait until it holds for the files of every replica."""
        await self.cluster.wait_until(lambda: all(holds(found) for found in self.files(ending)))

    async def until_flushed(self, offset: int) -> None:
        def flushed(path: Path) -> bool:
            checkpoint = path / "recovery-point-offset-checkpoint"
            return checkpoint.exists() and decode_offset_checkpoint(checkpoint.read_bytes()).get(TP, 0) >= offset

        await self.cluster.wait_until(lambda: all(map(flushed, self.cluster.replicas().values())))


@asynccontextmanager
async def scene(settings: Mapping[str, object] = SOON) -> AsyncIterator[Scene]:
    async with Cluster(settings=settings) as cluster, Admin(cluster.bootstrap) as admin:
        await cluster.create_topic("orders")
        async with Producer[bytes, bytes](cluster.bootstrap, max_request_size=4_000_000) as producer:
            yield Scene(cluster, admin, producer)


async def segment_bytes(on: Scene) -> None:
    await on.send(4)
    assert [len(found) for found in on.files(".log")] == [1, 1, 1]
    await on.set(segment_bytes=SEGMENT)
    await on.send(6, LARGE)
    await on.until_everywhere(".log", lambda found: len(found) >= 3)


async def segment_ms(on: Scene) -> None:
    await on.send()
    await on.set(segment_ms=1)
    await on.send(timestamp_ms=int(time.time() * 1000) + 5_000)
    await on.until_everywhere(".log", lambda found: len(found) == 2)


async def segment_index_bytes(on: Scene) -> None:
    await on.set(index_interval_bytes=1, segment_index_bytes=24, internal_segment_bytes=1_000)
    await on.send(4)  # the settings of an index are those of the next segment
    await on.set(internal_segment_bytes=1 << 30)
    await on.send(12)
    await on.until_everywhere(".log", lambda found: len(found) >= 4)


async def index_interval_bytes(on: Scene) -> None:
    await on.set(index_interval_bytes=1, internal_segment_bytes=1_000)
    await on.send(4)
    await on.set(internal_segment_bytes=1 << 30)
    await on.send(8)  # into a segment that was begun with the new value: one entry for each batch
    await on.set(internal_segment_bytes=1_000)
    await on.send()  # an index is on the disk when its segment is done
    await on.until_everywhere(".index", lambda found: any(8 * 5 <= each.stat().st_size < 8 * 20 for each in found))


async def retention_ms(on: Scene) -> None:
    await on.set(internal_segment_bytes=1_000)
    await on.send(8, timestamp_ms=1_000_000)
    await on.until_everywhere(".log", lambda found: len(found) == 1)  # older than a week
    await on.set(retention_ms=-1)
    await on.send(8, timestamp_ms=1_000_000)
    assert all(len(found) > 1 for found in on.files(".log"))
    await on.set(retention_ms=60_000)
    await on.until_everywhere(".log", lambda found: len(found) == 1)


async def retention_bytes(on: Scene) -> None:
    await on.set(segment_bytes=SEGMENT)
    await on.send(12, LARGE)
    await on.until_everywhere(".log", lambda found: len(found) >= 5)
    await on.set(retention_bytes=2 * SEGMENT)
    await on.until_everywhere(".log", lambda found: len(found) <= 3)


async def file_delete_delay_ms(on: Scene) -> None:
    await on.set(file_delete_delay_ms=1_000_000, internal_segment_bytes=1_000)
    await on.send(12)
    await on.set(retention_bytes=0)
    await on.until_everywhere(".deleted", lambda found: len(found) > 3)


async def max_message_bytes(on: Scene) -> None:
    await on.set(max_message_bytes=300)
    with pytest.raises(broker_errors.MessageTooLarge):
        await on.send()
    await on.set(max_message_bytes=3_000_000)
    await on.send(value=b"v" * 2_000_000)
    await on.until_everywhere(".log", lambda found: found[-1].stat().st_size > 2_000_000)


async def min_insync_replicas(on: Scene) -> None:
    leader = await on.cluster.leader_of("orders")
    for broker in on.cluster.brokers:
        if broker != leader:
            await on.cluster.kill(broker)
            break
    await on.cluster.wait_until_ready()
    assert len(on.cluster.isr_of("orders")) == 2
    await on.send()
    await on.set(min_insync_replicas=3)
    with pytest.raises((broker_errors.NotEnoughReplicas, broker_errors.NotEnoughReplicasAfterAppend)):
        async with Producer(on.cluster.bootstrap, retries=0) as impatient:
            await impatient.send("orders", "no", partition=0)
    await on.set(min_insync_replicas=2)
    await on.send()


async def unclean_leader_election_enable(on: Scene) -> None:
    leader = await on.cluster.leader_of("orders")
    await on.admin.alter_partition_reassignments({TP: [leader]})
    await on.cluster.wait_until_reassigned("orders")
    stale = next(broker for broker in on.cluster.brokers if broker != leader)
    await on.cluster.kill(stale)
    await on.cluster.wait_until_ready()  # an order on its way to a controller that dies is not repeated
    await on.admin.alter_partition_reassignments({TP: [leader, stale]})
    await on.cluster.kill(leader)
    await on.cluster.start(stale)  # alive, a replica, and not in sync: nobody leads
    with pytest.raises(ClusterError):
        await on.cluster.leader_of("orders", timeout=0.2)
    await on.set(unclean_leader_election_enable="true")
    assert await on.cluster.leader_of("orders") == stale


async def flush_messages(on: Scene) -> None:
    await on.send(2)
    await on.set(flush_messages=1)
    await on.send()
    await on.until_flushed(3)


async def flush_ms(on: Scene) -> None:
    await on.send(2)
    await on.set(flush_ms=0)
    await on.send()
    await on.until_flushed(3)


async def message_timestamp_after_and_before_max_ms(on: Scene) -> None:
    for name, half_an_hour_ms in (("after", 1_800_000), ("before", -1_800_000)):
        then_ms = int(time.time() * 1000) + half_an_hour_ms
        await on.send(timestamp_ms=then_ms)
        await on.set(**{f"message_timestamp_{name}_max_ms": 1_000})
        with pytest.raises(broker_errors.InvalidTimestamp):
            await on.send(timestamp_ms=then_ms)


async def message_timestamp_type(on: Scene) -> None:
    """Old records are kept as new ones, found by the time of their append, and the same bytes on every replica."""
    old_ms = 1_000_000
    await on.set(retention_ms=-1)
    assert (await on.producer.send("orders", VALUE, partition=0, timestamp=old_ms)).timestamp == old_ms
    await on.set(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=1_000)
    before_ms = int(time.time() * 1000)
    told = await on.producer.send("orders", VALUE, partition=0, timestamp=old_ms)
    assert before_ms <= told.timestamp <= time.time() * 1000
    async with Consumer(on.cluster.bootstrap) as consumer:
        found = (await consumer.offsets_for_times({TP: old_ms + 1}))[TP]
        assert found is not None
        assert (found.offset, found.timestamp) == (told.offset, told.timestamp)
        consumer.assign([TopicPartition("orders", 0)])
        consumer.seek_to_beginning()
        times: list[int] = []
        while len(times) < 2:
            times += [record.timestamp for record in await consumer.poll(10)]
    assert times == [old_ms, told.timestamp]
    await on.cluster.wait_until(
        lambda: len({b"".join(file.read_bytes() for file in found) for found in on.files(".log")}) == 1
    )


STORIES: list[Story] = [
    segment_bytes,
    segment_ms,
    segment_index_bytes,
    index_interval_bytes,
    retention_ms,
    retention_bytes,
    file_delete_delay_ms,
    max_message_bytes,
    min_insync_replicas,
    unclean_leader_election_enable,
    flush_messages,
    flush_ms,
    message_timestamp_after_and_before_max_ms,
    message_timestamp_type,
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_a_topics_setting_holds_at_once_on_every_replica(story: Story) -> None:
    """Each story needs the value before the change, then the one after it."""
    async with scene() as on:
        await story(on)


OF_BROKERS: list[Story] = [retention_bytes, max_message_bytes, min_insync_replicas, unclean_leader_election_enable]


@pytest.mark.parametrize("story", OF_BROKERS, ids=lambda story: story.__name__)
async def test_a_default_for_all_brokers_holds_at_once_too(story: Story) -> None:
    """Some of the same stories with the brokers' names of the settings, set for the whole cluster."""
    async with scene() as on:
        on.where = "cluster"
        await story(on)
