"""Fetch sessions (KIP-227): epochs, what is news, whose turn it is, and how many there may be."""

from __future__ import annotations

import pytest
from odradek_broker.kafka.apis import fetch_sessions
from odradek_broker.kafka.apis.fetch_sessions import EVICTED_AFTER_MS, ClientFetchSession, FetchSessions
from odradek_broker.kafka.messages import fetch_codec as codec
from odradek_broker.kafka.messages.endpoints import Topic
from odradek_broker.testing import Cluster
from odradek_proto.errors import ErrorCode

from tests.kafka.by_hand import HandClock


def asked(
    session_id: int,
    epoch: int,
    topics: dict[str, list[int]] | None = None,
    forgotten: dict[str, list[int]] | None = None,
) -> codec.DecodedFetch:
    wanted = [
        Topic(name, b"", [codec.WantedPartition(index, -1, 0, -1, -1, 1_000) for index in indexes])
        for name, indexes in (topics or {}).items()
    ]
    gone = [Topic(name, b"", indexes) for name, indexes in (forgotten or {}).items()]
    return codec.DecodedFetch(-1, 500, 1, 1 << 20, 0, session_id, epoch, wanted, gone)


def answered(*told: tuple[str, int, int, bytes, int]) -> list[Topic[codec.FetchPartitionAnswer]]:
    """Topic, partition, high watermark, records, error."""
    return [
        Topic(topic, b"", [codec.FetchPartitionAnswer(index, error, end, end, 0, [records] if records else [])])
        for topic, index, end, records, error in told
    ]


def keys(topics: list[Topic[codec.WantedPartition]] | list[Topic[codec.FetchPartitionAnswer]]) -> list[tuple[str, int]]:
    return [(topic.name, each.index) for topic in topics for each in topic.partitions]


def opened(sessions: FetchSessions, topics: dict[str, list[int]]) -> ClientFetchSession:
    session = sessions.begin(asked(0, 0, topics), ids=False)
    assert isinstance(session, ClientFetchSession)
    return session


@pytest.fixture
def sessions() -> FetchSessions:
    """None yet."""
    return FetchSessions(HandClock())


def test_partitions_are_named_once_then_added_and_forgotten(sessions: FetchSessions) -> None:
    """Each request counts one up (SE-02)."""
    session = opened(sessions, {"a": [0, 1], "b": [0]})
    assert sessions.begin(asked(session.session_id, 1), ids=False) is session
    assert keys(session.topics()) == [("a", 0), ("a", 1), ("b", 0)]
    assert sessions.begin(asked(session.session_id, 2, {"c": [5]}, {"a": [0]}), ids=False) is session
    assert keys(session.topics()) == [("a", 1), ("b", 0), ("c", 5)]


def test_only_news_are_told() -> None:
    """Everything at first; then records, errors, their end, and another high watermark (SE-02, SE-05)."""
    session = opened(FetchSessions(HandClock()), {"a": [0], "b": [0]})
    nothing = answered(("a", 0, 5, b"", 0), ("b", 0, 7, b"", 0))
    assert keys(session.news(nothing)) == [("a", 0), ("b", 0)]
    assert session.news(nothing) == []
    assert keys(session.news(answered(("a", 0, 6, b"", 0), ("b", 0, 7, b"", 0)))) == [("a", 0)]
    assert keys(session.news(answered(("a", 0, 6, b"", 0), ("b", 0, 7, b"x", 0)))) == [("b", 0)]
    failed = answered(("a", 0, -1, b"", int(ErrorCode.NOT_LEADER_OR_FOLLOWER)), ("b", 0, 7, b"", 0))
    assert keys(session.news(failed)) == keys(session.news(failed)) == [("a", 0)]
    assert keys(session.news(answered(("a", 0, 6, b"", 0), ("b", 0, 7, b"", 0)))) == [("a", 0)]


def test_who_had_records_is_read_last_the_next_time() -> None:
    """Or the first partition could fill every answer."""
    session = opened(FetchSessions(HandClock()), {"a": [0, 1], "b": [0]})
    session.news(answered(("a", 0, 5, b"records", 0)))
    assert keys(session.topics()) == [("a", 1), ("b", 0), ("a", 0)]


def test_a_request_that_does_not_follow_is_refused(sessions: FetchSessions) -> None:
    """An unknown session (SE-01), a lost answer, topics named in the other way."""
    session = opened(sessions, {"a": [0]})
    assert sessions.begin(asked(99, 1), ids=False) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.begin(asked(session.session_id, 2), ids=False) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sessions.begin(asked(session.session_id, 1), ids=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_session_ends_when_its_client_says_so_or_begins_anew(sessions: FetchSessions) -> None:
    """With epoch -1 there is none after it, with 0 another one."""
    first = opened(sessions, {"a": [0]})
    assert sessions.begin(asked(first.session_id, -1), ids=False) is None
    assert sessions.begin(asked(first.session_id, 1), ids=False) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.begin(asked(0, -1, {"a": [0]}), ids=False) is None
    assert sessions.begin(asked(0, 0), ids=False) is None  # nothing to remember


def test_slots_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer takes the place of a smaller session, or of one that is unused for two minutes; or has none."""
    monkeypatch.setattr(fetch_sessions, "SLOTS", 2)
    clock = HandClock()
    sessions = FetchSessions(clock)
    large, small = opened(sessions, {"a": [0, 1, 2]}), opened(sessions, {"a": [0]})
    third = opened(sessions, {"a": [0, 1]})
    assert sessions.begin(asked(small.session_id, 1), ids=False) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.begin(asked(0, 0, {"a": [0]}), ids=False) is None
    clock.turn(EVICTED_AFTER_MS - 1)
    assert sessions.begin(asked(third.session_id, 1), ids=False) is third
    clock.turn(1)
    opened(sessions, {"a": [0]})
    assert sessions.begin(asked(large.session_id, 1), ids=False) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_partitions_of_all_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who would name more has no session, and one that grows beyond them ends."""
    monkeypatch.setattr(fetch_sessions, "MOST_PARTITIONS", 4)
    sessions = FetchSessions(HandClock())
    session = opened(sessions, {"a": [0, 1, 2]})
    assert sessions.begin(asked(0, 0, {"a": [0, 1]}), ids=False) is None
    grown = sessions.begin(asked(session.session_id, 1, {"b": [0, 1]}), ids=False)
    assert grown is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    opened(sessions, {"a": [0, 1, 2, 3]})


def test_a_client_with_a_session_reads_everything_in_order(
    odradek_cluster: Cluster, kafka_bootstrap: str, odradek_topic: str
) -> None:
    """kafka-python keeps one for each broker; six partitions, batches that come while it reads."""
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    topic = f"{odradek_topic}-wide"
    odradek_cluster.create_topic(topic, partitions=6)
    producer = KafkaProducer(bootstrap_servers=kafka_bootstrap)
    consumer = KafkaConsumer(bootstrap_servers=kafka_bootstrap, enable_auto_commit=False)
    partitions = [TopicPartition(topic, index) for index in range(6)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    found: dict[int, list[int]] = {index: [] for index in range(6)}
    for round_ in range(20):
        for index in range(6):
            producer.send(topic, b"%d" % round_, partition=index)
        producer.flush(60)
        while sum(map(len, found.values())) < 6 * (round_ + 1):
            for records in consumer.poll(timeout_ms=60_000).values():
                for record in records:
                    found[record.partition].append(int(record.value))
    consumer.close()
    producer.close()
    assert found == {index: list(range(20)) for index in range(6)}
