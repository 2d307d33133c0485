"""Produce as an API of Kafka's protocol: what is kept of a request while it waits, and after it."""

from __future__ import annotations

import struct
import weakref

import pytest
from odradek_broker.core.cleaning import CompactionSettings
from odradek_broker.kafka.apis.produce import ProduceApi
from odradek_broker.kafka.messages.primitives import MessageReader
from odradek_broker.kafka.messages.request import Body, ClientInformation, KafkaRequest
from odradek_broker.storage.settings import LogSettings
from odradek_proto.encoding import encode_batch
from odradek_proto.errors import ErrorCode
from odradek_proto.records import Codec

from tests.broker.replica_world import CALLER, ME, ORDERS, World, run
from tests.playing import plays

OTHER = ME + 1
BATCH = encode_batch([(0, None, b"a record of some bytes", ())])
ACKS_ALL = -1


class Frame(bytearray):
    """Memory of a request; unlike `bytearray`, it can be watched."""


def frame_of(timeout_ms: int, batch: bytes = BATCH) -> Frame:
    """A Produce request of version 3, behind its header."""
    topic = ORDERS.topic.encode()
    return Frame(
        struct.pack(f">hhiih{len(topic)}siii", -1, ACKS_ALL, timeout_ms, 1, len(topic), topic, 1, 0, len(batch)) + batch
    )


@pytest.mark.parametrize("ends", ["fail", "time"])
@plays(run)
async def test_a_frame_is_released_when_its_batch_is_appended(world: World, ends: str) -> None:
    """The request that waits for the high watermark keeps names and indexes, and once answered not even those."""
    await world.learn(ME, 0, isr=(ME, OTHER), replicas=(ME, OTHER))
    requests = world.produce_requests()
    api = ProduceApi(requests, topic_name=lambda _: None, endpoints=lambda _listener, _ids: [])
    answers: list[Body | None] = []

    class Told:
        def __call__(self, body: Body | None) -> None:
            answers.append(body)

    frame, told = frame_of(30_000), Told()
    frame_there, told_there = weakref.ref(frame), weakref.ref(told)
    replica = world.replica
    api.start(KafkaRequest(0, 3, MessageReader(memoryview(frame)), CALLER, ClientInformation()), told)
    del frame, told
    replica.log._tail._cache.clear()  # the memory of recent batches has a limit of its own
    assert frame_there() is None
    assert told_there() is not None
    assert not answers
    if ends == "fail":
        replica.purgatory.fail_all(replica.produces, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    else:
        await world.clock.sleep(30_001)
    assert len(answers) == 1
    assert told_there() is None


@pytest.mark.parametrize("version", range(3, 8))
@plays(run)
async def test_zstd_is_for_clients_that_know_it(world: World, version: int) -> None:
    """UNSUPPORTED_COMPRESSION_TYPE before version 7 (KIP-110): older clients could not read what they wrote."""
    await world.learn(ME, 0, isr=(ME,), replicas=(ME,))
    api = ProduceApi(world.produce_requests(), topic_name=lambda _: None, endpoints=lambda _listener, _ids: [])
    batch = encode_batch([(0, None, b"a record", ())], codec=Codec.ZSTD)
    answers: list[Body | None] = []
    frame = frame_of(30_000, batch)
    api.start(KafkaRequest(0, version, MessageReader(memoryview(frame)), CALLER, ClientInformation()), answers.append)
    refused = version < 7
    assert world.log_end() == (0 if refused else 1)
    (body,) = answers
    assert body is not None
    code = struct.pack(">ih", 0, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if refused else 0)
    assert code in b"".join(map(bytes, body))


@plays(run)
async def test_records_that_a_batch_is_refused_for_are_named(world: World) -> None:
    """From version 8 on (KIP-467): clients tell them from those that only were in the same batch."""
    await world.learn(ME, 0, isr=(ME,), replicas=(ME,))
    world.replica.log.use(LogSettings(compaction=CompactionSettings()))
    api = ProduceApi(world.produce_requests(), topic_name=lambda _: None, endpoints=lambda _listener, _ids: [])
    batch = encode_batch([(0, key, b"v", ()) for key in (b"k", None, b"k", None)])
    answers: list[Body | None] = []
    frame = frame_of(30_000, batch)
    api.start(KafkaRequest(0, 8, MessageReader(memoryview(frame)), CALLER, ClientInformation()), answers.append)
    (body,) = answers
    assert body is not None
    told = b"the record has no key, and the topic is compacted"
    errors = b"".join(struct.pack(f">ih{len(told)}s", place, len(told), told) for place in (1, 3))
    message = b"record 1 has no key, and the topic is compacted"
    expected = struct.pack(">i", 2) + errors + struct.pack(f">h{len(message)}s", len(message), message)
    assert expected in b"".join(map(bytes, body))
    assert world.log_end() == 0
