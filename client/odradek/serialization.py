"""From what users give to bytes: keys, values, headers.

Without a serializer bytes stay bytes, text becomes UTF-8, and everything else is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from odradek.errors import SerializationError
from odradek.results import Headers

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
        return value.encode()
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
        made.append((name, serialize(content, None, "header")))
    return tuple(made)
