"""Hot messages, written and sliced by hand.

A hot message is declared in protobuf as

    message X { XHeader header = 1; bytes batches = 2; }

so that reflection and other languages can speak it, but its payload must not pass through protobuf's copies. The
encoding of such a message is

    0x0A  varint(length of header)  header   0x12  varint(length of batches)  batches

`pack_frame` writes exactly that, in one join. `split_frame` accepts everything that a protobuf parser accepts as this
message: fields in any order, unknown fields, a repeated `batches` (the last one counts) and a repeated `header`
(occurrences are merged, and merging submessages is the same as parsing their concatenation).
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek_proto.transport.ports import Buffer
from odradek_proto.varint import encode_unsigned_varint

HEADER_TAG = 0x0A  # field 1, length-delimited
BATCHES_TAG = 0x12  # field 2, length-delimited
EMPTY = memoryview(b"")

MAX_TAG_BYTES = 5  # a tag is a 32-bit number
MAX_VARINT_BYTES = 10  # any other varint has 64 bits
MAX_GROUP_DEPTH = 100  # protobuf's own limit of nesting

VARINT, FIXED64, LENGTH_DELIMITED, START_GROUP, END_GROUP, FIXED32 = range(6)


class FrameError(ValueError):
    """The bytes are not an encoding of a hot message."""


def encode_varint(value: int) -> bytes:
    """Shortest protobuf encoding of a number from 0 on."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    return encode_unsigned_varint(value)


def pack_frame(header: bytes, parts: Sequence[Buffer]) -> bytes:
    """The encoding of a hot message with the serialised `header` and the concatenation of `parts` as its batches.

    No batches field is written for zero bytes, as protobuf does it.
    """
    length = 0
    for part in parts:
        length += part.nbytes if isinstance(part, memoryview) else len(part)
    if not length:
        return b"".join((b"\x0a", encode_varint(len(header)), header))
    return b"".join((b"\x0a", encode_varint(len(header)), header, b"\x12", encode_varint(length), *parts))


def split_frame(data: bytes) -> tuple[bytes, memoryview]:
    """The serialised header and a view of the batches in `data`; the view keeps `data` alive. Raises `FrameError`."""
    end = len(data)
    if end > 2 and data[0] == HEADER_TAG and data[1] < 0x80:  # as `pack_frame` writes it with a small header
        behind = 2 + data[1]
        if behind == end:
            return data[2:], EMPTY
        if behind < end and data[behind] == BATCHES_TAG:
            length, position = _read_varint(data, behind + 1, MAX_VARINT_BYTES)
            if position + length == end:
                return data[2:behind], memoryview(data)[position:]
    return _split_any(data)


def _split_any(data: bytes) -> tuple[bytes, memoryview]:
    """The same for every encoding that a protobuf parser accepts."""
    view = memoryview(data)
    headers: list[bytes] = []
    batches = EMPTY
    position = 0
    end = len(data)
    while position < end:
        tag, position = _read_varint(data, position, MAX_TAG_BYTES)
        if tag in (HEADER_TAG, BATCHES_TAG):
            length, position = _read_varint(data, position, MAX_VARINT_BYTES)
            if length > end - position:
                raise FrameError(f"field {tag >> 3} claims {length} bytes at {position}, {end - position} are left")
            if tag == HEADER_TAG:
                headers.append(data[position : position + length])
            else:
                batches = view[position : position + length]
            position += length
        else:
            position = _skip(data, tag, position, depth=0)
    return headers[0] if len(headers) == 1 else b"".join(headers), batches


def _read_varint(data: bytes, position: int, limit: int) -> tuple[int, int]:
    """The number at `position` and the position behind it."""
    if position < len(data) and data[position] < 0x80:
        return data[position], position + 1
    value = 0
    for index in range(limit):
        if position + index >= len(data):
            raise FrameError(f"truncated varint at {position}")
        byte = data[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if limit == MAX_TAG_BYTES and value >> 32:
                raise FrameError(f"tag of more than 32 bits at {position}")
            return value & 0xFFFF_FFFF_FFFF_FFFF, position + index + 1
    raise FrameError(f"varint of more than {limit} bytes at {position}")


def _skip(data: bytes, tag: int, position: int, depth: int) -> int:
    """The position behind the value of an unknown field; `position` is the one behind its tag."""
    field, wire_type = tag >> 3, tag & 7
    if field == 0:
        raise FrameError(f"field number 0 before {position}")
    if wire_type == VARINT:
        return _read_varint(data, position, MAX_VARINT_BYTES)[1]
    if wire_type == START_GROUP:
        return _skip_group(data, field, position, depth + 1)
    if wire_type == LENGTH_DELIMITED:
        length, position = _read_varint(data, position, MAX_VARINT_BYTES)
    elif wire_type == FIXED64:
        length = 8
    elif wire_type == FIXED32:
        length = 4
    else:
        raise FrameError(f"field {field} has wire type {wire_type} before {position}")
    if length > len(data) - position:
        raise FrameError(f"field {field} claims {length} bytes at {position}, {len(data) - position} are left")
    return position + length


def _skip_group(data: bytes, field: int, position: int, depth: int) -> int:
    if depth > MAX_GROUP_DEPTH:
        raise FrameError(f"groups nested deeper than {MAX_GROUP_DEPTH} at {position}")
    while True:
        tag, position = _read_varint(data, position, MAX_TAG_BYTES)
        if tag & 7 == END_GROUP:
            if tag >> 3 != field:
                raise FrameError(f"group {field} ended by {tag >> 3} before {position}")
            return position
        position = _skip(data, tag, position, depth)
