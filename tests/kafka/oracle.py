"""kio, which is generated from Kafka's own message definitions: what our codecs are compared with."""

from __future__ import annotations

import dataclasses
import io
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer


def schema(key: int, what: str, version: int) -> Any:
    """kio's class of a message."""
    return (load_request_schema if what == "request" else load_response_schema)(key, version)


def read(key: int, what: str, version: int, body: bytes) -> Any:
    """The message that kio finds in these bytes, and in all of them."""
    message, size = entity_reader(schema(key, what, version))(body, 0)
    assert size == len(body), f"kio read {size} of {len(body)} bytes"
    return message


def write(key: int, what: str, version: int, message: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(schema(key, what, version))(out, message)
    return out.getvalue()


def header_size(key: int, what: str, version: int, frame: bytes) -> int:
    """How many bytes the header of a frame has."""
    _, size = entity_reader(schema(key, what, version).__header_schema__)(frame, 0)
    return int(size)


def is_flexible(key: int, version: int) -> bool:
    return bool(schema(key, "request", version).__flexible__)


@cache
def inside(cls: Any, field: str) -> Any:
    """The class of a structure, or of the elements of an array, in a message of kio."""
    found = typing.get_type_hints(cls).get(field)
    arguments = [each for each in typing.get_args(found) if dataclasses.is_dataclass(each)]
    return arguments[0] if arguments else found


Makers = Mapping[str, Callable[[], Any] | None]


def instance(cls: Any, known: Makers, count: Callable[[], int], otherwise: Callable[[], Any] = lambda: 0) -> Any:
    """One of kio's classes: arrays of structures have `count` elements, what is not `known` its default or a number.

    None for what is known leaves the default, and an array empty.
    """
    values: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        element = inside(cls, field.name)
        if dataclasses.is_dataclass(element) and str(field.type).startswith("tuple"):
            elements = 0 if known.get(field.name, count) is None else count()
            values[field.name] = tuple(instance(element, known, count, otherwise) for _ in range(elements))
        elif field.name in known:
            if (make := known[field.name]) is not None:
                values[field.name] = make()
        elif dataclasses.is_dataclass(element):
            values[field.name] = instance(element, known, count, otherwise)
        elif field.default is dataclasses.MISSING:
            values[field.name] = otherwise()
    return cls(**values)
