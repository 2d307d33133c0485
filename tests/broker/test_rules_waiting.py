"""Who is looked at again when a replica changes, and who only hears of it later (R-122 to R-125, R-127)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from odradek_broker.core.metadata.delta import MetadataDelta
from odradek_broker.core.partition.messages import FollowerFetch
from odradek_broker.requests.fetch_answers import FetchReader, PartitionAnswers, PendingFetch
from odradek_proto.encoding import encode_batch
from odradek_proto.errors import ErrorCode
from odradek_proto.values import replace

from tests.broker.replica_world import ME, ONE, ORDERS, Waiter, World, deleted, maintenance_of, run
from tests.playing import plays

ALL = -1


class Leading:
    """This broker leads a partition with one follower, whose fetch waits here, as does that of a consumer."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.replica = world.replica
        self.follower, self.consumer = (Waiter(self.replica, follower=follower) for follower in (True, False))

    @property
    def woken(self) -> tuple[int, int]:
        return self.follower.woken, self.consumer.woken

    def fetch(self, offset: int, log_start_offset: int = 0) -> None:
        self.world.fetched_by(ONE, offset, last=0, log_start_offset=log_start_offset)


async def leading(world: World) -> Leading:
    await world.learn(ME, 0, isr=(ME, ONE), replicas=(ME, ONE))
    return Leading(world)


@plays(run)
async def test_an_append_wakes_followers_and_a_high_watermark_consumers(world: World) -> None:
    """R-123, R-127: a follower reads up to the end, a consumer up to the high watermark. A follower is not answered for
    the high watermark alone: it hears of it when its wait ends."""
    made = await leading(world)
    world.produce()
    assert (made.woken, made.follower.hears_of_news) == ((1, 0), False)
    made.fetch(1)
    assert made.replica.state.high_watermark == 1
    assert (made.woken, made.follower.hears_of_news) == ((1, 1), True)


@plays(run)
async def test_a_log_start_is_told_when_the_wait_ends(world: World) -> None:
    """R-127: nobody has more to read by it."""
    made = await leading(world)
    world.produce()
    made.fetch(1)
    follower = Waiter(made.replica, follower=True)
    assert not follower.hears_of_news
    made.replica.on_log_start_advanced(1)
    assert (follower.woken, follower.hears_of_news) == (0, True)


@pytest.mark.parametrize(
    ("leader", "epoch", "version", "looked_at"),
    [(ONE, 1, 1, True), (ME, 1, 1, True), (ME, 0, 1, False)],
    ids=["another leader", "the same in another epoch", "only another version"],
)
@plays(run)
async def test_a_new_epoch_wakes_everybody(
    world: World, leader: int, epoch: int, version: int, looked_at: bool
) -> None:
    """R-121, R-123: what they asked is fenced by now, or to be asked of somebody else."""
    made = await leading(world)
    await world.learn(leader, epoch, isr=(ME, ONE), replicas=(ME, ONE), version=version)
    assert all(woken > 0 for woken in made.woken) is looked_at
    assert any(woken > 0 for woken in made.woken) is looked_at


@plays(run)
async def test_a_disk_that_fails_keeps_nobody_waiting(world: World) -> None:
    """R-121, R-124, R-125: fetches are looked at again, writes and deletions are answered with what happened."""
    made = await leading(world)
    world.produce()
    made.fetch(1)
    answers = world.produce(acks=ALL)
    answered: list[ErrorCode] = []
    made.replica.delete_records(1, 30_000, answered.append)
    woken = made.woken
    made.replica.take_offline("the disk is gone")
    assert [each.error for each in answers] == answered == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert made.woken == (woken[0] + 1, woken[1] + 1)


def cuts_as_well(made: Leading) -> None:
    made.fetch(1, log_start_offset=1)


def is_fenced(made: Leading) -> None:
    brokers = made.world.image.brokers
    brokers[ONE] = replace(brokers[ONE], fenced=True)
    made.world.replicas.apply(made.world.image, MetadataDelta(brokers={ONE: None}))


@pytest.mark.parametrize("follower", [cuts_as_well, is_fenced], ids=["cuts as well", "is fenced"])
@plays(run)
async def test_a_deletion_waits_for_live_followers_alone(world: World, follower: Callable[[Leading], None]) -> None:
    """R-125: until the last of them has said that its log begins there, or is not alive any more."""
    made = await leading(world)
    world.produce()
    made.fetch(1)
    answered: list[ErrorCode] = []
    made.replica.delete_records(1, 30_000, answered.append)
    made.fetch(1)
    assert answered == []
    follower(made)
    assert answered == [ErrorCode.NONE]


@plays(run)
async def test_a_deletion_says_how_far_all_live_replicas_are(world: World) -> None:
    """R-125: at its time limit, too; the leader's own log begins there by then, and the follower's will."""
    made = await leading(world)
    world.produce()
    made.fetch(1)
    begun_ms = world.clock.now_ms()
    assert await deleted(world.replicas, 1) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    assert world.clock.now_ms() - begun_ms == 1_000
    assert made.replica.state.log_start_offset == 1
    made.fetch(1, log_start_offset=1)
    assert await deleted(world.replicas, 1) == (ErrorCode.NONE, 1)


@plays(run)
async def test_each_write_that_waits_has_its_own_time_limit(world: World) -> None:
    """R-15: the first to end is not the last; what they wrote stays, and may be committed later."""
    await world.learn(ME, 0, isr=(ME, ONE))
    waiting = [world.produce(acks=ALL, timeout_ms=timeout_ms) for timeout_ms in (2_000, 1_000, 3_000)]
    for answered in range(4):
        told = [answer.error for answers in waiting for answer in answers]
        assert told == [ErrorCode.REQUEST_TIMED_OUT] * answered
        await world.clock.sleep(1_000)
    assert world.log_end() == 3


@plays(run)
async def test_silent_producers_are_forgotten_by_the_clock(world: World) -> None:
    """R-248: on every replica, with the look for what retention takes."""
    await world.learn(ME, 0)
    world.produce(batch=encode_batch([(0, None, b"a", ())], producer_id=7, producer_epoch=0, base_sequence=0))
    producers = world.replica.state.producers
    producers.expiration_ms = 3_000
    world.keep(*maintenance_of(world, log_retention_check_interval_ms=1_000).duties())
    await world.clock.sleep(2_500)
    assert len(producers) == 1
    await world.clock.sleep(1_000)
    assert len(producers) == 0


@plays(run)
async def test_a_second_look_at_a_fetch_is_no_second_acknowledgement(world: World) -> None:
    """R-122: what the follower has it says once, when it names its position."""
    made = await leading(world)
    world.produce()
    named = FollowerFetch(ONE, 100 + ONE, 1, 0, 0, 0)
    assert made.replica.reread_for_follower(named).error is ErrorCode.NONE
    assert made.replica.state.high_watermark == 0
    made.replica.fetch_as_follower(named)
    assert made.replica.state.high_watermark == 1


@plays(run)
async def test_a_log_start_that_moved_before_the_answer_is_out_of_range(world: World) -> None:
    """R-122, R-161: what was allowed when the offset was named is looked at again; nothing from below is told."""
    await world.learn(ME, 0, isr=(ME,), replicas=(ME,))
    made = Leading(world)
    world.produce()
    reader = FetchReader(follower=False)
    wanted = PendingFetch(ORDERS, 0, -1, -1, 0, 1 << 20, replica=made.replica, role=made.replica.role)
    wanted.decision = reader.ask(made.replica, wanted)
    assert (wanted.decision.error, wanted.decision.limit) == (ErrorCode.NONE, 1)
    made.replica.on_log_start_advanced(1)
    answers = PartitionAnswers(world.files, reader, lambda tp: None)
    decision, data = answers.find(wanted, 1 << 20, 1 << 20, world.clock.now_ms(), first=True)
    assert (decision.error, data) == (ErrorCode.OFFSET_OUT_OF_RANGE, ())
    answers.close()
