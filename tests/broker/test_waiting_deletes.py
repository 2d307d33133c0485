"""DeleteRecords requests that wait at a leader: what ends their wait, and who is kept no longer (R-125)."""

from __future__ import annotations

import asyncio

from odradek_broker.requests.records import RecordRequests
from odradek_broker.rpc.records import RecordService
from odradek_proto.encoding import encode_batch
from odradek_proto.errors import ErrorCode
from odradek_proto.v1 import broker_pb2 as pb

from tests.broker.replica_world import CALLER, ME, ONE, ORDERS, THREE, World, run
from tests.playing import plays


@plays(run)
async def test_a_replica_that_is_removed_is_not_waited_for(world: World) -> None:
    """When the last replica that had not cut its log leaves the list, whoever waited for it is answered (R-102)."""
    await world.learn(ME, 0, isr=(ME,), replicas=(ME, THREE, ONE))
    replica = world.replicas.replicas[ORDERS]
    batch = memoryview(encode_batch([(world.clock.wall_ms(), None, b"a", ())]))
    replica.produce(batch, 1, 30_000, lambda answer: None)
    deleted: list[ErrorCode] = []
    replica.delete_records(1, 30_000, deleted.append)
    await world.learn(ME, 0, isr=(ME,), replicas=(ME, THREE), version=1)
    assert deleted == []
    await world.learn(ME, 0, isr=(ME,), replicas=(ME,), version=2)
    assert deleted == [ErrorCode.NONE]


@plays(run)
async def test_a_leadership_that_ends_in_the_same_moment_is_not_waited_for(world: World) -> None:
    """A request whose log start is cut already, and that does not wait yet, hears of it as those do that wait."""
    await world.learn(ME, 0, isr=(ME,), replicas=(ME, ONE))
    batch = memoryview(encode_batch([(world.clock.wall_ms(), None, b"a", ())]))
    world.replicas.replicas[ORDERS].produce(batch, 1, 30_000, lambda answer: None)
    request = pb.DeleteRecordsRequest(timeout_ms=30_000)
    request.partitions.add(topic=ORDERS.topic, partition=ORDERS.partition, offset=0)
    service = RecordService(RecordRequests(replicas=world.replicas, broker_id=ME))
    answering = asyncio.ensure_future(service.delete_records(request.SerializeToString(), CALLER))
    await asyncio.sleep(0)
    await world.learn(ONE, 1, replicas=(ME, ONE))
    assert answering.done()
    (deleted,) = pb.DeleteRecordsResponse.FromString(answering.result()).partitions
    assert ErrorCode(deleted.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
