"""A topic with a `compression.type` of its own: its leader compresses what producers send in another codec."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from odradek_broker.config.settings import BrokerSettings
from odradek_broker.config.topic_settings import log_settings
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.metadata.topic_configs import validate_topic_config
from odradek_broker.requests.produce import ProduceAnswer
from odradek_broker.requests.unpacked import LONGEST_LINE_BYTES
from odradek_broker.storage.settings import Compression, LogSettings
from odradek_proto.checksum import crc32c
from odradek_proto.encoding import RecordToWrite, encode_batch
from odradek_proto.errors import ErrorCode
from odradek_proto.headers import CRC_START, HEADER_SIZE, LOG_APPEND_TIME, PREFIX_SIZE, BatchHeader
from odradek_proto.records import Codec, Record, check_batch, decode_records, iter_batches
from odradek_proto.values import replace

from tests.broker.replica_world import CALLER, ME, ONE, ORDERS, World, run
from tests.playing import plays

RECORDS: list[RecordToWrite] = [
    (
        1_000 + each,
        b"key %d" % each if each % 2 else None,
        b"a value of some bytes" * 5,
        (("name", b"x"), ("none", None)),
    )
    for each in range(20)
]
BIG: list[RecordToWrite] = [(5, None, b"many bytes" * 5_000, ())] * 10


async def ready(world: World, codec: Codec, level: int | None = None, **settings: Any) -> None:
    await world.learn(ME, 0, isr=(ME,), replicas=(ME,))
    world.replica.log.use(LogSettings(compression=Compression(codec, level), **settings))


async def written(world: World, *batches: bytes) -> list[ProduceAnswer]:
    answers: list[ProduceAnswer] = []
    requests = world.produce_requests()
    for batch in batches:
        requests.append(CALLER, ORDERS, b"", memoryview(batch), 1, 0, answers.append)
    await world.clock.sleep(1_000)
    return answers


def stored(world: World) -> bytes:
    log = world.replica.log
    return b"".join(log.read(0, 1 << 24, world.log_end()))


def decoded(data: bytes) -> list[tuple[BatchHeader, list[Record]]]:
    """Each batch has a right CRC."""
    return [(check_batch(data, at), decode_records(data, header, at)) for at, header in iter_batches(data)]


@pytest.mark.parametrize("sent", Codec)
@pytest.mark.parametrize("wanted", Codec)
@plays(run)
async def test_all_but_the_codec_stays(world: World, sent: Codec, wanted: Codec) -> None:
    """Records, times, producer and sequences; offsets go on behind the batch before."""
    batch = encode_batch(RECORDS, codec=sent, producer_id=7, producer_epoch=3, base_sequence=0)
    again = encode_batch(RECORDS, codec=sent, producer_id=7, producer_epoch=3, base_sequence=len(RECORDS))
    await ready(world, wanted)
    answers = await written(world, batch, again)
    assert [(each.error, each.base_offset) for each in answers] == [(0, 0), (0, len(RECORDS))]
    before = [check_batch(each) for each in (batch, again)]
    for (header, records), source, first in zip(decoded(stored(world)), before, (0, len(RECORDS)), strict=True):
        assert header.codec is wanted
        same = replace_all(header, source, "attributes", "length", "crc", "base_offset", "leader_epoch")
        assert same == source
        found = [(each.timestamp, each.key, each.value, each.headers) for each in records]
        assert found == RECORDS
        assert [each.offset for each in records] == list(range(first, first + len(RECORDS)))
    if sent is wanted:
        assert stored(world)[PREFIX_SIZE : len(batch)] == batch[PREFIX_SIZE:]


def replace_all(header: BatchHeader, source: BatchHeader, *names: str) -> BatchHeader:
    """The header with these fields of another one."""
    return header._replace(**{name: getattr(source, name) for name in names})


@plays(run)
async def test_batches_that_wait_for_a_thread_keep_their_order(world: World) -> None:
    """Large and small ones of one producer; a repetition is answered with the offsets that it has (R-16)."""
    await ready(world, Codec.GZIP)

    def made(records: list[RecordToWrite], sequence: int) -> bytes:
        return encode_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence)

    large, small = made(BIG, 0), made(RECORDS[:1], 10)
    answers = await written(world, large, small, large, made(RECORDS, 12), made(RECORDS, 11))
    assert [each.error for each in answers] == [0, 0, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0]
    assert [each.base_offset for each in answers] == [0, 10, 0, -1, 11]
    assert [header.base_sequence for header, _ in decoded(stored(world))] == [0, 10, 11]


@plays(run)
async def test_both_sizes_of_a_batch_count(world: World) -> None:
    """`max.message.bytes` holds for what is sent and for what is written: neither may be larger."""
    await ready(world, Codec.NONE)
    leader = world.replica.leader
    assert leader is not None
    leader.settings = replace(leader.settings, max_message_bytes=2_000)
    log = world.replica.log
    packed = encode_batch(BIG, codec=Codec.GZIP)
    assert len(packed) < 2_000
    assert [each.error for each in await written(world, packed)] == [ErrorCode.MESSAGE_TOO_LARGE]
    log.use(replace(log.settings, compression=Compression(Codec.GZIP, None), max_message_bytes=2_000))
    plain = encode_batch(BIG)
    assert [each.error for each in await written(world, plain)] == [ErrorCode.MESSAGE_TOO_LARGE]
    assert world.log_end() == 0


@plays(run)
async def test_what_is_unsound_is_refused_as_without_it(world: World) -> None:
    """A wrong CRC is not made right, control batches stay what they are, and what cannot be read is INVALID_RECORD."""
    await ready(world, Codec.GZIP)
    flipped = bytearray(encode_batch(RECORDS))
    flipped[-1] ^= 1
    unreadable = bytearray(encode_batch(RECORDS, codec=Codec.GZIP))
    unreadable[22] = Codec.ZSTD
    unreadable[17:21] = crc32c(bytes(unreadable[CRC_START:])).to_bytes(4, "big")
    control = encode_batch(RECORDS, control=True)
    answers = await written(world, bytes(flipped), bytes(unreadable), control, encode_batch(RECORDS)[:HEADER_SIZE])
    wanted = [ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE]
    assert [each.error for each in answers] == wanted
    assert world.log_end() == 0


@plays(run)
async def test_the_time_of_the_append_is_stamped_afterwards(world: World) -> None:
    """LogAppendTime and another codec in one batch, and a CRC that covers both."""
    await ready(world, Codec.ZSTD)
    leader = world.replica.leader
    assert leader is not None
    leader.settings = replace(leader.settings, log_append_time=True)
    (answer,) = await written(world, encode_batch(RECORDS, codec=Codec.LZ4))
    ((header, records),) = decoded(stored(world))
    assert header.attributes == LOG_APPEND_TIME | Codec.ZSTD
    assert {each.timestamp for each in records} == {answer.log_append_time_ms}
    assert [each.value for each in records] == [value for _, _, value, _ in RECORDS]


@plays(run)
async def test_a_leader_that_is_replaced_meanwhile_writes_nothing(world: World) -> None:
    """What waited for a thread is answered by whoever leads no more."""
    await ready(world, Codec.GZIP)
    answers: list[ProduceAnswer] = []
    requests = world.produce_requests()
    for records in (BIG, RECORDS):
        requests.append(CALLER, ORDERS, b"", memoryview(encode_batch(records)), 1, 0, answers.append)
    await world.learn(ONE, 1)
    await world.clock.sleep(1_000)
    assert [each.error for each in answers] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert world.log_end() == 0


@plays(run)
async def test_no_more_wait_than_there_is_room_for(world: World) -> None:
    """Beyond that a batch is refused, to be sent again; with acks=0 nobody else would stop who sends them."""
    await ready(world, Codec.GZIP)
    batch = encode_batch([(0, None, bytes(1_000_000), ())])
    fit = LONGEST_LINE_BYTES // len(batch)
    answers = await written(world, *[batch] * (fit + 2))
    assert [each.error for each in answers[:2]] == [ErrorCode.REQUEST_TIMED_OUT] * 2  # the others had to wait
    assert [each.error for each in answers[2:]] == [0] * fit
    assert [each.error for each in await written(world, batch)] == [0]


@plays(run)
async def test_a_codec_that_is_not_there_is_refused_when_it_is_set(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when records come; a broker without it says UNSUPPORTED_COMPRESSION_TYPE for each batch."""
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ValueError, match=r"zstd needs zstandard: pip install 'odradek\[compression\]'"):
        validate_topic_config("compression.type", "zstd")
    await ready(world, Codec.ZSTD)
    answers = await written(world, encode_batch(RECORDS))
    assert [each.error for each in answers] == [ErrorCode.UNSUPPORTED_COMPRESSION_TYPE]


@pytest.mark.parametrize(
    ("configs", "wanted"),
    [
        ({}, None),
        ({"compression.type": "producer", "compression.gzip.level": "1"}, None),
        ({"compression.type": "uncompressed"}, Compression(Codec.NONE, None)),
        ({"compression.type": "gzip"}, Compression(Codec.GZIP, None)),
        ({"compression.type": "gzip", "compression.gzip.level": "9"}, Compression(Codec.GZIP, 9)),
        ({"compression.type": "zstd", "compression.zstd.level": "-5"}, Compression(Codec.ZSTD, -5)),
        ({"compression.type": "lz4", "compression.lz4.level": "9"}, Compression(Codec.LZ4, None)),
        ({"compression.type": "snappy"}, Compression(Codec.SNAPPY, None)),
    ],
)
def test_settings_of_a_topic_say_how(configs: dict[str, str], wanted: Compression | None) -> None:
    """Codec and level; the topic's before the cluster's before the broker's file."""
    image = MetadataImage()
    image.topic_configs["orders"] = configs
    assert log_settings(BrokerSettings(), image, "orders").compression == wanted


def test_a_default_of_brokers_holds_for_topics_without_one() -> None:
    """`compression.type` of the broker's file, and of the cluster before it."""
    settings, image = BrokerSettings(compression_type="lz4", compression_lz4_level=3), MetadataImage()
    assert log_settings(settings, image, "orders").compression == Compression(Codec.LZ4, 3)
    image.broker_configs[""] = {"compression.type": "uncompressed"}
    assert log_settings(settings, image, "orders").compression == Compression(Codec.NONE, None)
