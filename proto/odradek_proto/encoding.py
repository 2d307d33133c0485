"""From records to the bytes of a batch.

    record: length varint | attributes int8 | timestamp delta varlong | offset delta varint
            key length varint | key | value length varint | value | header count varint | headers
    header: key length varint | key (UTF-8) | value length varint | value         a length of -1 means null

Rules of this module. It is on the producer's hot path and pure Python: the varints come from a table, the pieces of
all records go into one list, and one join makes the body. The base timestamp is that of the first record, as in
Kafka's Java client, and offset deltas count from 0 without a gap.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from odradek_proto.checksum import crc32c
from odradek_proto.compression import Codec, compress
from odradek_proto.decoding import DEFAULT_LIMIT, OpenBatch, RecordPlace, read_body
from odradek_proto.headers import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LARGEST_BATCH,
    LENGTH_END,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
)
from odradek_proto.varint import TABLE_SIZE, VARINTS, encode_varint

RecordHeaders: TypeAlias = Sequence[tuple[str, bytes | None]]
RecordToWrite: TypeAlias = tuple[int, bytes | None, bytes | None, RecordHeaders]
"""What `encode_batch` takes: timestamp in milliseconds (-1: none), key, value, headers."""

_BEFORE_CRC: Final = struct.Struct(">qiibI")
_BEHIND_CRC: Final = struct.Struct(">hiqqqhii")
assert _BEFORE_CRC.size == CRC_START
assert _BEFORE_CRC.size + _BEHIND_CRC.size == HEADER_SIZE

NO_TIMESTAMP: Final = -1
_WRAP: Final = 1 << 64
_NULL: Final = b"\x01"  # -1 as a varint
_NO_HEADERS: Final = b"\x00"
_RECORD_OVERHEAD: Final = (
    5 + 1 + 10 + 5 + 5 + 5 + 5
)  # length, attributes, deltas, key length, value length, header count


def estimated_record_size(key: bytes | None, value: bytes | None, headers: RecordHeaders = ()) -> int:
    """An upper bound of what a record takes in an uncompressed batch, in bytes, the batch's own header not counted."""
    size = _RECORD_OVERHEAD
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        size += 10 + 4 * len(name)  # two lengths; a character takes four bytes of UTF-8 at most
        if content is not None:
            size += len(content)
    return size


def encode_batch(
    records: Sequence[RecordToWrite],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """One batch of magic 2 with all the records, in their order.

    Raises `ValueError` for no records, a timestamp below -1, or a batch above 1 GiB; `CodecUnavailable` when the
    codec's library is missing.
    """
    if not records:
        raise ValueError("a record batch needs at least one record")
    base_timestamp = records[0][0]
    pieces, max_timestamp = _record_pieces(records, base_timestamp)
    body = b"".join(pieces)
    if codec is not Codec.NONE:
        body = compress(codec, body, level)
    size = HEADER_SIZE + len(body)
    if size > LARGEST_BATCH:
        raise ValueError(f"a record batch of {size} bytes is larger than {LARGEST_BATCH}")
    behind_crc = _BEHIND_CRC.pack(
        codec | (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0),
        len(records) - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    crc = crc32c(body, crc32c(behind_crc))
    return b"".join((_BEFORE_CRC.pack(base_offset, size - LENGTH_END, leader_epoch, MAGIC, crc), behind_crc, body))


def _record_pieces(records: Iterable[RecordToWrite], base_timestamp: int) -> tuple[list[bytes], int]:
    """The pieces of all records, to be joined, and the largest timestamp.

    What is repeated here would be calls, and calls cost.
    """
    pieces: list[bytes] = []
    extend = pieces.extend
    table, table_size = VARINTS, TABLE_SIZE
    last_timestamp = max_timestamp = base_timestamp
    if base_timestamp < NO_TIMESTAMP:
        raise ValueError(f"timestamp {base_timestamp} is negative")
    attributes_and_time = b"\x00\x00"
    for index, (timestamp, key, value, headers) in enumerate(records):
        if timestamp != last_timestamp:
            if timestamp < NO_TIMESTAMP:
                raise ValueError(f"timestamp {timestamp} is negative")
            last_timestamp = timestamp
            max_timestamp = max(max_timestamp, timestamp)
            attributes_and_time = b"\x00" + encode_varint(timestamp - base_timestamp)
        offset_delta = table[index] if index < table_size else encode_varint(index)
        if key is None:
            key, key_length = b"", _NULL
        else:
            size = len(key)
            key_length = table[size] if size < table_size else encode_varint(size)
        if value is None:
            value, value_length = b"", _NULL
        else:
            size = len(value)
            value_length = table[size] if size < table_size else encode_varint(size)
        tail = _encode_headers(headers) if headers else _NO_HEADERS
        size = (
            len(attributes_and_time)
            + len(offset_delta)
            + len(key_length)
            + len(key)
            + len(value_length)
            + len(value)
            + len(tail)
        )
        length = table[size] if size < table_size else encode_varint(size)
        extend((length, attributes_and_time, offset_delta, key_length, key, value_length, value, tail))
    return pieces, max_timestamp


def _encode_headers(headers: RecordHeaders) -> bytes:
    pieces = [encode_varint(len(headers))]
    for name, content in headers:
        key = name.encode()
        pieces += (encode_varint(len(key)), key)
        pieces += (_NULL,) if content is None else (encode_varint(len(content)), content)
    return b"".join(pieces)


# --- Batches of which some records go (K-87, K-88) ---
#
# Records that stay keep their bytes, offsets and timestamps, and the batch its place: base offset, last offset delta,
# leader epoch, producer and sequences. With a delete horizon the base timestamp *is* the horizon (attribute bit 6,
# KIP-534), and the records' deltas count from there.


def with_records(batch: OpenBatch, kept: Sequence[RecordPlace], delete_horizon_ms: int | None = None) -> bytes:
    """The batch with some of its records, compressed as it was. `delete_horizon_ms` is stamped unless None.

    Raises `CodecUnavailable`.
    """
    header, body = batch.header, batch.body
    if not kept:
        return without_records(header)
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if delete_horizon_ms is None:
        records = b"".join([body[each.start : each.end] for each in kept])
    else:
        shift = base_timestamp - delete_horizon_ms
        attributes, base_timestamp = attributes | DELETE_HORIZON, delete_horizon_ms
        records = b"".join([_shifted(body, each, shift) for each in kept])
    if header.timestamp_type_log_append:
        max_timestamp = header.max_timestamp
    else:
        max_timestamp = max(_wrapped(header.base_timestamp + each.time_delta) for each in kept)
    if header.codec is not Codec.NONE:
        records = compress(header.codec, records)
    return _sealed(
        header._replace(
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            record_count=len(kept),
            length=HEADER_SIZE - LENGTH_END + len(records),
        ),
        records,
    )


def without_records(header: BatchHeader) -> bytes:
    """The batch without any record, for what its header says of a producer or of the end of a segment."""
    return _sealed(
        header._replace(
            attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON),
            base_timestamp=header.max_timestamp,
            record_count=0,
            length=HEADER_SIZE - LENGTH_END,
        ),
        b"",
    )


def compressed_anew(
    batch: Buffer, header: BatchHeader, codec: Codec, level: int | None = None, *, max_bytes: int = DEFAULT_LIMIT
) -> bytes:
    """The batch with its records in another codec: they and all else that the header says stay as they are.

    Raises `CorruptBatch` for what cannot be read, or comes to more than `max_bytes`, and `CodecUnavailable`.
    """
    records = compress(codec, read_body(batch, header, 0, max_bytes=max_bytes), level)
    attributes, length = header.attributes & ~CODEC_MASK | codec, HEADER_SIZE - LENGTH_END + len(records)
    return _sealed(header._replace(attributes=attributes, length=length), records)


def _sealed(header: BatchHeader, records: bytes) -> bytes:
    covered = HEADER.pack(*header)[CRC_START:]
    return HEADER.pack(*header._replace(crc=crc32c(records, crc32c(covered)))) + records


def _shifted(body: bytes, record: RecordPlace, shift: int) -> bytes:
    """The record with another timestamp delta, and so another length."""
    delta = encode_varint(_wrapped(record.time_delta + shift))
    content = body[record.rest : record.end]
    return b"%b\x00%b%b" % (encode_varint(1 + len(delta) + len(content)), delta, content)


def _wrapped(number: int) -> int:
    """As 64 bits hold it: a client may have written any delta."""
    return (number + _WRAP // 2) % _WRAP - _WRAP // 2
