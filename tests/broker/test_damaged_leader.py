"""A leader that finds a damaged batch tells the controller, and as a follower fetches it anew (R-146)."""

from __future__ import annotations

import random

from odradek_broker.core.metadata.image import NO_LEADER
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_proto.encoding import encode_batch
from odradek_proto.errors import ErrorCode

from tests.broker.replica_world import ME, ONE, World, fetch_frame, fetched, run
from tests.playing import plays

SEGMENT = "/data/orders-0/00000000000000000000.log"
BATCH = encode_batch([(0, None, b"a", ())])


@plays(run)
async def test_a_damaged_batch_is_cut_only_when_nobody_counts_on_the_copy_any_more(world: World) -> None:
    """In the ISR it stays as it is: who cut there could be elected without what everybody takes for replicated. No
    reader gets it as records (G7)."""
    world.replicas.loaded = True
    await world.learn(ME, 0, isr=(ME,))
    replica = world.replica
    for _ in range(4):
        world.produce()
    assert replica.state.high_watermark == 4
    world.files.disk.flip(SEGMENT, len(BATCH) * 2 + 65)
    world.cool()
    assert world.replicas.reports() == []

    reader = world.fetch_session()
    reader.put(fetch_frame(2))
    item, data = await fetched(reader)
    assert (ErrorCode(item.error_code), len(data)) == (ErrorCode.CORRUPT_MESSAGE, 0)
    (report,) = world.replicas.reports()
    assert (report.damaged, report.log_end_offset) == (True, 4)
    assert replica.trouble.damage

    await world.learn(ONE, 1, isr=(ONE, ME))
    assert world.log_end() == 4
    assert [each.damaged for each in world.replicas.reports()] == [True]
    await world.learn(ONE, 1, isr=(ONE,), version=2)
    assert world.log_end() == 2
    assert world.leader(ONE).asked()[-1] == ("orders", 2, 1)
    assert world.replicas.reports() == []
    assert not replica.trouble.damage


def test_a_copy_reports_nothing_from_an_epoch_on_that_has_not_begun() -> None:
    """No CRC covers the epoch of a batch: a bit flipped there would let it lead as the newest of all copies."""
    disk = SimDisk(random.Random(1))

    async def write(world: World) -> None:
        await world.learn(ME, 0, isr=(ME,))
        for _ in range(3):
            world.produce()

    async def report(world: World) -> None:
        world.replicas.loaded = True
        await world.learn(NO_LEADER, 3, isr=())
        assert world.log_end() == 3
        (report,) = world.replicas.reports()
        assert (report.last_epoch, report.log_end_offset, report.damaged) == (0, 2, True)

    run(write, disk)
    disk.locks.clear()  # that process is gone
    disk.flip(SEGMENT, 2 * len(BATCH) + 14, 2)  # epoch 1024
    run(report, disk)
