"""Rules of replication as a broker carries them out: over its logs, its streams and the calls beside them."""

from __future__ import annotations

import asyncio

import pytest
from odradek_broker.config.settings import BrokerSettings
from odradek_broker.core.metadata.delta import MetadataDelta, TopicDeleted
from odradek_broker.core.partition.messages import TruncationMode
from odradek_broker.core.partition.policy import policy_for
from odradek_broker.process.wiring import controller_settings
from odradek_broker.runtime.replicas.fetcher import LIST_OFFSETS, OFFSETS_FOR_LEADER_EPOCH
from odradek_broker.runtime.replicas.replica import Replica
from odradek_broker.storage.atomic import read_file
from odradek_broker.storage.errors import AppendOutOfOrder
from odradek_broker.storage.settings import LogSettings
from odradek_proto.errors import ErrorCode
from odradek_proto.formats import (
    LEADER_EPOCH_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    decode_leader_epochs,
    decode_offset_checkpoint,
)
from odradek_proto.records import iter_batches
from odradek_proto.transport.ports import NetworkError
from odradek_proto.v1 import broker_pb2 as pb
from odradek_proto.values import replace

from tests.broker.replica_world import (
    ME,
    ONE,
    ORDERS,
    THREE,
    TOPIC_ID,
    Leaders,
    Reader,
    Waiter,
    World,
    answered,
    listed,
    maintenance_of,
    run,
    stored,
)
from tests.playing import plays

ANOTHER_ID = bytes(16)


class Asked(Leaders):
    """Leaders that are asked questions beside the stream; each waits for the answer that the test gives."""

    def __init__(self) -> None:
        super().__init__()
        self.questions: list[tuple[str, str, bytes, asyncio.Future[bytes]]] = []

    async def call(self, peer: str, method: str, request: bytes, timeout_ms: float) -> bytes:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.questions.append((peer, method, request, answer))
        return await answer


def asked(world: World) -> Asked:
    """From now on this broker speaks with leaders of this kind."""
    world.leaders = leaders = Asked()
    world.replicas._services = replace(world.replicas._services, network=leaders)
    return leaders


def use(world: World, mode: TruncationMode) -> None:
    """From now on this broker has these rules."""
    world.replicas._policy = policy_for(mode)
    world.replicas._settings = replace(world.replicas._settings, odradek_truncation_mode=mode.value)


def epochs_on_disk(world: World) -> list[tuple[int, int]]:
    content = read_file(world.files, f"/data/orders-0/{LEADER_EPOCH_CHECKPOINT}")
    assert content is not None
    return [(epoch, offset) for epoch, offset in decode_leader_epochs(content)]


# --- Produce -------------------------------------------------------------------------------------------------------


@plays(run)
async def test_who_does_not_lead_does_not_judge_the_batch(world: World) -> None:
    """A producer is sent to the leader first, whatever is wrong with its batch (R-10)."""
    await world.learn(ONE, 0)
    answers = world.produce(batch=b"no batch at all")
    assert [(each.error, each.leader_id) for each in answers] == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, ONE)]


@plays(run)
async def test_stored_batches_carry_their_offsets_and_the_epoch_of_the_leader(world: World) -> None:
    """What followers and consumers read is what the leader stamped, not what the producer sent (R-12)."""
    await world.learn(ME, 3, isr=(ME,))
    world.produce()
    world.produce()
    data = b"".join(world.replica.log.read(0, 1_000_000, 2))
    assert [(each.base_offset, each.leader_epoch) for _, each in iter_batches(data)] == [(0, 3), (1, 3)]


@pytest.mark.parametrize("acks", [0, 1, -1])
@plays(run)
async def test_who_is_answered_and_when(world: World, acks: int) -> None:
    """acks=0 never, acks=1 after the leader's append, acks=all when the other members have it too (R-13)."""
    await world.learn(ME, 0, isr=(ME, ONE))
    answers = world.produce(acks=acks)
    assert len(answers) == (1 if acks == 1 else 0)
    world.fetched_by(ONE, 1)
    assert [each.error for each in answers] == ([] if acks == 0 else [ErrorCode.NONE])


@plays(run)
async def test_a_leader_that_is_alone_by_assignment_needs_no_session(world: World) -> None:
    """Nobody can replace the leader of a partition with one replica (R-112)."""
    world.replicas._session_gone_ms = lambda: 60_000
    await world.learn(ME, 0, isr=(ME,), replicas=(ME,))
    assert [each.error for each in world.produce(acks=-1)] == [ErrorCode.NONE]


@plays(run)
async def test_a_lonely_leader_answers_nobody_until_its_session_is_back(world: World) -> None:
    """Neither the next append nor the passing of time answers those that wait; the session does (R-112)."""
    world.replicas._session_gone_ms = lambda: 60_000
    await world.learn(ME, 0, isr=(ME,))
    waiting = world.produce(acks=-1)
    world.produce(acks=1)
    assert (world.replica.state.high_watermark, waiting) == (2, [])
    world.replicas._session_gone_ms = lambda: 0
    world.replicas.session_returned()
    assert [each.error for each in waiting] == [ErrorCode.NONE]


@plays(run)
async def test_a_leader_that_waits_for_a_proposed_member_is_not_alone(world: World) -> None:
    """Whoever it has proposed needs the record too, and would not fetch from a leader that was replaced (R-112)."""
    world.replicas._session_gone_ms = lambda: 60_000
    await world.learn(ME, 0, isr=(ME,))
    world.fetched_by(ONE, 0)
    assert len(world.proposals) == 1
    waiting = world.produce(acks=-1)
    assert waiting == []
    world.fetched_by(ONE, 1)
    assert [each.error for each in waiting] == [ErrorCode.NONE]


# --- High watermark, ISR and reads ---------------------------------------------------------------------------------


@plays(run)
async def test_a_waiting_replica_is_proposed_when_metadata_unfence_it(world: World) -> None:
    """Its fetch stands at the end of the log and is not sent again (R-23, R-45, R-47, R-263)."""
    await world.learn(ME, 0, isr=(ME,))
    known = world.image.brokers[ONE]
    world.image.brokers[ONE] = replace(known, fenced=True)
    world.fetched_by(ONE, 0)
    assert world.proposals == []
    world.image.brokers[ONE] = known
    world.replicas.apply(world.image, MetadataDelta(brokers={ONE: None}))
    assert [[member.broker_id for member in each.new_isr] for each in world.proposals] == [[ME, ONE]]


@plays(run)
async def test_a_lower_minimum_frees_the_high_watermark(world: World) -> None:
    """Settings come as metadata: who waits for enough members looks again (R-21, R-23)."""
    world.image.topic_configs["orders"] = {"min.insync.replicas": "2"}
    await world.learn(ME, 0, isr=(ME,))
    world.produce()
    assert world.replica.state.high_watermark == 0
    world.image.topic_configs["orders"] = {"min.insync.replicas": "1"}
    world.replicas.apply(world.image, MetadataDelta(topic_configs={"orders": None}))
    assert world.replica.state.high_watermark == 1


@plays(run)
async def test_a_new_leader_hides_nothing_but_the_end(world: World) -> None:
    """Before the start of its epoch is committed: the earliest offset and what lies below the high watermark (R-26)."""
    await world.learn(ONE, 0)
    await answered(world, ONE, stored(0, 2), epoch=0, offset=0, high_watermark=1)
    await world.learn(ME, 1)
    hidden = (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    assert await listed(world.replicas, world.files, -2) == (ErrorCode.NONE, 0)
    assert await listed(world.replicas, world.files, -1) == hidden
    assert await listed(world.replicas, world.files, -1, replica_id=ONE) == (ErrorCode.NONE, 2)
    assert await listed(world.replicas, world.files, 0) == (ErrorCode.NONE, 0)
    assert await listed(world.replicas, world.files, 1) == hidden
    assert await listed(world.replicas, world.files, -2, epoch=0) == (ErrorCode.FENCED_LEADER_EPOCH, -1)
    for broker_id in (ONE, THREE):
        world.fetched_by(broker_id, 2, epoch=1)
    assert await listed(world.replicas, world.files, -1) == (ErrorCode.NONE, 2)
    assert await listed(world.replicas, world.files, 1) == (ErrorCode.NONE, -1)


@plays(run)
async def test_a_debugger_is_told_where_a_followers_own_log_begins_and_ends(world: World) -> None:
    """Above its high watermark, too (K-29); what lies at a time leaders alone look up, and others hear of no end."""
    await world.learn(ONE, 0)
    await answered(world, ONE, stored(0, 2), epoch=0, offset=0, high_watermark=1)
    refused = (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert await listed(world.replicas, world.files, -2, replica_id=-2) == (ErrorCode.NONE, 0)
    assert await listed(world.replicas, world.files, -1, replica_id=-2) == (ErrorCode.NONE, 2)
    assert await listed(world.replicas, world.files, 0, replica_id=-2) == refused
    assert await listed(world.replicas, world.files, -1) == refused
    world.replica.take_offline("its log is damaged")
    assert await listed(world.replicas, world.files, -1, replica_id=-2) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


@plays(run)
async def test_only_the_first_partition_of_an_answer_may_pass_the_limit(world: World) -> None:
    """One batch goes out however small the limit is; what comes behind it respects what is left (R-39)."""
    tps = await world.lead("large", "small")
    for tp in tps:
        world.produce(bytes(800), tp=tp)
    reader, sizes = Reader(world), []
    for answer_bytes in (1_000, 10, 10_000):
        reader.asks(dict.fromkeys(tps, 0), answer_bytes=answer_bytes)
        sizes.append([each.size > 800 for each in reader.gets()])
    assert sizes == [[True], [True], [True, True]]


@plays(run)
async def test_an_offline_leader_takes_no_acknowledgement(world: World) -> None:
    """What it cannot read it does not answer for, and the position that was named does not count (R-35, R-36)."""
    await world.learn(ME, 0, isr=(ME, ONE))
    world.produce()
    world.replica.take_offline("its log is damaged")
    assert world.fetched_by(ONE, 1).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.replica.state.high_watermark == 0


@plays(run)
async def test_high_watermarks_are_checkpointed_by_the_clock(world: World) -> None:
    """Every replica.high.watermark.checkpoint.interval.ms, whatever else has its own period (R-31)."""
    path = f"/data/{REPLICATION_OFFSET_CHECKPOINT}"
    world.keep(*maintenance_of(world, replica_high_watermark_checkpoint_interval_ms=3_000).duties())
    await world.learn(ME, 0, isr=(ME,))
    for expected in (1, 2):
        world.produce()
        before = read_file(world.files, path)
        await world.clock.sleep(2_900)
        assert read_file(world.files, path) == before
        await world.clock.sleep(200)
        content = read_file(world.files, path)
        assert content is not None
        assert decode_offset_checkpoint(content) == {ORDERS: expected}


@plays(run)
async def test_silent_members_are_looked_for_by_the_clock(world: World) -> None:
    """Every half lag time: who was caught up last at the election is proposed to leave at the third look (R-43)."""
    world.keep(*maintenance_of(world).duties())
    await world.learn(ME, 0, isr=(ME, ONE))
    world.produce()
    await world.clock.sleep(14_900)
    assert world.proposals == []
    await world.clock.sleep(200)
    assert [[member.broker_id for member in each.new_isr] for each in world.proposals] == [[ME]]


# --- Epochs and followers ------------------------------------------------------------------------------------------


@plays(run)
async def test_epochs_are_in_their_file_before_anybody_asks(world: World) -> None:
    """Of a follower with the first batch of an epoch, of a leader with its election (R-60, R-61)."""
    await world.learn(ONE, 0)
    await answered(world, ONE, stored(0, 2), epoch=0, offset=0)
    assert epochs_on_disk(world) == [(0, 0)]
    await world.learn(ME, 3)
    assert epochs_on_disk(world) == [(0, 0), (3, 2)]


@plays(run)
async def test_the_end_of_an_epoch_is_that_of_the_term_that_asked(world: World) -> None:
    """The leader changed meanwhile: its answer cuts nothing, the new one is asked. (R-73, R-74, FE-10)."""
    leaders = asked(world)
    use(world, TruncationMode.EPOCH_REQUEST)
    await world.learn(ONE, 0)
    await answered(world, ONE, stored(0, 2), epoch=0, offset=0)
    await world.learn(ONE, 1)
    await world.learn(THREE, 2)
    questions = [pb.OffsetsForLeaderEpochRequest.FromString(each[2]).partitions[0] for each in leaders.questions]
    assert [each[:2] for each in leaders.questions] == [(f"b{at}", OFFSETS_FOR_LEADER_EPOCH) for at in (ONE, THREE)]
    assert [(each.current_leader_epoch, each.leader_epoch) for each in questions] == [(1, 0), (2, 0)]
    for (_, _, _, answer), end in zip(leaders.questions, (0, 1), strict=True):
        response = pb.OffsetsForLeaderEpochResponse()
        response.partitions.add(topic="orders", partition=0, leader_epoch=0, end_offset=end)
        answer.set_result(response.SerializeToString())
        await world.clock.sleep(1)
        assert world.log_end() == (2 if end == 0 else 0)
        assert bool(world.replica.log.read(0, 1_000_000, 2)) == (end == 0)
    assert world.leader(THREE).asked() == [("orders", 0, 2)]


@plays(run)
async def test_out_of_range_begins_anew_where_the_leader_begins(world: World) -> None:
    """The question is for both ends of the leader's log, as a replica and in our epoch (R-84)."""
    leaders = asked(world)
    await world.learn(ONE, 4)
    await answered(world, ONE, stored(0, 1, epoch=4), epoch=4, offset=0)
    await answered(world, ONE, epoch=4, offset=1, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    ((peer, method, request, answer),) = leaders.questions
    message = pb.ListOffsetsRequest.FromString(request)
    assert (peer, method, message.replica_id) == (f"b{ONE}", LIST_OFFSETS, ME)
    assert [(each.timestamp_ms, each.current_leader_epoch) for each in message.partitions] == [(-1, 4), (-2, 4)]
    response = pb.ListOffsetsResponse()
    for offset in (5, 3):
        response.partitions.add(topic="orders", partition=0, offset=offset)
    world.leader(ONE).asked()
    answer.set_result(response.SerializeToString())
    await world.clock.sleep(1)
    assert (world.replica.state.log_start_offset, world.log_end()) == (3, 3)
    assert world.leader(ONE).asked() == [("orders", 3, 4)]


@pytest.mark.parametrize("in_range", [True, False], ids=["the end of an epoch", "the range of the log"])
@plays(run)
async def test_a_question_without_an_answer_is_asked_again(world: World, in_range: bool) -> None:
    """A call that fails, or says nothing of the partition, delays it; then the same is asked once more (R-78, R-90)."""
    leaders = asked(world)
    use(world, TruncationMode.EPOCH_REQUEST if in_range else TruncationMode.FETCH)
    await world.learn(ONE, 0)
    await answered(world, ONE, stored(0, 2), epoch=0, offset=0)
    await world.learn(ONE, 1)
    if not in_range:
        await answered(world, ONE, epoch=1, offset=2, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    for number in (1, 2):
        assert len(leaders.questions) == number
        answer = leaders.questions[-1][3]
        if number == 1:
            answer.set_exception(NetworkError("gone"))
        else:
            answer.set_result(b"")
        await world.clock.sleep(1)
        assert len(leaders.questions) == number
        await world.clock.sleep(100)
    assert len(leaders.questions) == 3
    assert len({each[:3] for each in leaders.questions}) == 1
    assert world.log_end() == 2


@plays(run)
async def test_the_range_of_a_log_is_that_of_the_term_that_asked(world: World) -> None:
    """The leader changed while the question was out: nothing is cut by what the old one says (R-74, R-84)."""
    leaders = asked(world)
    await world.learn(ONE, 0)
    await answered(world, ONE, stored(0, 2), epoch=0, offset=0)
    await answered(world, ONE, epoch=0, offset=2, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    await world.learn(THREE, 1)
    response = pb.ListOffsetsResponse()
    for offset in (0, 0):
        response.partitions.add(topic="orders", partition=0, offset=offset)
    leaders.questions[0][3].set_result(response.SerializeToString())
    await world.clock.sleep(1)
    assert world.replica.log.read(0, 1_000_000, 2)
    assert world.leader(THREE).asked() == [("orders", 2, 1)]


@plays(run)
async def test_a_broken_stream_loses_no_partition(world: World) -> None:
    """What was asked on it is asked again on the next one (R-90)."""
    await world.learn(ONE, 0)
    assert world.leader(ONE).asked() == [("orders", 0, 0)]
    world.leaders.streams.pop(f"b{ONE}").close()
    await world.clock.sleep(200)
    assert world.leader(ONE).asked() == [("orders", 0, 0)]


@plays(run)
async def test_a_divergence_is_cut_on_the_disk_and_fetched_behind_at_once(world: World) -> None:
    """What the leader says of an epoch and its end is what this broker acts on (R-75, R-79)."""
    await world.learn(ONE, 1)
    await answered(world, ONE, stored(0) + stored(1), epoch=1, offset=0)
    world.leader(ONE).asked()
    await answered(world, ONE, epoch=1, offset=2, diverging=True, diverging_epoch=0, diverging_end_offset=1)
    assert (world.log_end(), world.replica.log.end_offset) == (1, 1)
    assert world.leader(ONE).asked() == [("orders", 1, 1)]


@plays(run)
async def test_a_failed_replica_takes_back_its_fetch(world: World) -> None:
    """Its leader need not hold an answer for who will not take it (R-86)."""
    await world.learn(ONE, 0)
    world.leader(ONE).said()
    world.replicas.storage_failed(world.replica, AppendOutOfOrder("below the end"))
    await world.clock.sleep(1)
    assert [each.topic for header in world.leader(ONE).said() for each in header.forgotten] == ["orders"]


@plays(run)
async def test_the_next_epoch_of_the_same_leader_wakes_who_waits_with_the_old_one(world: World) -> None:
    """They would wait for ever in an epoch that is over; other metadata of the same epoch disturb nobody (R-101)."""
    await world.learn(ME, 0)
    replica = world.replica
    leader, waiters = replica.leader, [Waiter(replica, follower=follower) for follower in (True, False)]
    await world.learn(ME, 0, version=1)
    assert [each.woken for each in waiters] == [0, 0]
    await world.learn(ME, 1, version=2)
    assert world.replica.leader is leader
    assert [each.woken for each in waiters] == [1, 1]


# --- Logs of before ------------------------------------------------------------------------------------------------


def left_behind(world: World) -> Replica | None:
    """A log of two records from an earlier life of this broker is open before the metadata comes."""
    log = world.replicas._directory.open_log(ORDERS, TOPIC_ID, LogSettings(), wall_ms=world.clock.wall_ms())
    data = stored(0, 2)
    log.append([header for _, header in iter_batches(data)], [data])
    log.state.log_end_offset = 2
    log.state.epochs.assign(0, 0)
    world.replicas.preload(log)
    return world.replicas.replicas.get(ORDERS)


@pytest.mark.parametrize(
    ("topic_id", "replicas", "kept"),
    [(TOPIC_ID, (ONE, ME, THREE), True), (ANOTHER_ID, (ONE, ME, THREE), False), (TOPIC_ID, (ONE, THREE), False)],
    ids=["still a replica", "another topic of this name", "moved away"],
)
@plays(run)
async def test_a_log_of_an_earlier_life_is_used_for_its_own_topic_alone(
    world: World, topic_id: bytes, replicas: tuple[int, ...], kept: bool
) -> None:
    """Another topic of the same name gets an empty log, and nobody's log is deleted (R-105, R-107)."""
    assert left_behind(world) is None
    await world.learn(ONE, 1, replicas=replicas, isr=replicas, topic_id=topic_id)
    if ME in replicas:
        assert world.log_end() == (2 if kept else 0)
    else:
        assert ORDERS not in world.replicas.replicas
    deleted = [name for name in world.files.list("/data") if name.endswith("-delete")]
    assert bool(deleted) == (not kept)


@plays(run)
async def test_a_deleted_topic_leaves_nothing_here(world: World) -> None:
    """Who waits is told, nothing is fetched, and the log is deleted (R-105)."""
    await world.learn(ME, 0)
    waiting = world.produce(acks=-1)
    del world.image.topics["orders"]
    gone = TopicDeleted("orders", TOPIC_ID, (0,))
    world.replicas.apply(world.image, MetadataDelta(deleted_topics={TOPIC_ID: gone}))
    assert [each.error for each in waiting] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert world.replicas.lookup(ORDERS) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not world.files.is_dir("/data/orders-0")


# --- The old protocol ----------------------------------------------------------------------------------------------


@plays(run)
async def test_the_oldest_protocol_remembers_its_leader_from_term_to_term(world: World) -> None:
    """The same one leads again: nothing is cut. Another one does: cut at the high watermark (L-1)."""
    use(world, TruncationMode.HIGH_WATERMARK)
    await world.learn(ONE, 0)
    await answered(world, ONE, stored(0, 2), epoch=-1, offset=0, high_watermark=0)
    await world.learn(-1, 1)
    await world.learn(ONE, 2)
    assert world.log_end() == 2
    await world.learn(THREE, 3)
    assert world.log_end() == 0


@pytest.mark.parametrize(("mode", "end"), [(TruncationMode.HIGH_WATERMARK, 4), (TruncationMode.FETCH, 2)])
@plays(run)
async def test_the_oldest_protocol_writes_a_straddling_batch(world: World, mode: TruncationMode, end: int) -> None:
    """A batch of 1 to 3 behind a log that ends at 2 is on the disk then; today it is no answer (L-9, R-85)."""
    use(world, mode)
    await world.learn(ONE, 0)
    await answered(world, ONE, stored(0, 2), epoch=-1, offset=0)
    await answered(world, ONE, stored(1, 3), epoch=-1, offset=2)
    assert world.log_end() == end
    data = b"".join(world.replica.log.read(0, 1_000_000, end))
    bases = [header.base_offset for _, header in iter_batches(data)]
    assert bases == ([0, 1] if end == 4 else [0])
    assert world.replica.offline is None


@pytest.mark.parametrize(("mode", "taken"), [(TruncationMode.HIGH_WATERMARK, True), (TruncationMode.FETCH, False)])
@plays(run)
async def test_only_the_oldest_protocols_log_takes_a_straddling_batch(
    world: World, mode: TruncationMode, taken: bool
) -> None:
    """The log itself refuses it in every other mode, and in all modes what ends below its end (L-9, R-85)."""
    use(world, mode)
    await world.learn(ONE, 0)
    await answered(world, ONE, stored(0, 2), epoch=-1, offset=0)
    data = stored(1, 3)
    headers = [header for _, header in iter_batches(data)]
    if taken:
        world.replica.log.append(headers, [data])
    else:
        with pytest.raises(AppendOutOfOrder):
            world.replica.log.append(headers, [data])
    below = stored(0)
    with pytest.raises(AppendOutOfOrder):
        world.replica.log.append([header for _, header in iter_batches(below)], [below])


@pytest.mark.parametrize("kept", [False, True])
def test_a_fast_restart_keeps_its_places_where_the_broker_says_so(kept: bool) -> None:
    """The controller's rule is the one of its node's setting (L-12)."""
    settings = BrokerSettings(node_id=ME, odradek_legacy_fast_restart_keeps_isr=kept)
    assert controller_settings(settings, "c").fast_restart_keeps_isr is kept
