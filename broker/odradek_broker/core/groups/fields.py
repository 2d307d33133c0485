"""How Kafka writes the fields of a record: the encoding of its coordinators' keys and values.

    old       int16 length before a string, int32 before bytes and arrays, big-endian; -1: null
    flexible  an unsigned varint of length + 1 before each of them, 0: null; tagged fields behind a struct (KIP-482)

Whatever cannot be read raises ValueError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

from odradek_proto.varint import decode_unsigned_varint, encode_unsigned_varint

_INT16, _INT32, _INT64 = (struct.Struct(layout) for layout in (">h", ">i", ">q"))
LONGEST_OLD_STRING = 32_767
_T = TypeVar("_T")

NO_TAGS = b"\0"


def int16(value: int) -> bytes:
    return _INT16.pack(value)


def int32(value: int) -> bytes:
    return _INT32.pack(value)


def int64(value: int) -> bytes:
    return _INT64.pack(value)


def old_string(text: str | None) -> bytes:
    if text is None:
        return int16(-1)
    encoded = text.encode()
    if len(encoded) > LONGEST_OLD_STRING:
        raise ValueError(f"a string of {len(encoded)} bytes in a record; at most {LONGEST_OLD_STRING}")
    return int16(len(encoded)) + encoded


def old_bytes(content: bytes) -> bytes:
    return int32(len(content)) + content


def string(text: str) -> bytes:
    encoded = text.encode()
    return encode_unsigned_varint(len(encoded) + 1) + encoded


def tag_zero(content: bytes | None) -> bytes:
    """The tagged fields of a struct that has at most the one of tag 0."""
    return NO_TAGS if content is None else b"\1\0" + encode_unsigned_varint(len(content)) + content


class FieldReader:
    """Takes the fields of a record from its front. `flexible` decides how strings, bytes and arrays are read."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self.flexible = False

    def take(self, size: int) -> bytes:
        start = self._position
        self._position += size
        if size < 0 or self._position > len(self._data):
            raise ValueError(f"{size} bytes wanted at {start}, the record has {len(self._data)}")
        return self._data[start : self._position]

    def number(self, layout: struct.Struct) -> int:
        (value,) = layout.unpack(self.take(layout.size))
        return int(value)

    def int16(self) -> int:
        return self.number(_INT16)

    def int32(self) -> int:
        return self.number(_INT32)

    def int64(self) -> int:
        return self.number(_INT64)

    def varint(self) -> int:
        try:
            value, self._position = decode_unsigned_varint(self._data, self._position)
        except IndexError:
            raise ValueError(f"the record of {len(self._data)} bytes ends in a varint") from None
        return value

    def nullable_string(self) -> str | None:
        size = self.varint() - 1 if self.flexible else self.int16()
        return None if size == -1 else self.take(size).decode()

    def string(self) -> str:
        if (text := self.nullable_string()) is None:
            raise ValueError(f"a string is missing before {self._position}")
        return text

    def opaque(self) -> bytes:
        return self.take(self.varint() - 1 if self.flexible else self.int32())

    def array(self, read: Callable[[], _T]) -> tuple[_T, ...]:
        count = self.varint() - 1 if self.flexible else self.int32()
        if not 0 <= count <= len(self._data) - self._position:
            raise ValueError(
                f"an array of {count} elements at {self._position}, the record has {len(self._data)} bytes"
            )
        return tuple(read() for _ in range(count))

    def tag_zero(self) -> bytes | None:
        """The bytes of tag 0; other tagged fields are skipped: they are of later versions."""
        if not self.flexible:
            return None
        found = None
        for _ in range(self.varint()):
            tag, content = self.varint(), self.take(self.varint())
            if tag == 0:
                found = content
        return found
