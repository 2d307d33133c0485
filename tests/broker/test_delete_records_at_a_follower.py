"""DeleteRecords is for the leader: who follows, or has no replica at all, cuts nothing (R-111, R-161)."""

from __future__ import annotations

from odradek_broker.requests.records import RecordRequests
from odradek_broker.rpc.records import RecordService
from odradek_proto.encoding import encode_batch
from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.v1 import broker_pb2 as pb

from tests.broker.replica_world import CALLER, ME, ONE, ORDERS, World, run
from tests.playing import plays

ELSEWHERE = TopicPartition("elsewhere", 0)


async def delete(world: World, tp: TopicPartition, offset: int) -> tuple[ErrorCode, int]:
    """What the broker answers: the error, and how far all live replicas have cut."""
    request = pb.DeleteRecordsRequest(
        partitions=[pb.DeleteRecordsPartition(topic=tp.topic, partition=tp.partition, offset=offset)]
    )
    service = RecordService(RecordRequests(replicas=world.replicas, broker_id=ME))
    answer = await service.delete_records(request.SerializeToString(), CALLER)
    (deleted,) = pb.DeleteRecordsResponse.FromString(answer).partitions
    return ErrorCode.from_number(deleted.error_code), deleted.low_watermark


@plays(run)
async def test_only_the_leader_deletes_records(world: World) -> None:
    """A leader cuts; once another one leads the same request is NOT_LEADER_OR_FOLLOWER, and the log stays (R-111)."""
    await world.learn(ME, 0, isr=(ME,), replicas=(ME, ONE))
    world.image.brokers.pop(ONE)  # it is not alive, so nobody waits for it
    replica = world.replicas.replicas[ORDERS]
    for value in (b"a", b"b"):
        batch = memoryview(encode_batch([(world.clock.wall_ms(), None, value, ())]))
        replica.produce(batch, 1, 30_000, lambda answer: None)
    assert await delete(world, ORDERS, 1) == (ErrorCode.NONE, 1)
    await world.learn(ONE, 1, isr=(ME, ONE), replicas=(ME, ONE))
    assert await delete(world, ORDERS, 2) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert replica.state.log_start_offset == 1
    assert await delete(world, ELSEWHERE, 1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
