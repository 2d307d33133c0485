"""Record batches there and back, in our own hands and in those of aiokafka, an independent implementation."""

import re

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st
from odradek_proto.records import (
    HEADER_SIZE,
    PREFIX_SIZE,
    BatchHeader,
    Codec,
    ControlType,
    CorruptBatch,
    Record,
    RecordToWrite,
    check_batch,
    control_type,
    coordinator_epoch,
    decode_records,
    encode_batch,
    encode_control_batch,
    end_transaction_value,
    estimated_record_size,
    iter_batches,
    leader_change_value,
    read_header,
    stamped_prefix,
    verify_crc,
)

TIMESTAMPS = st.one_of(st.integers(-1, 2**62), st.integers(1_700_000_000_000, 1_700_000_100_000))
CONTENT = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=10), CONTENT), max_size=3).map(tuple)
RECORDS = st.lists(st.tuples(TIMESTAMPS, CONTENT, CONTENT, HEADERS), min_size=1, max_size=20)

# aiokafka's writer takes a first timestamp of -1 for "not set yet" and then loses it.
DATED = RECORDS.filter(lambda records: records[0][0] != -1)

SOME: list[RecordToWrite] = [
    (
        1_700_000_000_000 + index // 3,
        b"key-%d" % index,
        b"value" * (index % 40),
        (("trace", b"\x00\x01"), ("none", None)),
    )
    for index in range(200)
]


def as_written(records: list[Record]) -> list[RecordToWrite]:
    return [(record.timestamp, record.key, record.value, record.headers) for record in records]


@given(RECORDS, st.sampled_from(Codec), st.integers(0, 2**62))
def test_records_come_back_as_they_were_written(records: list[RecordToWrite], codec: Codec, base_offset: int) -> None:
    """Whatever is encoded is decoded to the same, with offsets that count on from the base offset."""
    batch = encode_batch(records, base_offset=base_offset, codec=codec)
    header = check_batch(batch)
    decoded = decode_records(batch, header)
    assert as_written(decoded) == records
    assert [record.offset for record in decoded] == list(range(base_offset, header.next_offset))
    assert header.base_timestamp == records[0][0]
    assert header.max_timestamp == max(timestamp for timestamp, *_ in records)


@given(RECORDS, st.sampled_from(Codec))
def test_aiokafka_reads_what_we_write(records: list[RecordToWrite], codec: Codec) -> None:
    """An independent reader finds the CRC right and the records unchanged."""
    batch = DefaultRecordBatch(encode_batch(records, base_offset=7, codec=codec))
    assert batch.validate_crc()
    read = [(record.timestamp, record.key, record.value, tuple(record.headers)) for record in batch]
    assert read == records


def written_by_aiokafka(records: list[RecordToWrite], codec: Codec) -> bytes:
    builder = DefaultRecordBatchBuilder(2, codec, True, 4711, 3, 99, 1 << 24)
    for index, (timestamp, key, value, headers) in enumerate(records):
        builder.append(index, timestamp, key, value, list(headers))
    return bytes(builder.build())


@given(DATED, st.sampled_from(Codec))
def test_we_read_what_aiokafka_writes(records: list[RecordToWrite], codec: Codec) -> None:
    """An independent writer's batch passes our checks and decodes to the same records."""
    batch = written_by_aiokafka(records, codec)
    header = check_batch(batch)
    assert as_written(decode_records(batch, header)) == records
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4711, 3, 99)
    assert header.is_transactional


@given(DATED)
def test_uncompressed_batches_equal_those_of_aiokafka_byte_for_byte(records: list[RecordToWrite]) -> None:
    """Without compression the format leaves no freedom, but for the leader epoch, which brokers stamp."""
    ours = encode_batch(
        records, producer_id=4711, producer_epoch=3, base_sequence=99, transactional=True, leader_epoch=0
    )
    theirs = bytearray(written_by_aiokafka(records, Codec.NONE))
    theirs[12:16] = ours[12:16]
    assert ours == bytes(theirs)


@pytest.mark.parametrize("codec", Codec)
def test_every_codec_makes_equal_records_of_a_real_batch(codec: Codec) -> None:
    """Two hundred records with headers survive each codec, and each but the first makes them smaller."""
    batch = encode_batch(SOME, codec=codec)
    assert as_written(decode_records(batch, check_batch(batch))) == SOME
    assert check_batch(batch).codec is codec
    assert codec is Codec.NONE or len(batch) < len(encode_batch(SOME)) / 2


@given(st.tuples(TIMESTAMPS, CONTENT, CONTENT, HEADERS))
def test_estimated_size_is_an_upper_bound(record: RecordToWrite) -> None:
    """A batch with the record is never larger than header and estimate."""
    assert len(encode_batch([record])) <= HEADER_SIZE + estimated_record_size(*record[1:])


def test_the_header_says_what_was_asked_for() -> None:
    """Every field of the header comes back, and the derived ones follow from them."""
    batch = encode_batch(
        SOME,
        base_offset=41,
        leader_epoch=5,
        codec=Codec.GZIP,
        producer_id=9,
        producer_epoch=2,
        base_sequence=2**31 - 100,
        transactional=True,
    )
    header = check_batch(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (41, 240, 241)
    assert (header.leader_epoch, header.magic, header.size) == (5, 2, len(batch))
    assert (header.record_count, header.last_offset_delta) == (200, 199)
    assert (header.is_transactional, header.is_control, header.timestamp_type_log_append) == (True, False, False)
    assert header.last_sequence == 99


@pytest.mark.parametrize(
    ("base", "delta", "last"), [(-1, 5, -1), (0, 0, 0), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 9, 6)]
)
def test_sequence_numbers_wrap_inside_a_batch(base: int, delta: int, last: int) -> None:
    """After 2^31 - 1 comes 0, and a batch without sequence numbers has no last one."""
    header = BatchHeader(0, 49, 0, 2, 0, 0, delta, 0, 0, 1, 0, base, delta + 1)
    assert header.last_sequence == last


def test_stamping_leaves_the_crc_right() -> None:
    """Base offset and leader epoch change in the first 16 bytes, and the batch is still sound."""
    batch = encode_batch(SOME, codec=Codec.ZSTD)
    stamped = stamped_prefix(1_000_000, read_header(batch).length, 12) + batch[PREFIX_SIZE:]
    header = check_batch(stamped)
    assert (header.base_offset, header.leader_epoch) == (1_000_000, 12)
    assert decode_records(stamped, header)[-1].offset == 1_000_199


def test_batches_are_walked_and_a_part_at_the_end_is_left() -> None:
    """Positions and headers of whole batches; what is cut off behind them is silence, not an error."""
    first, second = encode_batch(SOME[:3]), encode_batch(SOME[3:], base_offset=3)
    whole = b"junk" + first + second
    expected = [(4, check_batch(first)), (4 + len(first), check_batch(second))]
    assert list(iter_batches(whole, 4)) == expected
    for kept in range(len(second)):
        assert list(iter_batches(whole[: 4 + len(first) + kept], 4)) == expected[:1]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_read_at_any_position(kind: type) -> None:
    """Views and byte arrays serve as well as bytes, and keys and values come out as bytes."""
    batch = encode_batch(SOME[:5], codec=Codec.SNAPPY)
    buffer = kind(b"xyz" + batch + b"rest")
    header = check_batch(buffer, 3)
    assert verify_crc(buffer, header, 3)
    records = decode_records(buffer, header, 3)
    assert as_written(records) == SOME[:5]
    assert all(type(record.key) is bytes and type(record.value) is bytes for record in records)


def test_log_append_time_replaces_the_timestamps() -> None:
    """With the attribute's bit set every record has the batch's max timestamp, as Kafka's clients see it."""
    batch = bytearray(encode_batch(SOME[:9]))
    batch[22] |= 0x08
    records = decode_records(batch, read_header(batch))
    assert {record.timestamp for record in records} == {SOME[8][0]}


@pytest.mark.parametrize("timestamp", [-2, -(2**60)])
@pytest.mark.parametrize("place", [0, 1])
def test_negative_timestamps_are_refused(timestamp: int, place: int) -> None:
    """Only -1, which means none, may be below zero."""
    records: list[RecordToWrite] = [(5, None, None, ()), (5, None, None, ())]
    records[place] = (timestamp, None, None, ())
    with pytest.raises(ValueError, match=re.escape(f"timestamp {timestamp}")):
        encode_batch(records)


def test_an_empty_batch_is_refused() -> None:
    """A producer's batch has at least one record."""
    with pytest.raises(ValueError, match="at least one record"):
        encode_batch([])


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_transaction_markers(kind: ControlType) -> None:
    """A marker is one control record of a transactional batch, and says who ended the transaction."""
    batch = encode_control_batch(
        kind, end_transaction_value(7), timestamp=5, base_offset=90, producer_id=3, producer_epoch=1
    )
    header = check_batch(batch)
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    (record,) = decode_records(batch, header)
    assert (control_type(record), coordinator_epoch(record), record.offset) == (kind, 7, 90)
    assert DefaultRecordBatch(batch).is_control_batch


def test_leader_change_record() -> None:
    """The quorum's entry at the start of an epoch has Kafka's bytes: compact arrays of voters with tagged fields."""
    value = leader_change_value(2, [1, 2, 3], [2, 3])
    assert value.hex(" ") == (
        "00 00 00 00 00 02 04 00 00 00 01 00 00 00 00 02 00 00 00 00 03 00 03 00 00 00 02 00 00 00 00 03 00 00"
    )
    batch = encode_control_batch(ControlType.LEADER_CHANGE, value, timestamp=5, leader_epoch=4)
    header = check_batch(batch)
    assert (header.is_control, header.is_transactional) == (True, False)
    assert control_type(decode_records(batch, header)[0]) is not ControlType.COMMIT
    assert control_type(decode_records(batch, header)[0]) == ControlType.LEADER_CHANGE


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x01"])
def test_a_control_record_without_a_type_is_corrupt(key: bytes | None) -> None:
    """A missing, short or negative version in the key gives CorruptBatch."""
    with pytest.raises(CorruptBatch):
        control_type(Record(0, 0, key, None, ()))


def test_a_marker_without_an_epoch_is_corrupt() -> None:
    """A marker whose value is too short gives CorruptBatch."""
    with pytest.raises(CorruptBatch):
        coordinator_epoch(Record(0, 0, b"\x00\x00\x00\x01", b"\x00\x00", ()))
