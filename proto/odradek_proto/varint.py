"""The variable-length integers of record batches: zigzag, seven bits to a byte, lowest first, then a bit for "more".

Rules of this module. Lengths, counts and offset deltas are 32-bit and take at most 5 bytes, timestamp deltas are
64-bit and take at most 10. A longer one is corrupt: a reader that goes on would take any garbage for a number. Small
numbers, which nearly all are, come from a table.
"""

from typing import Final

TABLE_SIZE: Final = 8192  # every number from 0 that takes one or two bytes


def encode_varint(value: int) -> bytes:
    """The bytes of a signed number of up to 64 bits (Kafka's varint and varlong differ in their range only)."""
    rest = (value << 1) ^ (value >> 63)
    if rest < 0 or rest >> 64:
        raise ValueError(f"{value} does not fit into 64 bits")
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def encode_unsigned_varint(value: int) -> bytes:
    """The bytes of a number from 0 without zigzag, as the flexible versions of Kafka's messages have it."""
    if value < 0:
        raise ValueError(f"{value} is negative")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _build_table() -> list[bytes]:
    one_byte = [bytes((zigzag,)) for zigzag in range(0, 128, 2)]
    two_bytes = [bytes((zigzag & 0x7F | 0x80, zigzag >> 7)) for zigzag in range(128, 2 * TABLE_SIZE, 2)]
    return one_byte + two_bytes


VARINTS: Final[list[bytes]] = _build_table()
"""`VARINTS[n]` is `encode_varint(n)` for 0 <= n < TABLE_SIZE. Negative indexes would answer wrongly: compare first."""


def decode_varint(data: bytes, position: int, max_bytes: int = 5) -> tuple[int, int]:
    """The signed number at `position` and the position behind it.

    `max_bytes` is 5 for 32 bits and 10 for 64. Raises `IndexError` where the bytes end too early and `ValueError` for
    a number that is longer, or larger, than its type: the caller knows what it was reading and says so.
    """
    raw, position = decode_unsigned_varint(data, position, max_bytes)
    return (raw >> 1) ^ -(raw & 1), position


def decode_unsigned_varint(data: bytes, position: int, max_bytes: int = 5) -> tuple[int, int]:
    """The number from 0 at `position`, without zigzag, and the position behind it. Errors as `decode_varint`."""
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    second = data[position + 1]
    if second < 0x80:
        return byte & 0x7F | second << 7, position + 2
    raw, shift = byte & 0x7F | (second & 0x7F) << 7, 14
    for index in range(position + 2, position + max_bytes):
        byte = data[index]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> (64 if max_bytes > 5 else 32):
                raise ValueError(f"a number at byte {position} is too large for its type")
            return raw, index + 1
        shift += 7
    raise ValueError(f"a number at byte {position} takes more than {max_bytes} bytes")
