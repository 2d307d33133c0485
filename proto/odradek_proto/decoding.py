"""From the bytes of a batch to its records.

Rules of this module. Every number in the bytes may lie. None of them makes us allocate: records are counted as they
are found, slices cannot be longer than what there is, and decompression is bounded. Whatever does not fit is
`CorruptBatch`, and nothing else; only a missing library is `CodecUnavailable`. `encoding.py` draws the layout of a
record.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from odradek_proto.compression import Codec, CorruptCompression, decompress
from odradek_proto.headers import HEADER_SIZE, BatchHeader, Buffer, CorruptBatch
from odradek_proto.varint import decode_unsigned_varint, decode_varint

DEFAULT_LIMIT: Final = 64 * 1024 * 1024  # bytes of a decompressed batch: 64 times Kafka's default for max.message.bytes
NULL: Final = 1  # the length -1 in zigzag
_FAR: Final = 1 << 62  # a base timestamp below it, and a delta below its half, stay within 64 bits

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record as a consumer sees it. The timestamp is in milliseconds, -1 when there is none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def decode_records(
    buf: Buffer, header: BatchHeader, position: int = 0, *, max_bytes: int = DEFAULT_LIMIT
) -> list[Record]:
    """All records of the batch at `position`, whose header has been read. The CRC is not checked here.

    Raises `CorruptBatch` when the batch is not whole, a length or a count does not fit, offsets do not increase,
    bytes are left over, or more than `max_bytes` would come out of the decompression. Raises `CodecUnavailable` when
    the codec's library is missing.
    """
    body = read_body(buf, header, position, max_bytes=max_bytes)
    try:
        records = _decode_body(body, header)
    except IndexError:
        raise CorruptBatch(f"the bytes end before {header.record_count} records", position) from None
    except ValueError as fault:
        raise CorruptBatch(str(fault), position) from None
    return records


def read_body(buf: Buffer, header: BatchHeader, position: int, *, max_bytes: int) -> bytes:
    """The bytes of all records, decompressed. Errors as `decode_records`, as far as they concern these."""
    end = position + header.size
    if end > len(buf):
        raise CorruptBatch(f"{len(buf) - position} of {header.size} bytes", position)
    body = bytes(buf[position + HEADER_SIZE : end])
    if header.codec is Codec.NONE:
        return body
    try:
        return decompress(header.codec, body, max_bytes)
    except CorruptCompression as error:
        raise CorruptBatch(str(error), position) from error


def _decode_body(body: bytes, header: BatchHeader) -> list[Record]:
    """Records of the decompressed bytes. Raises `IndexError` where they end too early, else `ValueError` with a reason.

    The lengths of keys and values need no check against the end: a slice is never longer than what there is, and then
    the end of the record is not where its length said.
    """
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    log_append_time = header.max_timestamp if header.timestamp_type_log_append else None
    records: list[Record] = []
    append, new = records.append, tuple.__new__
    position, last_delta = 0, -1
    headers: Headers
    times = 0  # of all records, one over the other: what is large in any of them is large here
    for _ in range(header.record_count):
        # Numbers of one or two bytes are read here, still in zigzag: a call takes longer than the rest of the record.
        size = body[position]
        position += 1
        if size > 0x7F:
            if (high := body[position]) < 0x80:
                size = size & 0x7F | high << 7
                position += 1
            else:
                size, position = decode_unsigned_varint(body, position - 1)
        end = position + (size >> 1)
        position += 1  # attributes, which have no meaning yet
        time = body[position]
        position += 1
        if time > 0x7F:
            time, position = decode_unsigned_varint(body, position - 1, 10)
            times |= time
        delta = body[position]
        position += 1
        if delta > 0x7F:
            delta, position = decode_unsigned_varint(body, position - 1)
        if delta & 1 or delta >> 1 <= last_delta:
            raise ValueError(f"offset delta {(delta >> 1) ^ -(delta & 1)} after {last_delta}")
        last_delta = delta >> 1
        if body[position] == NULL:
            key = None
            position += 1
        else:
            key, position = _decode_bytes(body, position)
        length = body[position]
        if length > 0x7F and (high := body[position + 1]) < 0x80 and not length & 1:
            behind = position + 2 + ((length & 0x7F | high << 7) >> 1)
            value: bytes | None = body[position + 2 : behind]
            position = behind
        else:
            value, position = _decode_bytes(body, position)
        if body[position]:
            headers, position = _decode_headers(body, position)
        else:
            headers = ()
            position += 1
        if position != end or size & 1:
            raise ValueError(f"the record with offset delta {last_delta} ends at byte {position}, not at {end}")
        timestamp = base_timestamp + ((time >> 1) ^ -(time & 1)) if log_append_time is None else log_append_time
        append(new(Record, (base_offset + last_delta, timestamp, key, value, headers)))
    if position != len(body):
        raise ValueError(f"{len(body) - position} bytes behind the last of {header.record_count} records")
    if last_delta > header.last_offset_delta:
        raise ValueError(f"offset delta {last_delta} above the last one, {header.last_offset_delta}")
    if times >> 62 or not -_FAR <= base_timestamp <= _FAR:
        return [each._replace(timestamp=_wrapped(each.timestamp)) for each in records]
    return records


def _wrapped(timestamp: int) -> int:
    """A sum as 64 bits hold it, as in Kafka's Java client: no record stops a consumer."""
    return (timestamp + (1 << 63)) % (1 << 64) - (1 << 63)


def _decode_bytes(body: bytes, position: int) -> tuple[bytes | None, int]:
    """A length and as many bytes; -1 is null. It raises as `_decode_body` does."""
    size = body[position]
    if size < 0x80:
        position += 1
    else:
        size, position = decode_unsigned_varint(body, position)
    if size & 1:
        if size == 1:
            return None, position
        raise ValueError(f"length {-(size >> 1) - 1}")
    end = position + (size >> 1)
    return body[position:end], end


def _decode_headers(body: bytes, position: int) -> tuple[Headers, int]:
    count, position = decode_varint(body, position)
    if not 0 <= count <= (len(body) - position) // 2:  # a header takes two bytes at least
        raise ValueError(f"{count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _decode_bytes(body, position)
        if name is None:
            raise ValueError("a header without a key")
        content, position = _decode_bytes(body, position)
        headers.append((name.decode(errors="replace"), content))  # as Kafka's Java client: no record stops a consumer
    return tuple(headers), position


# --- Records that are found and not copied: for a cleaner, which takes some of them out (K-87) ---


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


def records_without_key(
    buf: Buffer, header: BatchHeader, *, most: int, max_bytes: int = DEFAULT_LIMIT
) -> Sequence[int]:
    """Which records of a batch are without a key, the first `most` of them. Nothing else is kept on the way.

    Raises `CorruptBatch` and `CodecUnavailable` as `decode_records` does; behind the key nothing is looked into.
    """
    body = read_body(buf, header, 0, max_bytes=max_bytes)
    position = 0
    found: list[int] = []
    try:
        for place in range(header.record_count):
            size, position = decode_varint(body, position)
            end = position + size
            _, position = decode_unsigned_varint(body, position + 1, 10)
            delta, position = decode_varint(body, position)
            if delta != place or not position < end <= len(body):
                raise CorruptBatch(f"record {place} has offset delta {delta} and ends at byte {end}", 0)
            if body[position] == NULL and len(found) < most:
                found.append(place)
            position = end
    except IndexError:
        raise CorruptBatch(f"the bytes end before {header.record_count} records", 0) from None
    except CorruptBatch:
        raise
    except ValueError as fault:
        raise CorruptBatch(str(fault), 0) from None
    if position != len(body):
        raise CorruptBatch(f"{len(body) - position} bytes behind the last of {header.record_count} records", 0)
    return found


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
