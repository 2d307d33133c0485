"""What followers and leaders tell each other on their streams and calls is what their rules go by."""

from __future__ import annotations

from odradek_broker.core.partition.messages import FollowerFetch, IsrAnswer, IsrMember, IsrProposal
from odradek_broker.requests.offsets import OffsetRequests
from odradek_broker.rpc.services import OffsetsService
from odradek_broker.runtime.membership.isr_channel import _request
from odradek_proto.errors import ErrorCode
from odradek_proto.records import encode_batch
from odradek_proto.v1 import broker_pb2 as pb

from tests.broker.replica_world import CALLER, ME, ONE, ORDERS, TOPIC_ID, Reader, World, answered, listed, run, stored
from tests.playing import plays

EARLIEST, MAX_TIMESTAMP = -2, -3


@plays(run)
async def test_a_follower_says_who_it_is_and_where_its_log_begins_and_ends(world: World) -> None:
    """Broker and broker epoch, topic id, offset, both epochs, log start (R-35, R-38, R-79, R-107, R-162)."""
    await world.learn(ONE, 3)
    (first,) = world.leader(ONE).said()
    assert (first.replica_id, first.replica_epoch) == (ME, 100 + ME)
    data = stored(0, epoch=2) + stored(1, epoch=3)
    for offset in (7, 0):  # the first one answers nothing that was asked
        await answered(world, ONE, data, epoch=3, offset=offset, high_watermark=2, log_start_offset=1)
        assert world.log_end() == (0 if offset else 2)
    (asked,) = [each for header in world.leader(ONE).said() for each in header.partitions]
    assert (asked.topic, asked.partition, asked.topic_id) == ("orders", 0, TOPIC_ID)
    assert (asked.fetch_offset, asked.log_start_offset) == (2, 1)
    assert (asked.current_leader_epoch, asked.last_fetched_epoch) == (3, 3)


@plays(run)
async def test_a_leader_hears_and_says_all_that_counts(world: World) -> None:
    """The incarnation and the log start it hears; bounds, divergence and the request's names it says (R-36, R-38)."""
    await world.learn(ME, 3, isr=(ME,))
    for _ in range(3):
        world.produce()
    world.replica.on_log_start_advanced(1)
    await world.learn(ME, 4, isr=(ME,))
    world.produce()
    follower = Reader(world, follower=True)

    def told(offset: int, **fields: int) -> pb.FetchedPartition:
        follower.asks(offset, epoch=4, last=3, log_start_offset=1, **fields)
        (item,) = follower.gets()
        return item

    leader = world.replica.leader
    assert leader is not None
    remote = leader.replicas.by_id.get(ONE)
    assert remote is not None
    old = told(2, incarnation=100)
    assert (ErrorCode(old.error_code), remote.log_end_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    parted = told(4)
    assert (parted.diverging, parted.diverging_epoch, parted.diverging_end_offset) == (True, 3, 3)
    assert (parted.size, remote.log_end_offset) == (0, -1)
    read = told(3)
    assert (read.error_code, read.diverging, read.fetch_offset, read.request_leader_epoch) == (0, False, 3, 4)
    assert (read.high_watermark, read.log_start_offset, read.size > 0) == (4, 1, True)
    assert (remote.log_end_offset, remote.log_start_offset, remote.broker_epoch) == (3, 1, 100 + ONE)


@plays(run)
async def test_offsets_are_told_from_the_log_start_to_the_high_watermark(world: World) -> None:
    """The earliest is where the log begins; the largest timestamp is that of a committed record (R-26, R-84)."""
    await world.learn(ME, 0, isr=(ME, ONE))
    for place in range(3):
        world.produce(batch=encode_batch([(place, None, b"a", ())]))
    world.fetched_by(ONE, 2)
    world.replica.on_log_start_advanced(1)
    assert await listed(world.replicas, world.files, EARLIEST) == (ErrorCode.NONE, 1)
    assert await listed(world.replicas, world.files, MAX_TIMESTAMP) == (ErrorCode.NONE, 1)


@plays(run)
async def test_a_leader_without_its_disk_answers_nobody(world: World) -> None:
    """Neither producers, consumers and followers that wait, nor questions for offsets and epochs (R-10, R-35, R-69)."""
    await world.learn(ME, 0, isr=(ME,))
    world.produce()
    world.replica.take_offline("its log is damaged")
    failed = ErrorCode.KAFKA_STORAGE_ERROR
    assert [each.error for each in world.produce()] == [failed]
    assert world.replica.fetch_as_consumer(0, 0, -1, False).error is failed
    assert world.replica.reread_for_follower(FollowerFetch(ONE, 100 + ONE, 0, 0, -1, 0)).error is failed
    assert await listed(world.replicas, world.files, EARLIEST) == (failed, -1)
    service = OffsetsService(OffsetRequests(lookup=world.replicas.lookup, files=world.files), for_followers=True)
    request = pb.OffsetsForLeaderEpochRequest()
    request.partitions.add(topic="orders", partition=0, current_leader_epoch=0, leader_epoch=0)
    data = await service.offsets_for_leader_epoch(request.SerializeToString(), CALLER)
    (answer,) = pb.OffsetsForLeaderEpochResponse.FromString(data).partitions
    assert (ErrorCode(answer.error_code), answer.leader_epoch, answer.end_offset) == (failed, -1, -1)


def test_a_proposal_goes_out_with_all_its_epochs() -> None:
    """Of the sender, the leader, the partition and each member (R-49)."""
    members = (IsrMember(ME, 102), IsrMember(ONE, 101))
    request = _request(ME, 102, [IsrProposal(TOPIC_ID, ORDERS, 5, 7, members)])
    assert (request.broker_id, request.broker_epoch) == (ME, 102)
    (item,) = request.partitions
    assert (item.topic_id, item.partition, item.leader_epoch, item.partition_epoch) == (TOPIC_ID, 0, 5, 7)
    assert [(each.broker_id, each.broker_epoch) for each in item.new_isr] == [(ME, 102), (ONE, 101)]


@plays(run)
async def test_a_proposal_that_failed_on_its_way_is_made_again_by_itself(world: World) -> None:
    """It does not wait for the next look at the ISR, which is seconds away (R-50)."""
    await world.learn(ME, 0, isr=(ME,))
    world.fetched_by(ONE, 0)
    (proposal,) = world.proposals
    world.replicas.on_isr_answer(proposal, IsrAnswer(ErrorCode.REQUEST_TIMED_OUT))
    await world.clock.sleep(100)
    assert world.proposals == [proposal, proposal]
