"""Protobuf messages as values: what `odradek_proto.v1.*_messages` hold, and their encoding.

`make proto` writes a class for each message of those .proto files, with its name and its fields. Decisions are made on
these: they are plain values, which never change and compare by what they hold. Google's library does the encoding.

A repeated field is a tuple when it was decoded, a map a dict, and an optional field that is absent None.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import Any, Protocol, Self

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Encoded

from odradek_proto.values import Value

__all__ = ["DecodeError", "Message", "Request", "Response"]


MOST_ELEMENTS = 100_000  # of a repeated field: an empty one takes two bytes, and becomes an object


class Request(Protocol):
    """A value, or a message of Google's library."""

    def SerializeToString(self) -> bytes: ...


class Response(Protocol):
    @classmethod
    def FromString(cls, data: bytes, /) -> Self: ...


class Message(Value, frozen=True):
    """Base of the generated values."""

    def SerializeToString(self) -> bytes:
        """The same bytes for equal values."""
        message = _codec(type(self)).message()
        _fill(self, message)
        return message.SerializeToString(deterministic=True)

    @classmethod
    def FromString(cls, data: bytes, /) -> Self:
        """Raises `DecodeError`. Fields that this version does not know are ignored."""
        value: Self = _read(cls, _codec(cls).message.FromString(data))
        return value


class _Codec:
    """How the fields of one class are filled in and read."""

    def __init__(self, value: type[Message]) -> None:
        module = import_module(value.__module__.removesuffix("_messages") + "_pb2")
        self.message: type[Encoded] = getattr(module, value.__name__)
        self.fields = [_Field(field, import_module(value.__module__)) for field in self.message.DESCRIPTOR.fields]
        names = [field.name for field in self.fields]
        assert names == list(value.__struct_fields__), f"{value.__name__} is not as its .proto file says: make proto"
        self.all_of: Callable[[Any], tuple[Any, ...]] = _getter(names)
        self.converted = [(place, field) for place, field in enumerate(self.fields) if not field.is_plain]
        kinds = [each.name for each in self.message.DESCRIPTOR.oneofs if len(each.fields) == len(names) > 1]
        self.kind = kinds[0] if kinds else ""  # of a message that holds one of several others
        self.reads = {field.name: field.read for field in self.fields}


class _Field:
    __slots__ = ("fill", "is_plain", "name", "optional", "read")

    def __init__(self, field: FieldDescriptor, values: Any) -> None:
        self.name = field.name
        self.optional = field.has_presence
        self.is_plain = not (field.has_presence or field.is_repeated)  # its value is the message's, without a look
        kind = field.message_type
        # Entries of maps alone have options. To read these would load the descriptors' own messages, which takes 25 ms.
        is_map = kind is not None and kind.has_options
        nested = getattr(values, kind.name) if kind is not None and not is_map else None
        self.read: Callable[[Any], Any]
        self.fill: Callable[[Any, Any], None]
        if is_map:
            self.read, self.fill = dict, lambda target, given: target.update(given)
        elif field.is_repeated and nested is not None:
            self.read = lambda found: tuple([_read(nested, each) for each in _bounded(found)])
            self.fill = _add_each
        elif field.is_repeated:
            self.read, self.fill = tuple, lambda target, given: target.extend(given)
        elif nested is not None:
            self.read, self.fill = lambda found: _read(nested, found), lambda target, given: _fill(given, target)
        else:
            self.read, self.fill = lambda found: found, _no_container


_codec = cache(_Codec)


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """These attributes of an object, in C where there are several."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda of: tuple([getattr(of, name) for name in names])


def _fill(value: Message, message: Encoded) -> None:
    codec = _codec(type(value))
    for field, given in zip(codec.fields, codec.all_of(value), strict=True):
        if given is None or not (given or field.optional):  # absent, or what an absent field is read as
            continue
        if field.fill is _no_container:
            setattr(message, field.name, given)
        else:
            target = getattr(message, field.name)
            if field.optional:
                target.SetInParent()
            field.fill(target, given)


def _read(value: type[Message], message: Encoded) -> Any:
    """From the class's own message."""
    codec = _codec(value)
    if codec.kind:
        name = message.WhichOneof(codec.kind)
        return value() if name is None else value(**{name: codec.reads[name](getattr(message, name))})
    found = codec.all_of(message)
    if codec.converted:
        values = list(found)
        for place, field in codec.converted:
            absent = field.optional and not message.HasField(field.name)
            values[place] = None if absent else field.read(values[place])
        found = tuple(values)
    return value(*found)


def _bounded(found: Any) -> Any:
    if len(found) > MOST_ELEMENTS:
        raise DecodeError(f"{len(found)} elements: at most {MOST_ELEMENTS}")
    return found


def _add_each(target: Any, given: Any) -> None:
    for each in given:
        _fill(each, target.add())


def _no_container(target: Any, given: Any) -> None:
    raise AssertionError("a field of its own, which is set")
