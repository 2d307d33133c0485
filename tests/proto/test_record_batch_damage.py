"""Damaged and lying record batches: every fault is a CorruptBatch, and none costs memory."""

import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from odradek_proto.compression import DecompressionLimit, compress
from odradek_proto.records import (
    HEADER_SIZE,
    Codec,
    CorruptBatch,
    RecordToWrite,
    check_batch,
    decode_records,
    encode_batch,
    iter_batches,
    read_header,
    verify_crc,
)
from odradek_proto.varint import encode_varint

RECORDS: list[RecordToWrite] = [
    (1000, b"key", b"v" * 70, (("h", b"x"), ("none", None))),
    (1900, None, b"", ()),
    (1001, b"k", None, ()),
]
BASE_OFFSET = range(8)
LENGTH = range(8, 12)
LEADER_EPOCH = range(12, 16)


def sealed(
    body: bytes,
    *,
    count: int = 1,
    last_delta: int | None = None,
    codec: int = Codec.NONE,
    base_timestamp: int = 1000,
) -> bytes:
    """A batch around any bytes, with a right length and a right CRC, so that only the body can be at fault."""
    delta = count - 1 if last_delta is None else last_delta
    covered = struct.pack(">hiqqqhii", codec, delta, base_timestamp, 1000, -1, -1, -1, count) + body
    return struct.pack(">qiibI", 0, 9 + len(covered), 0, 2, crc32c(covered)) + covered


def record(fields: bytes, length: int | None = None) -> bytes:
    """A record from the bytes behind its length, which may lie."""
    return encode_varint(len(fields) if length is None else length) + fields


@contextmanager
def memory_below(limit: int) -> Iterator[None]:
    """Assert that the block never holds more than `limit` bytes above what was there before."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_cut_anywhere_is_refused(codec: Codec) -> None:
    """No prefix of a batch passes for a batch."""
    batch = encode_batch(RECORDS, codec=codec)
    header = check_batch(batch)
    for kept in range(len(batch)):
        with pytest.raises(CorruptBatch):
            check_batch(batch[:kept])
        with pytest.raises(CorruptBatch):
            decode_records(batch[:kept], header)
        assert not verify_crc(batch[:kept], header)


@pytest.mark.parametrize("codec", Codec)
def test_a_bit_flipped_anywhere_is_found_or_harmless(codec: Codec) -> None:
    """Each flip is found, but for base offset and leader epoch, which brokers stamp: there only that value changes."""
    batch = encode_batch(RECORDS, codec=codec, base_offset=5)
    sound = check_batch(batch)
    for bit in range(8 * len(batch)):
        flipped = bytearray(batch)
        flipped[bit // 8] ^= 1 << bit % 8
        if bit // 8 in LEADER_EPOCH or (bit // 8 in BASE_OFFSET and flipped[0] < 0x80):
            header = check_batch(flipped)
            assert header[3:] == sound[3:]
            assert header != sound
        else:
            with pytest.raises(CorruptBatch):
                check_batch(flipped)


@pytest.mark.parametrize("codec", Codec)
def test_flipped_bits_never_surprise_a_reader_that_skips_the_crc(codec: Codec) -> None:
    """Header and records either come out or are CorruptBatch; no flip gives another exception."""
    batch = encode_batch(RECORDS, codec=codec)
    refused = 0
    for bit in range(8 * len(batch)):
        flipped = bytearray(batch)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            decode_records(flipped, read_header(flipped), max_bytes=1 << 20)
        except CorruptBatch:
            refused += 1
    assert refused > 100


@given(st.binary(max_size=200), st.sampled_from(Codec), st.integers(0, 2**31 - 1))
def test_arbitrary_bytes_as_records_never_surprise(body: bytes, codec: Codec, count: int) -> None:
    """Any body under a right CRC gives records or CorruptBatch, compressed or not."""
    for content in (body, compress(codec, body)):
        batch = sealed(content, count=count, last_delta=2**31 - 1, codec=codec)
        with suppress(CorruptBatch):
            assert len(decode_records(batch, read_header(batch))) == count


@given(st.binary(max_size=150), st.integers(-5, 160))
def test_arbitrary_bytes_as_headers_never_surprise(data: bytes, position: int) -> None:
    """Walking over anything gives headers or CorruptBatch."""
    with suppress(CorruptBatch):
        for at, header in iter_batches(data, max(0, position)):
            assert at + header.size <= len(data)


@pytest.mark.parametrize("count", [2, 1000, 2**31 - 1])
@pytest.mark.parametrize("codec", Codec)
def test_a_record_count_that_lies_costs_no_memory(count: int, codec: Codec) -> None:
    """A claim of two thousand million records is refused after the one that is there."""
    body = compress(codec, record(b"\x00\x00\x00\x01\x01\x00"))
    batch = sealed(body, count=count, codec=codec)
    with memory_below(1 << 20), pytest.raises(CorruptBatch, match="end before"):
        decode_records(batch, check_batch(batch))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (record(b"\x00\x00\x00" + encode_varint(2**31 - 1) + b"\x01\x00"), "end before"),  # key length
        (record(b"\x00\x00\x00\x01" + encode_varint(2**31 - 1) + b"\x00"), "end before"),  # value length
        (record(b"\x00\x00\x00\x03\x01\x00"), "length -2"),
        (record(b"\x00\x00\x00\x01\x01" + encode_varint(2**31 - 1)), "2147483647 headers"),
        (record(b"\x00\x00\x00\x01\x01" + encode_varint(-1)), "-1 headers"),
        (record(b"\x00\x00\x00\x01\x01\x02\x01\x01"), "header without a key"),
        (record(b"\x00\x00\x00\x01\x01\x00", 7), "ends at byte"),  # record length too large
        (record(b"\x00\x00\x00\x01\x01\x00", 5), "ends at byte"),  # and too small
        (record(b"\x00\x00\x00\x01\x01\x00", -6), "ends at byte"),
        (record(b"\x00\x00\x00\x01\x01\x00") + b"\x00", "bytes behind the last"),
        (record(b"\x00\x00\x02\x01\x01\x00"), "offset delta 1 above"),
        (record(b"\x00\x00\x01\x01\x01\x00"), "offset delta -1"),
        (record(b"\x00\x00\xff\xff\xff\xff\xff\x00\x01\x01\x00"), "more than 5 bytes"),
        (record(b"\x00\x00\xff\xff\xff\xff\x7f\x01\x01\x00"), "too large for its type"),
        (record(b"\x00" + b"\xff" * 10 + b"\x00\x00\x01\x01\x00"), "more than 10 bytes"),
        (b"", "end before"),
        (b"\x80", "end before"),
    ],
)
def test_malformed_records_are_corrupt(body: bytes, reason: str) -> None:
    """Each lie about a length, a count or a delta has its own sentence, and none allocates what it claims."""
    batch = sealed(body)
    with memory_below(1 << 20), pytest.raises(CorruptBatch, match=reason):
        decode_records(batch, check_batch(batch))


def test_a_header_key_that_is_no_utf8_stops_no_consumer() -> None:
    """Some clients write any bytes there; they come out with U+FFFD, as Kafka's Java client has it."""
    batch = sealed(record(b"\x00\x00\x00\x01\x01\x02\x04a\xff\x01"))
    assert decode_records(batch, check_batch(batch))[0].headers == (("a\ufffd", None),)


@pytest.mark.parametrize(
    ("base", "delta", "timestamp"),
    [
        (1000, 2**63 - 1, -(2**63) + 999),
        (-1000, -(2**63), 2**63 - 1000),
        (2**63 - 1, 1, -(2**63)),
        (-(2**63), -63, 2**63 - 63),
        (2**63 - 1, 0, 2**63 - 1),
        (-(2**63), 2**63 - 1, -1),
    ],
)
def test_a_timestamp_outside_of_64_bits_wraps(base: int, delta: int, timestamp: int) -> None:
    """As in Kafka's Java client: no record stops a consumer, and no answer about one fails for its number."""
    first, second = record(b"\x00\x00\x00\x01\x01\x00"), record(b"\x00" + encode_varint(delta) + b"\x02\x01\x01\x00")
    batch = sealed(first + second, count=2, base_timestamp=base)
    assert [each.timestamp for each in decode_records(batch, check_batch(batch))] == [base, timestamp]


def test_offsets_that_do_not_increase_are_corrupt() -> None:
    """Two records with one offset are refused, although count and CRC are right."""
    body = record(b"\x00\x00\x00\x01\x01\x00") * 2
    with pytest.raises(CorruptBatch, match="offset delta 0 after 0"):
        decode_records(sealed(body, count=2), check_batch(sealed(body, count=2)))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_batch_that_grows_beyond_the_limit_is_refused(codec: Codec) -> None:
    """Thirty-two mebibytes of zeros under a limit of one: refused, with the memory of both and not more."""
    bomb = sealed(compress(codec, bytes(32 << 20)), codec=codec)
    header = check_batch(bomb)
    with memory_below(3 << 20), pytest.raises(CorruptBatch, match="more than 1048576 bytes") as caught:
        decode_records(bomb, header, max_bytes=1 << 20)
    assert isinstance(caught.value.__cause__, DecompressionLimit)


@pytest.mark.parametrize(
    ("at", "layout", "value", "reason"),
    [
        (8, ">i", 48, "batch length 48"),
        (8, ">i", 0, "batch length 0"),
        (8, ">i", -1, "batch length -1"),
        (8, ">i", 2**31 - 1, "batch length 2147483647"),
        (16, ">b", 1, "magic 1"),
        (16, ">b", -2, "magic -2"),
        (23, ">i", -1, "last offset delta -1"),
        (57, ">i", -1, "record count -1"),
    ],
)
def test_impossible_headers_are_corrupt(at: int, layout: str, value: int, reason: str) -> None:
    """Each wrong field is named, with the position of the batch."""
    batch = bytearray(b"12345" + encode_batch(RECORDS))
    struct.pack_into(layout, batch, 5 + at, value)
    with pytest.raises(CorruptBatch, match=f"{reason}(, not 2)?$") as caught:
        read_header(batch, 5)
    assert caught.value.position == 5


def test_a_tail_of_zeros_is_corrupt() -> None:
    """A torn write may leave zeros behind the last batch (R-239); they are no batch."""
    batch = encode_batch(RECORDS)
    walk = iter_batches(batch + bytes(100))
    assert next(walk)[0] == 0
    with pytest.raises(CorruptBatch) as caught:
        next(walk)
    assert caught.value.position == len(batch)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_corrupt(codec: int) -> None:
    """Bits 0 to 2 have three values without a meaning."""
    batch = sealed(record(b"\x00\x00\x00\x01\x01\x00"), codec=codec)
    with pytest.raises(CorruptBatch, match=f"unknown codec {codec}"):
        check_batch(batch)
    with pytest.raises(CorruptBatch, match=f"unknown codec {codec}"):
        decode_records(batch, read_header(batch))


@pytest.mark.parametrize(
    ("count", "last_delta", "compacted"), [(1, 0, False), (1, 1, True), (0, 0, True), (2, 1, False)]
)
def test_the_record_count_must_fit_the_offsets(count: int, last_delta: int, compacted: bool) -> None:
    """As many records as offsets; only a compacted log may have fewer, and nobody more."""
    body = b"".join(record(b"\x00\x00" + encode_varint(index) + b"\x01\x01\x00") for index in range(count))
    batch = sealed(body, count=count, last_delta=last_delta)
    assert len(decode_records(batch, check_batch(batch, compacted=True))) == count
    if compacted:
        with pytest.raises(CorruptBatch, match=f"{count} records for {last_delta + 1} offsets"):
            check_batch(batch)
    else:
        check_batch(batch)
    many = sealed(body, count=last_delta + 2, last_delta=last_delta)
    with pytest.raises(CorruptBatch, match="records for"):
        check_batch(many, compacted=True)


@pytest.mark.parametrize("base_offset", [-1, -(2**63), 2**63 - 1, 2**63 - 3])
def test_offsets_outside_of_64_bits_are_corrupt(base_offset: int) -> None:
    """No offset of a batch, nor the one behind it, may be negative or overflow: no log end offset could follow."""
    batch = encode_batch(RECORDS, base_offset=base_offset)
    with pytest.raises(CorruptBatch, match="base offset"):
        check_batch(batch)
    assert check_batch(encode_batch(RECORDS, base_offset=2**63 - 4)).next_offset == 2**63 - 1


def test_the_smallest_batch_is_as_large_as_its_header() -> None:
    """Compaction may leave a batch without records; it is 61 bytes and sound."""
    empty = sealed(b"", count=0, last_delta=4)
    assert len(empty) == HEADER_SIZE
    assert decode_records(empty, check_batch(empty, compacted=True)) == []
