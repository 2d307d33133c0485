"""When the fetch of a session is answered at once, and when it waits (R-121, R-127)."""

from __future__ import annotations

import random

from odradek_broker.core.security.authorizer import Authorizer
from odradek_broker.requests.access import OPEN, Access
from odradek_broker.rpc.fetch_session import FetchSession, SessionLimits
from odradek_chaos.worlds.simulated.net.fabric import SimFabric
from odradek_proto.encoding import encode_batch
from odradek_proto.errors import ErrorCode
from odradek_proto.security.acl_words import Operation, PatternType, Permission, ResourceType
from odradek_proto.security.acls import Acl
from odradek_proto.transport.frames import pack_frame, split_frame
from odradek_proto.v1 import broker_pb2 as pb

from tests.broker.replica_world import CALLER, ME, ONE, ORDERS, World, fetch_requests, run
from tests.playing import plays

MAX_WAIT_MS = 500
BATCH = encode_batch([(0, None, b"a record of some bytes", ())])


class Reader:
    """Follower 1, or a consumer, whose answers the test takes itself."""

    def __init__(self, world: World, *, follower: bool, access: Access = OPEN) -> None:
        self.follower = follower
        requests = fetch_requests(world)
        requests.access = access
        self.session = FetchSession(
            SimFabric(world.loop, random.Random(5)).connect("b1", "b2", "b1", "b2").other,
            requests,
            CALLER,
            limits=SessionLimits(8_000_000),
            follower=follower,
        )

    def asks(self, offset: int, *, epoch: int = 0, last: int = 0, min_bytes: int = 1, max_bytes: int = 0) -> None:
        header = pb.FetchHeader(
            replica_id=ONE if self.follower else -1,
            replica_epoch=100 + ONE,
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=min_bytes,
        )
        header.partitions.add(
            topic=ORDERS.topic,
            partition=ORDERS.partition,
            fetch_offset=offset,
            current_leader_epoch=epoch,
            last_fetched_epoch=last,
            max_bytes=max_bytes,
        )
        self.session.on_message(pack_frame(header.SerializeToString(), ()))

    def gets(self) -> pb.FetchedPartition | None:
        """The next answer; None while it waits."""
        frame = self.session.gather()
        if frame is None:
            return None
        (answer,) = pb.FetchAnswerHeader.FromString(split_frame(frame)[0]).partitions
        return answer


def produce(world: World) -> None:
    world.replicas.replicas[ORDERS].produce(memoryview(BATCH), 1, 30_000, lambda answer: None)


@plays(run)
async def test_a_follower_hears_of_high_watermark_and_log_start_when_its_wait_ends(world: World) -> None:
    """R-127: not before, and not again when nothing has changed."""
    await world.learn(ME, 0, isr=(ME, ONE), replicas=(ME, ONE))
    follower = Reader(world, follower=True)
    produce(world)
    follower.asks(0, last=-1)
    answer = follower.gets()
    assert answer is not None
    assert (answer.size, answer.high_watermark) == (len(BATCH), 0)
    follower.asks(1)
    await world.clock.sleep(MAX_WAIT_MS - 1)
    assert follower.gets() is None
    await world.clock.sleep(1)
    answer = follower.gets()
    assert answer is not None
    assert (answer.size, answer.high_watermark, answer.log_start_offset) == (0, 1, 0)
    follower.asks(1)
    await world.clock.sleep(3 * MAX_WAIT_MS)
    assert follower.gets() is None
    world.replicas.replicas[ORDERS].on_log_start_advanced(1)
    await world.clock.sleep(MAX_WAIT_MS - 1)
    assert follower.gets() is None
    await world.clock.sleep(1)
    answer = follower.gets()
    assert answer is not None
    assert (answer.size, answer.high_watermark, answer.log_start_offset) == (0, 1, 1)


@plays(run)
async def test_a_divergence_is_told_at_once(world: World) -> None:
    """R-121: the follower has nothing to wait for before it has cut its log."""
    await world.learn(ME, 0, isr=(ME, ONE), replicas=(ME, ONE))
    produce(world)
    await world.learn(ME, 1, isr=(ME, ONE), replicas=(ME, ONE))
    follower = Reader(world, follower=True)
    follower.asks(2, epoch=1, last=0)
    answer = follower.gets()
    assert answer is not None
    assert (answer.diverging, answer.diverging_epoch, answer.diverging_end_offset) == (True, 0, 1)


@plays(run)
async def test_who_waits_for_more_bytes_is_told_of_a_new_epoch_at_once(world: World) -> None:
    """R-121: what is there will not become more for this epoch."""
    await world.learn(ME, 0, isr=(ME,), replicas=(ME,))
    consumer = Reader(world, follower=False)
    consumer.asks(0, last=-1, min_bytes=10_000)
    produce(world)
    assert consumer.gets() is None
    await world.learn(ME, 1, isr=(ME,), replicas=(ME,))
    answer = consumer.gets()
    assert answer is not None
    assert ErrorCode(answer.error_code) is ErrorCode.FENCED_LEADER_EPOCH


@plays(run)
async def test_who_waits_is_told_nothing_after_the_right_to_read_is_gone(world: World) -> None:
    """A fetch of a stream waits as long as there is nothing new: whether it may read is asked again then."""
    allowed = Acl(
        ResourceType.TOPIC, ORDERS.topic, PatternType.LITERAL, "User:*", "*", Operation.READ, Permission.ALLOW
    )
    acls = {b"1": allowed}
    await world.learn(ME, 0, isr=(ME,), replicas=(ME,))
    consumer = Reader(world, follower=False, access=Access(Authorizer(), lambda: acls))
    consumer.asks(0, last=-1)
    assert consumer.gets() is None
    acls = {}
    produce(world)
    answer = consumer.gets()
    assert answer is not None
    assert (answer.size, ErrorCode(answer.error_code)) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


@plays(run)
async def test_a_partition_counts_for_no_more_bytes_than_were_asked_of_it(world: World) -> None:
    """R-121: the whole batch goes out all the same, when the wait is over."""
    await world.learn(ME, 0, isr=(ME,), replicas=(ME,))
    consumer = Reader(world, follower=False)
    consumer.asks(0, last=-1, min_bytes=50, max_bytes=1)
    produce(world)
    assert consumer.gets() is None
    await world.clock.sleep(MAX_WAIT_MS)
    answer = consumer.gets()
    assert answer is not None
    assert answer.size == len(BATCH) > 50
