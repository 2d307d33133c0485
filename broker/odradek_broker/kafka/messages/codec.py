"""Reads and writes messages as their definitions in `schemas.py` say, at every version.

A definition is compiled at its first use, for one version, into functions that read or write each field. A message is
a dictionary: what is read has every field of that version, and what is written takes the defaults for fields that it
does not name. So the code that translates an API does not compare versions. Produce and Fetch, where a record batch
must not be copied, are written by hand in `produce_codec.py` and `fetch_codec.py`.

    name type [versions] [?[versions]] [@tag] [=default]

A type is a primitive, `[primitive]`, `[]` for an array of structures, or `{}` for one structure, whose fields follow
with a deeper indentation. `?` is where null is allowed, `@` makes a tagged field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from odradek_proto.values import Value

from odradek_broker.kafka.messages.primitives import NO_UUID, Malformed, MessageReader, MessageWriter
from odradek_broker.kafka.messages.schemas import DEFINITIONS

Message = dict[str, Any]
Read = Callable[[MessageReader], Any]
Write = Callable[[MessageWriter, Any], None]
REQUEST, RESPONSE = "request", "response"

_ZERO: dict[str, Any] = {"bool": False, "string": "", "bytes": b"", "uuid": NO_UUID, "float64": 0.0}


class VersionRange(Value, frozen=True):
    """From and to, both included."""

    first: int = 0
    last: int = 1 << 15

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


NEVER = VersionRange(1, 0)


class Field(Value, frozen=True):
    """One field of a message's definition."""

    name: str
    kind: str
    versions: VersionRange
    nullable: VersionRange
    tag: int | None
    default: Any
    inside: tuple[Field, ...] = ()


class Definition(Value, frozen=True):
    """One API."""

    key: int
    name: str
    versions: VersionRange
    flexible_from: int
    messages: Mapping[str, tuple[Field, ...]]


@cache
def definition(key: int) -> Definition:
    """The definition of an API, by its key."""
    head, _, body = DEFINITIONS[key].strip().partition("\n")
    name, versions, _flexible, flexible_from = head.split()
    lines = [((len(line) - len(line.lstrip())) // 2, line.split()) for line in body.splitlines()]
    messages = {words[0]: _fields(lines, number + 1, 1) for number, (depth, words) in enumerate(lines) if depth == 0}
    known = _versions(versions)
    return Definition(key, name, known, known.last + 1 if flexible_from == "none" else int(flexible_from), messages)


def _fields(lines: Sequence[tuple[int, list[str]]], start: int, depth: int) -> tuple[Field, ...]:
    found: list[Field] = []
    for number in range(start, len(lines)):
        if lines[number][0] < depth:
            break
        if lines[number][0] == depth:
            found.append(_field(lines[number][1], lambda below=number + 1: _fields(lines, below, depth + 1)))  # type: ignore[misc]
    return tuple(found)


def _field(words: list[str], below: Callable[[], tuple[Field, ...]]) -> Field:
    name, kind = words[:2]
    versions, nullable, tag, default = VersionRange(), NEVER, None, [] if kind[0] == "[" else _ZERO.get(kind, 0)
    for word in words[2:]:
        if word[0] == "?":
            nullable = _versions(word[1:]) if word[1:] else VersionRange()
        elif word[0] == "@":
            tag = int(word[1:])
        elif word[0] == "=":
            default = {"null": None, "true": True}.get(word[1:]) if word[1].isalpha() else int(word[1:])
        else:
            versions = _versions(word)
    return Field(name, kind, versions, nullable, tag, default, below() if kind in ("[]", "{}") else ())


def _versions(text: str) -> VersionRange:
    if text.endswith("+"):
        return VersionRange(int(text[:-1]))
    first, _, last = text.partition("-")
    return VersionRange(int(first), int(last or first))


# --- Reading ---------------------------------------------------------------------------------------------------------


@cache
def reader_of(key: int, message: str, version: int) -> Callable[[MessageReader], Message]:
    """Reads the body of a request or response of this version. Raises one of `MALFORMED`."""
    api = definition(key)
    return _structure_reader(api.messages[message], version, version >= api.flexible_from)


def _structure_reader(fields: Sequence[Field], version: int, flexible: bool) -> Callable[[MessageReader], Message]:
    here = [field for field in fields if version in field.versions]
    plain = [(field.name, _reader(field, version, flexible)) for field in here if field.tag is None]
    tagged = {field.tag: (field.name, _reader(field, version, flexible)) for field in here if field.tag is not None}
    defaults = {field.name: field.default for field in here if field.tag is not None}

    def read(reader: MessageReader) -> Message:
        found: Message = {name: read_one(reader) for name, read_one in plain}
        if flexible:
            if defaults:
                found.update(defaults)
                for tag, inside in reader.tags().items():
                    if tag in tagged:
                        name, read_one = tagged[tag]
                        found[name] = read_one(inside)
            else:
                reader.skip_tags()
        return found

    return read


def _reader(field: Field, version: int, flexible: bool) -> Read:
    kind, nullable = field.kind, version in field.nullable
    if kind == "{}":
        inside = _structure_reader(field.inside, version, flexible)
        return (lambda reader: None if reader.int8() < 0 else inside(reader)) if nullable else inside
    if kind[0] != "[":
        return _primitive_reader(kind, flexible, nullable)
    read_one: Read = (
        _structure_reader(field.inside, version, flexible)
        if field.inside
        else _primitive_reader(kind[1:-1], flexible, nullable=False)
    )

    def read(reader: MessageReader) -> list[Any] | None:
        count = reader.count(flexible=flexible)
        if count == -1 and not nullable:
            raise Malformed(f"null for {field.name}, which must be there")
        return None if count == -1 else [read_one(reader) for _ in range(count)]

    return read


def _primitive_reader(kind: str, flexible: bool, nullable: bool) -> Read:
    if kind == "string":
        return partial(MessageReader.string_or_none if nullable else MessageReader.string, flexible=flexible)
    if kind == "bytes":
        return partial(_read_bytes, flexible)
    method: Read = getattr(MessageReader, "boolean" if kind == "bool" else kind)
    return method


def _read_bytes(flexible: bool, reader: MessageReader) -> bytes:
    found = reader.bytes_or_none(flexible=flexible)
    if found is None:
        raise Malformed("null for bytes that must be there")
    return bytes(found)


# --- Writing ---------------------------------------------------------------------------------------------------------


@cache
def writer_of(key: int, message: str, version: int) -> Callable[[MessageWriter, Mapping[str, Any]], None]:
    """Writes the body of a request or response of this version."""
    api = definition(key)
    return _structure_writer(api.messages[message], version, version >= api.flexible_from)


def _structure_writer(
    fields: Sequence[Field], version: int, flexible: bool
) -> Callable[[MessageWriter, Mapping[str, Any]], None]:
    here = [field for field in fields if version in field.versions]
    plain = [(field.name, field.default, _writer(field, version, flexible)) for field in here if field.tag is None]
    tagged = [(field, _writer(field, version, flexible)) for field in here if field.tag is not None]

    def write(writer: MessageWriter, message: Mapping[str, Any]) -> None:
        get = message.get
        for name, default, write_one in plain:
            write_one(writer, get(name, default))
        if not flexible:
            return
        said = [(field, write_one) for field, write_one in tagged if get(field.name, field.default) != field.default]
        writer.uvarint(len(said))
        for field, write_one in said:
            assert field.tag is not None
            inside = MessageWriter()
            write_one(inside, message[field.name])
            writer.tag(field.tag, inside)

    return write


def _writer(field: Field, version: int, flexible: bool) -> Write:
    kind, nullable = field.kind, version in field.nullable
    if kind == "{}":
        inside = _structure_writer(field.inside, version, flexible)

        def write_structure(writer: MessageWriter, value: Any) -> None:
            if nullable:
                writer.int8(-1 if value is None else 1)
            if value is not None:
                inside(writer, value)

        return write_structure
    if kind[0] != "[":
        return _primitive_writer(kind, flexible)
    write_one: Write = (
        _structure_writer(field.inside, version, flexible) if field.inside else _primitive_writer(kind[1:-1], flexible)
    )

    def write(writer: MessageWriter, values: Sequence[Any] | None) -> None:
        writer.count(-1 if values is None else len(values), flexible=flexible)
        for value in values or ():
            write_one(writer, value)

    return write


def _primitive_writer(kind: str, flexible: bool) -> Write:
    if kind == "string":
        return partial(_write_string, flexible)
    if kind == "bytes":
        return lambda writer, value: writer.large((value,), flexible=flexible)
    method: Write = getattr(MessageWriter, "boolean" if kind == "bool" else kind)
    return method


def _write_string(flexible: bool, writer: MessageWriter, value: str | None) -> None:
    writer.string(value, flexible=flexible)
