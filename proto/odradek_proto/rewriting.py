"""Batches of which some records go: what a cleaner makes of them (K-87, K-88).

Rules of this module. Records that stay keep their bytes, offsets and timestamps, and the batch its place: base offset,
last offset delta, leader epoch, producer and sequences. Only the count, the body and what covers them is new. A batch
without records is a header alone. With a delete horizon the base timestamp *is* the horizon (attribute bit 6,
KIP-534), and the records' deltas count from there.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from odradek_proto.checksum import crc32c
from odradek_proto.compression import Codec, compress
from odradek_proto.decoding import DEFAULT_LIMIT, NULL, read_body
from odradek_proto.headers import (
    CODEC_MASK,
    CRC_START,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    BatchHeader,
    Buffer,
    CorruptBatch,
)
from odradek_proto.varint import decode_unsigned_varint, decode_varint, encode_varint

_WRAP: Final = 1 << 64


class RecordPlace(NamedTuple):
    """A record in the bytes of a body: what a cleaner has to know of it, and where it stands."""

    offset_delta: int
    key: bytes | None
    is_tombstone: bool  # the value is null
    time_delta: int
    start: int  # of the length
    rest: int  # behind the timestamp delta
    end: int


class OpenBatch(NamedTuple):
    """A batch with its records found and not copied."""

    header: BatchHeader
    body: bytes
    records: list[RecordPlace]


def open_batch(buf: Buffer, header: BatchHeader, position: int = 0, *, max_bytes: int = DEFAULT_LIMIT) -> OpenBatch:
    """Find the records of a batch. Raises `CorruptBatch` and `CodecUnavailable` as `decode_records` does.

    Headers are not looked into.
    """
    body = read_body(buf, header, position, max_bytes=max_bytes)
    try:
        return OpenBatch(header, body, _find(body, header))
    except IndexError:
        raise CorruptBatch(f"the bytes end before {header.record_count} records", position) from None
    except ValueError as fault:
        raise CorruptBatch(str(fault), position) from None


def _find(body: bytes, header: BatchHeader) -> list[RecordPlace]:
    records: list[RecordPlace] = []
    append, new = records.append, tuple.__new__
    position, last_delta = 0, -1
    for _ in range(header.record_count):
        start = position
        size = body[position]
        position += 1
        if size > 0x7F:
            size, position = decode_unsigned_varint(body, start)
        end = position + (size >> 1)
        position += 1  # attributes
        time = body[position]
        position += 1
        if time > 0x7F:
            time, position = decode_unsigned_varint(body, position - 1, 10)
        rest = position
        delta = body[position]
        position += 1
        if delta > 0x7F:
            delta, position = decode_unsigned_varint(body, rest)
        if delta & 1 or delta >> 1 <= last_delta:
            raise ValueError(f"offset delta {(delta >> 1) ^ -(delta & 1)} after {last_delta}")
        last_delta = delta >> 1
        length = body[position]
        key = None
        if length == NULL:
            position += 1
        else:
            if length < 0x80:
                length, position = length >> 1 if not length & 1 else -1, position + 1
            else:
                length, position = decode_varint(body, position)
            if length < 0:
                raise ValueError(f"a key of {length} bytes")
            key = body[position : position + length]
            position += length
        if size & 1 or not position < end <= len(body):
            raise ValueError(f"the record with offset delta {last_delta} ends at byte {end}")
        append(new(RecordPlace, (last_delta, key, body[position] == NULL, (time >> 1) ^ -(time & 1), start, rest, end)))
        position = end
    if position != len(body):
        raise ValueError(f"{len(body) - position} bytes behind the last of {header.record_count} records")
    if last_delta > header.last_offset_delta:
        raise ValueError(f"offset delta {last_delta} above the last one, {header.last_offset_delta}")
    return records


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
