"""Kafka's primitive types on the wire: what every message is made of.

There are two encodings of everything. In the old one a string has an int16 before it and an array an int32, -1 for
null. In the flexible one (KIP-482) both have an unsigned varint of their length plus one, 0 for null, and every
structure ends with tagged fields, of which a reader skips those that it does not know.

A reader never goes beyond its frame, and no array may claim more elements than there are bytes left; all arrays of a
request together have at most `MAX_ELEMENTS`, so that a frame does not become many times its size in memory.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from odradek_proto.transport.ports import Buffer
from odradek_proto.varint import encode_unsigned_varint

MAX_ELEMENTS = 100_000  # of all arrays of one request; as many partitions as a fetch session may name
JOINED_BYTES = 64 * 1024  # buffers larger than this are never copied into another one
NO_UUID = bytes(16)

_INT8, _INT16, _INT32, _INT64 = (struct.Struct(layout) for layout in (">b", ">h", ">i", ">q"))
_UINT16, _FLOAT64 = struct.Struct(">H"), struct.Struct(">d")


class Malformed(ValueError):
    """These bytes are no request. A malformed request closes the connection."""


MALFORMED = (Malformed, struct.error, IndexError, UnicodeDecodeError)  # what reading a frame may raise


class MessageReader:
    """Reads one frame from front to back. Raises one of `MALFORMED` at what is not there."""

    __slots__ = ("_left", "buffer", "end", "position")

    def __init__(self, buffer: memoryview, position: int = 0) -> None:
        self.buffer = buffer
        self.position = position
        self.end = len(buffer)
        self._left = MAX_ELEMENTS

    def take(self, size: int) -> memoryview:
        """The next `size` bytes, not copied."""
        start = self.position
        end = start + size
        if size < 0 or end > self.end:
            raise Malformed(f"{size} bytes wanted at {start}, the frame has {self.end}")
        self.position = end
        return self.buffer[start:end]

    def boolean(self) -> bool:
        return self.int8() != 0

    def int8(self) -> int:
        (value,) = _INT8.unpack_from(self.buffer, self.position)
        self.position += 1
        return int(value)

    def int16(self) -> int:
        (value,) = _INT16.unpack_from(self.buffer, self.position)
        self.position += 2
        return int(value)

    def uint16(self) -> int:
        (value,) = _UINT16.unpack_from(self.buffer, self.position)
        self.position += 2
        return int(value)

    def int32(self) -> int:
        (value,) = _INT32.unpack_from(self.buffer, self.position)
        self.position += 4
        return int(value)

    def int64(self) -> int:
        (value,) = _INT64.unpack_from(self.buffer, self.position)
        self.position += 8
        return int(value)

    def float64(self) -> float:
        (value,) = _FLOAT64.unpack_from(self.buffer, self.position)
        self.position += 8
        return float(value)

    def uuid(self) -> bytes:
        return bytes(self.take(16))

    def uvarint(self) -> int:
        """At most five bytes."""
        buffer, position = self.buffer, self.position
        value = buffer[position]
        position += 1
        if value >= 128:
            value &= 127
            shift = 7
            while True:
                byte = buffer[position]
                position += 1
                value |= (byte & 127) << shift
                if byte < 128:
                    break
                shift += 7
                if shift > 28:
                    raise Malformed("a varint of more than five bytes")
        self.position = position
        return value

    # --- Lengths: -1 for null --------------------------------------------------------------------------------------

    def string_or_none(self, *, flexible: bool) -> str | None:
        size = self.uvarint() - 1 if flexible else self.int16()
        if size == -1:
            return None
        if size > 32_767:
            raise Malformed(f"a string of {size} bytes")
        return str(self.take(size), "utf-8")

    def string(self, *, flexible: bool) -> str:
        value = self.string_or_none(flexible=flexible)
        if value is None:
            raise Malformed("null for a string that must be there")
        return value

    def bytes_or_none(self, *, flexible: bool) -> memoryview | None:
        size = self.uvarint() - 1 if flexible else self.int32()
        return None if size == -1 else self.take(size)

    def count(self, *, flexible: bool) -> int:
        """How many elements follow, -1 for null."""
        count = self.uvarint() - 1 if flexible else self.int32()
        self._left -= count
        if count < -1 or count > self.end - self.position or self._left < 0:
            raise Malformed(f"an array of {count} elements in the {self.end - self.position} bytes that are left")
        return count

    def tags(self) -> dict[int, MessageReader]:
        """The tagged fields that end a structure, each with a reader of its own."""
        found: dict[int, MessageReader] = {}
        for _ in range(self._tag_count()):
            tag = self.uvarint()
            inside = MessageReader(self.take(self.uvarint()))
            inside._left = self._left
            found[tag] = inside
        return found

    def skip_tags(self) -> None:
        for _ in range(self._tag_count()):
            self.uvarint()
            self.take(self.uvarint())

    def _tag_count(self) -> int:
        count = self.uvarint()
        if count > self.end - self.position:
            raise Malformed(f"{count} tagged fields in {self.end - self.position} bytes")
        return count


class MessageWriter:
    """Writes one message. Record batches are kept as the buffers that they are; everything else is copied."""

    __slots__ = ("_done", "_done_size", "out")

    def __init__(self) -> None:
        self.out = bytearray()
        self._done: list[Buffer] = []
        self._done_size = 0

    @property
    def size(self) -> int:
        return self._done_size + len(self.out)

    def buffers(self) -> list[Buffer]:
        """Everything that was written, in order."""
        return [*self._done, self.out] if self.out else self._done

    def boolean(self, value: bool) -> None:
        self.out.append(1 if value else 0)

    def int8(self, value: int) -> None:
        self.out += _INT8.pack(value)

    def int16(self, value: int) -> None:
        self.out += _INT16.pack(value)

    def uint16(self, value: int) -> None:
        self.out += _UINT16.pack(value)

    def int32(self, value: int) -> None:
        self.out += _INT32.pack(value)

    def int64(self, value: int) -> None:
        self.out += _INT64.pack(value)

    def float64(self, value: float) -> None:
        self.out += _FLOAT64.pack(value)

    def uuid(self, value: bytes) -> None:
        self.out += value or NO_UUID

    def uvarint(self, value: int) -> None:
        if value < 128:
            self.out.append(value)
        else:
            self.out += encode_unsigned_varint(value)

    def string(self, value: str | None, *, flexible: bool) -> None:
        encoded = None if value is None else value.encode()
        if flexible:
            self.uvarint(0 if encoded is None else len(encoded) + 1)
        else:
            self.int16(-1 if encoded is None else len(encoded))
        if encoded:
            self.out += encoded

    def count(self, value: int, *, flexible: bool) -> None:
        """The number of elements that follow, -1 for null."""
        if flexible:
            self.uvarint(value + 1)
        else:
            self.int32(value)

    def large(self, buffers: Sequence[Buffer], *, flexible: bool) -> None:
        """Bytes with their length before them; large ones are not copied."""
        size = sum([len(buffer) for buffer in buffers])
        self.count(size, flexible=flexible)
        if size <= JOINED_BYTES:
            for buffer in buffers:
                self.out += buffer
            return
        self._done.append(self.out)
        self._done += buffers
        self._done_size += len(self.out) + size
        self.out = bytearray()

    def tag(self, tag: int, inside: MessageWriter) -> None:
        """One tagged field; the number of them was written before."""
        self.uvarint(tag)
        self.uvarint(len(inside.out))
        self.out += inside.out
