"""DeleteRecords requests that wait at a leader: what ends their wait, and who is kept no longer (R-125)."""

from __future__ import annotations

import asyncio

from odradek_broker.runtime.waiting_deletes import WaitingDeletes
from odradek_proto.encoding import encode_batch
from odradek_proto.errors import ErrorCode

from tests.broker.replica_world import ME, ONE, ORDERS, THREE, World, run


def test_a_replica_that_is_removed_is_not_waited_for() -> None:
    """When the last replica that had not cut its log leaves the list, whoever waited for it is answered (R-102)."""

    async def story(world: World) -> None:
        await world.learn(ME, 0, isr=(ME,), replicas=(ME, THREE, ONE))
        hosted = world.replicas.replicas[ORDERS]
        batch = memoryview(encode_batch([(world.clock.wall_ms(), None, b"a", ())]))
        hosted.produce(batch, 1, 30_000, lambda answer: None)
        hosted.on_log_start_advanced(1)
        request = hosted.deletes.add(1)
        await world.learn(ME, 0, isr=(ME,), replicas=(ME, THREE), version=1)
        assert not request.done()
        await world.learn(ME, 0, isr=(ME,), replicas=(ME,), version=2)
        assert request.done()
        assert request.result() is ErrorCode.NONE
        assert not hosted.deletes

    run(story)


def test_requests_that_gave_up_do_not_pile_up() -> None:
    """While no follower is heard of, each new request takes the place of those whose time is over."""

    async def story() -> None:
        waiting = WaitingDeletes()
        stays = waiting.add(1)
        for offset in range(2, 100):
            waiting.add(offset).cancel()
            assert len(waiting) == 2, offset
        waiting.on_low_watermark(1)
        assert stays.result() is ErrorCode.NONE
        assert not waiting

    asyncio.run(story())
