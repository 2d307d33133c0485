"""kio, which is generated from Kafka's own message definitions: what our codecs are compared with; and random messages
of our definitions, of which a test says what their primitives are.
"""

from __future__ import annotations

import dataclasses
import io
import random
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from odradek_broker.kafka.messages.codec import Field


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


Primitive = Callable[[random.Random, Field, str], Any]  # of a field, or of an element of its array, of this type
Count = Callable[[random.Random, Field], int]  # of elements of an array


def structure(
    fields: Iterable[Field], version: int, rng: random.Random, primitive: Primitive, count: Count
) -> dict[str, Any]:
    """A message of one of our definitions, or a part of one; three of ten fields that may be null are."""

    def value(field: Field) -> Any:
        if version in field.nullable and rng.random() < 0.3:
            return None
        if field.kind == "{}":
            return structure(field.inside, version, rng, primitive, count)
        if field.kind[0] != "[":
            return primitive(rng, field, field.kind)
        if field.inside:
            return [structure(field.inside, version, rng, primitive, count) for _ in range(count(rng, field))]
        return [primitive(rng, field, field.kind[1:-1]) for _ in range(count(rng, field))]

    return {field.name: value(field) for field in fields if version in field.versions}


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
