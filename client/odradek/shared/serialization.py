"""From what users give to bytes: keys, values, headers, timestamps.

Without a serializer bytes stay bytes, text becomes UTF-8, and everything else is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any, Final, SupportsIndex

from odradek.shared.errors import SerializationError
from odradek.shared.results import Headers

EARLIEST_TIMESTAMP: Final = -1  # none
LATEST_TIMESTAMP: Final = (1 << 63) - 1  # what eight bytes can say
HeaderInput = Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None]


def serialize(value: Any, serializer: Callable[[Any], bytes | None] | None, what: str) -> bytes | None:
    """The bytes of a key or a value (`what` says which). Raises `SerializationError`."""
    if serializer is not None:
        try:
            value = serializer(value)
        except Exception as error:
            raise SerializationError(f"the serializer failed for a {what}: {error!r}") from error
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return _as_utf8(value, f"a {what}")
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise SerializationError(
        f"a {what} is {type(value).__name__}, not bytes or text", hint=f"give the producer a {what}_serializer"
    )


def deserialize(data: bytes | None, deserializer: Callable[[bytes | None], Any], what: str, where: str) -> Any:
    """What the deserializer makes of the bytes. Raises `SerializationError` that names the record."""
    try:
        return deserializer(data)
    except Exception as error:
        raise SerializationError(f"{where}: the deserializer failed for the {what}: {error!r}") from error


def as_headers(headers: HeaderInput) -> Headers:
    """Headers as the record wants them. Raises `SerializationError`."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    made: list[tuple[str, bytes | None]] = []
    for pair in pairs:
        name, content = pair
        if not isinstance(name, str):
            raise SerializationError(f"the name of a header is {type(name).__name__}, not text")
        _as_utf8(name, "the name of a header")
        made.append((name, serialize(content, None, "header")))
    return tuple(made)


def as_timestamp(timestamp: SupportsIndex) -> int:
    """A record's timestamp in milliseconds since 1970, -1 for none. Raises `SerializationError`."""
    try:
        number = index(timestamp)
    except TypeError:
        raise SerializationError(
            f"timestamp {timestamp!r} is not a whole number", hint="milliseconds since 1970, as an int"
        ) from None
    if not EARLIEST_TIMESTAMP <= number <= LATEST_TIMESTAMP:
        raise SerializationError(f"timestamp {number} is not between -1 and 2^63 - 1")
    return number


def _as_utf8(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise SerializationError(f"{what} is text that has no UTF-8: {error}") from None
