"""What a broker is asked, below every protocol: values in, values out, with Kafka's errors."""

from __future__ import annotations

import asyncio

import pytest
from odradek_broker.core.cleaning import CompactionSettings
from odradek_broker.core.context import ANONYMOUS, Principal, RequestContext
from odradek_broker.core.controller import admin
from odradek_broker.core.controller.decision import AdminCall, Decision
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.requests.admin import AdminRequests
from odradek_broker.requests.fetch import FetchedPartition, FetchRequest
from odradek_broker.requests.fetch_answers import PendingFetch
from odradek_broker.requests.metadata import MetadataRequests
from odradek_broker.requests.produce import ProduceAnswer
from odradek_broker.runtime.membership.controller_channel import ControllerUnavailable
from odradek_broker.runtime.membership.metadata_feed import MetadataFeed
from odradek_broker.storage.settings import LogSettings
from odradek_proto.checksum import crc32c
from odradek_proto.encoding import encode_batch
from odradek_proto.errors import ErrorCode
from odradek_proto.records import Codec
from odradek_proto.topics import OFFSETS_TOPIC, TopicPartition
from odradek_proto.v1 import admin_messages
from odradek_proto.values import replace

from tests.broker.controller_cluster import Cluster, in_cluster
from tests.broker.controller_images import add_topic, image_of, partition_of
from tests.broker.replica_world import CALLER, ME, ONE, ORDERS, TOPIC_ID, World, run
from tests.playing import plays

OTHER_ID = bytes([9] * 16)
PAYMENTS = TopicPartition("payments", 0)
BATCH = encode_batch([(0, None, b"a", ())])


def of(tp: TopicPartition = ORDERS, offset: int = 0, *, max_bytes: int = 1_000_000) -> PendingFetch:
    return PendingFetch(tp, offset, -1, -1, -1, max_bytes)


def size(fetched: FetchedPartition) -> int:
    return sum(map(len, fetched.buffers))


@plays(run)
async def test_a_batch_for_another_topic_of_the_same_name_is_not_appended(world: World) -> None:
    """UNKNOWN_TOPIC_ID (KIP-516); without an id the name alone counts."""
    await world.learn(ME, 0, isr=(ME,), replicas=(ME,))
    requests = world.produce_requests()
    answers: list[ProduceAnswer] = []
    for topic_id in (OTHER_ID, TOPIC_ID, b""):
        requests.append(CALLER, ORDERS, topic_id, memoryview(BATCH), 1, 0, answers.append)
    errors = [answer.error for answer in answers]
    assert errors == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NONE, ErrorCode.NONE]
    assert world.log_end() == 2


@plays(run)
async def test_a_client_writes_nothing_into_an_internal_topic(world: World) -> None:
    """INVALID_TOPIC_EXCEPTION, as in Kafka; the broker itself writes there."""
    offsets = TopicPartition(OFFSETS_TOPIC, 0)
    await world.lead(OFFSETS_TOPIC)
    requests = world.produce_requests()
    answers: list[ProduceAnswer] = []
    requests.append(CALLER, offsets, b"", memoryview(BATCH), 1, 0, answers.append)
    assert [answer.error for answer in answers] == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    world.produce(tp=offsets)
    assert world.replicas.replicas[offsets].state.log_end_offset == 1


@plays(run)
async def test_a_compacted_topic_takes_no_record_without_a_key(world: World) -> None:
    """INVALID_RECORD (K-85) by both protocols; large and compressed batches are looked into in their turn."""

    def made(*keys: bytes | None, codec: Codec = Codec.NONE, size: int = 10) -> memoryview:
        return memoryview(encode_batch([(0, key, b"v" * size, ()) for key in keys], codec=codec))

    await world.learn(ME, 0, isr=(ME,), replicas=(ME,))
    log = world.replica.log
    log.use(LogSettings(compaction=CompactionSettings()))
    requests = world.produce_requests()
    answers: list[ProduceAnswer] = []
    batches = [
        made(b"k", b""),
        made(b"k", None),
        made(b"k", None, b"k", codec=Codec.GZIP),
        made(b"k", codec=Codec.GZIP),
        made(b"k", size=100_000),
        made(b"k"),
        made(None, size=100_000),
    ]
    damaged = bytearray(made(b"k"))
    damaged[61] ^= 0x40  # the record's length
    damaged[17:21] = crc32c(bytes(damaged[21:])).to_bytes(4, "big")
    for batch in (*batches, memoryview(damaged)):
        requests.append(CALLER, ORDERS, b"", batch, 1, 0, answers.append)
    await world.clock.sleep(1_000)
    refused = [(place, each.message) for place, each in enumerate(answers) if each.error]
    assert [each.error for each in answers if each.error] == [ErrorCode.INVALID_RECORD] * 4
    assert [place for place, _ in refused] == [1, 2, 6, 7]
    assert "record 1 has no key, and the topic is compacted" in refused[0][1]
    assert [[*answers[place].invalid_records] for place, _ in refused] == [[1], [1], [0], []]
    assert [each.base_offset for each in answers if not each.error] == [0, 2, 3, 4]


@plays(run)
async def test_a_produce_waits_five_minutes_at_most(world: World) -> None:
    """Whatever its timeout.ms: what waits is in memory."""
    await world.learn(ME, 0)
    requests = world.produce_requests()
    answers: list[ProduceAnswer] = []
    requests.append(CALLER, ORDERS, b"", memoryview(BATCH), -1, 2_147_483_647, answers.append)
    await world.clock.sleep(299_000)
    assert answers == []
    await world.clock.sleep(2_000)
    assert [answer.error for answer in answers] == [ErrorCode.REQUEST_TIMED_OUT]


@plays(run)
async def test_a_fetch_answers_every_partition_in_the_order_of_the_request(world: World) -> None:
    """With records, with none, and not here at all: the error is told at once (R-121)."""
    await world.lead("orders", "payments")
    world.produce(tp=PAYMENTS)
    nowhere = TopicPartition("nowhere", 0)
    request = FetchRequest([of(), of(nowhere), of(PAYMENTS)], 60_000, 1_000_000, 1_000_000)
    begin_ms = world.clock.now_ms()
    empty, unknown, full = await world.fetch_requests().fetch(CALLER, request)
    assert world.clock.now_ms() == begin_ms
    assert (empty.topic_partition, empty.decision.error, size(empty)) == (ORDERS, ErrorCode.NONE, 0)
    assert (unknown.topic_partition, unknown.decision.error) == (nowhere, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert (full.topic_partition, full.decision.high_watermark, size(full)) == (PAYMENTS, 1, len(BATCH))


@pytest.mark.parametrize(("min_bytes", "appends"), [(1, 1), (len(BATCH) + 1, 2), (3 * len(BATCH), 3)])
@plays(run)
async def test_a_fetch_waits_for_its_minimum_over_all_partitions(world: World, min_bytes: int, appends: int) -> None:
    """Each append wakes it; it is answered with everything that is there by then (R-121, R-122)."""
    await world.lead("orders", "payments")
    request = FetchRequest([of(), of(PAYMENTS)], 60_000, min_bytes, 1_000_000)
    answering = asyncio.ensure_future(world.fetch_requests().fetch(CALLER, request))
    for number in range(appends):
        await world.clock.sleep(100)
        assert not answering.done(), number
        world.produce(tp=(ORDERS, PAYMENTS)[number % 2])
    await world.clock.sleep(1)
    assert answering.done()
    assert sum(map(size, answering.result())) == appends * len(BATCH)


@plays(run)
async def test_a_fetch_ends_when_its_time_is_over(world: World) -> None:
    """With less than it wanted, or with nothing; a fetch that has no time to wait is answered at once (R-121)."""
    await world.lead("orders")
    world.produce()
    for wait_ms, offset, found in ((700, 0, len(BATCH)), (700, 1, 0), (0, 1, 0)):
        begin_ms = world.clock.now_ms()
        (fetched,) = await world.fetch_requests().fetch(
            CALLER, FetchRequest([of(offset=offset)], wait_ms, 1_000_000, 1_000_000)
        )
        assert (world.clock.now_ms() - begin_ms, size(fetched)) == (wait_ms, found)


@plays(run)
async def test_the_first_partition_that_has_records_gives_a_whole_batch(world: World) -> None:
    """Whatever the limits say (KIP-74); the others give what still fits."""
    await world.lead("orders", "payments")
    for tp in (ORDERS, PAYMENTS) * 3:
        world.produce(tp=tp)
    for max_bytes, found in ((1, [1, 0]), (2 * len(BATCH), [2, 0]), (4 * len(BATCH), [3, 1])):
        request = FetchRequest([of(), of(PAYMENTS)], 0, 1, max_bytes)
        answer = await world.fetch_requests().fetch(CALLER, request)
        assert [size(each) // len(BATCH) for each in answer] == found, max_bytes


@plays(run)
async def test_records_that_are_no_longer_in_memory_are_read_away_from_the_loop(world: World) -> None:
    """They count as enough, since they are as a rule much."""
    await world.lead("orders")
    for _ in range(3):
        world.produce()
    world.cool()
    (fetched,) = await world.fetch_requests().fetch(CALLER, FetchRequest([of()], 60_000, 1_000_000, 1_000_000))
    assert size(fetched) == 3 * len(BATCH)


@plays(run)
async def test_a_change_of_leader_ends_the_wait_and_names_the_new_one(world: World) -> None:
    """R-121; what a consumer needs to go on (KIP-951)."""
    await world.learn(ME, 0, isr=(ME, ONE), replicas=(ME, ONE))
    request = FetchRequest([of()], 60_000, 1, 1_000_000)
    answering = asyncio.ensure_future(world.fetch_requests().fetch(CALLER, request))
    await world.clock.sleep(100)
    await world.learn(ONE, 1, isr=(ME, ONE), replicas=(ME, ONE))
    await world.clock.sleep(1)
    (fetched,) = answering.result()
    assert fetched.decision.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (fetched.leader_id, fetched.leader_epoch) == (ONE, 1)


@plays(run)
async def test_a_fetch_that_is_given_up_leaves_nothing_behind(world: World) -> None:
    """A client that hangs up is not waited for any more."""
    await world.lead("orders")
    request = FetchRequest([of()], 60_000, 1, 1_000_000)
    answering = asyncio.ensure_future(world.fetch_requests().fetch(CALLER, request))
    await world.clock.sleep(100)
    assert world.replica.waiting_fetches == 1
    answering.cancel()
    await asyncio.gather(answering, return_exceptions=True)
    assert world.replica.waiting_fetches == 0


async def test_metadata_finds_topics_by_their_ids() -> None:
    """In the order of the request, names first; an unknown id is UNKNOWN_TOPIC_ID (KIP-516)."""
    image = image_of([1, 2])
    add_topic(image, "orders", partition_of([1, 2]))
    add_topic(image, "__consumer_offsets", partition_of([1, 2]), topic_id=bytes(16))
    caught_up = asyncio.Event()
    caught_up.set()

    async def create(context: RequestContext, names: object) -> None:
        raise AssertionError(names)

    requests = MetadataRequests(
        image=lambda: image, controller_id=lambda: 1, auto_create=True, create_topics=create, caught_up=caught_up
    )
    topic_id = image.topics["orders"].topic_id
    cluster = await requests.metadata(CALLER, ["__consumer_offsets"], [topic_id, OTHER_ID])
    (absent,) = (await requests.metadata(CALLER, ["__transaction_state"], (), True)).topics
    assert absent.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # internal topics are not created in this way
    assert [(each.name, each.error, each.is_internal) for each in cluster.topics] == [
        ("__consumer_offsets", ErrorCode.NONE, True),
        ("orders", ErrorCode.NONE, False),
        ("", ErrorCode.UNKNOWN_TOPIC_ID, False),
    ]
    assert [each.topic_id for each in cluster.topics[1:]] == [topic_id, OTHER_ID]


@in_cluster()
async def test_the_controller_knows_who_is_behind_a_request_that_was_passed_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Principal, listener, client id and address are those of the client at the broker that passed it on."""
    alice = RequestContext(Principal("User", "alice"), "EXTERNAL", "billing-7", "10.0.0.9:4242")
    callers: list[RequestContext] = []

    def decide(call: AdminCall) -> Decision[admin_messages.DeleteTopicsResponse]:
        callers.append(call.context)
        return Decision([], admin_messages.DeleteTopicsResponse())

    watched = replace(admin.ADMIN_REQUESTS["DeleteTopics"], decide=decide)
    monkeypatch.setitem(admin.ADMIN_REQUESTS, "DeleteTopics", watched)
    await cluster.begin(assignment=())
    channel = cluster.members[2].channel
    for context in (alice, RequestContext(ANONYMOUS, "GRPC")):
        await channel.forward_admin(context, "DeleteTopics", b"", 1_000, at_most_once=True)
    assert callers == [alice, RequestContext(ANONYMOUS, "GRPC")]


@pytest.mark.parametrize("text", ["", "alice", ":alice", "User:"])
def test_a_text_that_is_no_principal_is_refused(text: str) -> None:
    """Kind and name, with a colon between them."""
    assert str(Principal.parse("User:a:b")) == "User:a:b"
    with pytest.raises(ValueError, match="not a principal"):
        Principal.parse(text)


async def test_what_changes_nothing_is_answered_without_a_controller() -> None:
    """From the broker's own metadata, as by Kafka's brokers; what only the quorum knows is not."""

    async def forward(context: RequestContext, method: str, *request: object, at_most_once: bool) -> bytes:
        raise ControllerUnavailable(method)

    feed, image = MetadataFeed(), image_of((1,))
    add_topic(image, "orders", partition_of((1,)), retention_ms="5")
    feed.on_snapshot(image)
    settings = ControllerSettings(node_id=1, cluster_id=image.cluster_id)
    requests = AdminRequests(forward=forward, feed=feed, settings=settings, describe_own=lambda _: None)
    wanted = admin_messages.DescribeConfigsRequest(resource_type="topic", resource_name="orders")
    described = await requests.call(CALLER, "DescribeConfigs", wanted, 1_000)
    assert {each.name: each.value for each in described.entries}["retention.ms"] == "5"
    for method, request in (
        ("DescribeQuorum", admin_messages.DescribeQuorumRequest()),
        ("DeleteTopics", admin_messages.DeleteTopicsRequest()),
    ):
        with pytest.raises(ControllerUnavailable):
            await requests.call(CALLER, method, request, 1_000)
