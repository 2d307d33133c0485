"""Quotas: whose counts, how long somebody waits, what the streams do about it, and changes at the controller."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from odradek_broker.core.controller import security
from odradek_broker.core.controller.security import alter_quotas, describe_quotas
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.metadata.records import apply
from odradek_broker.core.security import quotas
from odradek_broker.core.security.quotas import BURST_S, MOST_WAIT_MS, QuotaBuckets
from odradek_broker.requests.quotas import Throttle
from odradek_proto.errors import ErrorCode
from odradek_proto.security.quota_words import (
    ANY,
    CONSUMER_BYTE_RATE,
    DEFAULT,
    EXACT,
    OF_DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from odradek_proto.security.quotas import QuotaEntity
from odradek_proto.transport.frames import split_frame
from odradek_proto.v1 import admin_messages as messages
from odradek_proto.v1 import broker_pb2 as pb

from tests.broker.replica_world import ME, World, batch_of, fetch_frame, fetched, produce_frame, run
from tests.playing import plays

BYTES = PRODUCER_BYTE_RATE
ORDER = (  # Kafka's, from the most specific to the most general one
    QuotaEntity("alice", "app"),
    QuotaEntity("alice", DEFAULT),
    QuotaEntity("alice"),
    QuotaEntity(DEFAULT, "app"),
    QuotaEntity(DEFAULT, DEFAULT),
    QuotaEntity(DEFAULT),
    QuotaEntity(client_id="app"),
    QuotaEntity(client_id=DEFAULT),
)


def buckets(*entities: QuotaEntity) -> QuotaBuckets:
    made = QuotaBuckets()
    made.update({entity: {BYTES: 100.0 * (ORDER.index(entity) + 1)} for entity in entities})
    return made


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_most_specific_quota_counts(first: int) -> None:
    """Whatever there is that is more general; the wait shows which rate it was."""
    rate = 100 * (first + 1)
    assert buckets(*ORDER[first:]).take("alice", "app", BYTES, rate * (BURST_S + 1), 0) == 1_000


@pytest.mark.parametrize(
    ("entity", "shares"),
    [
        (ORDER[0], {"alice app"}),
        (ORDER[1], {"alice app"}),
        (ORDER[2], {"alice app", "alice tool"}),
        (ORDER[4], {"alice app"}),
        (ORDER[5], {"alice app", "alice tool"}),
        (ORDER[6], {"alice app", "bob app"}),
        (ORDER[7], {"alice app", "bob app"}),
    ],
)
def test_whom_one_quota_counts_for_they_share_it(entity: QuotaEntity, shares: set[str]) -> None:
    """One client takes all that there is: who waits with it?"""
    made = buckets(entity)
    made.take("alice", "app", BYTES, 10_000, 0)
    others = [("alice", "app"), ("alice", "tool"), ("bob", "app"), ("bob", "tool")]
    assert {f"{user} {client}" for user, client in others if made.take(user, client, BYTES, 0, 0)} == shares


@given(
    st.integers(1, 5_000),
    st.lists(st.tuples(st.integers(0, 100_000), st.integers(0, 20_000), st.booleans()), max_size=30),
)
def test_nobody_who_waits_as_told_takes_more_than_the_rate(rate: int, steps: list[tuple[int, int, bool]]) -> None:
    """Beyond the burst and one request, over any time from the beginning; and who waited takes something again."""
    made = QuotaBuckets()
    made.update({QuotaEntity("alice"): {BYTES: float(rate)}})
    now_ms = taken = 0
    for amount, pause_ms, other_state in steps:
        if other_state:
            made.update({QuotaEntity("alice"): {BYTES: float(rate)}})  # the same quotas in a newer image
        assert taken <= rate * (BURST_S + now_ms / 1000) + 1
        taken += amount
        wait_ms = made.take("alice", "app", BYTES, amount, now_ms)
        assert wait_ms == 0 or made.take("alice", "app", BYTES, 0, now_ms + wait_ms - 1) > 0 or wait_ms <= 1
        while wait_ms == MOST_WAIT_MS:  # told again
            now_ms += wait_ms
            wait_ms = made.take("alice", "app", BYTES, 0, now_ms)
        now_ms += wait_ms + pause_ms
        assert made.take("alice", "app", BYTES, 0, now_ms) == 0


def test_a_new_rate_counts_from_now_on() -> None:
    """Debts stay, and are paid at the new rate; without a quota nobody waits."""
    made = buckets(ORDER[2])
    assert made.take("alice", "app", BYTES, 300 * (BURST_S + 2), 0) == 2_000
    made.update({ORDER[2]: {BYTES: 600.0}})
    assert made.take("alice", "app", BYTES, 0, 0) == 1_000
    made.update({})
    assert made.take("alice", "app", BYTES, 0, 0) == 0


@pytest.mark.parametrize("rate", [1.0, 1e-320])
def test_whoever_owes_days_is_told_an_hour(rate: float) -> None:
    """Times on the wire have 32 bits; who waited for it is told the rest."""
    made = QuotaBuckets()
    made.update({ORDER[0]: {BYTES: rate}})
    assert made.take("alice", "app", BYTES, 3e9, 0) == MOST_WAIT_MS
    assert made.take("alice", "app", BYTES, 0, MOST_WAIT_MS) == MOST_WAIT_MS


def test_a_flood_of_names_takes_bounded_memory_and_frees_nobody_who_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever clients call themselves; of who is not heard meanwhile the debt may go."""
    monkeypatch.setattr(quotas, "MOST_BUCKETS", 100)
    made = buckets(ORDER[7])
    assert made.take("alice", "app", BYTES, 1e9, 0) == MOST_WAIT_MS
    for number in range(1_000):
        made.take("mallory", f"name-{number}", BYTES, 1e9, 0)
        if not number % 50:
            assert made.take("alice", "app", BYTES, 0, 0) == MOST_WAIT_MS
    assert len(made._buckets) <= 100
    assert len(made._found) <= 100


def with_quotas(world: World, **rates: float) -> None:
    world.throttle = Throttle(world.clock)
    world.throttle.update({QuotaEntity(DEFAULT): rates})


@plays(run)
async def test_a_stream_of_a_producer_beyond_its_quota_is_not_read_until_it_has_waited(world: World) -> None:
    """What it sent is written and answered, with the time for which nothing more is."""
    await world.learn(ME, 0, isr=(ME,))
    with_quotas(world, producer_byte_rate=100.0)
    writer = world.produce_session()
    await writer.send(produce_frame(batch_of(world, bytes(100 * BURST_S))))
    await writer.send(produce_frame(batch_of(world, b"later")))
    told = 0
    while not told:
        told = pb.ProduceAnswers.FromString(await writer.recv()).throttle_time_ms
    assert told > 500  # header and batch are more than the value
    await world.clock.sleep(told - 10)
    assert world.log_end() == 1
    await world.clock.sleep(20)
    assert world.log_end() == 2


@plays(run)
async def test_a_stream_of_a_consumer_beyond_its_quota_is_answered_later(world: World) -> None:
    """A follower never waits."""
    await world.learn(ME, 0, isr=(ME,))
    for value in (bytes(100 * BURST_S + 200), b"later"):
        world.produce(value)
    with_quotas(world, consumer_byte_rate=100.0)
    reader, follower = world.fetch_session(), world.fetch_session(follower=True)
    await world.clock.sleep(10)
    await reader.send(fetch_frame(0))
    header, data = split_frame(await reader.recv())
    told = pb.FetchAnswerHeader.FromString(header).throttle_time_ms
    assert len(data) > 100 * BURST_S
    assert told > 500
    await reader.send(fetch_frame(2))
    before_ms = world.clock.now_ms()
    await follower.send(fetch_frame(0, replica_id=1))
    assert (await fetched(follower))[0].size > 0
    assert world.clock.now_ms() == before_ms
    world.produce()
    await fetched(reader)
    assert world.clock.now_ms() - before_ms >= told - 1
    world.throttle.update({})
    for offset in (3, 4):  # the first answer may have been told to wait before
        before_ms = world.clock.now_ms()
        await reader.send(fetch_frame(offset))
        world.produce()
        await fetched(reader)
    assert world.clock.now_ms() - before_ms < 100


def alter(image: MetadataImage, entity: dict[str, str | None], **quotas: float | None) -> int:
    """The error, or the image is changed."""
    decision = alter_quotas(
        image,
        messages.AlterClientQuotasRequest(
            entries=[
                messages.QuotaAlteration(
                    entity=[
                        messages.QuotaName(type=kind.replace("_", "-"), name=name) for kind, name in entity.items()
                    ],
                    values=[messages.QuotaValue(key=key, value=value) for key, value in quotas.items()],
                )
            ]
        ),
    )
    for record in decision.records:
        apply(image, record, image.offset, 1)
    return decision.answer.entries[0].error_code


@pytest.mark.parametrize(
    ("entity", "quotas"),
    [
        ({}, {BYTES: 1.0}),
        ({"ip": "10.0.0.1"}, {BYTES: 1.0}),
        ({"user": ""}, {BYTES: 1.0}),
        ({"user": DEFAULT}, {BYTES: 1.0}),
        ({"user": "alice"}, {"connection_creation_rate": 1.0}),
        ({"user": "alice"}, {BYTES: 0.0}),
        ({"user": "alice"}, {BYTES: 1.5}),
        ({"user": "alice"}, {REQUEST_PERCENTAGE: float("nan")}),
        ({"user": "alice"}, {BYTES: 1.0, REQUEST_PERCENTAGE: -1.0}),
    ],
)
def test_what_is_no_quota_is_refused_and_changes_nothing(
    entity: dict[str, str | None], quotas: dict[str, float]
) -> None:
    """Of one entity all or nothing."""
    image = MetadataImage()
    assert alter(image, entity, **quotas) == ErrorCode.INVALID_REQUEST
    assert not image.quotas


def test_more_entities_than_there_may_be_are_refused_and_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are there may be changed, and removed."""
    monkeypatch.setattr(security, "MOST_QUOTAS", 1)
    image = MetadataImage()
    assert alter(image, {"user": "alice"}, **{BYTES: 1.0}) == ErrorCode.NONE
    assert alter(image, {"user": "bob"}, **{BYTES: 1.0}) == ErrorCode.INVALID_REQUEST
    assert alter(image, {"user": "alice"}, **{BYTES: 2.0, REQUEST_PERCENTAGE: 5.0}) == ErrorCode.NONE
    assert [*image.quotas] == [QuotaEntity("alice")]
    assert alter(image, {"user": "alice"}, **{BYTES: None, REQUEST_PERCENTAGE: None}) == ErrorCode.NONE
    assert not image.quotas


@pytest.mark.parametrize(
    ("filters", "strict", "found"),
    [
        ([], False, {1, 2, 3, 4}),
        ([("user", EXACT, "alice")], False, {1, 2}),
        ([("user", EXACT, "alice")], True, {1}),
        ([("user", OF_DEFAULT, "")], False, {3}),
        ([("user", ANY, "")], True, {1, 3}),
        ([("user", ANY, ""), ("client-id", EXACT, "app")], True, {2}),
        ([("client-id", ANY, "")], False, {2, 4}),
        ([("ip", ANY, "")], False, set()),
    ],
)
def test_quotas_are_found_as_kafka_finds_them(
    filters: list[tuple[str, int, str]], strict: bool, found: set[int]
) -> None:
    """By entities, whose quotas are numbered here; what was removed is not found."""
    image = MetadataImage()
    for number, entity in enumerate(
        ({"user": "alice"}, {"user": "alice", "client-id": "app"}, {"user": None}, {"client-id": "app"}), 1
    ):
        alter(image, entity, consumer_byte_rate=float(number), producer_byte_rate=9.0)  # type: ignore[arg-type]
        alter(image, entity, producer_byte_rate=None)  # type: ignore[arg-type]
    request = messages.DescribeClientQuotasRequest(
        filters=[messages.QuotaFilter(type=kind, match_type=how, match=name) for kind, how, name in filters],
        strict=strict,
    )
    values = [value for entry in describe_quotas(image, request).entries for value in entry.values]
    assert {value.key for value in values} <= {CONSUMER_BYTE_RATE}
    assert {value.value for value in values} == found


@pytest.mark.parametrize(
    ("kinds", "error"),
    [
        (["user", "group"], ErrorCode.UNSUPPORTED_VERSION),
        (["user", "user"], ErrorCode.INVALID_REQUEST),
        ([""], ErrorCode.INVALID_REQUEST),
        (["user", "ip"], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_of_quotas_are_refused_as_by_kafka(kinds: list[str], error: ErrorCode) -> None:
    """ClientQuotasImage.describe."""
    filters = [messages.QuotaFilter(type=kind, match_type=ANY) for kind in kinds]
    answer = describe_quotas(MetadataImage(), messages.DescribeClientQuotasRequest(filters=filters))
    assert answer.error_code == error
