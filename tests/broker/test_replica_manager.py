"""The replicas of one broker under changing metadata: who is followed, who is not any more, what becomes of the log."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest
from odradek_broker.core.metadata.delta import MetadataDelta, TopicDeleted
from odradek_broker.core.metadata.image import PartitionRegistration, TopicImage
from odradek_broker.core.partition.isr_proposal import RETRY_BACKOFF_MS
from odradek_broker.core.partition.messages import IsrAnswer
from odradek_broker.runtime.replicas.manager import HOSTED_AT_ONCE, PREPARED_AT_ONCE, ReplicaManager
from odradek_broker.runtime.replicas.replica import Replica
from odradek_broker.storage.directory import LogDirectory
from odradek_broker.storage.errors import LogCorrupted, StorageError
from odradek_broker.storage.settings import LogSettings
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_proto.errors import ErrorCode
from odradek_proto.records import read_header
from odradek_proto.topics import TopicPartition
from odradek_proto.values import replace

from tests.broker.replica_world import (
    ME,
    ONE,
    ORDERS,
    THREE,
    TOPIC_ID,
    Reader,
    Waiter,
    World,
    answered,
    deleted,
    maintenance_of,
    run,
    stored,
)
from tests.playing import plays

BILLS = TopicPartition("bills", 0)
ANOTHER_ID = bytes(range(1, 17))


def epoch_of(replica: Replica) -> int:
    assert replica.leader is not None
    return replica.leader.leader_epoch


@plays(run)
async def test_what_the_old_leader_still_sends_is_not_appended(world: World) -> None:
    """The old fetcher lets go before the new one reads where to go on, whatever is on the way (R-103, PA-43)."""
    await world.learn(ONE, 0)
    assert world.leader(ONE).asked() == [("orders", 0, 0)]
    await world.learn(THREE, 1)
    await answered(world, ONE, stored(0, epoch=0), epoch=0)
    assert world.log_end() == 0
    assert world.leader(THREE).asked() == [("orders", 0, 1)]
    assert [each.topic for header in world.leader(ONE).said() for each in header.forgotten] == ["orders"]


@plays(run)
async def test_the_same_leader_in_a_new_epoch_is_asked_anew(world: World) -> None:
    """It may have lost its leadership and returned with another log: its older answer does not count (R-104, PA-26)."""
    await world.learn(ONE, 0)
    assert world.leader(ONE).asked() == [("orders", 0, 0)]
    await world.learn(ONE, 2)
    assert world.leader(ONE).asked() == [("orders", 0, 2)]
    await answered(world, ONE, stored(0, epoch=0), epoch=0)
    assert world.log_end() == 0
    await answered(world, ONE, stored(0, epoch=2), epoch=2)
    assert world.log_end() == 1


@plays(run)
async def test_a_change_of_the_isr_alone_leaves_the_fetch_where_it_is(world: World) -> None:
    """No second question, and the answer to the first one counts (R-102, R-103, PA-44, FE-04)."""
    await world.learn(ONE, 0)
    assert world.leader(ONE).asked() == [("orders", 0, 0)]
    await world.learn(ONE, 0, isr=(ONE, ME), version=1)
    assert world.leader(ONE).said() == []
    await answered(world, ONE, stored(0, epoch=0), epoch=0)
    assert world.log_end() == 1


@plays(run)
async def test_metadata_that_were_left_behind_change_no_role(world: World) -> None:
    """A smaller partition epoch is ignored as a whole: no role, no ISR, no new question (R-100, PA-23)."""
    await world.learn(ONE, 1, version=2)
    assert world.leader(ONE).asked() == [("orders", 0, 1)]
    await world.learn(ME, 0, version=1)
    replica = world.replica
    assert replica.leader is None
    assert replica.registration is not None
    assert (replica.registration.leader, replica.registration.partition_epoch) == (ONE, 2)
    assert world.leader(ONE).said() == []


@pytest.mark.parametrize(
    ("leader", "isr", "leaves", "fetches"),
    [
        (ONE, (ONE, THREE), True, False),
        (-1, (ME,), True, False),
        (ONE, (ONE, ME, THREE), True, True),
        (ONE, (ONE, THREE), False, True),  # somebody else asked for it in its name
    ],
)
@plays(run)
async def test_a_broker_that_leaves_follows_only_where_it_is_in_sync(
    world: World, leader: int, isr: tuple[int, ...], leaves: bool, fetches: bool
) -> None:
    """No leader, or an ISR without it: it asks no more, and the log stays (R-106, PA-45)."""
    world.replicas.leaving = leaves
    await world.learn(ONE, 0)
    await world.learn(ONE, 0, tp=BILLS, topic_id=ANOTHER_ID)
    await answered(world, ONE, stored(0, epoch=0), epoch=0)
    world.leader(ONE).said()
    world.image.brokers[ME] = replace(world.image.brokers[ME], in_controlled_shutdown=True)
    await world.learn(leader, 0 if leader == ONE else 1, isr=isr, version=1)
    said = [each.topic for header in world.leader(ONE).said() for each in header.forgotten]
    assert said == ([] if fetches else ["orders"])
    await answered(world, ONE, epoch=0, offset=1)
    assert world.leader(ONE).asked() == ([("orders", 1, 0)] if fetches else [])
    assert world.log_end() == 1


@plays(run)
async def test_a_broker_that_stays_follows_whoever_leads(world: World) -> None:
    """Out of the ISR is where a replica has most to fetch: only its own shutdown makes a difference (R-106)."""
    await world.learn(ONE, 0, isr=(ONE, THREE))
    assert world.leader(ONE).asked() == [("orders", 0, 0)]


@plays(run)
async def test_a_replica_that_moved_away_answers_and_leaves_its_log_to_be_deleted(world: World) -> None:
    """Not a replica any more: who waits is told, the directory is renamed, nothing is fetched (R-105)."""
    await world.learn(ME, 0)
    answers = world.produce(acks=-1)
    assert answers == []
    await world.learn(ONE, 1, replicas=(ONE, THREE), isr=(ONE, THREE))
    assert [each.error for each in answers] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert world.replicas.lookup(ORDERS) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not world.files.is_dir("/data/orders-0")
    assert [name for name in world.files.list("/data") if name.endswith("-delete")] != []
    assert world.leaders.streams == {}


@plays(run)
async def test_another_topic_of_the_same_name_gets_another_log(world: World) -> None:
    """The old log is set aside, and what it held is in no one's way (R-107)."""
    await world.learn(ONE, 0)
    await answered(world, ONE, stored(0, epoch=0), epoch=0)
    assert world.log_end() == 1
    await world.learn(ONE, 0, topic_id=ANOTHER_ID)
    assert world.log_end() == 0


@pytest.mark.parametrize(
    ("topic_id", "expected"),
    [(TOPIC_ID, ErrorCode.NONE), (b"", ErrorCode.NONE), (ANOTHER_ID, ErrorCode.INCONSISTENT_TOPIC_ID)],
    ids=["the same", "none", "another"],
)
@plays(run)
async def test_a_fetch_for_another_topic_of_the_same_name_is_refused(
    world: World, topic_id: bytes, expected: ErrorCode
) -> None:
    """The name may have been given to a new topic: its records are not these (R-35, R-107, PA-46)."""
    await world.learn(ME, 0)
    follower = Reader(world, follower=True)
    world.produce()
    follower.asks(0, topic_id=topic_id)
    (item,) = follower.gets()
    assert ErrorCode(item.error_code) is expected
    assert (item.size > 0) == (expected is ErrorCode.NONE)
    leader = world.replica.leader
    assert leader is not None
    remote = leader.replicas.by_id.get(ONE)
    assert remote is not None
    assert (remote.log_end_offset == 0) == (expected is ErrorCode.NONE)


@plays(run)
async def test_a_rise_of_a_followers_high_watermark_wakes_who_reads_there(world: World) -> None:
    """New records alone wake no consumer, the bound below which they may be read does (R-29, FE-21, KAFKA-14334)."""
    await world.learn(ONE, 0)
    consumer = Waiter(world.replica, follower=False)
    await answered(world, ONE, stored(0, epoch=0), epoch=0)
    assert (world.log_end(), consumer.woken) == (1, 0)
    await answered(world, ONE, epoch=0, offset=1, high_watermark=1)
    assert consumer.woken == 1


@plays(run)
async def test_a_removed_partition_ignores_the_answer_that_was_on_its_way(world: World) -> None:
    """The topic was deleted while the leader answered: nothing happens (R-80, FE-06)."""
    await world.learn(ONE, 0)
    replica: Replica = world.replica
    await world.learn(ONE, 1, replicas=(ONE, THREE), isr=(ONE, THREE))
    await answered(world, ONE, stored(0), epoch=0)
    await answered(world, ONE, epoch=0, diverging=True, diverging_epoch=0)
    assert replica.state.log_end_offset == 0
    assert world.leader(ONE).asked() == [("orders", 0, 0)]


def disk_after_a_stop(records_left: int) -> SimDisk:
    """Of a broker that had three committed records, and whose log somebody then cut to so many."""
    disk = SimDisk(random.Random(2))
    files = SimFiles(disk, SimLoop(), random.Random(3))
    directory = LogDirectory.open(files, "/data", node_id=ME, cluster_id="c", wall_ms=0, rng=random.Random(4))
    log = directory.open_log(ORDERS, TOPIC_ID, LogSettings(), wall_ms=0)
    for offset in range(3):
        made = stored(offset)
        log.append([read_header(made)], [made])
    log.state.log_end_offset = log.state.high_watermark = 3
    directory.close(clean=True)
    segment = "/data/orders-0/00000000000000000000.log"
    if records_left:
        files.open(segment).truncate(files.size(segment) * records_left // 3)
    else:
        files.remove(segment)
    files.detach()
    return disk


@pytest.mark.parametrize("records_left", [0, 1, 3])
def test_a_log_that_lacks_what_it_had_says_so_at_every_start_until_it_is_mended(
    records_left: int, caplog: pytest.LogCaptureFixture
) -> None:
    """An ERROR, and a report to the controller: also when the checkpoints say less by then (R-146)."""
    disk = disk_after_a_stop(records_left)

    def start(isr: tuple[int, ...], expected: list[tuple[int, bool]]) -> None:
        async def story(world: World) -> None:
            world.replicas.loaded = True
            await world.learn(ONE, 0, isr=isr)
            assert world.log_end() == records_left
            assert [(each.log_end_offset, each.damaged) for each in world.replicas.reports()] == expected
            maintenance = maintenance_of(world)
            await maintenance.checkpoint_high_watermarks()
            await maintenance.checkpoint_recovery_points()
            world.files.detach()

        run(story, disk)

    lacks = [(records_left, True)] if records_left < 3 else []
    start((ONE,), lacks)
    start((ONE,), lacks)
    start((ONE, ME), [])  # in the ISR it has what the leader has
    start((ONE,), [])
    said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(said) == 3 * len(lacks)
    assert all(f"orders-0: the log ends at offset {records_left} and had records up to 3" in each for each in said)


def ask_for(world: World, topic: str, count: int) -> list[TopicPartition]:
    """The metadata have a new topic, all of it led by this broker."""
    created = world.image.topics[topic] = TopicImage(topic, topic.encode().ljust(16))
    created.partitions.update(dict.fromkeys(range(count), PartitionRegistration((ME,), (ME,), ME, 0, 0)))
    return [TopicPartition(topic, number) for number in range(count)]


def forget(world: World, topic: str) -> MetadataDelta:
    deleted = world.image.topics.pop(topic)
    gone = TopicDeleted(topic, deleted.topic_id, tuple(deleted.partitions))
    return MetadataDelta(deleted_topics={deleted.topic_id: gone})


@pytest.mark.parametrize("starts", [True, False], ids=["at the start", "later"])
@plays(run)
async def test_many_new_logs_wait_for_the_disk_away_from_the_loop(world: World, starts: bool) -> None:
    """All but a few of them, at the start and for a request; nobody has to ask for the last portion."""
    elsewhere = 0
    offload = world.files.offload

    async def counted(function: Callable[[], object]) -> object:
        def count() -> object:
            nonlocal elsewhere
            before = world.files.disk.fsyncs
            result = function()
            elsewhere += world.files.disk.fsyncs - before
            return result

        return await offload(count)

    world.files.offload = counted  # type: ignore[assignment,method-assign]
    if not starts:
        world.replicas.apply_all(world.image)
    names = ask_for(world, "orders", 3 * PREPARED_AT_ONCE + 1)
    before = world.files.disk.fsyncs
    if starts:
        world.replicas.apply_all(world.image)
    else:
        world.replicas.apply(world.image, MetadataDelta(partitions=dict.fromkeys(names)))
    assert [*world.replicas.replicas] == names[:HOSTED_AT_ONCE]
    assert world.replicas.lookup(names[HOSTED_AT_ONCE]) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await world.clock.sleep(1_000)
    assert [replica.topic_partition for replica in world.replicas.leaders()] == names
    assert world.files.disk.fsyncs - before - elsewhere <= HOSTED_AT_ONCE < elsewhere


@plays(run)
async def test_new_logs_go_by_the_metadata_of_when_their_turn_has_come(world: World) -> None:
    """A newer epoch counts. Of topics that are gone meanwhile, or there anew, nothing is left of what was prepared."""
    world.replicas.apply_all(world.image)
    orders, bills, notes = (ask_for(world, topic, HOSTED_AT_ONCE + 1) for topic in ("orders", "bills", "notes"))
    world.replicas.apply(world.image, MetadataDelta(partitions=dict.fromkeys([*orders, *bills, *notes])))
    assert [*world.replicas.replicas] == orders[:HOSTED_AT_ONCE]
    while not world.files.is_dir(f"/data/{notes[-1]}"):
        await world.clock.sleep(0.01)
    assert [*world.replicas.replicas] == orders[:HOSTED_AT_ONCE]
    last = orders[-1]
    world.image.topics["orders"].partitions[last.partition] = PartitionRegistration((ME,), (ME,), ME, 1, 1)
    world.replicas.apply(world.image, MetadataDelta(partitions={last: None}))
    world.replicas.apply(world.image, forget(world, "bills"))
    world.replicas.apply(world.image, forget(world, "notes"))
    ask_for(world, "notes", HOSTED_AT_ONCE + 1)
    world.image.topics["notes"].topic_id = ANOTHER_ID
    world.replicas.apply(world.image, MetadataDelta(partitions=dict.fromkeys(notes)))
    await world.clock.sleep(1_000)
    assert [*world.replicas.replicas] == [*orders, *notes]
    assert epoch_of(world.replicas.replicas[last]) == 1
    ids = {replica.state.topic_id for replica in world.replicas.replicas.values()}
    assert ids == {b"orders".ljust(16), ANOTHER_ID}
    assert not any(world.files.is_dir(f"/data/{tp}") for tp in bills)


# --- An ISR proposal that must be made again, on a replica that is not what it was any more --------------------------


@plays(run)
async def test_a_replica_that_goes_offline_proposes_nothing_any_more(world: World) -> None:
    """A retry that was due on it is over: nobody makes it, and if its timer went on, it would do so without a pause."""
    await world.learn(ME, 0, isr=(ME,))
    replica = world.replica
    world.fetched_by(ONE, 0)
    (proposal,) = world.proposals
    world.replicas.on_isr_answer(proposal, IsrAnswer(ErrorCode.NOT_CONTROLLER))
    world.replicas.storage_failed(replica, LogCorrupted("0.log", 7, 1, "checksum"))
    await world.clock.sleep(10 * RETRY_BACKOFF_MS)
    assert world.proposals == [proposal]


# --- DeleteRecords requests that wait at a leader: what ends their wait, and who is kept no longer (R-125) -----------


@plays(run)
async def test_a_replica_that_is_removed_is_not_waited_for(world: World) -> None:
    """When the last replica that had not cut its log leaves the list, whoever waited for it is answered (R-102)."""
    await world.learn(ME, 0, isr=(ME,), replicas=(ME, THREE, ONE))
    world.produce()
    answers: list[ErrorCode] = []
    world.replica.delete_records(1, 30_000, answers.append)
    await world.learn(ME, 0, isr=(ME,), replicas=(ME, THREE), version=1)
    assert answers == []
    await world.learn(ME, 0, isr=(ME,), replicas=(ME,), version=2)
    assert answers == [ErrorCode.NONE]


@plays(run)
async def test_a_leadership_that_ends_in_the_same_moment_is_not_waited_for(world: World) -> None:
    """A request whose log start is cut already, and that does not wait yet, hears of it as those do that wait."""
    await world.learn(ME, 0, isr=(ME,), replicas=(ME, ONE))
    world.produce()
    answering = asyncio.ensure_future(deleted(world.replicas, 0))
    await asyncio.sleep(0)
    await world.learn(ONE, 1, replicas=(ME, ONE))
    assert answering.done()
    assert answering.result()[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER


# --- DeleteRecords is for the leader: who follows, or has no replica at all, cuts nothing (R-111, R-161) -------------


@plays(run)
async def test_only_the_leader_deletes_records(world: World) -> None:
    """A leader cuts; once another one leads the same request is NOT_LEADER_OR_FOLLOWER, and the log stays (R-111)."""
    await world.learn(ME, 0, isr=(ME,), replicas=(ME, ONE))
    world.image.brokers.pop(ONE)  # it is not alive, so nobody waits for it
    for _ in range(2):
        world.produce()
    assert await deleted(world.replicas, 1) == (ErrorCode.NONE, 1)
    await world.learn(ONE, 1, isr=(ME, ONE), replicas=(ME, ONE))
    assert await deleted(world.replicas, 2) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert world.replica.state.log_start_offset == 1
    assert await deleted(world.replicas, 1, tp=TopicPartition("elsewhere", 0)) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        -1,
    )


# --- Whoever needs it is told that this broker begins to lead a partition, and that it ceases to ---------------------


class Listener:
    """What it was told, and whether the replica led in that moment."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self.heard: list[tuple[str, int, bool]] = []
        self._replicas = replicas

    def began(self, tp: TopicPartition, leader_epoch: int) -> None:
        self.heard.append(("began", leader_epoch, self._leads(tp)))

    def ceased(self, tp: TopicPartition) -> None:
        self.heard.append(("ceased", -1, self._leads(tp)))

    def _leads(self, tp: TopicPartition) -> bool:
        replica = self._replicas.replicas[tp]
        return replica.leader is not None and replica.offline is None


def listener(world: World, topic: str = ORDERS.topic) -> Listener:
    made = Listener(world.replicas)
    world.replicas.on_leadership(topic, made)
    return made


@plays(run)
async def test_the_end_is_told_before_it_and_the_beginning_after_it(world: World) -> None:
    """A new ISR alone is neither; the next epoch of the same leader is another beginning."""
    made = listener(world)
    others = listener(world, "payments")
    await world.learn(ONE, 0)
    assert made.heard == []
    await world.learn(ME, 1)
    await world.learn(ME, 1, isr=(ME, ONE), version=2)
    assert made.heard == [("began", 1, True)]
    await world.learn(ME, 2, version=3)
    await world.learn(ONE, 3, version=4)
    assert made.heard[1:] == [("began", 2, True), ("ceased", -1, True)]
    await world.learn(ME, 9, version=9)
    await world.learn(ME, 12, version=12)  # with a gap: somebody else may have led in between
    assert made.heard[3:] == [("began", 9, True), ("ceased", -1, True), ("began", 12, True)]
    assert others.heard == []


@plays(run)
async def test_one_that_comes_later_is_told_what_is_led_already(world: World) -> None:
    """It would wait for ever for a beginning that was before it."""
    await world.learn(ME, 3)
    assert listener(world).heard == [("began", 3, True)]


@pytest.mark.parametrize("end", ["deleted", "failed", "stopped"])
@plays(run)
async def test_every_end_of_a_leadership_is_told_once(world: World, end: str) -> None:
    """The topic is deleted, the disk under the replica fails, or the broker stops."""
    await world.learn(ME, 0)
    made = listener(world)
    if end == "deleted":
        del world.image.topics[ORDERS.topic]
        gone = TopicDeleted(ORDERS.topic, TOPIC_ID, (0,))
        world.replicas.apply(world.image, MetadataDelta(deleted_topics={TOPIC_ID: gone}))
    elif end == "failed":
        world.replicas.storage_failed(world.replica, StorageError("one bad log"))
    await world.replicas.stop()
    assert made.heard == [("began", 0, True), ("ceased", -1, True)]
