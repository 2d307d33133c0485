"""An ISR proposal that must be made again, on a replica that is not what it was any more."""

from __future__ import annotations

from odradek_broker.core.partition.isr_proposal import RETRY_BACKOFF_MS
from odradek_broker.core.partition.messages import FollowerFetch, IsrAnswer
from odradek_broker.storage.errors import LogCorrupted
from odradek_proto.errors import ErrorCode

from tests.broker.replica_world import ME, ONE, ORDERS, World, run
from tests.playing import plays


@plays(run)
async def test_a_replica_that_goes_offline_proposes_nothing_any_more(world: World) -> None:
    """A retry that was due on it is over: nobody makes it, and if its timer went on, it would do so without a pause."""
    await world.learn(ME, 0, isr=(ME,))
    replica = world.replicas.replicas[ORDERS]
    replica.fetch_as_follower(FollowerFetch(ONE, 100 + ONE, 0, 0, -1, 0))
    (proposal,) = world.proposals
    world.replicas.on_isr_answer(proposal, IsrAnswer(ErrorCode.NOT_CONTROLLER))
    world.replicas.storage_failed(replica, LogCorrupted("0.log", 7, 1, "checksum"))
    await world.clock.sleep(10 * RETRY_BACKOFF_MS)
    assert world.proposals == [proposal]
