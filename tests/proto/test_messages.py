"""The generated values are the messages of their .proto files, field by field, and their bytes are protobuf's."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from odradek_proto.messages import DecodeError, Message
from odradek_proto.v1 import admin_messages, controller_messages, metadata_messages

MODULES = (admin_messages, controller_messages, metadata_messages)
VALUES = [
    value
    for module in MODULES
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, Message) and value is not Message
]
SAMPLES = {int: 7, float: 7.5, str: "seven", bytes: b"7" * 16, bool: True}


def pb(value: type[Message]) -> Any:
    return getattr(import_module(value.__module__.replace("_messages", "_pb2")), value.__name__)


def filled(value: type[Message]) -> Message:
    """An instance with something in every field."""
    fields: dict[str, Any] = {}
    for field in pb(value).DESCRIPTOR.fields:
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            fields[field.name] = {"key": "value"}
            continue
        if kind is not None:
            sample: Any = filled(getattr(import_module(value.__module__), kind.name))
        else:
            sample = SAMPLES[type(getattr(pb(value)(), field.name)) if not field.is_repeated else int]
            if field.is_repeated and field.cpp_type == field.CPPTYPE_STRING:
                sample = "seven"
        fields[field.name] = (sample, sample) if field.is_repeated else sample
    return value(**fields)


@pytest.mark.parametrize("value", [each for each in VALUES if each.__name__ != "MetadataRecord"])
def test_a_value_is_encoded_as_its_message(value: type[Message]) -> None:
    """Everything that it holds comes back, and Google's library finds the same bytes in it."""
    sample = filled(value)
    data = sample.SerializeToString()
    assert value.FromString(data) == sample
    assert pb(value).FromString(data).SerializeToString(deterministic=True) == data
    assert value.FromString(value().SerializeToString()) == value()


def test_an_absent_field_is_told_from_an_empty_one() -> None:
    change = metadata_messages.PartitionChangeRecord(leader=0)
    assert metadata_messages.PartitionChangeRecord.FromString(change.SerializeToString()).leader == 0
    assert metadata_messages.PartitionChangeRecord.FromString(b"").leader is None
    record = metadata_messages.MetadataRecord(no_op=metadata_messages.NoOpRecord())
    assert metadata_messages.MetadataRecord.FromString(record.SerializeToString()) == record


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(DecodeError):
        admin_messages.CreateTopicsRequest.FromString(b"\xff\xff")
