"""Hand-made bytes, and the answers that Apache Kafka 4.1.1 gave to them.

The table is what a probe of three KRaft nodes of Apache Kafka 4.1.1 recorded; where ours differ on purpose the row says
so. None stands for a connection that is closed instead of an answer.
"""

from __future__ import annotations

import struct
import threading

import pytest
from odradek_broker.testing import Cluster
from odradek_proto.encoding import encode_batch
from odradek_proto.errors import ErrorCode
from odradek_proto.records import Codec

from tests.kafka.raw import API_VERSIONS, FETCH, LIST_OFFSETS, METADATA, PRODUCE, Raw, framed, header, string

MAGIC_1 = bytes(11) + b"\x32" + bytes(4) + b"\1" + bytes(60)
NO_TOPICS = struct.pack(">i", 0)
NO_EPOCH = -1
DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 44
TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32  # what has configs
DELETE, LONG = 1, 5  # what to do with a config, and its type
API_VERSIONS_IN_V0 = struct.pack(">ihihhh", 7, 35, 1, 18, 0, 4)  # correlation id, error, one entry: key, min, max


def produce_v3(topic: bytes, records: bytes | None, acks: int) -> bytes:
    """One partition, 0."""
    size = -1 if records is None else len(records)
    body = struct.pack(">hhii", -1, acks, 1000, 1) + string(topic) + struct.pack(">iii", 1, 0, size) + (records or b"")
    return header(PRODUCE, 3, 1) + body


def list_offsets(version: int, *partitions: tuple[int, int]) -> bytes:
    """Of these partitions of t1 the offsets at these times; from version 4 on with any epoch."""
    body = struct.pack(">i", -1) + (b"\0" if version >= 2 else b"") + struct.pack(">i", 1) + string(b"t1")
    epoch = struct.pack(">i", -1) if version >= 4 else b""
    asked = b"".join(struct.pack(">i", index) + epoch + struct.pack(">q", time_ms) for index, time_ms in partitions)
    return header(LIST_OFFSETS, version, 1) + body + struct.pack(">i", len(partitions)) + asked


def listed(error: int, version: int) -> bytes:
    """What a version below 6 says of partition 0 of t1, for which it has no offset."""
    throttled, epoch = b"\0\0\0\0" if version >= 2 else b"", struct.pack(">i", -1) if version >= 4 else b""
    place = struct.pack(">iihqq", 1, 0, error, -1, -1) + epoch
    return struct.pack(">i", 1) + throttled + struct.pack(">i", 1) + string(b"t1") + place


def produced(topic: bytes, error: int) -> bytes:
    """What version 3 says of partition 0 when it failed."""
    return struct.pack(">ii", 1, 1) + string(topic) + struct.pack(">iihqqi", 1, 0, error, -1, -1, 0)


def fetch_of(version: int, topic: bytes, offset: int, epoch: int) -> bytes:
    """Of partition 0, without a session."""
    in_session = struct.pack(">ii", 0, -1) if version >= 7 else b""
    place = struct.pack(">i", 0) + (struct.pack(">i", epoch) if version >= 9 else b"") + struct.pack(">q", offset)
    start = struct.pack(">q", -1) if version >= 5 else b""
    forgotten_and_rack = struct.pack(">ih", 0, 0) if version >= 11 else b""
    body = struct.pack(">iiiib", -1, 100, 1, 1 << 20, 0) + in_session + struct.pack(">i", 1) + string(topic)
    body += struct.pack(">i", 1) + place + start + struct.pack(">i", 1 << 20) + forgotten_and_rack
    return header(FETCH, version, 1) + body


def refused_fetch(version: int, topic: bytes, error: int) -> bytes:
    """High watermark, last stable offset, log start offset, aborted transactions and preferred replica are -1."""
    unknown = 8 + 8 + (8 if version >= 5 else 0) + 4 + (4 if version >= 11 else 0)
    of_all = struct.pack(">hi", 0, 0) if version >= 7 else b""
    place = struct.pack(">iih", 1, 0, error) + b"\xff" * unknown + bytes(4)
    return struct.pack(">ii", 1, 0) + of_all + struct.pack(">i", 1) + string(topic) + place


CLOSED: list[tuple[str, bytes]] = [
    ("unknown API key", framed(header(300, 0, 3))),
    ("an API that is not offered", framed(header(71, 0, 3, flexible=True) + bytes(17))),
    ("a version that nobody knows", framed(header(METADATA, 99, 2, flexible=True) + bytes(4))),
    ("Produce 0, which is advertised", framed(header(PRODUCE, 0, 1) + struct.pack(">hii", 1, 1000, 0))),
    ("a size of 0", struct.pack(">i", 0)),
    ("a size of -1", struct.pack(">i", -1)),
    ("a size of 200 MiB", struct.pack(">i", 200 << 20)),
    ("a size of 2", struct.pack(">i", 2) + b"\0\x12"),
    ("HTTP", b"GET / HTTP/1.1\r\n\r\n"),
    ("TLS", bytes.fromhex("16030100a5010000a1") + bytes(160)),
    ("a body that is cut short", framed(header(METADATA, 1, 1) + b"\0")),
    ("acks=0 to an unknown topic", framed(produce_v3(b"nope", b"", 0))),
]

ANSWERED: list[tuple[str, bytes, bytes]] = [
    ("SaslHandshake without SASL", header(17, 1, 7) + string(b"PLAIN"), struct.pack(">ihi", 7, 34, 0)),
    ("ApiVersions 9", header(API_VERSIONS, 9, 7, flexible=True) + b"\1\1\0", API_VERSIONS_IN_V0),
    ("ApiVersions 5", header(API_VERSIONS, 5, 7, flexible=True) + b"\2a\2b\0", API_VERSIONS_IN_V0),
    (
        "ApiVersions without a name",
        header(API_VERSIONS, 3, 7, flexible=True) + b"\1\1\0",
        struct.pack(">ih", 7, 42) + b"\1" + bytes(5),
    ),
    (
        "ApiVersions with a bad name",
        header(API_VERSIONS, 3, 7, flexible=True) + b"\4a b\2x\0",
        struct.pack(">ih", 7, 42) + b"\1" + bytes(5),
    ),
    ("empty records", produce_v3(b"t1", b"", 1), produced(b"t1", 87)),
    ("empty records with acks=5", produce_v3(b"t1", b"", 5), produced(b"t1", 87)),
    ("null records, to which Kafka says nothing", produce_v3(b"t1", None, 1), produced(b"t1", 87)),
    *[
        (f"the offset at {time_ms} by version 5", list_offsets(5, (0, time_ms)), listed(35, 5))
        for time_ms in (-3, -4, -5)
    ],
    ("the offset at -100", list_offsets(1, (0, -100)), listed(35, 1)),
    ("offsets of a partition that is named twice", list_offsets(5, (0, -1), (0, -2)), listed(42, 5)),
    ("offsets of no partition", list_offsets(1), struct.pack(">ii", 1, 0)),
    (
        "SyncGroup 5 without a protocol",
        header(14, 5, 1, flexible=True) + b"\2g" + struct.pack(">i", 1) + b"\2m\0\0\0\1\0",
        struct.pack(">ibih", 1, 0, 0, 23) + b"\0\0\1\0",
    ),
    ("a batch of magic 1", produce_v3(b"t1", MAGIC_1, 1), produced(b"t1", 87)),
]


@pytest.fixture
def address(odradek_cluster: Cluster) -> str:
    return odradek_cluster.kafka_bootstrap.partition(",")[0]


@pytest.mark.parametrize("data", [row[1] for row in CLOSED], ids=[row[0] for row in CLOSED])
def test_what_kafka_closes_on_is_closed_on(address: str, data: bytes) -> None:
    """Without a byte, and the next connection is served."""
    with Raw(address) as raw:
        raw.send(data)
        assert raw.receive() is None
    with Raw(address) as raw:
        assert raw.ask(header(API_VERSIONS, 0, 1)) is not None


@pytest.mark.parametrize(("asked", "answer"), [row[1:] for row in ANSWERED], ids=[row[0] for row in ANSWERED])
def test_what_kafka_answers_is_answered_to_the_byte(address: str, asked: bytes, answer: bytes) -> None:
    """And the connection stays."""
    with Raw(address) as raw:
        assert raw.ask(asked) == answer
        assert raw.ask(header(API_VERSIONS, 0, 1, client=None)) is not None


def test_three_requests_in_one_write_are_answered_in_order(address: str) -> None:
    """ApiVersions twice, and Metadata with five bytes too many behind."""
    with Raw(address) as raw:
        asked = [header(API_VERSIONS, 0, 1), header(API_VERSIONS, 0, 2), header(METADATA, 1, 3) + NO_TOPICS + b"extra"]
        raw.send(b"".join(map(framed, asked)))
        assert [(raw.receive() or b"")[:4] for _ in asked] == [struct.pack(">i", number) for number in (1, 2, 3)]


def test_an_unknown_topic_id_is_answered_and_echoed(address: str) -> None:
    """Produce 13 names topics by id alone; error 100 is UNKNOWN_TOPIC_ID."""
    topic_id = bytes(15) + b"\7"
    batch = encode_batch([(0, None, b"v", ())])
    body = b"\0" + struct.pack(">hi", 1, 1000) + b"\2" + topic_id + b"\2" + struct.pack(">i", 0)
    body += bytes([len(batch) + 1]) + batch + b"\0\0\0"
    with Raw(address) as raw:
        answer = raw.ask(header(PRODUCE, 13, 1, flexible=True) + body)
    assert answer is not None
    assert topic_id in answer
    assert struct.unpack_from(">ih", answer, 5 + 1 + 16 + 1) == (0, ErrorCode.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize("version", [4, 5, 11])
def test_a_refused_fetch_tells_no_offsets(odradek_cluster: Cluster, odradek_topic: str, version: int) -> None:
    """Out of range, at an epoch to come, and at a follower, from which nobody reads below version 11."""
    topic, leader = odradek_topic.encode(), odradek_cluster.leader_of(odradek_topic)
    follower = next(node for node in odradek_cluster.kafka_addresses if node != leader)
    refused = [(leader, 500, NO_EPOCH, ErrorCode.OFFSET_OUT_OF_RANGE)]
    if version == 11:
        refused.append((leader, 0, 99, ErrorCode.UNKNOWN_LEADER_EPOCH))
    else:
        refused.append((follower, 0, NO_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    with Raw(odradek_cluster.kafka_addresses[leader]) as raw:
        assert raw.ask(produce_v3(topic, encode_batch([(0, None, b"v", ())]), -1))  # so the follower knows the topic
    for node, offset, epoch, error in refused:
        with Raw(odradek_cluster.kafka_addresses[node]) as raw:
            answer = raw.ask(fetch_of(version, topic, offset, epoch))
        assert answer == refused_fetch(version, topic, error)


def test_a_waiting_fetch_holds_the_metadata_behind_it(odradek_cluster: Cluster, odradek_topic: str) -> None:
    """Kafka handles one request of a connection at a time; the Fetch ends when something is written (K-8)."""
    leader = odradek_cluster.kafka_addresses[odradek_cluster.leader_of(odradek_topic)]
    fetch = struct.pack(">iiiib", -1, 60_000, 1, 1 << 20, 0) + struct.pack(">i", 1) + string(odradek_topic.encode())
    fetch += struct.pack(">iiqi", 1, 0, 0, 1 << 20)
    batch = encode_batch([(0, None, b"v", ())])
    answers: list[bytes | None] = []
    with Raw(leader) as waiting, Raw(leader) as other:
        waiting.send(framed(header(FETCH, 4, 1) + fetch) + framed(header(METADATA, 1, 2) + NO_TOPICS))
        reading = threading.Thread(target=lambda: answers.extend([waiting.receive(), waiting.receive()]))
        reading.start()
        assert other.ask(header(METADATA, 1, 9) + NO_TOPICS)
        assert not answers
        assert other.ask(produce_v3(odradek_topic.encode(), batch, -1))
        reading.join()
    assert [(answer or b"")[:4] for answer in answers] == [struct.pack(">i", 1), struct.pack(">i", 2)]
    assert b"v" in (answers[0] or b"")


def test_acks_0_that_fails_after_it_waited_in_line_closes_the_connection(odradek_cluster: Cluster) -> None:
    """Kafka closes on every failure of acks=0; a compressed batch waits for a thread before it is refused."""
    odradek_cluster.create_topic("compact", configs={"cleanup.policy": "compact"})
    leader = odradek_cluster.kafka_addresses[odradek_cluster.leader_of("compact")]
    sound = encode_batch([(0, b"k", b"v", ())], codec=Codec.GZIP)
    without_a_key = encode_batch([(0, None, b"v", ())], codec=Codec.GZIP)
    with Raw(leader) as raw:
        raw.send(framed(produce_v3(b"compact", sound, 0)))
        assert raw.ask(produce_v3(b"compact", sound, 1)) is not None
        raw.send(framed(produce_v3(b"compact", without_a_key, 0)))
        assert raw.receive() is None


@pytest.mark.parametrize(
    ("kind", "error"),
    [(TOPIC, ErrorCode.NONE), (BROKER, ErrorCode.NONE), (GROUP, ErrorCode.NONE), (LOGGER, ErrorCode.INVALID_CONFIG)],
    ids=["topic", "all brokers", "group", "logger"],
)
def test_a_config_that_there_is_not_is_deleted(
    odradek_cluster: Cluster, odradek_topic: str, kind: int, error: ErrorCode
) -> None:
    """MirrorMaker deletes at its target whatever has its default at the source: also what only the source knows."""
    node, address = next(iter(odradek_cluster.kafka_addresses.items()))
    name = {TOPIC: odradek_topic, BROKER: "", GROUP: "readers", LOGGER: str(node)}[kind].encode()
    asked = struct.pack(">ib", 1, kind) + string(name) + struct.pack(">i", 1)
    asked += string(b"remote.log.delete.on.disable") + struct.pack(">bh", DELETE, -1) + b"\0"
    with Raw(address) as raw:
        answer = raw.ask(header(INCREMENTAL_ALTER_CONFIGS, 0, 1) + asked)
    assert answer is not None
    assert struct.unpack_from(">iiih", answer) == (1, 0, 1, error)


def test_a_config_without_documentation_has_none(address: str, odradek_topic: str) -> None:
    """Null, as in Kafka where none is asked for, and not an empty text."""
    asked = struct.pack(">ib", 1, TOPIC) + string(odradek_topic.encode()) + struct.pack(">i", 1)
    asked += string(b"retention.ms") + b"\0\0"
    with Raw(address) as raw:
        answer = raw.ask(header(DESCRIBE_CONFIGS, 3, 1) + asked)
    assert (answer or b"")[-3:] == struct.pack(">bh", LONG, -1)
