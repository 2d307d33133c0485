"""A full disk makes replicas read-only, and lets them go on by themselves when there is room (R-86)."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from odradek_broker.requests.records import RecordRequests
from odradek_broker.storage.errors import ROOM_BYTES
from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition

from tests.broker.replica_world import CALLER, ME, ONE, ORDERS, World, answered, maintenance_of, run, stored
from tests.playing import plays

DIVERGENCE: dict[str, Any] = {
    "epoch": 1,
    "offset": 3,
    "diverging": True,
    "diverging_epoch": 0,
    "diverging_end_offset": 1,
}
EPOCHS = "/data/orders-0/leader-epoch-checkpoint"


def describes_room(world: World) -> bool:
    """What whoever asks for the replicas is told of the disk."""
    requests = RecordRequests(replicas=world.replicas, broker_id=ME)
    return not requests.describe_replicas(CALLER).disk_full


@plays(run)
async def test_nothing_that_a_full_disk_refuses_ends_a_broker(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Checkpoints, leader epochs, appends of a leader and of a follower; each time it is said once."""
    disk = world.files.disk
    maintenance = maintenance_of(world)

    async def checkpoints() -> None:
        await maintenance.checkpoint_high_watermarks()
        await maintenance.checkpoint_recovery_points()
        await maintenance.checkpoint_log_starts()

    await world.learn(ME, 0)
    assert world.produce()[0].error is ErrorCode.NONE
    await checkpoints()
    disk.quota = disk.used
    await checkpoints()
    await world.learn(ME, 2)
    assert [world.produce()[0].error for _ in range(3)] == [ErrorCode.KAFKA_STORAGE_ERROR] * 3
    assert b"\n2 1\n" not in disk.read(EPOCHS)
    assert not describes_room(world)
    disk.quota = None
    assert world.produce()[0].error is ErrorCode.NONE
    assert b"\n2 1\n" in disk.read(EPOCHS), "before the record of that epoch (R-60)"

    assert describes_room(world)
    await world.learn(ONE, 3)
    disk.quota = disk.used
    assert not describes_room(world), "before anybody tries to write"
    await answered(world, ONE, stored(2, epoch=3), epoch=3, offset=2)
    assert world.log_end() == 2
    await world.clock.sleep(100)
    await checkpoints()
    disk.quota = None
    assert world.leader(ONE).asked() == [("orders", 2, 3)] * 2, "it asks again by itself"
    await answered(world, ONE, stored(2, epoch=3), epoch=3, offset=2)
    assert world.log_end() == 3
    said = [getattr(each, "event", each.message) for each in caplog.records if each.levelname in ("ERROR", "WARNING")]
    assert [each for each in said if not each.startswith("/data: no room for writing")] == ["disk_full"] * 2


@plays(run)
async def test_a_cut_that_a_full_disk_refused_is_made_when_there_is_room(world: World) -> None:
    """The checkpoints have to be lowered first; until then the replica serves nothing, and comes back by itself."""
    disk = world.files.disk
    maintenance = maintenance_of(world)
    await world.learn(ME, 0, isr=(ME,))
    for _ in range(3):
        assert world.produce()[0].error is ErrorCode.NONE
    replica = world.replica
    assert replica.state.high_watermark == 3
    await maintenance.checkpoint_high_watermarks()
    await world.learn(ONE, 1)
    disk.quota = disk.used
    await answered(world, ONE, **DIVERGENCE)
    assert replica.offline is not None
    await maintenance.checkpoint_high_watermarks()
    assert replica.offline is not None
    disk.quota = None
    await maintenance.checkpoint_high_watermarks()
    assert replica.offline is None
    await world.clock.sleep(100)
    await answered(world, ONE, **DIVERGENCE)
    assert world.log_end() == 1


@plays(run)
async def test_a_replica_that_found_no_room_is_made_when_there_is_some(world: World) -> None:
    """Until then it is reported as one that cannot be opened, so that nobody waits for it."""
    disk = world.files.disk
    maintenance = maintenance_of(world)
    world.replicas.loaded = True
    disk.quota = disk.used
    await world.learn(ME, 0)
    assert world.replicas.lookup(ORDERS) is ErrorCode.KAFKA_STORAGE_ERROR
    assert [(each.damaged, each.log_end_offset) for each in world.replicas.reports()] == [(True, -1)]
    await maintenance.checkpoint_high_watermarks()
    assert ORDERS in world.replicas.broken
    disk.quota = None
    await maintenance.checkpoint_high_watermarks()
    assert world.produce()[0].error is ErrorCode.NONE
    assert not world.replicas.reports()
    assert not world.replicas.broken


@plays(run)
async def test_a_replica_that_finds_no_room_again_does_not_keep_others_from_coming_back(world: World) -> None:
    """One that could not be made, and one that had to cut its log: each is tried again until it succeeds."""
    disk = world.files.disk
    other = TopicPartition("payments", 0)
    maintenance = maintenance_of(world)
    await world.learn(ME, 0, isr=(ME,))
    for _ in range(3):
        assert world.produce()[0].error is ErrorCode.NONE
    await maintenance.checkpoint_high_watermarks()
    await world.learn(ONE, 1)
    disk.quota = disk.used
    await world.learn(ME, 0, tp=other)
    await answered(world, ONE, **DIVERGENCE)
    replica = world.replica
    assert replica.offline is not None
    assert other in world.replicas.broken
    disk.quota = None
    disk.inject("write", "/data/payments-0", code=errno.ENOSPC)
    await maintenance.checkpoint_high_watermarks()
    assert replica.offline is None
    assert other in world.replicas.broken
    await maintenance.checkpoint_high_watermarks()
    assert not world.replicas.broken


@plays(run)
async def test_a_disk_is_full_no_more_although_nobody_writes_there(world: World) -> None:
    """Else a broker whose leaderships have moved would be called full for good (R-148)."""
    disk = world.files.disk
    maintenance = maintenance_of(world)
    await world.learn(ME, 0)
    disk.quota = disk.used
    assert world.produce()[0].error is ErrorCode.KAFKA_STORAGE_ERROR
    disk.quota = disk.used + ROOM_BYTES // 2
    await maintenance.checkpoint_high_watermarks()
    assert not describes_room(world), "the next appends may need more"
    disk.quota = disk.used + 2 * ROOM_BYTES
    assert not describes_room(world), "nothing was written yet"
    await maintenance.checkpoint_high_watermarks()
    assert describes_room(world)


@plays(run)
async def test_a_disk_at_its_edge_is_full_once(world: World) -> None:
    """What is written, and removed, by the way would have it full and not full again and again (R-148)."""
    disk = world.files.disk
    await world.learn(ME, 0)
    found = []
    for kib in (1025, 1023, 1025, 1023, 2047, 2049, 1025, 1023):
        disk.quota = disk.used + (kib << 10)
        found.append(describes_room(world))
    assert found == [True, False, False, False, False, True, True, False]
