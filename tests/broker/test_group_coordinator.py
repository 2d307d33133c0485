"""The group coordinator above a real replica: loading, writing, and what happens when either fails (K-42, K-43)."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from odradek_broker.core.groups.messages import (
    GroupSettings,
    Heartbeat,
    JoinGroup,
    MemberProtocol,
    OffsetCommit,
    OffsetCommitAnswer,
    OffsetFetch,
    OffsetFetchAnswer,
    OffsetToCommit,
)
from odradek_broker.core.groups.records import partition_for
from odradek_broker.runtime.groups.coordinator import GroupCoordinator, ImageView
from odradek_broker.runtime.groups.partition import ShardServices
from odradek_proto.encoding import encode_batch
from odradek_proto.errors import ErrorCode
from odradek_proto.topics import OFFSETS_TOPIC, TopicPartition

from tests.broker.replica_world import ME, ONE, THREE, World, run
from tests.playing import plays

HOME = TopicPartition(OFFSETS_TOPIC, 0)
ORDERS = TopicPartition("orders", 0)
COMMIT_TIMEOUT_MS = 60_000
LAG_MS = 11_000  # who has not fetched for so long does not hold up the high watermark


class Groups:
    """The coordinator of a world's broker, for the one partition of the offsets topic."""

    def __init__(self, world: World) -> None:
        services = ShardServices(
            settings=GroupSettings(),
            commit_timeout_ms=COMMIT_TIMEOUT_MS,
            metadata=ImageView(lambda: world.image),
            clock=world.clock,
            files=world.files,
            spawn=world.spawn,
            rebalances=Counter(),
        )
        self.world = world
        self.coordinator = GroupCoordinator(services, world.replicas.replicas.__getitem__)
        world.replicas.on_leadership(OFFSETS_TOPIC, self.coordinator)
        self._version = 0

    async def lead(
        self, *, isr: tuple[int, ...] = (ME,), replicas: tuple[int, ...] = (ONE, ME, THREE), epoch: int
    ) -> None:
        self._version += 1
        await self.world.learn(ME, epoch, isr=isr, replicas=replicas, tp=HOME, version=self._version)

    async def loaded(self) -> None:
        while await self.committed() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            await self.world.clock.sleep(1)

    def commit(self, *offsets: int, metadata: str = "") -> asyncio.Future[ErrorCode]:
        """The first offset is that of orders-0, and so on."""
        wanted = tuple(
            OffsetToCommit(TopicPartition("orders", number), offset, metadata=metadata)
            for number, offset in enumerate(offsets)
        )

        async def call() -> ErrorCode:
            answer = await self.coordinator.call(OffsetCommit("g", -1, "", None, wanted))
            if isinstance(answer, OffsetCommitAnswer) and not answer.error:
                assert {error for _, error in answer.partitions} == {ErrorCode.NONE}
            return answer.error

        return asyncio.ensure_future(call())

    async def committed(self, tp: TopicPartition = ORDERS) -> int | ErrorCode:
        answer = await self.coordinator.call(OffsetFetch("g", (tp,)))
        if isinstance(answer, OffsetFetchAnswer) and not answer.error:
            return answer.offsets[0].offset
        return answer.error


@plays(run)
async def test_a_commit_is_answered_and_seen_when_it_is_committed(world: World) -> None:
    """Not when it is appended: the followers have not got it."""
    groups = Groups(world)
    await groups.lead(epoch=0, isr=(ONE, ME, THREE))
    await groups.loaded()
    commit, fetch = groups.commit(7), asyncio.ensure_future(groups.committed())
    await world.clock.sleep(LAG_MS)
    assert world.replicas.replicas[HOME].state.log_end_offset == 1
    assert not commit.done()
    assert not fetch.done()
    await groups.lead(epoch=0)  # the followers leave the ISR
    assert await commit is ErrorCode.NONE
    assert await fetch == 7


@plays(run)
async def test_the_next_leader_loads_what_was_committed(world: World) -> None:
    """Meanwhile COORDINATOR_LOAD_IN_PROGRESS, and NOT_COORDINATOR where nobody leads here."""
    groups = Groups(world)
    assert await groups.committed() is ErrorCode.NOT_COORDINATOR
    await groups.lead(epoch=0)
    await groups.loaded()
    for offset in (3, 9):
        assert await groups.commit(offset) is ErrorCode.NONE
    world.image.topics[OFFSETS_TOPIC].partitions.clear()
    await world.learn(ONE, 5, tp=HOME, version=50)
    assert await groups.committed() is ErrorCode.NOT_COORDINATOR
    groups._version, world.files.offload_ms = 60, (50.0, 60.0)
    await groups.lead(epoch=9)
    assert await groups.committed() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    heartbeat = await groups.coordinator.call(Heartbeat("g", 1, "m"))
    assert heartbeat.error is ErrorCode.NONE  # a member goes on reading, as in Kafka
    await groups.loaded()
    assert await groups.committed() == 9


@plays(run)
async def test_nothing_is_told_of_what_a_new_leader_may_still_lose(world: World) -> None:
    """It has a commit in its log that is not known to be committed: it loads until that is settled."""
    groups = Groups(world)
    await groups.lead(epoch=0, isr=(ONE, ME, THREE))
    await groups.loaded()
    commit = groups.commit(7)
    await world.clock.sleep(10)
    groups._version = 10
    await groups.lead(epoch=5, isr=(ONE, ME, THREE))
    assert await commit is ErrorCode.NOT_COORDINATOR
    await world.clock.sleep(30_000)
    assert await groups.committed() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await groups.lead(epoch=5)
    await groups.loaded()
    assert await groups.committed() == 7


@plays(run)
async def test_a_write_that_is_not_known_to_be_committed_is_not_guessed_about(world: World) -> None:
    """It times out: its caller is told, the shard is loaded again, and then it turns out that it was committed."""
    groups = Groups(world)
    await groups.lead(epoch=0, isr=(ONE, ME, THREE))
    await groups.loaded()
    commit = groups.commit(7)
    await world.clock.sleep(COMMIT_TIMEOUT_MS + 10)
    assert await commit is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await groups.committed() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await groups.lead(epoch=0)
    await groups.loaded()
    assert await groups.committed() == 7


@plays(run)
async def test_offsets_are_told_while_nothing_can_be_written(world: World) -> None:
    """With too few in-sync replicas a commit is refused before the shard hears of it: it need not be loaded again."""
    groups = Groups(world)
    await groups.lead(epoch=0)
    await groups.loaded()
    assert await groups.commit(7) is ErrorCode.NONE
    world.image.topic_configs[OFFSETS_TOPIC] = {"min.insync.replicas": "2"}
    world.replicas._refresh_settings()
    assert await groups.commit(8) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await groups.committed() == 7


@plays(run)
async def test_whoever_asks_is_answered_when_a_write_fails_at_once(world: World) -> None:
    """Also who was answered in the same step, with something that does not rest on the write."""
    groups = Groups(world)
    await groups.lead(epoch=0)
    await groups.loaded()
    world.image.topic_configs[OFFSETS_TOPIC] = {"max.message.bytes": "10"}
    world.replicas._refresh_settings()
    protocols = (MemberProtocol("range", b""),)
    join = JoinGroup("g", "", None, "consumer", protocols, session_timeout_ms=6_000, rebalance_timeout_ms=6_000)
    async with asyncio.timeout(1):
        assert (await groups.coordinator.call(join)).error is not ErrorCode.NONE
    await groups.loaded()
    async with asyncio.timeout(1):
        assert await groups.commit(7) is ErrorCode.UNKNOWN_SERVER_ERROR
    await groups.loaded()
    assert await groups.committed() == -1


@plays(run)
async def test_a_commit_of_very_many_offsets_is_several_batches(world: World) -> None:
    """One of them may have max.message.bytes; all are there after a load."""
    groups = Groups(world)
    await groups.lead(epoch=0)
    await groups.loaded()
    assert await groups.commit(*range(1_000), metadata="m" * 4_000) is ErrorCode.NONE
    state = world.replicas.replicas[HOME].state
    assert state.log_end_offset == state.high_watermark == 1_000
    groups._version = 10
    await groups.lead(epoch=5)
    await groups.loaded()
    assert [await groups.committed(TopicPartition("orders", each)) for each in (0, 999)] == [0, 999]


@plays(run)
async def test_a_record_that_is_no_record_of_groups_is_left_out_and_said(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The groups behind it are loaded."""
    groups = Groups(world)
    await groups.lead(epoch=0)
    await groups.loaded()
    garbage = encode_batch([(0, b"\0\1 no group's name", b"\0", ())])
    world.replicas.replicas[HOME].produce(memoryview(garbage), 1, 1_000, lambda told: None)
    assert await groups.commit(7) is ErrorCode.NONE
    groups._version = 10
    await groups.lead(epoch=5)
    await groups.loaded()
    assert await groups.committed() == 7
    assert "__consumer_offsets-0: the record at 0 is left out" in caplog.text


# --- Which partition of the offsets topic is a group's (K-40) --------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "of_50", "of_7"),
    [
        ("", 0, 0),
        ("a", 47, 6),
        ("orders-service", 17, 2),
        ("Straße", 26, 5),
        ("\U0001f600-group", 5, 6),  # two units of UTF-16
        ("polygenelubricants", 0, 0),  # whose hash is the smallest int, which has no absolute value
    ],
)
def test_the_partition_is_the_one_that_java_computes(group: str, of_50: int, of_7: int) -> None:
    """`(group.hashCode() & 0x7fffffff) % n`, as a JVM said it."""
    assert partition_for(group, 50) == of_50
    assert partition_for(group, 7) == of_7
